package replay_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/activities/drift"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/bench/rig"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/workflows/reconcile"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// answers are what activities return, by name. Those that store a job's state are not answered.
type answers map[string]any

// script answers every activity but projections: with what the table says, or with nothing. The
// first execution of the activity that is named refuse fails, and so do the others where it is
// said.
func (a answers) script(refuse string, failure error, always bool) rig.Script {
	var mu sync.Mutex
	refused := false
	return func(_ context.Context, name string, _ []any) (any, bool, error) {
		if name == "TakeJob" || name == "ProjectJob" {
			return nil, false, nil
		}
		mu.Lock()
		defer mu.Unlock()
		if name == refuse && (always || !refused) {
			refused = true
			return nil, true, failure
		}
		return a[name], true, nil
	}
}

// scriptedJob is a job whose activities answer by a table.
type scriptedJob struct {
	kind    contract.JobKind
	request any
	answers answers
	last    string // the activity that fails where an operator is needed
	// asks are what each end asks of the engine: completed, parked and cancelled.
	asks [3]counts
	// start accepts the job where it is about more than a node. givesUp marks a kind that never
	// parks: it has no such end, and is cancelled by its own failure.
	start   func(t *testing.T, p *play, a answers)
	givesUp bool
	// prefix tells the histories of one table from those of another of the same kind.
	prefix string
}

func scriptedJobs() []scriptedJob {
	allocations := slices.Concat(allocationJobs(), machineJobs(), instanceJobs(), paymentJobs())
	rotated := contract.RotationFacts{BMCID: "bmc_1", CurrentRef: "bmc/old", CandidateRef: "bmc/new", FromRef: "bmc/old", Slot: contract.SlotCandidate, Applied: true, Verified: true}
	return append(allocations, []scriptedJob{
		{
			kind: contract.KindBMCRotation, request: contract.BMCRotationInput{BMCID: "bmc_1", Hostname: "gpu-1", Reason: "test"}, last: "VerifyRotation",
			asks: [3]counts{{Activities: 5, Local: 8, Timers: 5, Upserts: 2}, {Activities: 6, Local: 11, Timers: 6, Upserts: 4, Updates: 1},
				{Activities: 7, Local: 10, Timers: 3, Upserts: 4, Updates: 1}},
			answers: answers{
				"PrepareRotation": rotated, "ApplyRotation": rotated, "VerifyRotation": rotated, "CommitRotation": rotated, "UndoRotation": rotated,
				"UpdatePowerLogin": contract.MachineFacts{Done: true, Status: "current", Power: "on"},
			},
		},
		{
			kind: contract.KindAgentReissue, request: contract.AgentReissueInput{Hostname: "gpu-1", SystemID: "abc", Reason: "test"}, last: "WaitForNewIdentity",
			asks: [3]counts{{Activities: 5, Local: 6, Timers: 3, Upserts: 3}, {Activities: 6, Local: 9, Timers: 4, Upserts: 5, Updates: 1},
				{Activities: 10, Local: 10, Timers: 3, Upserts: 5, Updates: 1}},
			answers: answers{
				"IssueAgentToken": contract.AgentTokenFacts{Ref: "userdata/job/1"}, "ObserveMachine": contract.MachineFacts{SystemID: "abc", IPs: []string{"127.0.0.1"}},
				"WaitForNewIdentity": contract.AgentSeen{Done: true, Generation: 2, Version: "v1.2.3"},
			},
		},
		{
			kind: contract.KindAgentUpdate, request: contract.AgentUpdateInput{Hostname: "gpu-1", Version: "v1.2.3", Manifest: []byte("{}"), Signature: []byte("s"), BinaryURL: "http://127.0.0.1/a"},
			last: "WaitForAgentVersion",
			asks: [3]counts{{Activities: 2, Local: 5, Timers: 2, Upserts: 3}, {Activities: 3, Local: 8, Timers: 3, Upserts: 5, Updates: 1},
				{Activities: 6, Local: 8, Timers: 2, Upserts: 5, Updates: 1}},
			answers: answers{
				"RunTask": lifecycle.TaskResult{OK: true}, "WaitForAgentVersion": contract.AgentSeen{Done: true, Generation: 1, Version: "v1.2.3"},
				"WaitForTasks": map[string]any{"done": true},
			},
		},
	}...)
}

// scriptedEnds are the ends of each job, as its histories are named.
func scriptedEnds() []string { return []string{"completed", "failed_retry_stage", "cancelled"} }

