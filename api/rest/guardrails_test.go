package rest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/nodeaction"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestGuardrails holds the guardrails of node states, each by its
// sentence.
func TestGuardrails(t *testing.T) {
	t.Parallel()
	for _, g := range []struct {
		sentence string
		test     func(*testing.T)
	}{
		{"`draining` and `removing` are coarse lifecycle states, not self-sufficient execution state.", notSelfSufficient},
		{"Entering either state must also create or resume an owning lifecycle operation/task.", enteringCreatesAnOwner},
		{"A node must never be left in `draining` or `removing` solely because a short-lived task lease expired.", neverLeftByALease},
		{"`retired -> offline` is valid only for retained node identity reuse. It preserves the installed identity without making the node immediately schedulable.", reuseOfAKeptIdentity},
		{"Once a full decommission reaches completed removal (`removing -> deleted`), the old node identity must not be reactivated.", deletedForGood},
		{"Re-onboarding after full remove creates a new GPUasService node record.", reonboardingCreatesNode},
	} {
		t.Run(g.sentence, func(t *testing.T) {
			t.Parallel()
			g.test(t)
		})
	}
}

// between is a node that the API took to draining or removing.
func (w *world) between(s lifecycle.NodeStatus) (db.Node, rest.NodeActionAnswer) {
	w.t.Helper()
	from, action := lifecycle.NodeActive, lifecycle.NodeActionDrain
	if s == lifecycle.NodeRemoving {
		from, action = lifecycle.NodeRetired, lifecycle.NodeActionRemove
	}
	n := w.nodeIn(from)
	enrolled(w.t, w.store, n.ID)
	got := w.ask(n.ID, action).want(http.StatusAccepted).node()
	require.Equal(w.t, s, got.Status)
	return w.node(n.ID), got
}

// entries are the ways into the two states.
func (w *world) entries() map[string]func(hash string) (node string, a answer) {
	act := func(from lifecycle.NodeStatus, a lifecycle.NodeAction) func(string) (string, answer) {
		n := w.nodeIn(from)
		return func(string) (string, answer) { return n.ID, w.ask(n.ID, a, header{"Idempotency-Key": "the-key"}) }
	}
	soft := w.nodeIn(lifecycle.NodeOffline)
	hash := w.planned(soft.ID, lifecycle.ModeSoftReset)
	return map[string]func(string) (string, answer){
		"drain":  act(lifecycle.NodeActive, lifecycle.NodeActionDrain),
		"retire": act(lifecycle.NodeQuarantined, lifecycle.NodeActionRetire),
		"remove": act(lifecycle.NodeRetired, lifecycle.NodeActionRemove),
		"decommission": func(string) (string, answer) {
			return soft.ID, w.post(decommissions, map[string]any{"node_id": soft.ID, "mode": "soft_reset", "plan_hash": hash}, header{"Idempotency-Key": "the-key"})
		},
	}
}

// Neither state lasts on its own: the schema refuses to commit it without a live
// owner, and where the owner is lost later that is shown, with the way out.
func notSelfSufficient(t *testing.T) {
	w, dsn := openWorld(t)
	for from, move := range map[lifecycle.NodeStatus]lifecycle.Transition[lifecycle.NodeStatus]{
		lifecycle.NodeActive: lifecycle.NodeDrain, lifecycle.NodeRetired: lifecycle.NodeRemove,
	} {
		n := w.nodeIn(from)
		enter := func(tx *db.Tx) error {
			_, err := tx.TransitionNode(t.Context(), n.ID, move, move.Needs, db.Actor{Owner: lifecycle.OwnerAdmin})
			return err
		}
		var pg *pgconn.PgError
		require.ErrorAs(t, w.store.Tx(t.Context(), enter), &pg)
		require.Equal(t, "SW004", pg.Code, "a claim to have an owner is not one")
		require.Equal(t, n, w.node(n.ID))
		// A job that does not own the state does not count.
		dbtest.Job(t, w.store, dbtest.On(n.ID), dbtest.Kind("bmc_rotation"))
		require.ErrorAs(t, w.store.Tx(t.Context(), enter), &pg)
		require.Equal(t, "SW004", pg.Code)
	}
	for _, s := range []lifecycle.NodeStatus{lifecycle.NodeDraining, lifecycle.NodeRemoving} {
		n := w.nodeIn(s) // its job was cancelled without moving it
		alter(t, dsn, "UPDATE nodes SET state_changed_at = now() - interval '11 minutes' WHERE id = '"+n.ID+"'")
		stuck := w.attention("?kind=node_stuck")
		require.Len(t, stuck.Data, 1)
		require.Equal(t, n.ID, stuck.Data[0].NodeID)
		require.Equal(t, []string{"resume"}, stuck.Data[0].AllowedActions)
		require.Equal(t, "resume", stuck.Data[0].Recommended)
		got := w.ask(n.ID, lifecycle.NodeActionResume).want(http.StatusAccepted).node()
		require.Equal(t, s, got.Status)
		require.Empty(t, w.attention("?kind=node_stuck").Data)
		again := w.ask(n.ID, lifecycle.NodeActionResume).want(http.StatusOK).node()
		require.Equal(t, got.JobID, again.JobID, "and no second one")
		require.Equal(t, nodeaction.EffectNoop, again.Effect)
	}
}

