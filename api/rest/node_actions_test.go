package rest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/nodeaction"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// openWorld is a world whose database can be reached beside the API.
func openWorld(t *testing.T) (w *world, dsn string) {
	t.Helper()
	dsn = dbtest.Database(t)
	return worldAt(t, dsn), dsn
}

// worldAt is a world with the database at dsn.
func worldAt(t *testing.T, dsn string) (w *world) {
	t.Helper()
	store := dbtest.Open(t, dsn)
	w = newWorld(t, func(c *httpapi.Config) { c.API.Store, c.REST.Plans = store, &planEngine{} })
	w.sameStore(store)
	w.site = dbtest.Site(t, store)
	w.profile = dbtest.Profile(t, store, dbtest.At(w.site.ID))
	w.sku = dbtest.SKU(t, store, func(p *dbtest.Params) { p.SKU.GPUs = 1 })
	return w
}

func actionPath(node string, a lifecycle.NodeAction) string {
	return "/api/v1/nodes/" + node + "/actions/" + string(a)
}

// ask sends a node action with a reason.
func (w *world) ask(node string, a lifecycle.NodeAction, headers ...header) answer {
	w.t.Helper()
	return w.do("POST", actionPath(node, a), map[string]any{"reason": "because"}, headers...)
}

func (a answer) node() rest.NodeActionAnswer {
	a.t.Helper()
	var out rest.NodeActionAnswer
	a.into(&out)
	return out
}

func enrolled(t *testing.T, s *db.Store, node string) {
	t.Helper()
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.SaveAgentIdentity(t.Context(), db.AgentCertificate{NodeID: node, Generation: 1, Serial: "1", KeyHash: make([]byte, 32),
			CertPEM: "PEM", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)})
	}))
}

// reports sends a heartbeat of so long ago with a report of so many GPUs.
func reports(t *testing.T, s *db.Store, node string, ago time.Duration, gpus int) {
	t.Helper()
	require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{{
		NodeID: node, BootID: "boot", AgentVersion: "1", Generation: 1, ReceivedAt: time.Now().Add(-ago), Report: &spec.HealthReport{GPUs: make([]spec.GPUReport, gpus)},
	}}))
}

// Every action in every state: done, refused with what is allowed, or nothing to
// do; and what reading the node announced before is what happens.
func TestNodeActionsInEveryState(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	for _, info := range lifecycle.NodeActions() {
		for _, st := range lifecycle.NodeMAAS.States {
			n := w.nodeIn(st.State)
			enrolled(t, w.store, n.ID)
			reports(t, w.store, n.ID, 0, 1)
			var before rest.Node
			w.do("GET", "/api/v1/nodes/"+n.ID, nil).want(http.StatusOK).into(&before)
			where := string(info.Action) + " of a node that is " + string(st.State)
			require.Equal(t, slices.Contains(info.From, st.State), slices.Contains(before.AllowedActions, info.Action), where)
			require.Equal(t, info.Needs != "" && slices.Contains(info.From, st.State), before.ActionNeeds[info.Action] != "", "%s: what it needs beyond the state is said", where)
			a := w.ask(n.ID, info.Action)
			switch {
			case slices.Contains(info.Done, st.State):
				got := a.want(http.StatusOK).node()
				require.Equal(t, nodeaction.EffectNoop, got.Effect, where)
				require.Equal(t, n, w.node(n.ID), where)
			case !slices.Contains(info.From, st.State):
				p := a.refused(problem.ActionRefused)
				require.ElementsMatch(t, before.AllowedActions, toActions(p.Allowed), where)
				require.Contains(t, p.Detail, string(info.Action))
				require.Equal(t, n, w.node(n.ID), where)
			case info.Mode != "" || info.Move == nil:
				got := a.want(http.StatusAccepted).node()
				require.Equal(t, nodeaction.EffectStarted, got.Effect, where)
				require.Equal(t, "/api/v1/admin/jobs/"+got.JobID, a.header.Get("Location"))
				require.Equal(t, w.node(n.ID).Status, got.Status)
				job, err := w.store.LiveJobOfNode(t.Context(), n.ID)
				require.NoError(t, err, where)
				require.Equal(t, job.ID, got.JobID)
				require.Equal(t, "node_operation", job.Kind)
			default:
				got := a.want(http.StatusOK).node()
				require.Equal(t, nodeaction.EffectMoved, got.Effect, where)
				require.Equal(t, info.Move.To, w.node(n.ID).Status, where)
				require.Equal(t, info.Move.To, got.Status)
			}
		}
	}
}

