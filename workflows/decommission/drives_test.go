package decommission_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// A drive that the node's record does not name parks the job before anything is erased. An operator
// accepts it, and the retry names it to the agent.
func TestUnexpectedDrive_ParksUntilAccepted(t *testing.T) {
	t.Parallel()
	for _, mode := range []lifecycle.DecommissionMode{lifecycle.ModeSoftReset, lifecycle.ModeStorageCleanup, lifecycle.ModeDeprovision} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := setup(t, mode)
			b.site.facts.Drives = []spec.ExpectedDrive{{Serial: "S1"}}
			b.site.drives = func(named []spec.ExpectedDrive) error {
				if len(named) == 2 {
					return nil
				}
				return stagetest.Failure(lifecycle.FailDriveUnexpected)
			}
			p := b.parkedAt(time.Hour)
			b.After(2*time.Hour, func() { b.site.facts.Drives = append(b.site.facts.Drives, spec.ExpectedDrive{Serial: "NEW"}) })
			b.at(3*time.Hour, lifecycle.ActionRetryStage)
			require.Equal(t, lifecycle.JobCompleted, b.run())
			require.Equal(t, lifecycle.JobFailedManual, p.Status)
			require.Equal(t, lifecycle.FailDriveUnexpected, p.Failure.Class)
			require.Equal(t, []spec.ExpectedDrive{{Serial: "S1"}}, b.site.scrubs[0].ExpectedDrives)
			require.Equal(t, "NEW", b.site.scrubs[1].ExpectedDrives[1].Serial)
			if mode != lifecycle.ModeDeprovision {
				require.Equal(t, lifecycle.NodeQuarantined, p.node)
			}
		})
	}
}

// An agent that answers from another machine has its node quarantined, not left draining. A retry
// asks again, once the disks are back; what was erased before the validation is erased once more.
func TestOtherMachine_QuarantinesUntilDecided(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   lifecycle.DecommissionMode
		kind   lifecycle.TaskKind
		action lifecycle.Action
		status lifecycle.JobStatus
		node   lifecycle.NodeStatus
		scrubs int
	}{
		{lifecycle.ModeSoftReset, lifecycle.TaskKindScrub, lifecycle.ActionRetryStage, lifecycle.JobCompleted, lifecycle.NodeOffline, 3},
		{lifecycle.ModeSoftReset, lifecycle.TaskKindScrub, lifecycle.ActionCancel, lifecycle.JobCancelled, lifecycle.NodeQuarantined, 1},
		{lifecycle.ModeSoftReset, lifecycle.TaskKindValidate, lifecycle.ActionRetryStage, lifecycle.JobCompleted, lifecycle.NodeOffline, 4},
		{lifecycle.ModeSoftReset, lifecycle.TaskKindValidate, lifecycle.ActionCancel, lifecycle.JobCancelled, lifecycle.NodeQuarantined, 2},
		{lifecycle.ModeDeprovision, lifecycle.TaskKindScrub, lifecycle.ActionRetryStage, lifecycle.JobCompleted, lifecycle.NodeRetired, 2},
	} {
		t.Run(string(c.mode)+" "+string(c.kind)+" "+string(c.action), func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.mode)
			b.site.fail[string(c.kind)] = []error{stagetest.Failure(lifecycle.FailOtherMachine)}
			p := b.parkedAt(time.Hour)
			b.at(2*time.Hour, c.action)
			require.Equal(t, c.status, b.run())
			require.Equal(t, lifecycle.JobFailedManual, p.Status)
			require.Equal(t, lifecycle.FailOtherMachine, p.Failure.Class)
			require.Equal(t, c.node, b.site.facts.Status)
			require.Len(t, b.site.scrubs, c.scrubs)
			if c.mode != lifecycle.ModeDeprovision {
				require.Equal(t, lifecycle.NodeQuarantined, p.node)
			}
		})
	}
}

// A drive that shows up only when the node is looked at is erased before it is looked at again. A
// drive that is missing fails with a certificate that says so.
func TestDrivesDiffer_AtTheValidation(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.fail["node.validate"] = []error{stagetest.Failure(lifecycle.FailDriveUnexpected)}
	b.site.fail["gpu.scrub"] = []error{stagetest.Failure(lifecycle.FailDriveMissing)}
	p := b.parkedAt(30 * time.Minute)
	certified := 0
	b.After(30*time.Minute, func() { certified = b.site.certs })
	b.at(time.Hour, lifecycle.ActionRetryStage)
	b.at(3*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailDriveMissing, p.Failure.Class)
	require.Equal(t, 1, certified)
	require.Len(t, b.site.scrubs, 5, "the mounts twice, all once, and both once more after the validation")
}

// A drive that was protected when the job began stays protected, whoever takes the protection away
// meanwhile.
func TestProtectSerials_StayForTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.facts.ProtectSerials = []string{"KEEP1"}
	b.site.fail["node.drain"] = []error{stagetest.Failure(lifecycle.FailNodeTaskUncertain)}
	b.After(30*time.Minute, func() { b.site.facts.ProtectSerials = []string{"KEEP2"} })
	b.at(time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.NotEmpty(t, b.site.scrubs)
	for _, args := range b.site.scrubs {
		require.Equal(t, []string{"KEEP1", "KEEP2"}, args.ProtectSerials)
	}
}

// MAAS erases every disk of a machine that it releases, so that a node with protected drives is not
// released by it, and nothing else is begun.
func TestProtectSerials_RefuseMAASRelease(t *testing.T) {
	t.Parallel()
	for _, mode := range []lifecycle.DecommissionMode{lifecycle.ModeFull, lifecycle.ModeReimage} {
		b := setup(t, mode)
		b.site.facts.ProtectSerials = []string{"KEEP1"}
		p := b.parkedAt(30 * time.Minute)
		b.at(time.Hour, lifecycle.ActionCancel)
		require.Equal(t, lifecycle.JobCancelled, b.run())
		require.Equal(t, lifecycle.StageDisableNode, p.Failure.Stage)
		require.Equal(t, lifecycle.FailConfiguration, p.Failure.Class)
		require.Contains(t, p.Failure.Message, "KEEP1")
		require.Equal(t, "config", b.calls())

		l := inService()
		l.known.Facts.ProtectSerials = []string{"KEEP1"}
		require.Equal(t, lifecycle.FailConfiguration, stagetest.Row(t, plan(t, l, mode, nil), lifecycle.StageDisableNode).Failure.Class)
	}
}

// The plan of a job that erases shows the drives; where nothing names any, the job would park.
func TestPlan_ShowsDrives(t *testing.T) {
	t.Parallel()
	l := inService()
	l.known.Facts.ProtectSerials = []string{"s1"}
	p := plan(t, l, lifecycle.ModeSoftReset, nil)
	require.Equal(t, []contract.PlanDrive{{Serial: "S0"}, {Serial: "S1", Bytes: 512, Protected: true}}, p.Drives)
	require.Equal(t, "maas_commissioning", p.DrivesFrom)
	require.Contains(t, stagetest.Row(t, p, lifecycle.StageScrubGPU).Steps, "leave protected disk nvme0n1 S1")
	require.Empty(t, plan(t, l, lifecycle.ModeDrain, nil).Drives, "it erases nothing")

	l = inService()
	l.known.Facts.Drives = nil
	require.Equal(t, lifecycle.FailDriveUnexpected, stagetest.Row(t, plan(t, l, lifecycle.ModeSoftReset, nil), lifecycle.StageScrubGPU).Failure.Class)
}