// In the same transaction: what fails after the transition takes both back, and
// what succeeds has both under one transaction id.
func enteringCreatesAnOwner(t *testing.T) {
	dsn := dbtest.FreshDatabase(t)
	w := worldAt(t, dsn)
	alter(t, dsn,
		"CREATE FUNCTION boom() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'boom'; END $$",
		// The last statement of the request, and then the commit itself.
		"CREATE TRIGGER boom BEFORE UPDATE ON idempotency_records FOR EACH ROW EXECUTE FUNCTION boom()",
		"CREATE CONSTRAINT TRIGGER boom AFTER INSERT ON jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION boom()")
	triggers := []string{"idempotency_records", "jobs"}
	entries := w.entriesBefore(dsn)
	for _, table := range triggers {
		for name, enter := range entries {
			node, a := enter("")
			require.Equal(t, http.StatusInternalServerError, a.status, name)
			require.NotContains(t, []lifecycle.NodeStatus{lifecycle.NodeDraining, lifecycle.NodeRemoving}, w.node(node).Status, name)
			_, err := w.store.LiveJobOfNode(t.Context(), node)
			require.ErrorIs(t, err, db.ErrNotFound, name)
		}
		alter(t, dsn, "DROP TRIGGER boom ON "+table)
	}
	for name, enter := range entries {
		node, a := enter("")
		a.want(http.StatusAccepted)
		require.Empty(t, a.header.Get("Idempotency-Replayed"), "the failed ones left no answer")
		job, err := w.store.LiveJobOfNode(t.Context(), node)
		require.NoError(t, err, name)
		made, err := w.store.ResourceTimeline(t.Context(), "job", job.ID, 0, 1)
		require.NoError(t, err)
		moved, err := w.store.ResourceTimeline(t.Context(), "node", node, 0, 1)
		require.NoError(t, err)
		require.Equal(t, made[0].TxID, moved[0].TxID, name)
		require.Contains(t, []string{"drain", "remove"}, moved[0].Name)
		require.Equal(t, job.WorkflowID, *moved[0].WorkflowID, "the move names its owner")
	}
}

// entriesBefore builds the entries with the triggers of a test switched off.
func (w *world) entriesBefore(dsn string) map[string]func(string) (string, answer) {
	w.t.Helper()
	alter(w.t, dsn, "ALTER TABLE jobs DISABLE TRIGGER boom")
	out := w.entries()
	alter(w.t, dsn, "ALTER TABLE jobs ENABLE TRIGGER boom")
	return out
}

// neverLeftByALease checks what the action resume does with a task that was queued, dispatched or
// expired. The state of the node changes in none of these cases.
func neverLeftByALease(t *testing.T) {
	w, dsn := openWorld(t)
	for state, kind := range map[lifecycle.NodeStatus]lifecycle.TaskKind{
		lifecycle.NodeDraining: lifecycle.TaskKindDrain, lifecycle.NodeRemoving: lifecycle.TaskKindUninstall,
	} {
		for _, c := range []struct {
			name  string
			lease time.Duration // of a claim; 0: not taken
			then  string        // what happens to the task
			want  lifecycle.TaskStatus
			same  bool // the same task, and nothing was done
		}{
			{"a fresh queued task", 0, "", lifecycle.TaskQueued, true},
			{"a live lease", time.Hour, "", lifecycle.TaskDispatched, true},
			{"a stale lease", time.Nanosecond, "", lifecycle.TaskQueued, false},
			{"a stale lease that was settled", time.Nanosecond, "settle", lifecycle.TaskQueued, kind == lifecycle.TaskKindDrain},
			{"a task that expired", 0, "expire", lifecycle.TaskQueued, false},
		} {
			n, started := w.between(state)
			task := w.task(n.ID, started.JobID, kind)
			if c.lease > 0 {
				_, err := w.store.ClaimTask(t.Context(), db.TaskClaim{NodeID: n.ID, BootID: "boot", Generation: 1, Lease: c.lease})
				require.NoError(t, err)
			}
			if c.then == "expire" {
				alter(t, dsn, "UPDATE node_tasks SET deadline_at = now() - interval '1 minute' WHERE id = '"+task.ID+"'")
			}
			if c.then != "" {
				_, err := w.store.SettleTasks(t.Context(), 100)
				require.NoError(t, err)
			}
			require.Equal(t, n, w.node(n.ID), "%s: the end of a lease moves no node", c.name)
			job, err := w.store.LiveJobOfNode(t.Context(), n.ID)
			require.NoError(t, err)
			require.Equal(t, started.JobID, job.ID, "nor ends its job")
			var before rest.Node
			w.do("GET", "/api/v1/nodes/"+n.ID, nil).into(&before)
			require.Equal(t, []lifecycle.NodeAction{lifecycle.NodeActionResume}, before.AllowedActions)
			for range 2 {
				got := w.ask(n.ID, lifecycle.NodeActionResume).want(http.StatusOK).node()
				require.Equal(t, started.JobID, got.JobID, c.name)
				open, err := w.store.ListTasks(t.Context(), db.TaskFilter{NodeID: n.ID, Kind: kind, Status: c.want}, "", 10)
				require.NoError(t, err)
				require.Len(t, open, 1, "%s of %s: one task that the agent can take or holds", c.name, kind)
				if c.same {
					require.Equal(t, task.ID, open[0].ID)
					require.Equal(t, nodeaction.EffectNoop, got.Effect, c.name)
				}
			}
			require.Equal(t, n, w.node(n.ID), c.name)
		}
	}
}

