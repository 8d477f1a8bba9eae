package decommission_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/decommission"
	stageplan "github.com/slipway-cloud/slipway/workflows/stage/plan"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// looker answers the looks of a plan.
type looker struct {
	known  nodestateact.DecommissionPlan
	region maasact.DecommissionPlan
	bmc    bmcact.PowerOffPlan
	away   bool
	// named is the hardware that the request names.
	named *contract.HardwareFacts
	// disks are those of the request.
	disks string
}

func (l *looker) PlanNodeDecommission(context.Context, nodestateact.DecommissionPlanIn) (nodestateact.DecommissionPlan, error) {
	return l.known, nil
}

func (l *looker) PlanMachineDecommission(context.Context, maasact.DecommissionPlanIn) (maasact.DecommissionPlan, error) {
	if l.away {
		return l.region, temporal.NewApplicationError("it hangs", "slow")
	}
	return l.region, nil
}

func (l *looker) PlanPowerOffByBMC(context.Context, bmcact.PowerOffPlanIn) (bmcact.PowerOffPlan, error) {
	return l.bmc, nil
}

// inService is an active node with a living agent on a deployed machine.
func inService() *looker {
	at := time.Now()
	return &looker{
		known: nodestateact.DecommissionPlan{
			Facts: contract.DecommissionFacts{
				Status: lifecycle.NodeActive, Hostname: "gpu-1", SystemID: "abc123", BMCID: "bmc_1", Agent: contract.AgentAlive, LastHeartbeat: &at, BootID: "b",
				Drives: []spec.ExpectedDrive{{Serial: "S0"}, {Serial: "S1", Bytes: 512}}, DrivesFrom: "maas_commissioning",
			},
			Disks: []string{"nvme0n1 S1"}, GPUs: 8, Deletes: []string{"bmc/login"},
		},
		region: maasact.DecommissionPlan{
			Machine: contract.MachineFacts{SystemID: "abc123", Status: "Deployed", Power: "on"}, Disks: []string{"sda S0", "nvme0n1 S1"}, Records: []string{"abc123"},
		},
		bmc: bmcact.PowerOffPlan{Address: "192.0.2.1"},
	}
}

func plan(t *testing.T, l *looker, mode lifecycle.DecommissionMode, snap *contract.Snapshot) contract.Plan {
	t.Helper()
	h := stagetest.New(t, decommission.Decommission, contract.DecommissionKind(mode), nil, l)
	in := contract.DecommissionPlanInput{Job: h.In, Hardware: l.named}
	if snap != nil {
		h.Store.Update(func(s *contract.Snapshot) { *s = *snap })
	} else {
		in.Job.JobID = ""
		in.Request = &contract.DecommissionInput{Mode: mode, NodeID: "node_1", Hostname: "gpu-1", GraceSeconds: 60, Disks: l.disks}
	}
	return h.Plan(decommission.Plan, in)
}

// TestPlan_RowForEachStage, in the mode's order, and equal facts
// give an equal hash, which no time is in.
func TestPlan_RowForEachStage(t *testing.T) {
	t.Parallel()
	hashes := map[string]bool{}
	for _, info := range lifecycle.DecommissionModes() {
		l := inService()
		if info.Mode == lifecycle.ModeRemove {
			l.known.Facts.Status = lifecycle.NodeRetired
		}
		p := plan(t, l, info.Mode, nil)
		var names []string
		for _, r := range p.Rows {
			names = append(names, r.Stage)
			require.NotEqual(t, contract.PlannedFail, r.Planned, "%s %s: %+v", info.Mode, r.Stage, r.Failure)
		}
		require.Equal(t, info.Stages, names)
		require.Equal(t, info.Mode == lifecycle.ModeMigrate, p.NeedsHuman, "%s: only an operator can name new hardware", info.Mode)
		later := time.Now().Add(time.Minute)
		l.known.Facts.LastHeartbeat = &later
		require.Equal(t, p.Hash, plan(t, l, info.Mode, nil).Hash, "%s: another heartbeat decides nothing", info.Mode)
		hashes[p.Hash] = true
	}
	require.Len(t, hashes, len(lifecycle.DecommissionModes()), "each mode does something else")
}

// TestPlan_OutOfTime: a plan whose time is over before it knows the node ends with an error that
// says so, so that it is asked for again.
func TestPlan_OutOfTime(t *testing.T) {
	t.Parallel()
	l := inService()
	h := stagetest.New(t, decommission.Decommission, contract.DecommissionKind(lifecycle.ModeSoftReset), nil, l)
	h.Env.OnActivity("PlanNodeDecommission", mock.Anything, mock.Anything).After(stageplan.Limit).Return(l.known, nil)
	in := contract.DecommissionPlanInput{Job: h.In, Request: &contract.DecommissionInput{Mode: lifecycle.ModeSoftReset, NodeID: "node_1", Hostname: "gpu-1"}}
	in.Job.JobID = ""
	h.Env.ExecuteWorkflow(decommission.Plan, in)
	var app *temporal.ApplicationError
	require.ErrorAs(t, h.Env.GetWorkflowError(), &app)
	require.Equal(t, contract.ErrTypePlanOutOfTime, app.Type())
}