// TestScriptedJobsDoWhatTheyDid runs the jobs that a table of answers can play on a real Temporal
// server: to their end, parked and sent on, and cancelled with their compensation.
func TestScriptedJobsDoWhatTheyDid(t *testing.T) {
	t.Parallel()
	type end struct {
		scriptedJob
		i int
	}
	names := scriptedEnds()
	var ends []end
	for _, j := range scriptedJobs() {
		for i := range names {
			if i != 1 || !j.givesUp {
				ends = append(ends, end{j, i})
			}
		}
	}
	for _, e := range sample(t, ends) {
		name := e.prefix + names[e.i]
		t.Run(string(e.kind)+"/"+name, func(t *testing.T) {
			t.Parallel()
			e.answers = maps.Clone(e.answers) // each end has a node of its own
			refuse, action, status := "", lifecycle.ActionRetryStage, lifecycle.JobCompleted
			if e.i > 0 {
				refuse = e.last
			}
			if e.i == 2 {
				action, status = lifecycle.ActionCancel, lifecycle.JobCancelled
			}
			p := &play{rig: rig.NewScripted(t, e.answers.script(refuse, stagetest.Failure(lifecycle.FailStateDisagreement), e.i == 2))}
			if e.start != nil {
				e.start(t, p, e.answers)
			} else {
				p.startJob(t, e.kind, e.request)
			}
			if refuse != "" && !e.givesUp {
				p.parks(t, lifecycle.FailStateDisagreement)
				p.update(t, action)
			}
			require.NoError(t, p.ends(t))
			require.Equal(t, status, p.state(t).Status)
			kind := contract.WorkflowOf(e.kind)
			require.Equal(t, e.asks[e.i], count(p.keep(t, kind, name)), "if the change is meant, correct the table above")
		})
	}
}

// startJob accepts a job on an active node and waits until the relay has started it.
func (p *play) startJob(t *testing.T, kind contract.JobKind, request any) {
	t.Helper()
	n := inService(t, p.rig)
	raw, err := json.Marshal(request)
	require.NoError(t, err)
	require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error {
		j, err := tx.CreateJob(t.Context(), db.NewJob{Kind: string(kind), NodeID: &n.ID, SiteID: &n.SiteID, Input: raw, Actor: admin})
		p.job = j.ID
		return err
	}))
	p.started(t, contract.JobWorkflowID(kind, p.job))
}

// started waits until a workflow runs, and keeps it as the run of the play.
func (p *play) started(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := p.rig.Temporal.DescribeWorkflowExecution(t.Context(), id, "")
		return err == nil
	}, runenv.Patience(patience), 20*time.Millisecond, "the relay starts it")
	p.run = p.rig.Temporal.GetWorkflow(t.Context(), id, "")
}

// pass is a workflow that is no job.
type pass struct {
	workflow, name string
	answers        answers
	refuse         string
	input          func(t *testing.T, r *rig.Rig) any
	next           bool // it goes on as another run
	asks           counts
}

func passes() []pass {
	site := func(*testing.T, *rig.Rig) any {
		return reconcile.Input{ReconcileInput: contract.ReconcileInput{SiteID: "site_1"}}
	}
	none := func(*testing.T, *rig.Rig) any { return nil }
	power := func(*testing.T, *rig.Rig) any {
		return contract.NodePowerInput{Job: contract.JobRef{JobID: "job_1", NodeID: "node_1", SiteID: "site_1"}, SystemID: "abc123", BMCID: "bmc_1"}
	}
	begun := drift.Pass{SiteID: "site_1", Number: 1}
	return []pass{
		{workflow: contract.SweepPass.Workflow, name: "completed", input: none, answers: answers{}, asks: counts{Local: 5}},
		{workflow: contract.SweepPass.Workflow, name: "part_failed", input: none, answers: answers{}, refuse: "SweepStarts", asks: counts{Local: 5}},
		{workflow: contract.BillPass.Workflow, name: "completed", input: none, answers: answers{}, asks: counts{Local: 2}},
		{workflow: contract.BillPass.Workflow, name: "part_failed", input: none, answers: answers{}, refuse: "ChargeUsage", asks: counts{Local: 2}},
		{workflow: contract.PaymentsPass.Workflow, name: "completed", input: none, answers: answers{"PlanPaymentPass": payments.Plan{ListEvents: true, Compare: true}},
			asks: counts{Activities: 6}},
		{workflow: contract.PaymentsPass.Workflow, name: "off", input: none, answers: answers{"PlanPaymentPass": payments.Plan{Off: true}}, asks: counts{Activities: 1}},
		{workflow: contract.PaymentsPass.Workflow, name: "part_failed", input: none, answers: answers{"PlanPaymentPass": payments.Plan{}}, refuse: "ProcessPaymentEvents",
			asks: counts{Activities: 4}},
		{workflow: contract.InstancesPass.Workflow, name: "completed", input: none, answers: answers{}, asks: counts{Activities: 3}},
		{workflow: contract.InstancesPass.Workflow, name: "part_failed", input: none, answers: answers{}, refuse: "CompareInstances", asks: counts{Activities: 3}},
		{workflow: contract.ReconcilePass.Workflow, name: "completed", input: site, answers: answers{"BeginPass": begun}, asks: counts{Activities: 8}},
		{workflow: contract.ReconcilePass.Workflow, name: "gone", input: site, answers: answers{"BeginPass": drift.Pass{SiteID: "site_1", Gone: true}},
			asks: counts{Activities: 1}},
		{workflow: contract.ReconcilePass.Workflow, name: "region_failed", input: site, answers: answers{"BeginPass": begun}, refuse: "ListMachines",
			asks: counts{Activities: 8}},
		{workflow: contract.ReconcilePass.Workflow, name: "continued", input: site, next: true,
			answers: answers{"BeginPass": begun, "ComparePage": drift.PageOut{After: "node_1"}}, asks: counts{Activities: 104}},
		{workflow: contract.PlanWorkflow, name: "completed", input: onboardingPlan, asks: counts{Activities: 9}},
		{workflow: contract.DecommissionPlanWorkflow, name: "completed", input: decommissionPlan, asks: counts{Activities: 2}},
		{workflow: contract.AllocationPlanWorkflow, name: "completed", input: releasePlan, asks: counts{Activities: 4},
			answers: answers{"PlanAllocation": contract.AllocationFacts{Status: lifecycle.AllocationReleasing, NodeID: "node_1", SiteID: "site_1", TenantRoot: true},
				"PlanNodeDecommission":    nodestateact.DecommissionPlan{Facts: contract.DecommissionFacts{SystemID: "abc", BMCID: "bmc_1", Hostname: "gpu-1"}},
				"PlanMachineDecommission": maasact.DecommissionPlan{Machine: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}}}},
		{workflow: contract.NodePowerWorkflow, name: "completed", input: power, answers: answers{}, asks: counts{Activities: 2}},
		{workflow: contract.NodePowerWorkflow, name: "part_failed", input: power, answers: answers{}, refuse: "PowerOffByBMC", asks: counts{Activities: 2}},
	}
}

