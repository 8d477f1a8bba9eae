package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// nodePlanRun makes the plan of a decommission from what the outside shows.
type nodePlanRun struct {
	planRun
	ask contract.DecommissionPlanInput
	now string
}

func (r nodePlanRun) Get(_ context.Context, into any) error {
	if r.e.get != nil {
		return r.e.get
	}
	p := contract.Plan{
		Kind: r.ask.Job.Kind, ObservedAt: time.Now(), Subject: contract.PlanSubject{JobID: r.ask.Job.JobID, NodeID: r.ask.Job.NodeID, SiteID: r.ask.Job.SiteID},
		Drives: r.e.drives,
		Rows: []contract.PlanRow{
			{Ordinal: 1, Stage: lifecycle.StageDisableNode, Planned: contract.PlannedRun, Steps: []string{"take the node from scheduling"}},
			{Ordinal: 2, Stage: lifecycle.StageReleaseMAAS, Planned: contract.PlannedRun, Steps: []string{"release " + r.now}},
		},
	}
	raw, err := json.Marshal(p.Concluded())
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

const decommissions = "/api/v1/admin/decommissions"

// as names who asks.
func (w *world) as(role string) header { return header{"Authorization": "Bearer " + w.tokens[role]} }

// planned is the hash of a plan.
func (w *world) planned(node string, mode lifecycle.DecommissionMode) string {
	w.t.Helper()
	var p rest.Plan
	w.do("POST", decommissions+"/plan", map[string]any{"node_id": node, "mode": mode}).want(http.StatusOK).into(&p)
	require.Len(w.t, p.PlanHash, 64)
	return p.PlanHash
}

func (w *world) node(id string) db.Node {
	w.t.Helper()
	n, err := w.store.Node(w.t.Context(), id)
	require.NoError(w.t, err)
	return n
}

func (w *world) nodeIn(s lifecycle.NodeStatus) db.Node {
	w.t.Helper()
	return dbtest.Node(w.t, w.store, dbtest.At(w.site.ID), dbtest.With(w.profile.ID), dbtest.Of(w.sku.ID), dbtest.Status(s))
}

func TestADecommissionIsOneIntentWithTheNodesMove(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	n := w.nodeIn(lifecycle.NodeQuarantined)
	bmc, err := w.store.CreateBMC(t.Context(), db.NewBMC{NodeID: &n.ID, Address: "10.0.0.1", Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(t, err)
	hash := w.planned(n.ID, lifecycle.ModeSoftReset)
	body := map[string]any{"node_id": n.ID, "mode": "soft_reset", "plan_hash": hash, "reason": "the tenant left"}
	key := header{"Idempotency-Key": "once"}
	made := w.post(decommissions, body, key, w.as("operator")).want(http.StatusAccepted)
	var job rest.Job
	made.into(&job)
	require.Equal(t, decommissions+"/"+job.ID, made.header.Get("Location"))
	require.Equal(t, "decommission", job.Kind)
	require.Equal(t, "soft_reset", job.Mode)
	require.Equal(t, "decommission/"+job.ID, job.TemporalWorkflowID)
	require.Equal(t, n.Hostname, job.Hostname)
	require.Equal(t, lifecycle.NodeDraining, w.node(n.ID).Status)

	row, err := w.store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	var in contract.DecommissionInput
	require.NoError(t, json.Unmarshal(row.Input, &in))
	require.Equal(t, contract.DecommissionInput{
		Mode: lifecycle.ModeSoftReset, NodeID: n.ID, Hostname: n.Hostname, BMCID: bmc.ID, From: lifecycle.NodeQuarantined, PlanHash: hash, Reason: "the tenant left",
	}, in)
	backlog, err := w.store.OutboxBacklog(t.Context(), "start_workflow")
	require.NoError(t, err)
	require.EqualValues(t, 1, backlog.Open)
	history, err := w.store.ResourceTimeline(t.Context(), "node", n.ID, 0, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"drain", "admin", "the tenant left", row.WorkflowID}, []string{history[0].Name, history[0].Owner, *history[0].Comment, *history[0].WorkflowID})
	kept, err := w.store.NodePlan(t.Context(), n.ID, hash)
	require.NoError(t, err)
	require.Equal(t, job.ID, *kept.JobID)

	asked := len(e.nodes)
	again := w.post(decommissions, body, key, w.as("operator")).want(http.StatusAccepted)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, job.ID, again.id())
	require.Len(t, e.nodes, asked, "a repetition looks at nothing")
	w.post(decommissions, map[string]any{"node_id": n.ID, "mode": "reimage", "plan_hash": hash}, key, w.as("operator")).refused(problem.KeyReused)
	require.Equal(t, job.ID, w.post(decommissions, body).refused(problem.LiveJob).Existing)
	require.Equal(t, job.ID, w.do("POST", decommissions+"/plan", map[string]any{"node_id": n.ID, "mode": "reimage"}).refused(problem.LiveJob).Existing)

	var got rest.Job
	w.do("GET", decommissions+"/"+job.ID, nil, w.as("viewer")).want(http.StatusOK).into(&got)
	names := []string{}
	for _, s := range got.Stages {
		names = append(names, s.Name)
	}
	mode, _ := lifecycle.DecommissionModeOf(lifecycle.ModeSoftReset)
	require.Equal(t, mode.Stages, names, "the stages of its mode, before the first step")
	var listed struct{ Data []rest.Job }
	w.do("GET", decommissions+"?node_id="+n.ID, nil, w.as("viewer")).want(http.StatusOK).into(&listed)
	require.Len(t, listed.Data, 1)
	onboarding := dbtest.Job(t, w.store)
	w.do("GET", decommissions+"/"+onboarding.ID, nil).refused(problem.NotFound)
	w.do("GET", decommissions+"/"+onboarding.ID+"/plan", nil).refused(problem.NotFound)
}

func TestADecommissionIsStartedWithAPlanThatIsStillTrue(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	start := func(hash string) answer {
		return w.post(decommissions, map[string]any{"node_id": n.ID, "mode": "reimage", "plan_hash": hash})
	}
	missing := start("").refused(problem.PlanMissing)
	require.Contains(t, missing.Detail, decommissions+"/plan")
	require.Empty(t, e.nodes)
	e.now = "two disks"
	old := w.planned(n.ID, lifecycle.ModeReimage)
	e.now = "three disks"
	stale := start(old).refused(problem.PlanStale)
	require.NotEqual(t, old, stale.PlanHash)
	require.Equal(t, []problem.Field{{Location: "plan.release_maas_node", Message: "was run: release two disks; now run: release three disks"}}, stale.Errors)
	unknown := start("00").refused(problem.PlanStale)
	require.Equal(t, stale.PlanHash, unknown.PlanHash)
	require.Contains(t, unknown.Detail, "No plan of this node")
	require.Equal(t, lifecycle.NodeActive, w.node(n.ID).Status)
	live, err := w.store.ListJobs(t.Context(), db.JobFilter{NodeID: n.ID}, "", 10)
	require.NoError(t, err)
	require.Empty(t, live, "nothing was started")
	start(stale.PlanHash).want(http.StatusAccepted)
	require.Equal(t, lifecycle.NodeDraining, w.node(n.ID).Status)
	for _, asked := range e.nodes {
		require.Empty(t, asked.Request.PlanHash)
		require.Equal(t, n.ID, asked.Job.NodeID)
		require.Equal(t, contract.KindDecommission, asked.Job.Kind)
	}
}

func TestAPlanOfAnotherModeIsNotGood(t *testing.T) {
	t.Parallel()
	w, _ := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	drain := w.planned(n.ID, lifecycle.ModeDrain)
	p := w.post(decommissions, map[string]any{"node_id": n.ID, "mode": "soft_reset", "plan_hash": drain}).refused(problem.PlanStale)
	require.Contains(t, p.Detail, "mode drain, not soft_reset")
}

func TestWhatADecommissionIsRefusedFor(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	ask := func(change func(map[string]any)) map[string]any {
		b := map[string]any{"node_id": n.ID, "mode": "soft_reset", "plan_hash": "00"}
		change(b)
		return b
	}
	full := ask(func(b map[string]any) { b["mode"] = "full_decommission" })
	w.post(decommissions, full, w.as("operator")).refused(problem.Forbidden)
	w.post(decommissions, ask(func(b map[string]any) { b["node_id"] = "node_none" })).refused(problem.NotFound)
	for _, change := range []func(map[string]any){
		func(b map[string]any) { b["mode"] = "drain" }, func(b map[string]any) { b["mode"] = "burn" }, func(b map[string]any) { delete(b, "mode") },
		func(b map[string]any) { delete(b, "node_id") }, func(b map[string]any) { b["grace_seconds"] = -1 }, func(b map[string]any) { b["grace_seconds"] = 90000 },
	} {
		w.post(decommissions, ask(change)).refused(problem.Invalid)
	}
	w.do("POST", decommissions, ask(func(map[string]any) {})).refused(problem.KeyMissing)
	for status, modes := range map[lifecycle.NodeStatus][]string{
		lifecycle.NodeRetired: {"full_decommission"}, lifecycle.NodeDeleted: {}, lifecycle.NodeDraining: {}, lifecycle.NodeRemoving: {}, lifecycle.NodeEnrolling: {},
	} {
		other := w.nodeIn(status)
		p := w.post(decommissions, ask(func(b map[string]any) { b["node_id"] = other.ID })).refused(problem.ActionRefused)
		require.ElementsMatch(t, modes, p.Allowed, status)
	}
	require.Empty(t, e.nodes, "nothing was asked of the outside")
	e.fail = errors.New("connection refused")
	w.post(decommissions, ask(func(map[string]any) {})).refused(problem.EngineUnavailable)
	require.Equal(t, n, w.node(n.ID))
	none := newWorld(t).ready()
	n = none.nodeIn(lifecycle.NodeActive)
	none.post(decommissions, map[string]any{"node_id": n.ID, "mode": "soft_reset", "plan_hash": "00"}).refused(problem.Unavailable)
}

func TestFullDecommissionOfARetiredNodeLeavesItRetiredAtFirst(t *testing.T) {
	t.Parallel()
	w, _ := planWorld(t)
	n := w.nodeIn(lifecycle.NodeRetired)
	hash := w.planned(n.ID, lifecycle.ModeFull)
	w.post(decommissions, map[string]any{"node_id": n.ID, "mode": "full_decommission", "plan_hash": hash}).want(http.StatusAccepted)
	require.Equal(t, lifecycle.NodeRetired, w.node(n.ID).Status)
	w.post("/api/v1/nodes/"+n.ID+"/actions/reactivate", nil).refused(problem.LiveJob)
}

// A job that is cancelled before its workflow began takes its node back to where
// it may be.
func TestACancelledStartLeavesNoNodeInBetween(t *testing.T) {
	t.Parallel()
	w, _ := planWorld(t)
	for from, back := range map[lifecycle.NodeStatus]lifecycle.NodeStatus{
		lifecycle.NodeActive: lifecycle.NodeOffline, lifecycle.NodeOffline: lifecycle.NodeOffline, lifecycle.NodeQuarantined: lifecycle.NodeQuarantined,
		lifecycle.NodeRetired: lifecycle.NodeRetired,
	} {
		n := w.nodeIn(from)
		action := "retire"
		if from == lifecycle.NodeRetired {
			action = "remove"
		}
		var started rest.NodeActionAnswer
		w.post("/api/v1/nodes/"+n.ID+"/actions/"+action, nil).want(http.StatusAccepted).into(&started)
		w.post("/api/v1/admin/jobs/"+started.JobID+"/actions/cancel", map[string]any{"reason": "the wrong node"}).want(http.StatusOK)
		require.Equal(t, back, w.node(n.ID).Status, from)
		history, err := w.store.ResourceTimeline(t.Context(), "node", n.ID, 0, 1)
		require.NoError(t, err)
		require.Equal(t, "the wrong node", *history[0].Comment)
		job, err := w.store.Job(t.Context(), started.JobID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.JobCancelled, job.Status)
	}
}

func TestPlanOfANodeJob(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	hash := w.planned(n.ID, lifecycle.ModeSoftReset)
	job := w.post(decommissions, map[string]any{"node_id": n.ID, "mode": "soft_reset", "plan_hash": hash}).want(http.StatusAccepted).id()
	for _, path := range []string{decommissions + "/" + job + "/plan", "/api/v1/admin/jobs/" + job + "/plan"} {
		asked := len(e.nodes)
		w.do("GET", path, nil, w.as("viewer")).want(http.StatusOK)
		require.Len(t, e.nodes, asked+1)
		require.Equal(t, job, e.nodes[asked].Job.JobID)
		require.Nil(t, e.nodes[asked].Request)
	}
	w.post("/api/v1/admin/jobs/"+job+"/actions/cancel", nil).want(http.StatusOK)
	var ended rest.Plan
	w.do("GET", decommissions+"/"+job+"/plan", nil).want(http.StatusOK).into(&ended)
	require.Contains(t, ended.Summary, "nothing is left to do")
	require.Len(t, ended.Rows, 6)
	rotation := dbtest.Job(t, w.store, dbtest.Kind("bmc_rotation"))
	w.do("GET", "/api/v1/admin/jobs/"+rotation.ID+"/plan", nil).refused(problem.Conflict)
	onboarding := w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted).id()
	w.do("GET", "/api/v1/admin/jobs/"+onboarding+"/plan", nil).want(http.StatusOK)
	require.Equal(t, onboarding, e.asked[0].Job.JobID)
}