func toActions(names []string) []lifecycle.NodeAction {
	out := []lifecycle.NodeAction{}
	for _, n := range names {
		out = append(out, lifecycle.NodeAction(n))
	}
	return out
}

func TestNodeActionsAreIdempotent(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	first := w.ask(n.ID, lifecycle.NodeActionDrain, header{"Idempotency-Key": "k"}).want(http.StatusAccepted)
	replay := w.ask(n.ID, lifecycle.NodeActionDrain, header{"Idempotency-Key": "k"}).want(http.StatusAccepted)
	require.Equal(t, "true", replay.header.Get("Idempotency-Replayed"))
	require.JSONEq(t, string(first.raw), string(replay.raw))
	// Without a key, and with the version of before: it is so already.
	again := w.ask(n.ID, lifecycle.NodeActionDrain, header{"If-Match": `"` + "1" + `"`}).want(http.StatusOK).node()
	require.Equal(t, nodeaction.EffectNoop, again.Effect)
	require.Equal(t, first.node().JobID, again.JobID)
	jobs, err := w.store.ListJobs(t.Context(), db.JobFilter{NodeID: n.ID}, "", 10)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	p := w.ask(n.ID, lifecycle.NodeActionRetire).refused(problem.LiveJob)
	require.Equal(t, first.node().JobID, p.Existing)
	require.Equal(t, []string{"resume"}, p.Allowed)
	w.do("POST", actionPath(n.ID, lifecycle.NodeActionDrain), map[string]any{"reason": "another"}, header{"Idempotency-Key": "k"}).refused(problem.KeyReused)

	other := w.nodeIn(lifecycle.NodeActive)
	w.ask(other.ID, lifecycle.NodeActionQuarantine, header{"If-Match": `"1"`}).refused(problem.Stale)
	w.ask(other.ID, lifecycle.NodeActionQuarantine, header{"If-Match": "x"}).refused(problem.Invalid)
	moved := w.ask(other.ID, lifecycle.NodeActionQuarantine, header{"If-Match": `"` + strings.Trim(w.do("GET", "/api/v1/nodes/"+other.ID, nil).header.Get("ETag"), `"`) + `"`}).want(http.StatusOK)
	require.Equal(t, moved.header.Get("ETag"), w.do("GET", "/api/v1/nodes/"+other.ID, nil).header.Get("ETag"))
	w.ask("node_none", lifecycle.NodeActionDrain).refused(problem.NotFound)
	w.do("POST", "/api/v1/nodes/"+n.ID+"/actions/burn", nil).refused(problem.NotFound)
}

func TestWhoMayAskWhatOfANode(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	n := w.nodeIn(lifecycle.NodeRetired)
	for _, info := range lifecycle.NodeActions() {
		w.ask(n.ID, info.Action, w.as("viewer")).refused(problem.Forbidden)
	}
	w.ask(n.ID, lifecycle.NodeActionRemove, w.as("operator")).refused(problem.Forbidden)
	w.ask(n.ID, lifecycle.NodeActionRemove, w.as("admin")).want(http.StatusAccepted)
	w.ask(n.ID, lifecycle.NodeActionResume, w.as("operator")).want(http.StatusOK)
}

// TestQuarantine_OfAnEnrollingNode: not beside an onboarding, which would lift it at its end.
func TestQuarantine_OfAnEnrollingNode(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	alone, busy := w.nodeIn(lifecycle.NodeEnrolling), w.nodeIn(lifecycle.NodeEnrolling)
	job := dbtest.Job(t, w.store, dbtest.On(busy.ID))
	w.ask(alone.ID, lifecycle.NodeActionQuarantine, w.as("viewer")).refused(problem.Forbidden)
	w.ask(alone.ID, lifecycle.NodeActionQuarantine, w.as("operator")).want(http.StatusOK)
	require.Equal(t, lifecycle.NodeQuarantined, w.node(alone.ID).Status)
	history, _, err := w.store.NodeHistory(t.Context(), alone.ID, 1, 0)
	require.NoError(t, err)
	require.Equal(t, "block_onboarding", history[0].Name)

	var before rest.Node
	w.do("GET", "/api/v1/nodes/"+busy.ID, nil).want(http.StatusOK).into(&before)
	require.NotContains(t, before.AllowedActions, lifecycle.NodeActionQuarantine)
	p := w.ask(busy.ID, lifecycle.NodeActionQuarantine).refused(problem.LiveJob)
	require.Equal(t, job.ID, p.Existing)
	require.Contains(t, p.Detail, "cancel it")
	require.Equal(t, lifecycle.NodeEnrolling, w.node(busy.ID).Status)
}

