package decommission_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestPXE_EachStageParksAndRetries, resumed and rerun; a node is not
// moved by its failure.
func TestPXE_EachStageParksAndRetries(t *testing.T) {
	t.Parallel()
	eachNetStage(t, func(t *testing.T, mode lifecycle.DecommissionMode, stage, call string) {
		for _, again := range []lifecycle.Action{lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun} {
			b := occupied(t, mode)
			info, _ := lifecycle.DecommissionModeOf(mode)
			b.site.fail[call] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
			p := b.parkedAt(time.Hour)
			b.at(2*time.Hour, again)
			require.Equal(t, lifecycle.JobCompleted, b.run(), again)
			require.Equal(t, stage, p.Failure.Stage)
			if stage != lifecycle.StageCleanupSecrets { // the node is retired by then
				require.Equal(t, info.Enters, p.node)
			}
			require.Equal(t, []lifecycle.NodeStatus{info.Ends}, b.site.states)
			require.Equal(t, 1, b.count("gpu.scrub")-failures(call, "gpu.scrub"), "what is erased is not erased again")
		}
	})
}

func failures(call, name string) int {
	if call == name {
		return 1
	}
	return 0
}

// TestPXE_CancelAtEachStage leaves the node in its state, as there is no
// way back, and disarms what was armed.
func TestPXE_CancelAtEachStage(t *testing.T) {
	t.Parallel()
	eachNetStage(t, func(t *testing.T, mode lifecycle.DecommissionMode, stage, call string) {
		b := occupied(t, mode)
		info, _ := lifecycle.DecommissionModeOf(mode)
		b.site.fail[call] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
		b.at(time.Hour, lifecycle.ActionCancel)
		require.Equal(t, lifecycle.JobCancelled, b.run())
		want := info.Enters
		if stage == lifecycle.StageCleanupSecrets {
			want = lifecycle.NodeRetired // nothing leads back from there
		}
		require.Equal(t, want, b.site.facts.Status)
		require.Empty(t, b.site.net.armed, "disarmed")
	})
}

// TestPXE_LostWorkflowContinues from every stage.
func TestPXE_LostWorkflowContinues(t *testing.T) {
	t.Parallel()
	eachNetStage(t, func(t *testing.T, mode lifecycle.DecommissionMode, stage, call string) {
		b := occupied(t, mode)
		info, _ := lifecycle.DecommissionModeOf(mode)
		b.site.fail[call] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
		b.loseRun()
		require.Equal(t, stage, b.Store.Snapshot().Stage)
		b.at(time.Hour, lifecycle.ActionResume)
		require.Equal(t, lifecycle.JobCompleted, b.run())
		require.Equal(t, info.Ends, b.site.facts.Status)
	})
}

// TestPXE_NodeWithoutBMC parks twice for a restart by hand: into the live system,
// and for the fresh boot that proves it clean. A retry waits for the machine.
func TestPXE_NodeWithoutBMC(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeDeprovision)
	b.site.facts.BMCID = ""
	first, second := b.parkedAt(time.Hour), b.parkedAt(4*time.Hour)
	b.byHand(2 * time.Hour)
	b.at(3*time.Hour, lifecycle.ActionRetryStage)
	b.byHand(5 * time.Hour)
	b.at(6*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.StageBootEraser, first.Failure.Stage)
	require.Equal(t, lifecycle.FailPowerNotConfirmed, first.Failure.Class)
	require.Contains(t, first.Failure.Message, "restart it by hand, then retry the stage")
	require.Equal(t, lifecycle.StageValidateClean, second.Failure.Stage)
	require.Equal(t, lifecycle.FailPowerNotConfirmed, second.Failure.Class)
	require.Equal(t, lifecycle.NodeDeprovisioning, second.node)
	require.Equal(t, "config node.drain arm:erase arm:erase arm:erase gpu.scrub node.validate certify identity move:retired secrets", b.calls())
}

// A retry right after the restart waits until the machine has booted.
func TestRetry_WaitsForTheMachine(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeDeprovision)
	b.site.facts.BMCID = ""
	b.at(time.Hour, lifecycle.ActionRetryStage)
	p := b.parkedAt(2 * time.Hour)
	b.byHand(3 * time.Hour)
	b.at(4*time.Hour, lifecycle.ActionRetryStage)
	b.byHand(5 * time.Hour)
	b.at(6*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailPowerNotConfirmed, p.Failure.Class)
	require.Equal(t, 1, b.count("system:erase"), "it was waited for once, in vain")
}

