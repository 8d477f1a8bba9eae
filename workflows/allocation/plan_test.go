package allocation_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/allocation"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// looker answers what a plan reads.
type looker struct {
	facts  contract.AllocationFacts
	known  nodestateact.DecommissionPlan
	region maasact.DecommissionPlan
}

func (l *looker) PlanAllocation(context.Context, allocationact.PlanIn) (contract.AllocationFacts, error) {
	return l.facts, nil
}

func (l *looker) PlanNodeDecommission(context.Context, nodestateact.DecommissionPlanIn) (nodestateact.DecommissionPlan, error) {
	return l.known, nil
}

func (l *looker) PlanMachineDecommission(context.Context, maasact.DecommissionPlanIn) (maasact.DecommissionPlan, error) {
	return l.region, nil
}

func (l *looker) PlanPowerOffByBMC(context.Context, bmcact.PowerOffPlanIn) (bmcact.PowerOffPlan, error) {
	return bmcact.PowerOffPlan{}, nil
}

// occupied is a node that a tenant has.
func occupied(root bool) *looker {
	return &looker{
		facts: contract.AllocationFacts{
			Status: lifecycle.AllocationReleasing, NodeID: "node_1", SiteID: "site_1", TenantRoot: root, RevokeSeconds: 120,
			Keys: []contract.AllocationKey{{Fingerprint: "SHA256:a"}, {Fingerprint: "SHA256:b"}},
		},
		known: nodestateact.DecommissionPlan{
			Facts: contract.DecommissionFacts{
				Status: lifecycle.NodeActive, Hostname: "gpu-1", SystemID: "abc", BMCID: "bmc_1", AllocationID: "alc_1", Agent: contract.AgentAlive, TenantRoot: root,
				Drives: []spec.ExpectedDrive{{Serial: "S1"}},
			},
			Disks: []string{"nvme0n1 S1"}, GPUs: 8,
		},
		region: maasact.DecommissionPlan{
			Config:  contract.DecommissionConfig{Profile: spec.ProfileSpec{DistroSeries: "noble"}.WithDefaults()},
			Machine: contract.MachineFacts{SystemID: "abc", Status: "Deployed", Power: "on"}, Disks: []string{"nvme0n1 S1"},
		},
	}
}

// plans returns the plan of a job that does not exist yet, by stage.
func (l *looker) plans(t *testing.T, kind contract.JobKind) (contract.Plan, map[string]contract.PlanRow) {
	t.Helper()
	h := stagetest.New(t, allocation.Plan, kind, nil, l)
	in := contract.AllocationPlanInput{Job: h.In, Request: &contract.AllocationInput{AllocationID: "alc_1"}}
	in.Job.JobID, in.Job.NodeID = "", ""
	p := h.Plan(allocation.Plan, in)
	rows := map[string]contract.PlanRow{}
	var names []string
	for _, r := range p.Rows {
		rows[r.Stage], names = r, append(names, r.Stage)
	}
	require.Equal(t, contract.Stages(kind), names, "a row for each stage, in order")
	return p, rows
}

func steps(r contract.PlanRow) string {
	text := ""
	for _, s := range r.Steps {
		text += s + "\n"
	}
	return text
}

// TestPlan_ReleaseOfARootTenant says that the node is erased and installed again.
func TestPlan_ReleaseOfARootTenant(t *testing.T) {
	t.Parallel()
	l := occupied(true)
	p, rows := l.plans(t, contract.KindAllocationRelease)
	require.Equal(t, "The job would run to its end.", p.Summary)
	require.Equal(t, "gpu-1", p.Subject.Hostname)
	require.Contains(t, steps(rows[lifecycle.StageRevokeAccess]), "switch the machine off")
	install := rows[lifecycle.StageReleaseMAAS]
	require.Contains(t, steps(install), "with its disks erased")
	require.Contains(t, steps(install), "deploy noble again")
	require.Contains(t, install.Why, "was root")
	require.Equal(t, contract.PlannedSkip, rows[lifecycle.StageCleanupStorage].Planned)
	require.Contains(t, steps(rows[lifecycle.StageScrubGPU]), "reset 8 GPUs")

	l.known.Facts.Agent = contract.AgentSilent // as after the power was cut
	_, again := l.plans(t, contract.KindAllocationRelease)
	require.Equal(t, rows[lifecycle.StageScrubGPU], again[lifecycle.StageScrubGPU], "the new system is asked, not the tenant's")

	l.known.Facts.ProtectSerials = []string{"S1"}
	p, rows = l.plans(t, contract.KindAllocationRelease)
	require.Contains(t, p.Summary, "would park at "+lifecycle.StageLoadSite)
	require.Equal(t, contract.PlannedFail, rows[lifecycle.StageReleaseMAAS].Planned)
	require.NotContains(t, rows[lifecycle.StageReleaseMAAS].Failure.Message, "soft_reset", "it would keep the tenant's own system")
	require.Contains(t, rows[lifecycle.StageReleaseMAAS].Failure.Message, "pull the drives")
}

// TestPlan_ReleaseOfAnyOtherTenant says that the installed system stays.
func TestPlan_ReleaseOfAnyOtherTenant(t *testing.T) {
	t.Parallel()
	p, rows := occupied(false).plans(t, contract.KindAllocationRelease)
	require.Equal(t, "The job would run to its end.", p.Summary)
	require.NotContains(t, steps(rows[lifecycle.StageRevokeAccess]), "switch the machine off")
	require.Contains(t, steps(rows[lifecycle.StageRevokeAccess]), "2 keys refused")
	require.Contains(t, rows[lifecycle.StageRevokeAccess].Why, "120 s")
	require.Equal(t, contract.PlannedSkip, rows[lifecycle.StageReleaseMAAS].Planned)
	require.Contains(t, rows[lifecycle.StageReleaseMAAS].Why, "the installed system stays")
	require.Contains(t, steps(rows[lifecycle.StageValidateClean]), "power cycle")
}

// TestPlan_Provision says what is known before and after a node is claimed.
func TestPlan_Provision(t *testing.T) {
	t.Parallel()
	l := occupied(true)
	_, rows := l.plans(t, contract.KindAllocationProvision)
	require.Equal(t, contract.PlannedDone, rows[lifecycle.StageClaimNode].Planned)
	require.Equal(t, contract.PlannedRun, rows[lifecycle.StageIsolateNode].Planned)
	require.Contains(t, steps(rows[lifecycle.StageCreateAccount]), "root by sudo")
	require.Contains(t, steps(rows[lifecycle.StageInstallKeys]), "2 keys")
	l.facts.NodeID = ""
	_, rows = l.plans(t, contract.KindAllocationProvision)
	require.Equal(t, contract.PlannedWait, rows[lifecycle.StageClaimNode].Planned)
	require.Equal(t, contract.PlannedUnknown, rows[lifecycle.StageIsolateNode].Planned)
}