// TestPlan_HashInputs is what the hash that a decommission is started with must
// notice.
func TestPlan_HashInputs(t *testing.T) {
	t.Parallel()
	before := plan(t, inService(), lifecycle.ModeFull, nil).Hash
	for name, change := range map[string]func(*looker){
		"a tenant came":          func(l *looker) { l.known.Facts.AllocationID = "alloc_1" },
		"another disk":           func(l *looker) { l.known.Disks = append(l.known.Disks, "nvme1n1 S2") },
		"another expected drive": func(l *looker) { l.known.Facts.Drives = l.known.Facts.Drives[:1] },
		"another size":           func(l *looker) { l.known.Facts.Drives[1].Bytes++ },
		"a protected drive":      func(l *looker) { l.known.Facts.ProtectSerials = []string{"S1"} },
		"the agent fell still":   func(l *looker) { l.known.Facts.Agent = contract.AgentSilent },
		"released meanwhile":     func(l *looker) { l.region.Machine.Status = "Ready" },
		"rescue mode":            func(l *looker) { l.region.Machine.Status = "Rescue mode" },
		"a ghost enlisted":       func(l *looker) { l.region.Records = append(l.region.Records, "gh0st1") },
		"logins stopped": func(l *looker) {
			l.bmc.Failure = &contract.Failure{Class: lifecycle.FailBMCAuthRejected, Message: "stopped"}
		},
		"not ours any more": func(l *looker) {
			l.region.MachineFailure = &contract.Failure{Class: lifecycle.FailStateDisagreement, Message: "another's"}
		},
		"the secret is shared now": func(l *looker) { l.known.Deletes = nil },
		"retired":                  func(l *looker) { l.known.Facts.Status = lifecycle.NodeRetired },
		"erasing may fail":         func(l *looker) { l.region.Config.Profile.ReleaseFallbackNoErase = true },
	} {
		l := inService()
		change(l)
		require.NotEqual(t, before, plan(t, l, lifecycle.ModeFull, nil).Hash, name)
	}
}

func TestPlan_ShowsWhereTheJobParks(t *testing.T) {
	t.Parallel()
	l := inService()
	l.known.Facts.Agent = contract.AgentSilent
	p := plan(t, l, lifecycle.ModeRetire, nil)
	require.True(t, p.NeedsHuman)
	require.Equal(t, lifecycle.FailNodeTask, stagetest.Row(t, p, lifecycle.StageDrainNode).Failure.Class)
	p = plan(t, l, lifecycle.ModeFull, nil)
	require.Equal(t, contract.PlannedSkip, stagetest.Row(t, p, lifecycle.StageScrubGPU).Planned)
	require.Contains(t, stagetest.Row(t, p, lifecycle.StageDrainNode).Steps, "switch the machine off and have it confirmed")

	l = inService()
	l.region.Machine.Status = "Ready"
	p = plan(t, l, lifecycle.ModeFull, nil)
	require.Equal(t, lifecycle.FailScrubUnverified, stagetest.Row(t, p, lifecycle.StageReleaseMAAS).Failure.Class, "nothing proves that its disks were erased")

	l = inService()
	l.away = true
	p = plan(t, l, lifecycle.ModeFull, nil)
	require.Equal(t, contract.PlannedUnknown, stagetest.Row(t, p, lifecycle.StageReleaseMAAS).Planned)
}

// TestPlan_OfLiveJob shows what is behind it as done.
func TestPlan_OfLiveJob(t *testing.T) {
	t.Parallel()
	snap := contract.Snapshot{
		Status: lifecycle.JobFailedManual, Stage: lifecycle.StageScrubGPU, Input: []byte(`{"mode": "soft_reset", "node_id": "node_1"}`),
		Stages: []lifecycle.StageRow{
			{Ordinal: 1, Name: lifecycle.StageDisableNode, State: lifecycle.StageSucceeded}, {Ordinal: 2, Name: lifecycle.StageForceRelease, State: lifecycle.StageSkipped},
			{Ordinal: 3, Name: lifecycle.StageDrainNode, State: lifecycle.StageSucceeded}, {Ordinal: 4, Name: lifecycle.StageCleanupStorage, State: lifecycle.StageSucceeded},
			{Ordinal: 5, Name: lifecycle.StageScrubGPU, State: lifecycle.StageFailed},
		},
	}
	p := plan(t, inService(), lifecycle.ModeSoftReset, &snap)
	require.Equal(t, contract.PlannedDone, stagetest.Row(t, p, lifecycle.StageDrainNode).Planned)
	require.Equal(t, contract.PlannedRun, stagetest.Row(t, p, lifecycle.StageScrubGPU).Planned)
	snap.Status = lifecycle.JobCompleted
	require.Contains(t, plan(t, inService(), lifecycle.ModeSoftReset, &snap).Summary, "ended")
}
