package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// planEngine stands in for Temporal and the workers behind it.
type planEngine struct {
	mu      sync.Mutex
	asked   []contract.PlanInput
	nodes   []contract.DecommissionPlanInput
	lent    []contract.AllocationPlanInput
	now     string // what the outside shows of a node
	drives  []contract.PlanDrive
	started []client.StartWorkflowOptions
	fail    error     // of the start
	get     error     // of the result
	poller  time.Time // when a worker asked for work last; zero: never
}

func (e *planEngine) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, args ...any) (client.WorkflowRun, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if in, ok := args[0].(contract.DecommissionPlanInput); ok {
		e.nodes, e.started = append(e.nodes, in), append(e.started, o)
		return nodePlanRun{planRun{e: e, id: o.ID}, in, e.now}, e.fail
	}
	if in, ok := args[0].(contract.AllocationPlanInput); ok {
		e.lent, e.started = append(e.lent, in), append(e.started, o)
		return planRun{e: e, in: contract.PlanInput{Kind: in.Job.Kind, Job: in.Job}, id: o.ID}, e.fail
	}
	in, ok := args[0].(contract.PlanInput)
	if !ok {
		return nil, errors.New("no plan input")
	}
	e.asked, e.started = append(e.asked, in), append(e.started, o)
	return planRun{e: e, in: in, id: o.ID}, e.fail
}

func (e *planEngine) DescribeTaskQueue(context.Context, string, enumspb.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	res := &workflowservice.DescribeTaskQueueResponse{}
	if !e.poller.IsZero() {
		res.Pollers = []*taskqueuepb.PollerInfo{{LastAccessTime: timestamppb.New(e.poller)}}
	}
	return res, nil
}

type planRun struct {
	client.WorkflowRun
	e  *planEngine
	in contract.PlanInput
	id string
}

func (r planRun) GetID() string { return r.id }

func (r planRun) Get(_ context.Context, into any) error {
	if r.e.get != nil {
		return r.e.get
	}
	p := contract.Plan{
		Kind: r.in.Kind, ObservedAt: time.Now(), Status: lifecycle.JobFailedManual,
		Subject: contract.PlanSubject{JobID: r.in.Job.JobID, NodeID: r.in.Job.NodeID, SiteID: r.in.Job.SiteID},
		Rows: []contract.PlanRow{{
			Ordinal: 1, Stage: lifecycle.StageLoadSiteConfig, Planned: contract.PlannedFail,
			Failure: contract.NewPlanFailure(contract.Failure{Class: lifecycle.FailMAASUnavailable, Message: "no answer"}),
		}},
	}.Concluded()
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func planWorld(t *testing.T) (*world, *planEngine) {
	t.Helper()
	e := &planEngine{}
	return newWorld(t, func(c *httpapi.Config) { c.REST.Plans, c.REST.TaskQueue = e, "queue-of-the-test" }).ready(), e
}

func (w *world) rowCounts() map[string]int {
	out := map[string]int{}
	nodes, err := w.store.ListNodes(w.t.Context(), db.NodeFilter{}, "", 100)
	require.NoError(w.t, err)
	jobs, err := w.store.ListJobs(w.t.Context(), db.JobFilter{}, "", 100)
	require.NoError(w.t, err)
	bmcs, err := w.store.ListBMCs(w.t.Context(), "", 100)
	require.NoError(w.t, err)
	events, err := w.store.EventsAfter(w.t.Context(), 0, db.EventFilter{}, 100)
	require.NoError(w.t, err)
	out["nodes"], out["jobs"], out["bmcs"], out["events"] = len(nodes), len(jobs), len(bmcs), len(events)
	return out
}

// TestDryRun: the request is understood as a real one and leaves nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	before := w.rowCounts()
	got := w.do("POST", "/api/v1/admin/onboardings/plan", w.onboarding("gpu-1")).want(http.StatusOK)
	var p rest.Plan
	require.NoError(t, json.Unmarshal(got.raw, &p))
	require.Len(t, p.PlanHash, 64)
	require.Contains(t, p.Summary, "maas_unavailable")
	require.Equal(t, lifecycle.JobFailedRetryable, p.Rows[0].Failure.ParksAs)
	w.do("POST", "/api/v1/admin/onboardings/plan", w.onboarding("gpu-1")).want(http.StatusOK)
	require.Equal(t, before, w.rowCounts())
	require.Len(t, e.asked, 2)
	in := e.asked[0]
	require.Equal(t, in, e.asked[1], "equal questions are one workflow")
	require.Equal(t, e.started[0].ID, e.started[1].ID)
	require.Equal(t, "queue-of-the-test", e.started[0].TaskQueue)
	require.Equal(t, enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, e.started[0].WorkflowIDConflictPolicy)
	require.Positive(t, e.started[0].WorkflowExecutionTimeout)
	require.Equal(t, "gpu-1", in.Request.Hostname)
	require.Empty(t, in.Request.BMCID)
	require.Empty(t, in.Job.JobID)
	require.Empty(t, in.Job.NodeID)
	var b db.BMC
	require.NoError(t, json.Unmarshal(in.BMC, &b))
	require.Equal(t, "10.0.0.1", b.Address)
	require.Equal(t, "redfish", b.Protocol)
	require.Empty(t, b.ID)
	require.NotContains(t, string(in.BMC), "calvin")
}

