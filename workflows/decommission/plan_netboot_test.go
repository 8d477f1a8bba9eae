package decommission_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// onTheNetwork is a PXE node in service whose workflows are assigned.
func onTheNetwork(status lifecycle.NodeStatus) *looker {
	l := inService()
	l.region.Machine, l.region.Disks, l.region.Records = contract.MachineFacts{}, nil, nil
	l.known.Facts.SystemID, l.known.Facts.Status = "", status
	l.known.PXE = &nodestateact.NetbootPlan{Erase: "eraser", Install: "ubuntu"}
	return l
}

// TestPlan_PXENode says what would be booted, who restarts the machine, and
// what is still missing.
func TestPlan_PXENode(t *testing.T) {
	t.Parallel()
	p := plan(t, onTheNetwork(lifecycle.NodeActive), lifecycle.ModeDeprovision, nil)
	require.False(t, p.NeedsHuman)
	require.Contains(t, stagetest.Row(t, p, lifecycle.StageBootEraser).Steps, "boot install workflow eraser from the network, into memory")
	require.Equal(t, "power cycle the machine at its BMC", stagetest.Row(t, p, lifecycle.StageBootEraser).Steps[0])
	require.Contains(t, stagetest.Row(t, p, lifecycle.StageRetireNode).Steps[0], "for good")

	l := onTheNetwork(lifecycle.NodeDeprovisioning)
	l.known.Facts.BMCID = ""
	p = plan(t, l, lifecycle.ModeDeprovision, nil)
	require.Equal(t, contract.PlannedDone, stagetest.Row(t, p, lifecycle.StageDisableNode).Planned)
	require.Equal(t, contract.PlannedWait, stagetest.Row(t, p, lifecycle.StageBootEraser).Planned)
	require.Contains(t, stagetest.Row(t, p, lifecycle.StageValidateClean).Why, "by hand")
	require.True(t, p.NeedsHuman)
	require.Contains(t, p.Summary, "would wait for an operator at "+lifecycle.StageBootEraser)
	require.Equal(t, contract.PlannedSkip, stagetest.Row(t, p, lifecycle.StagePowerOff).Planned)

	l = onTheNetwork(lifecycle.NodeActive)
	l.known.PXE.EraseFails = &contract.Failure{Class: lifecycle.FailConfiguration, Message: "the node has no erase workflow"}
	p = plan(t, l, lifecycle.ModeDeprovision, nil)
	require.True(t, p.NeedsHuman)
	require.Equal(t, lifecycle.FailConfiguration, stagetest.Row(t, p, lifecycle.StageBootEraser).Failure.Class)

	l = onTheNetwork(lifecycle.NodeActive)
	l.known.Facts.Agent = contract.AgentSilent
	p = plan(t, l, lifecycle.ModeDeprovision, nil)
	require.False(t, p.NeedsHuman, "nothing of the installed system is needed")
	require.Equal(t, []string{"switch the machine off and have it confirmed"}, stagetest.Row(t, p, lifecycle.StageDrainNode).Steps)
}

// TestPlan_Migration shows the hardware that is planned, or that the job
// waits for it.
func TestPlan_Migration(t *testing.T) {
	t.Parallel()
	p := plan(t, onTheNetwork(lifecycle.NodeActive), lifecycle.ModeMigrate, nil)
	for _, stage := range []string{lifecycle.StageBootEraser, lifecycle.StageScrubGPU, lifecycle.StageValidateClean} {
		require.Equal(t, contract.PlannedSkip, stagetest.Row(t, p, stage).Planned, stage)
	}
	require.Equal(t, contract.PlannedWait, stagetest.Row(t, p, lifecycle.StageReplaceHardware).Planned)
	require.True(t, p.NeedsHuman)
	require.Regexp(t, `would wait for an operator at replace_hardware\. No hardware is planned`, p.Summary)
	require.Equal(t, "install it by workflow ubuntu", stagetest.Row(t, p, lifecycle.StageBootHardware).Steps[0])

	l := onTheNetwork(lifecycle.NodeActive)
	l.known.PXE.Hardware = contract.HardwareFacts{MACs: []string{"02:00:00:00:00:02"}, Serial: "S2", Moved: true}
	planned := plan(t, l, lifecycle.ModeMigrate, nil)
	require.NotEqual(t, p.Hash, planned.Hash)
	require.Equal(t, []string{"put the node on the hardware 02:00:00:00:00:02, serial number S2"}, stagetest.Row(t, planned, lifecycle.StageReplaceHardware).Steps)
	require.NotContains(t, stagetest.Row(t, planned, lifecycle.StageBootHardware).Steps[0], "install")
	require.False(t, planned.NeedsHuman)

	l = onTheNetwork(lifecycle.NodeActive)
	l.named = &contract.HardwareFacts{MACs: []string{"02:00:00:00:00:03"}}
	named := plan(t, l, lifecycle.ModeMigrate, nil)
	require.Equal(t, "put the node on the hardware 02:00:00:00:00:03", stagetest.Row(t, named, lifecycle.StageReplaceHardware).Steps[0])
	require.Equal(t, "The job would run to its end.", named.Summary)

	l.disks = "same"
	kept := stagetest.Row(t, plan(t, l, lifecycle.ModeMigrate, nil), lifecycle.StageReplaceHardware)
	require.Equal(t, []string{"keep the node on its hardware 02:00:00:00:00:03", "shut the agent of the erased disks out"}, kept.Steps)

	l = onTheNetwork(lifecycle.NodeActive)
	l.known.PXE.InstallFails = &contract.Failure{Class: lifecycle.FailConfiguration, Message: "it brings no agent"}
	require.Equal(t, contract.PlannedFail, stagetest.Row(t, plan(t, l, lifecycle.ModeMigrate, nil), lifecycle.StageBootHardware).Planned)
}