// onboardingPlan asks what a dry run would do.
func onboardingPlan(t *testing.T, r *rig.Rig) any {
	t.Helper()
	n, err := r.AddNode(t.Context(), "gpu-plan", false)
	require.NoError(t, err)
	record, err := r.Store.BMCOfNode(t.Context(), n.ID)
	require.NoError(t, err)
	raw, err := json.Marshal(record)
	require.NoError(t, err)
	return contract.PlanInput{Kind: contract.KindOnboarding, Job: contract.JobInput{Kind: contract.KindOnboarding, NodeID: n.ID, SiteID: r.Site.ID}, Request: &n.Input, BMC: raw}
}

func decommissionPlan(t *testing.T, r *rig.Rig) any {
	t.Helper()
	n := inService(t, r)
	return contract.DecommissionPlanInput{
		Job:     contract.JobInput{Kind: contract.KindDecommission, NodeID: n.ID, SiteID: n.SiteID},
		Request: &contract.DecommissionInput{Mode: lifecycle.ModeSoftReset, NodeID: n.ID, Hostname: n.Hostname, From: n.Status},
	}
}

func releasePlan(*testing.T, *rig.Rig) any {
	return contract.AllocationPlanInput{
		Job: contract.JobInput{Kind: contract.KindAllocationRelease}, Request: &contract.AllocationInput{AllocationID: "alc_1"},
	}
}

// TestPassesDoWhatTheyDid runs the workflows that are no jobs: plans, sweeps and the passes for a
// site.
func TestPassesDoWhatTheyDid(t *testing.T) {
	t.Parallel()
	for _, s := range sample(t, passes()) {
		t.Run(s.workflow+"/"+s.name, func(t *testing.T) {
			t.Parallel()
			p := &play{}
			if s.answers == nil {
				p.rig = rig.New(t, smooth())
			} else {
				p.rig = rig.NewScripted(t, s.answers.script(s.refuse, temporal.NewNonRetryableApplicationError("not now", "test", nil), false))
			}
			var args []any
			if in := s.input(t, p.rig); in != nil {
				args = append(args, in)
			}
			var err error
			p.run, err = p.rig.Temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
				ID: s.workflow + "/" + db.NewID("run"), TaskQueue: p.rig.Queue, WorkflowExecutionTimeout: runenv.Patience(2 * patience),
			}, s.workflow, args...)
			require.NoError(t, err)
			first := p.run.GetRunID()
			if s.next {
				require.Eventually(t, func() bool {
					now, err := p.rig.Temporal.DescribeWorkflowExecution(t.Context(), p.run.GetID(), "")
					return err == nil && now.WorkflowExecutionInfo.Execution.RunId != first
				}, runenv.Patience(patience), 50*time.Millisecond, "another run goes on")
				require.NoError(t, p.rig.Temporal.TerminateWorkflow(t.Context(), p.run.GetID(), "", "the scenario is over"))
			} else {
				require.NoError(t, p.ends(t))
			}
			p.run = p.rig.Temporal.GetWorkflow(t.Context(), p.run.GetID(), first)
			require.Equal(t, s.asks, count(p.keep(t, s.workflow, s.name)), "if the change is meant, correct the table above")
		})
	}
}

// keep returns the history of the play. It searches it for secrets and replays it. While histories
// are recorded it stores it.
func (p *play) keep(t *testing.T, workflow, name string) *historypb.History {
	t.Helper()
	h := p.history(t)
	require.NoError(t, noSecrets(t.Context(), h, leaked(t, p.rig, p.bootstrapped)))
	raw := plain(t, h)
	if os.Getenv(recordEnv) != "" {
		store(t, filepath.Join("testdata", workflow, release, name+".json.gz"), raw)
	}
	require.NoError(t, replay(parse(t, raw)))
	return h
}