func TestQuarantineNeedsAReasonAndTakesOccupiedAndBusyNodes(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	w.do("POST", actionPath(n.ID, lifecycle.NodeActionQuarantine), nil).refused(problem.Invalid)
	w.do("POST", actionPath(n.ID, lifecycle.NodeActionQuarantine), map[string]any{"reason": " "}).refused(problem.Invalid)
	tenant := dbtest.Occupy(t, w.store, n.ID)
	rotation := dbtest.Job(t, w.store, dbtest.On(n.ID), dbtest.Kind("bmc_rotation"))
	p := w.ask(n.ID, lifecycle.NodeActionDrain).refused(problem.LiveJob)
	require.Equal(t, rotation.ID, p.Existing)
	require.Equal(t, []string{"quarantine"}, p.Allowed)
	w.ask(n.ID, lifecycle.NodeActionQuarantine).want(http.StatusOK)
	got := w.node(n.ID)
	require.Equal(t, lifecycle.NodeQuarantined, got.Status)
	require.Equal(t, tenant.ID, *got.AllocationID)
	history, err := w.store.ResourceTimeline(t.Context(), "node", n.ID, 0, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"quarantine", "admin", "because"}, []string{history[0].Name, history[0].Owner, *history[0].Comment})
}

// Each missing proof is named, one after the other, until none is missing.
func TestUnquarantineProvesEnrolmentAndHealth(t *testing.T) {
	t.Parallel()
	w, dsn := openWorld(t)
	n := w.nodeIn(lifecycle.NodeQuarantined)
	missing := func(text string) {
		t.Helper()
		p := w.ask(n.ID, lifecycle.NodeActionUnquarantine).refused(problem.ActionRefused)
		require.Contains(t, p.Detail, text)
		require.NotEmpty(t, p.Errors)
		require.ElementsMatch(t, []string{"drain", "retire"}, p.Allowed)
		require.Equal(t, lifecycle.NodeQuarantined, w.node(n.ID).Status)
	}
	missing("no agent has enrolled")
	missing("never been heard")
	enrolled(t, w.store, n.ID)
	require.NoError(t, w.store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: n.ID, BootID: "boot", Generation: 1, ReceivedAt: time.Now().Add(-time.Hour)}}))
	missing("last heard 1h0m")
	require.NoError(t, w.store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: n.ID, BootID: "boot", Generation: 1, ReceivedAt: time.Now().Add(-time.Minute)}}))
	missing("has not reported")
	reports(t, w.store, n.ID, 30*time.Second, 0)
	missing("1 GPUs expected, 0 found")
	reports(t, w.store, n.ID, 20*time.Second, 1)
	require.NoError(t, w.store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: n.ID, BootID: "another", Generation: 1, ReceivedAt: time.Now().Add(-10 * time.Second)}}))
	missing("before the node was started again")
	reports(t, w.store, n.ID, 0, 1)
	w.scrubBegun(n.ID, lifecycle.JobCancelled)
	missing("did not prove it clean")
	alter(t, dsn,
		"INSERT INTO signing_keys (id, purpose, public, secret_ref) VALUES ('key_1', 'certificate', decode(repeat('00', 32), 'hex'), 'x')",
		"INSERT INTO certificates (id, node_id, run_id, sequence, verdict, simulated, payload, hash, previous_hash, key_id, signature, issued_at) VALUES ('cert_1', '"+n.ID+
			"', 'r', 1, 'not_verified', true, '', repeat('0', 64), '', 'key_1', decode(repeat('00', 64), 'hex'), now())")
	missing("did not prove it clean")
	alter(t, dsn, "INSERT INTO certificates (id, node_id, run_id, sequence, verdict, simulated, payload, hash, previous_hash, key_id, signature, issued_at) VALUES ('cert_2', '"+n.ID+
		"', 'r', 2, 'clean', true, '', repeat('1', 64), repeat('0', 64), 'key_1', decode(repeat('00', 64), 'hex'), now())")
	dbtest.EndTenancy(t, w.store, dbtest.Occupy(t, w.store, n.ID).ID)
	missing("a tenant left node")
	var view rest.Node
	w.do("GET", "/api/v1/nodes/"+n.ID, nil).want(http.StatusOK).into(&view)
	require.WithinDuration(t, time.Now(), *view.TenantLeftAt, time.Minute)
	require.Contains(t, view.ActionNeeds[lifecycle.NodeActionUnquarantine], "nothing left of a tenant")
	list := w.attention("?kind=tenant_left").Data
	require.Len(t, list, 1)
	require.Contains(t, list[0].NextAction, "slipway node decommission "+n.Hostname+" --mode reimage")
	require.Contains(t, list[0].Message, "nothing proves it clean")
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error { return tx.MarkSanitized(t.Context(), n.ID, time.Now().Add(time.Minute)) }))
	require.NoError(t, w.store.LockAgentIdentity(t.Context(), n.ID, "a copy was seen"))
	missing("locked out: a copy was seen")
	alter(t, dsn, "UPDATE agent_identities SET locked_at = NULL, locked_reason = ''")
	require.Equal(t, lifecycle.NodeActive, w.ask(n.ID, lifecycle.NodeActionUnquarantine).want(http.StatusOK).node().Status)
	history, err := w.store.ResourceTimeline(t.Context(), "node", n.ID, 0, 1)
	require.NoError(t, err)
	require.JSONEq(t, `{"proof": ["agent_enrolled", "health_proven"]}`, string(history[0].Metadata))
}

