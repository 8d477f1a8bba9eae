package decommission_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

func migration(t *testing.T, change func(*contract.DecommissionInput)) *fixture {
	t.Helper()
	return setup(t, lifecycle.ModeMigrate).asked(func(in *contract.DecommissionInput) {
		in.EraseOld = false
		change(in)
	})
}

// TestMigration_NewDisks installs them; the old hardware is left as it is.
func TestMigration_NewDisks(t *testing.T) {
	t.Parallel()
	b := migration(t, func(*contract.DecommissionInput) {})
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config node.drain bmc:off hardware arm:install bmc:on system:install", b.calls())
	require.Equal(t, []lifecycle.NodeStatus{lifecycle.NodeActive}, b.site.states)
	require.Zero(t, b.site.certs)
}

// TestMigration_DisksMove installs nothing: the same agent is heard from a
// boot of its own.
func TestMigration_DisksMove(t *testing.T) {
	t.Parallel()
	b := migration(t, func(in *contract.DecommissionInput) { in.Disks = "moved" })
	b.site.net.planned.Moved = true
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config node.drain bmc:off hardware bmc:on system:", b.calls())
	require.Equal(t, lifecycle.NodeActive, b.site.facts.Status)
}

// TestMigration_WithoutBMC waits for whoever puts the machine in place to switch
// it on.
func TestMigration_WithoutBMC(t *testing.T) {
	t.Parallel()
	b := migration(t, func(*contract.DecommissionInput) {})
	b.site.facts.BMCID = ""
	p := b.parkedAt(time.Hour)
	b.byHand(2 * time.Hour)
	b.at(3*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.StageBootHardware, p.Failure.Stage)
	require.Equal(t, lifecycle.FailAgentNotEnrolled, p.Failure.Class)
	require.Equal(t, 1, b.count("hardware"))
}

// TestMigration_SameDisks erases the node's own hardware, proves it clean and installs it again.
func TestMigration_SameDisks(t *testing.T) {
	t.Parallel()
	b := migration(t, func(in *contract.DecommissionInput) { in.EraseOld, in.Disks = true, "same" })
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config node.drain arm:erase bmc:on system:erase gpu.scrub bmc:on system:erase node.validate certify bmc:off hardware arm:install bmc:on system:install", b.calls())
	require.Equal(t, []lifecycle.NodeStatus{lifecycle.NodeActive}, b.site.states)
}

// TestMigration_SameDisksWithoutBMC asks for each restart, that into the installer too.
func TestMigration_SameDisksWithoutBMC(t *testing.T) {
	t.Parallel()
	b := migration(t, func(in *contract.DecommissionInput) { in.EraseOld, in.Disks = true, "same" })
	b.site.facts.BMCID = ""
	var parked []*parkedJob
	for i := range 3 {
		at := time.Duration(i) * 3 * time.Hour
		parked = append(parked, b.parkedAt(at+time.Hour))
		b.byHand(at + 2*time.Hour)
		b.at(at+3*time.Hour-time.Minute, lifecycle.ActionRetryStage)
	}
	require.Equal(t, lifecycle.JobCompleted, b.run())
	for i, stage := range []string{lifecycle.StageBootEraser, lifecycle.StageValidateClean, lifecycle.StageBootHardware} {
		require.Equal(t, stage, parked[i].Failure.Stage)
		require.Equal(t, lifecycle.FailPowerNotConfirmed, parked[i].Failure.Class)
	}
	require.Equal(t, lifecycle.NodeActive, b.site.facts.Status)
}

// TestMigration_UnreachableMachine: no agent and no BMC are what many migrations
// begin with.
func TestMigration_UnreachableMachine(t *testing.T) {
	t.Parallel()
	b := migration(t, func(*contract.DecommissionInput) {})
	b.site.facts.BMCID, b.site.facts.Agent, b.site.facts.BootID = "", contract.AgentNone, ""
	b.site.fail["system:install"] = []error{stagetest.Failure(lifecycle.FailAgentNotEnrolled)}
	b.byHand(time.Hour)
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config hardware arm:install system:install arm:install", b.calls())
}

// TestMigration_UnplannedMachine is not taken for the node.
func TestMigration_UnplannedMachine(t *testing.T) {
	t.Parallel()
	b := migration(t, func(*contract.DecommissionInput) {})
	b.site.net.serial = "S9"
	p := b.parkedAt(time.Hour)
	refused := b.at(2*time.Hour, lifecycle.ActionAdopt)
	b.After(3*time.Hour, func() { b.site.net.serial = "S2" })
	b.at(4*time.Hour, lifecycle.ActionRerun)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailStateDisagreement, p.Failure.Class)
	require.Contains(t, p.Failure.Message, "S9")
	require.Equal(t, lifecycle.NodeMigrating, p.node)
	require.Error(t, refused.Err)
	require.Equal(t, 1, b.count("bmc:off"), "a rerun does not switch the new machine off")
}

// TestMigration_NodeMovedMeanwhile is out of the job's hands.
func TestMigration_NodeMovedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, mode := range pxeModes() {
		b := setup(t, mode)
		b.site.fail["config"] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
		b.After(time.Hour, func() { b.site.facts.Status = lifecycle.NodeRetired })
		b.at(2*time.Hour, lifecycle.ActionRetryStage)
		p := b.parkedAt(3 * time.Hour)
		b.at(4*time.Hour, lifecycle.ActionCancel)
		require.Equal(t, lifecycle.JobCancelled, b.run())
		require.Equal(t, lifecycle.FailStateDisagreement, p.Failure.Class)
		require.Equal(t, lifecycle.NodeRetired, b.site.facts.Status)
	}
}
