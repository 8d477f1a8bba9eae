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

// unmanaged is a full decommission of a node that MAAS does not manage.
func unmanaged(t *testing.T, agent contract.AgentLiveness) *fixture {
	t.Helper()
	b := setup(t, lifecycle.ModeFull)
	b.site.facts.SystemID, b.site.facts.Agent = "", agent
	return b
}

// When no MAAS releases the machine, validate_clean_node signs the certificate, with an agent and
// without one. Unproven disks park the job until an operator accepts the risk.
func TestDelete_RequiresEvidence(t *testing.T) {
	t.Parallel()
	for _, agent := range []contract.AgentLiveness{contract.AgentAlive, contract.AgentSilent} {
		t.Run(string(agent), func(t *testing.T) {
			t.Parallel()
			b := unmanaged(t, agent)
			b.site.unproven = []string{"disk sda BOOT: not erased"}
			p := b.parkedAt(time.Hour)
			refused := b.at(2*time.Hour, lifecycle.ActionAdopt)
			b.at(3*time.Hour, lifecycle.ActionAdopt, true)
			require.Equal(t, lifecycle.JobReconciled, b.run())
			require.Equal(t, lifecycle.StageValidateClean, p.Failure.Stage)
			require.Equal(t, lifecycle.FailScrubUnverified, p.Failure.Class)
			require.Contains(t, p.Failure.Message, "disk sda BOOT")
			require.Equal(t, lifecycle.NodeQuarantined, p.node)
			require.Error(t, refused.Err, "not without accepting the risk")
			require.Equal(t, lifecycle.NodeDeleted, b.site.facts.Status)
			require.Equal(t, agent == contract.AgentSilent, b.site.unreachable != "", "the certificate says why nobody looked")
			require.NotContains(t, b.calls(), "release")
			require.Positive(t, b.site.certs)
		})
	}
}

// TestUnmanaged_WhatIsProven needs nobody, as of a node that runs from no disk.
func TestUnmanaged_WhatIsProven(t *testing.T) {
	t.Parallel()
	b := unmanaged(t, contract.AgentAlive)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config node.drain gpu.scrub gpu.scrub bmc:on fresh node.validate certify bmc:off move:retired move:removing identity secrets", b.calls())
	require.Equal(t, lifecycle.NodeDeleted, b.site.facts.Status)
}

// TestUnprovenNode_IsValidatedAgain by a retry.
func TestUnprovenNode_IsValidatedAgain(t *testing.T) {
	t.Parallel()
	b := unmanaged(t, contract.AgentSilent)
	b.site.unproven = []string{"no disk of the machine is known to be erased"}
	b.After(90*time.Minute, func() { b.site.unproven = nil })
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, 2, b.site.certs)
}

// TestCertificate_ListsInitialDisks when the job began, not what is left.
func TestCertificate_ListsInitialDisks(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.facts.Disks = []lifecycle.DeviceResult{{Kind: "disk", Name: "sda", Serial: "S1"}, {Kind: "disk", Name: "sdb", Serial: "S2"}}
	b.After(30*time.Minute, func() { b.site.facts.Disks = b.site.facts.Disks[:1] })
	b.site.fail["node.drain"] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
	b.at(time.Hour, lifecycle.ActionRestartClean)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Len(t, b.site.known, 2)
}

// TestCertificate_ListsRecordedDisks: a disk that the agent of a root tenant made up is not
// required, and each drive of the node's record is.
func TestCertificate_ListsRecordedDisks(t *testing.T) {
	t.Parallel()
	b := leftByRoot(t)
	b.site.facts.Disks = []lifecycle.DeviceResult{{Kind: "disk", Name: "sdx", Serial: "INVENTED"}}
	b.site.facts.Drives = []spec.ExpectedDrive{{Serial: "S1", Model: "M"}, {Serial: "S2"}}
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.True(t, b.site.recorded)
	require.Equal(t, []lifecycle.DeviceResult{{Kind: "disk", Serial: "S1", Model: "M", Method: lifecycle.SanitizeNone}, {Kind: "disk", Serial: "S2", Method: lifecycle.SanitizeNone}},
		b.site.known)
}

// TestPlan_ShowsUnprovenDisks of a node that MAAS does not manage.
func TestPlan_ShowsUnprovenDisks(t *testing.T) {
	t.Parallel()
	l := inService()
	l.region.Machine, l.region.Disks, l.region.Records, l.known.Facts.SystemID = contract.MachineFacts{}, nil, nil, ""
	require.False(t, plan(t, l, lifecycle.ModeFull, nil).NeedsHuman, "it runs from no disk that its agent has listed")
	require.Contains(t, stagetest.Row(t, plan(t, l, lifecycle.ModeFull, nil), lifecycle.StageValidateClean).Steps, "sign the certificate")

	l.known.System = []string{"sda S0"}
	p := plan(t, l, lifecycle.ModeFull, nil)
	r := stagetest.Row(t, p, lifecycle.StageValidateClean)
	require.Equal(t, contract.PlannedFail, r.Planned)
	require.Equal(t, lifecycle.FailScrubUnverified, r.Failure.Class)
	require.Contains(t, r.Failure.Message, "the disk that its system runs from (sda S0)")
	require.Contains(t, r.Failure.Message, "accept_risk")
	require.True(t, p.NeedsHuman)
	require.Equal(t, contract.PlannedRun, stagetest.Row(t, plan(t, l, lifecycle.ModeSoftReset, nil), lifecycle.StageValidateClean).Planned)

	l.known.Facts.Agent = contract.AgentSilent
	p = plan(t, l, lifecycle.ModeFull, nil)
	require.Equal(t, contract.PlannedSkip, stagetest.Row(t, p, lifecycle.StageScrubGPU).Planned)
	require.Contains(t, stagetest.Row(t, p, lifecycle.StageValidateClean).Failure.Message, "any of its disks")
}

// TestPlan_TenantDisksStay, nor moved.
func TestPlan_TenantDisksStay(t *testing.T) {
	t.Parallel()
	left := time.Now()
	for name, touch := range map[string]func(*contract.DecommissionFacts){
		"": nil, "on it": func(f *contract.DecommissionFacts) { f.AllocationID = "alloc_1" }, "left": func(f *contract.DecommissionFacts) { f.TenantLeft = &left },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := onTheNetwork(lifecycle.NodeActive)
			l.disks = "moved"
			b := migration(t, func(in *contract.DecommissionInput) { in.Disks = "moved" })
			if touch == nil {
				require.NotEqual(t, contract.PlannedFail, stagetest.Row(t, plan(t, l, lifecycle.ModeMigrate, nil), lifecycle.StageDisableNode).Planned)
				return
			}
			touch(&l.known.Facts)
			r := stagetest.Row(t, plan(t, l, lifecycle.ModeMigrate, nil), lifecycle.StageDisableNode)
			require.Equal(t, contract.PlannedFail, r.Planned)
			require.Contains(t, r.Failure.Message, "would move into the new hardware")
			l.disks = "new"
			require.NotEqual(t, contract.PlannedFail, stagetest.Row(t, plan(t, l, lifecycle.ModeMigrate, nil), lifecycle.StageDisableNode).Planned)

			touch(&b.site.facts)
			p := b.parkedAt(time.Hour)
			b.at(2*time.Hour, lifecycle.ActionCancel)
			require.Equal(t, lifecycle.JobCancelled, b.run())
			require.Equal(t, lifecycle.FailConfiguration, p.Failure.Class)
			require.Equal(t, lifecycle.StageDisableNode, p.Failure.Stage)
			require.Zero(t, b.count("allocation.revoke_user"))
		})
	}
}