// TestPXE_FirmwareBootsDisk is told apart from a machine that is erased.
func TestPXE_FirmwareBootsDisk(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeDeprovision)
	b.site.net.diskOnly = true
	p := b.parkedAt(time.Hour)
	b.After(time.Hour, func() { b.site.net.diskOnly = false })
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.StageBootEraser, p.Failure.Stage)
	require.Equal(t, lifecycle.FailAgentNotEnrolled, p.Failure.Class)
	require.Equal(t, 3, b.count("bmc:on"), "the retry power cycled it once more, and the validation once")
}

// TestPXE_BrokenSystemIsErased: nothing of it is needed. With a BMC it is
// switched off first, since its agent cannot end what runs.
func TestPXE_BrokenSystemIsErased(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeDeprovision)
	b.site.facts.Agent, b.site.facts.BootID, b.site.facts.AllocationID = contract.AgentNone, "", "alloc_1"
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config bmc:off free bmc:off arm:erase bmc:on system:erase gpu.scrub bmc:on system:erase node.validate certify bmc:off identity move:retired secrets", b.calls())
	require.Empty(t, b.site.unreachable, "the certificate is the live system's")
}

// TestPXE_ScrubRunsAgainAfterReboot by itself: in a live system the journal
// ends with the boot.
func TestPXE_ScrubRunsAgainAfterReboot(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeDeprovision)
	b.site.fail["gpu.scrub"] = []error{stagetest.Failure(lifecycle.FailNodeTaskUncertain), stagetest.Failure(lifecycle.FailNodeTaskUncertain)}
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, 3, b.count("gpu.scrub"))

	b = setup(t, lifecycle.ModeDeprovision)
	for range 4 {
		b.site.fail["gpu.scrub"] = append(b.site.fail["gpu.scrub"], stagetest.Failure(lifecycle.FailNodeTaskUncertain))
	}
	p := b.parkedAt(time.Hour)
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailNodeTaskUncertain, p.Failure.Class, "not for ever")
}

// The node stays deprovisioning, and a retry scrubs it again.
func TestPXE_UnprovenDiskIsScrubbedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeDeprovision)
	b.site.fail["node.validate"] = []error{stagetest.Failure(lifecycle.FailNodeUnhealthy)}
	b.site.unproven = []string{"step node.validate/disks_blank: sda is not blank"}
	p := b.parkedAt(time.Hour)
	b.After(time.Hour, func() { b.site.unproven = nil })
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailScrubUnverified, p.Failure.Class)
	require.Equal(t, lifecycle.NodeDeprovisioning, p.node)
	require.Equal(t, 2, b.count("gpu.scrub"))
	require.Equal(t, []lifecycle.NodeStatus{lifecycle.NodeRetired}, b.site.states)
}

// A clean restart disarms the network boot and boots the live system again.
func TestRestartClean_BootsLiveSystemAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeDeprovision)
	b.site.fail["gpu.scrub"] = []error{stagetest.Failure(lifecycle.FailScrubUnverified)}
	b.at(time.Hour, lifecycle.ActionRestartClean)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, 1, b.count("disarm"))
	require.Equal(t, 2, b.count("arm:erase"))
}

// An administrator retired the node by force while the job was parked. After that, no action of the
// job switches the machine off or boots it.
func TestPXE_RetiredMachineIsNotTouched(t *testing.T) {
	t.Parallel()
	for _, again := range []lifecycle.Action{lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun} {
		for _, call := range []string{"node.drain", "gpu.scrub", "node.validate"} {
			b := setup(t, lifecycle.ModeDeprovision)
			b.site.fail[call] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
			var before string
			b.After(time.Hour, func() { b.site.facts.Status, before = lifecycle.NodeRetired, b.calls() })
			b.at(2*time.Hour, again)
			p := b.parkedAt(3 * time.Hour)
			b.at(4*time.Hour, lifecycle.ActionCancel)
			require.Equal(t, lifecycle.JobCancelled, b.run())
			require.Equal(t, lifecycle.FailStateDisagreement, p.Failure.Class, "%s after %s", again, call)
			require.NotContains(t, b.calls()[len(before):], "bmc:", "%s after %s", again, call)
		}
	}
}