// TestDryRunOfAKnownNode: what an earlier onboarding left is taken up: its node,
// its BMC with the approved pin, and a login that is stopped.
func TestDryRunOfAKnownNode(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	job := w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted).id()
	refused := w.do("POST", "/api/v1/admin/onboardings/plan", w.onboarding("gpu-1")).refused(problem.LiveJob)
	require.Equal(t, job, refused.Existing)
	w.post("/api/v1/admin/onboardings/"+job+"/actions/cancel", nil).want(http.StatusOK)
	node, err := w.store.LiveNodeOfHost(t.Context(), w.site.ID, "gpu-1")
	require.NoError(t, err)
	b, err := w.store.BMCOfNode(t.Context(), node.ID)
	require.NoError(t, err)
	pin := "aa" + b.PinSHA256 + "bbccddeeff00112233445566778899aabbccddeeff00112233445566778899"
	require.NoError(t, w.store.SetBMCPin(t.Context(), b.ID, pin[:64]))
	require.NoError(t, w.store.BlockBMCLogin(t.Context(), b.ID, "wrong password"))
	w.do("POST", "/api/v1/admin/onboardings/plan?login=true", w.onboarding("gpu-1")).want(http.StatusOK)
	in := e.asked[0]
	require.True(t, in.Login)
	require.Equal(t, node.ID, in.Job.NodeID)
	require.Equal(t, b.ID, in.Request.BMCID)
	var known db.BMC
	require.NoError(t, json.Unmarshal(in.BMC, &known))
	require.Equal(t, pin[:64], known.PinSHA256)
	require.NotNil(t, known.AuthBlockedAt)
	moved := w.onboarding("gpu-1")
	moved["bmc"] = map[string]any{"address": "10.0.0.9", "credential_ref": "bmc/a"}
	w.do("POST", "/api/v1/admin/onboardings/plan", moved).want(http.StatusOK)
	require.NoError(t, json.Unmarshal(e.asked[1].BMC, &known))
	require.Empty(t, known.PinSHA256, "at another address the approved pin does not hold")
	kept, err := w.store.BMC(t.Context(), b.ID)
	require.NoError(t, err)
	require.Equal(t, pin[:64], kept.PinSHA256, "and nothing of that was written")
}

// TestPlanOfAJob is asked for by its id; one that has ended needs no worker.
func TestPlanOfAJob(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	job := w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted).id()
	path := "/api/v1/admin/onboardings/" + job + "/plan"
	w.do("GET", path, nil, header{"Authorization": "Bearer " + w.tokens["viewer"]}).want(http.StatusOK)
	require.Equal(t, job, e.asked[0].Job.JobID)
	require.Nil(t, e.asked[0].Request)
	w.do("GET", path+"?login=true", nil, header{"Authorization": "Bearer " + w.tokens["viewer"]}).refused(problem.Forbidden)
	w.do("GET", path+"?login=true", nil, header{"Authorization": "Bearer " + w.tokens["operator"]}).want(http.StatusOK)
	w.do("GET", path+"?login=perhaps", nil).want(http.StatusUnprocessableEntity)
	w.do("GET", "/api/v1/admin/onboardings/"+db.NewID("job")+"/plan", nil).refused(problem.NotFound)
	asked := len(e.asked)
	w.post("/api/v1/admin/onboardings/"+job+"/actions/cancel", nil).want(http.StatusOK)
	var p rest.Plan
	require.NoError(t, json.Unmarshal(w.do("GET", path, nil).want(http.StatusOK).raw, &p))
	require.Equal(t, lifecycle.JobCancelled, p.Status)
	require.Contains(t, p.Summary, "nothing is left to do")
	require.Len(t, p.Rows, len(lifecycle.OnboardingStages()))
	require.Len(t, e.asked, asked)
}