func reuseOfAKeptIdentity(t *testing.T) {
	w, _ := openWorld(t)
	retired := w.nodeIn(lifecycle.NodeRetired)
	w.ask(retired.ID, lifecycle.NodeActionReactivate).refused(problem.ActionRefused)
	n := w.nodeIn(lifecycle.NodeRetired)
	enrolled(t, w.store, n.ID)
	before, err := w.store.AgentIdentity(t.Context(), n.ID)
	require.NoError(t, err)
	dbtest.EndTenancy(t, w.store, dbtest.Occupy(t, w.store, n.ID).ID)
	got := w.ask(n.ID, lifecycle.NodeActionReactivate).want(http.StatusOK).node()
	require.Equal(t, lifecycle.NodeOffline, got.Status, "not schedulable")
	require.Contains(t, got.Message, "it stays so: a tenant left node")
	after, err := w.store.AgentIdentity(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, before, after)
	// Only health makes it active, and that is the heartbeat policy's to say.
	heartbeat := db.Actor{Owner: lifecycle.OwnerHeartbeat}
	cutoff := time.Now().Add(-time.Minute)
	back, err := w.store.NodeHeardAgain(t.Context(), n.ID, cutoff, heartbeat)
	require.NoError(t, err)
	require.False(t, back)
	reports(t, w.store, n.ID, 0, 1)
	back, err = w.store.NodeHeardAgain(t.Context(), n.ID, cutoff, heartbeat)
	require.NoError(t, err)
	require.False(t, back, "a tenant was on it")
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error { return tx.MarkSanitized(t.Context(), n.ID, time.Now().Add(time.Minute)) }))
	back, err = w.store.NodeHeardAgain(t.Context(), n.ID, cutoff, heartbeat)
	require.NoError(t, err)
	require.True(t, back)
	require.Equal(t, lifecycle.NodeActive, w.node(n.ID).Status)
}

func deletedForGood(t *testing.T) {
	w, dsn := openWorld(t)
	n := w.nodeIn(lifecycle.NodeDeleted)
	enrolled(t, w.store, n.ID)
	for _, info := range lifecycle.NodeActions() {
		if info.Action == lifecycle.NodeActionRemove {
			continue // is done, and says so
		}
		p := w.ask(n.ID, info.Action).refused(problem.ActionRefused)
		require.Empty(t, p.Allowed)
		require.Contains(t, p.Detail, "never comes back")
	}
	for _, mode := range lifecycle.DecommissionModes() {
		w.do("POST", decommissions+"/plan", map[string]any{"node_id": n.ID, "mode": mode.Mode}).refused(problem.ActionRefused)
	}
	w.post("/api/v1/admin/nodes/"+n.ID+"/bootstrap", nil).refused(problem.Conflict)
	reports(t, w.store, n.ID, 0, 1)
	_, err := w.store.LatestHeartbeat(t.Context(), n.ID)
	require.ErrorIs(t, err, db.ErrNotFound, "what it says is not heard")
	require.Equal(t, n, w.node(n.ID))
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	for _, s := range lifecycle.NodeMAAS.States {
		if s.State == lifecycle.NodeDeleted {
			continue
		}
		_, err := conn.Exec(t.Context(), "UPDATE nodes SET status = $1, version = version + 1 WHERE id = $2", string(s.State), n.ID)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, s.State)
		require.Equal(t, "SW001", pg.Code, s.State)
	}
}

func reonboardingCreatesNode(t *testing.T) {
	w := newWorld(t).ready()
	old := dbtest.Node(t, w.store, dbtest.At(w.site.ID), dbtest.Hostname("gpu-1"), dbtest.Status(lifecycle.NodeDeleted))
	var job rest.Job
	w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted).into(&job)
	require.NotEqual(t, old.ID, job.NodeID)
	require.Equal(t, lifecycle.NodeBootstrapIssued, w.node(job.NodeID).Status)
	require.Equal(t, old, w.node(old.ID))
	_, err := w.store.AgentIdentity(t.Context(), job.NodeID)
	require.ErrorIs(t, err, db.ErrNotFound, "with an identity of its own, once it enrols")
}