// A clean-up without a proof no longer counts when a later one has ended well, or when the node has
// been in service since.
func TestWhatWasNotProvenIsOverOnce(t *testing.T) {
	t.Parallel()
	w, dsn := openWorld(t)
	served, cleaned := w.nodeIn(lifecycle.NodeActive), w.nodeIn(lifecycle.NodeQuarantined)
	for _, n := range []db.Node{served, cleaned} {
		enrolled(t, w.store, n.ID)
		reports(t, w.store, n.ID, 0, 1)
		w.scrubBegun(n.ID, lifecycle.JobCancelled)
	}
	alter(t, dsn, "UPDATE node_tasks SET dispatched_at = now() - interval '1 hour' WHERE node_id = '"+served.ID+"'")
	w.ask(served.ID, lifecycle.NodeActionQuarantine).want(http.StatusOK)
	w.ask(served.ID, lifecycle.NodeActionUnquarantine).want(http.StatusOK)
	w.ask(cleaned.ID, lifecycle.NodeActionUnquarantine).refused(problem.ActionRefused)
	w.scrubBegun(cleaned.ID, lifecycle.JobCompleted)
	w.ask(cleaned.ID, lifecycle.NodeActionUnquarantine).want(http.StatusOK)
}

func TestReactivateNeedsTheIdentity(t *testing.T) {
	t.Parallel()
	w, dsn := openWorld(t)
	n := w.nodeIn(lifecycle.NodeRetired)
	refused := func(text string) {
		t.Helper()
		p := w.ask(n.ID, lifecycle.NodeActionReactivate).refused(problem.ActionRefused)
		require.Contains(t, p.Detail, text)
		require.Equal(t, []string{"remove"}, p.Allowed)
		require.Equal(t, lifecycle.NodeRetired, w.node(n.ID).Status)
	}
	refused("no agent has enrolled")
	enrolled(t, w.store, n.ID)
	require.NoError(t, w.store.LockAgentIdentity(t.Context(), n.ID, "uninstalled"))
	refused("locked out")
	alter(t, dsn, "UPDATE agent_identities SET locked_at = NULL, locked_reason = ''")
	task := w.task(n.ID, "", lifecycle.TaskKindUninstall)
	got, err := w.store.ClaimTask(t.Context(), db.TaskClaim{NodeID: n.ID, BootID: "boot", Generation: 1, Lease: time.Minute})
	require.NoError(t, err)
	_, err = w.store.FinishTask(t.Context(), db.TaskFence{NodeID: n.ID, TaskID: task.ID, LeaseID: got.Task.LeaseID, Attempt: 1}, lifecycle.TaskResult{OK: true})
	require.NoError(t, err)
	refused("was uninstalled")
	half := w.nodeIn(lifecycle.NodeRetired)
	enrolled(t, w.store, half.ID)
	w.scrubBegun(half.ID, lifecycle.JobCancelled)
	require.Contains(t, w.ask(half.ID, lifecycle.NodeActionReactivate).refused(problem.ActionRefused).Detail, "did not prove it clean")
	kept := w.nodeIn(lifecycle.NodeRetired)
	enrolled(t, w.store, kept.ID)
	w.ask(kept.ID, lifecycle.NodeActionReactivate).want(http.StatusOK)
	require.Equal(t, lifecycle.NodeOffline, w.node(kept.ID).Status)
}