// TestPlanOfAnAllocationJob asks a worker while the job lives, and nobody when it has ended.
func TestPlanOfAnAllocationJob(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	for i, kind := range []contract.JobKind{contract.KindAllocationProvision, contract.KindAllocationRelease} {
		job := dbtest.Job(t, w.store, dbtest.Kind(string(kind)))
		path := "/api/v1/admin/jobs/" + job.ID + "/plan"
		w.do("GET", path, nil, w.as("viewer")).want(http.StatusOK)
		require.Len(t, e.lent, i+1)
		require.Equal(t, contract.AllocationPlanInput{Job: contract.JobInput{JobID: job.ID, Kind: kind, NodeID: *job.NodeID, SiteID: *job.SiteID}}, e.lent[i])
		require.Equal(t, "plan/"+job.ID, e.started[i].ID)
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.TransitionJob(t.Context(), job.ID, lifecycle.JobCancel, lifecycle.JobCancel.Needs, db.Actor{Owner: lifecycle.JobCancel.Owners[0], ID: "test"})
			return err
		}))
		var ended rest.Plan
		w.do("GET", path, nil).want(http.StatusOK).into(&ended)
		require.Contains(t, ended.Summary, "nothing is left to do")
		require.Len(t, ended.Rows, len(contract.Stages(kind)))
		require.Len(t, e.lent, i+1)
	}
}

// TestPlanRefusesWhatTheRequestWould: bad input is told in the same words.
func TestPlanRefusesWhatTheRequestWould(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	other := dbtest.Site(t, w.store, dbtest.Named("south"))
	for name, change := range map[string]func(map[string]any){
		"site":       func(r map[string]any) { r["site_id"] = db.NewID("site") },
		"profile":    func(r map[string]any) { r["profile_id"] = db.NewID("prof") },
		"elsewhere":  func(r map[string]any) { r["site_id"] = other.ID },
		"sku":        func(r map[string]any) { r["sku_id"] = db.NewID("sku") },
		"hostname":   func(r map[string]any) { r["hostname"] = "UPPER" },
		"address":    func(r map[string]any) { r["bmc"] = map[string]any{"address": "a b", "credential_ref": "bmc/a"} },
		"credential": func(r map[string]any) { r["bmc"] = map[string]any{"address": "a", "credential_ref": "bmc/none"} },
		"missing":    func(r map[string]any) { delete(r, "bmc") },
	} {
		r := w.onboarding("gpu-1")
		change(r)
		planned := w.do("POST", "/api/v1/admin/onboardings/plan", r).refused(problem.Invalid)
		asked := w.post("/api/v1/admin/onboardings", r).refused(problem.Invalid)
		require.Equal(t, asked.Errors, planned.Errors, name)
		require.NotEmpty(t, planned.Errors, name)
	}
	require.Empty(t, e.asked)
}

// TestPlanWithoutAWorker: who is missing is named, with what to do.
func TestPlanWithoutAWorker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(*world, *planEngine)
		kind problem.Kind
		says string
	}{
		"Temporal away": {func(w *world, _ *planEngine) { w.engine.breaks(errors.New("refused")) }, problem.EngineUnavailable, "when Temporal is back"},
		"start refused": {func(_ *world, e *planEngine) { e.fail = serviceerror.NewUnavailable("down") }, problem.EngineUnavailable, "Temporal does not answer"},
		"no worker":     {func(_ *world, e *planEngine) { e.get = context.DeadlineExceeded }, problem.Unavailable, "slipwayd worker"},
		"worker gone": {func(_ *world, e *planEngine) {
			e.get, e.poller = temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), time.Now().Add(-4*time.Minute)
		}, problem.Unavailable, "queue-of-the-test"},
		"worker slow": {func(_ *world, e *planEngine) { e.get, e.poller = context.DeadlineExceeded, time.Now() }, problem.OutcomeUnknown, "nothing was changed"},
		"plan out of time": {func(_ *world, e *planEngine) {
			e.get, e.poller = temporal.NewApplicationError("the time of a plan is over", contract.ErrTypePlanOutOfTime), time.Now()
		}, problem.OutcomeUnknown, "nothing was changed"},
		"plan broken": {func(_ *world, e *planEngine) { e.get = errors.New("a fault of ours") }, problem.Internal, "request id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, e := planWorld(t)
			c.set(w, e)
			p := w.do("POST", "/api/v1/admin/onboardings/plan", w.onboarding("gpu-1")).refused(c.kind)
			require.Contains(t, p.Detail, c.says)
		})
	}
	t.Run("a server without plans", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t).ready()
		w.do("POST", "/api/v1/admin/onboardings/plan", w.onboarding("gpu-1")).refused(problem.Unavailable)
	})
}