// scrubBegun has a node's agent take and end a scrub, and its job end so.
func (w *world) scrubBegun(node string, ends lifecycle.JobStatus) {
	w.t.Helper()
	job := dbtest.Job(w.t, w.store, dbtest.On(node), dbtest.Kind("decommission"), dbtest.JobStatus(ends))
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, _, err := tx.EnqueueTask(w.t.Context(), db.NewTask{NodeID: node, JobID: job.ID, Kind: lifecycle.TaskKindScrub, Args: []byte(`{"run_id": "r"}`), Key: db.NewID("key"),
			Actor: db.Actor{Owner: lifecycle.OwnerJob}})
		return err
	}))
	got, err := w.store.ClaimTask(w.t.Context(), db.TaskClaim{NodeID: node, BootID: "boot", Generation: 1, Lease: time.Minute})
	require.NoError(w.t, err)
	require.NotNil(w.t, got.Task)
	_, err = w.store.FinishTask(w.t.Context(), db.TaskFence{NodeID: node, TaskID: got.Task.ID, LeaseID: got.Task.LeaseID, Attempt: got.Task.Attempt}, lifecycle.TaskResult{OK: true})
	require.NoError(w.t, err)
}

// task asks a node's agent for something, for a job.
func (w *world) task(node, job string, kind lifecycle.TaskKind) db.NodeTask {
	w.t.Helper()
	var task db.NodeTask
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		var err error
		task, _, err = tx.EnqueueTask(w.t.Context(), db.NewTask{NodeID: node, JobID: job, Kind: kind, Key: db.NewID("key"), Actor: db.Actor{Owner: lifecycle.OwnerJob}})
		return err
	}))
	return task
}

// A job that does not own the state, such as the rotation of a password, is no
// owner to resume.
func TestAnotherJobIsNoOwnerToResume(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	n := w.nodeIn(lifecycle.NodeDraining)
	job := dbtest.Job(t, w.store, dbtest.On(n.ID), dbtest.Kind("bmc_rotation"))
	p := w.ask(n.ID, lifecycle.NodeActionResume).refused(problem.LiveJob)
	require.Equal(t, job.ID, p.Existing)
}

// Many at once: one job, and everybody is told of it.
func TestNodeActionsAtOnce(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	const many = 12
	answers := make(chan answer, many)
	for i := range many {
		action := []lifecycle.NodeAction{lifecycle.NodeActionDrain, lifecycle.NodeActionRetire, lifecycle.NodeActionResume}[i%3]
		go func() { answers <- w.ask(n.ID, action) }()
	}
	started := 0
	for range many {
		a := <-answers
		require.Contains(t, []int{http.StatusOK, http.StatusAccepted, http.StatusConflict}, a.status, string(a.raw))
		if a.status == http.StatusAccepted {
			started++
		}
	}
	require.Equal(t, 1, started)
	jobs, err := w.store.ListJobs(t.Context(), db.JobFilter{NodeID: n.ID}, "", 10)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	backlog, err := w.store.OutboxBacklog(t.Context(), "start_workflow")
	require.NoError(t, err)
	require.EqualValues(t, 1, backlog.Open)
}

// A parked job is told to go on by its own action; while Temporal is away it is
// said so, and nothing is lost.
func TestResumeGoesToTheJob(t *testing.T) {
	t.Parallel()
	w, _ := openWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	started := w.ask(n.ID, lifecycle.NodeActionDrain).want(http.StatusAccepted).node()
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ProjectJob(t.Context(), db.Projection{JobID: started.JobID, Seq: 1, Status: lifecycle.JobFailedRetryable, FailureClass: lifecycle.FailNodeTask,
			Actor: db.Actor{Owner: lifecycle.OwnerJob}})
		return err
	}))
	w.engine.breaks(serviceerror.NewUnavailable("away"))
	w.ask(n.ID, lifecycle.NodeActionResume, header{"Idempotency-Key": "k"}).refused(problem.EngineUnavailable)
	require.Equal(t, lifecycle.NodeDraining, w.node(n.ID).Status)
	w.engine.breaks(nil)
	w.engine.answers(accepts(lifecycle.EffectContinue))
	got := w.ask(n.ID, lifecycle.NodeActionResume, header{"Idempotency-Key": "k"}).want(http.StatusOK)
	require.Equal(t, nodeaction.EffectResumed, got.node().Effect)
	require.Equal(t, started.JobID, got.node().JobID)
	asked := len(w.engine.updates())
	require.Equal(t, "resume", w.engine.updates()[asked-1].UpdateName)
	again := w.ask(n.ID, lifecycle.NodeActionResume, header{"Idempotency-Key": "k"}).want(http.StatusOK)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Len(t, w.engine.updates(), asked)
}
