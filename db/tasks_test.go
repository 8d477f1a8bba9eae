package db_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// tasks is a node with an agent's identity of generation 1.
type tasks struct {
	*testing.T
	*db.Store
	conn *pgx.Conn
	node db.Node
}

func newTasks(t *testing.T) *tasks {
	t.Helper()
	dsn := dbtest.Database(t)
	w := &tasks{T: t, Store: dbtest.Open(t, dsn), conn: raw(t, dsn)}
	w.node = dbtest.Node(t, w.Store, dbtest.Active())
	exec(t, w.conn, "INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after) "+
		"VALUES ($1, 1, '1', sha256('k'), 'PEM', now(), now())", w.node.ID)
	exec(t, w.conn, "INSERT INTO agent_identities (node_id, generation) VALUES ($1, 1)", w.node.ID)
	return w
}

var argsOf = map[lifecycle.TaskKind]string{
	lifecycle.TaskKindDrain: `{"grace_seconds": 5}`, lifecycle.TaskKindScrub: `{"run_id": "r"}`, lifecycle.TaskKindUninstall: `{}`,
}

func (w *tasks) enqueue(kind lifecycle.TaskKind, key string) db.NodeTask {
	w.Helper()
	var got db.NodeTask
	require.NoError(w, w.Tx(w.Context(), func(tx *db.Tx) error {
		var err error
		got, _, err = tx.EnqueueTask(w.Context(), db.NewTask{NodeID: w.node.ID, Kind: kind, Args: json.RawMessage(argsOf[kind]), Key: key, Actor: admin})
		return err
	}))
	return got
}

func (w *tasks) try(c db.TaskClaim) db.TaskClaimed {
	w.Helper()
	c.NodeID, c.Lease = w.node.ID, time.Minute
	if c.Generation == 0 {
		c.Generation = 1
	}
	if c.BootID == "" {
		c.BootID = "boot-1"
	}
	got, err := w.ClaimTask(w.Context(), c)
	require.NoError(w, err)
	return got
}

func (w *tasks) claim() db.NodeTask {
	w.Helper()
	got := w.try(db.TaskClaim{})
	require.NotNil(w, got.Task)
	return *got.Task
}

func (w *tasks) is(id string, want lifecycle.TaskStatus) db.NodeTask {
	w.Helper()
	got, err := w.Task(w.Context(), id)
	require.NoError(w, err)
	require.Equal(w, want, got.Status, got.Message)
	return got
}

func (w *tasks) leaseEnds() {
	w.Helper()
	exec(w.T, w.conn, "UPDATE node_tasks SET lease_until = now() - interval '1 second' WHERE lease_until IS NOT NULL")
}

func (w *tasks) deadlinePasses() {
	w.Helper()
	exec(w.T, w.conn, "UPDATE node_tasks SET deadline_at = now() - interval '1 second'")
}

func (w *tasks) settle() db.TasksSettled {
	w.Helper()
	got, err := w.SettleTasks(w.Context(), 10)
	require.NoError(w, err)
	return got
}

// untouched: whatever happened, the node is in its state, and every row of the
// task has its place in the audit chain.
func (w *tasks) untouched() {
	w.Helper()
	n, err := w.Node(w.Context(), w.node.ID)
	require.NoError(w, err)
	require.Equal(w, w.node.Status, n.Status)
	require.Equal(w, w.node.Version, n.Version)
	rows, err := w.ListTasks(w.Context(), db.TaskFilter{NodeID: w.node.ID}, "", 100)
	require.NoError(w, err)
	for _, r := range rows {
		broken, err := w.VerifyAudit(w.Context(), "node_task", r.ID)
		require.NoError(w, err)
		require.Zero(w, broken)
		last, err := w.ResourceTimeline(w.Context(), "node_task", r.ID, 0, 100)
		require.NoError(w, err)
		require.Equal(w, "create", last[len(last)-1].Name)
		require.Equal(w, w.node.ID, *last[0].NodeID, "it stands in the node's timeline")
	}
}

func fence(t db.NodeTask) db.TaskFence {
	return db.TaskFence{NodeID: t.NodeID, TaskID: t.ID, LeaseID: t.LeaseID, Attempt: t.Attempt}
}

var done = lifecycle.TaskResult{OK: true, Message: "done", Steps: []lifecycle.StepResult{{Name: "a", OK: true, StartedAt: time.Unix(1, 5).UTC()}},
	Output: json.RawMessage(`{"b": 1, "a": [1.50, "x\u0000y"]}`)}

func TestATaskIsHandedOutAndEndsOnce(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	made := w.enqueue(lifecycle.TaskKindScrub, "k")
	require.Equal(t, made.ID, w.enqueue(lifecycle.TaskKindScrub, "k").ID, "the same key is the same task")
	err := w.Tx(t.Context(), func(tx *db.Tx) error {
		_, _, err := tx.EnqueueTask(t.Context(), db.NewTask{NodeID: w.node.ID, Kind: lifecycle.TaskKindScrub, Args: json.RawMessage(`{"run_id": "other"}`), Key: "k", Actor: admin})
		return err
	})
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, made.ID, conflict.Existing)
	for _, bad := range []db.NewTask{
		{Kind: "shell.run", Key: "x"}, {Kind: lifecycle.TaskKindScrub, Key: "x"}, {Kind: lifecycle.TaskKindDrain, Key: "x", Args: json.RawMessage(`{"command": "rm"}`)},
		{Kind: lifecycle.TaskKindUninstall},
	} {
		bad.NodeID, bad.Actor = w.node.ID, admin
		var invalid *spec.InvalidError
		require.ErrorAs(t, w.Tx(t.Context(), func(tx *db.Tx) error {
			_, _, err := tx.EnqueueTask(t.Context(), bad)
			return err
		}), &invalid)
	}

	got := w.claim()
	require.Equal(t, made.ID, got.ID)
	require.Equal(t, 1, got.Attempt)
	require.NotNil(t, got.LeaseUntil)
	w.enqueue(lifecycle.TaskKindDrain, "k2")
	require.Nil(t, w.try(db.TaskClaim{}).Task, "one at a time")
	require.NoError(t, w.RenewTask(t.Context(), fence(got), "wiping nvme0", time.Minute))
	require.Equal(t, "wiping nvme0", w.is(got.ID, lifecycle.TaskDispatched).Progress)
	other := fence(got)
	other.LeaseID = "lease_other"
	require.ErrorIs(t, w.RenewTask(t.Context(), other, "", time.Minute), db.ErrLeaseLost)
	_, err = w.FinishTask(t.Context(), other, done)
	require.ErrorIs(t, err, db.ErrLeaseLost)
	foreign := fence(got)
	foreign.NodeID = dbtest.Node(t, w.Store).ID
	_, err = w.FinishTask(t.Context(), foreign, done)
	require.ErrorIs(t, err, db.ErrTaskEnded)
	require.ErrorIs(t, w.RenewTask(t.Context(), foreign, "", time.Minute), db.ErrTaskEnded)

	for range 3 {
		status, err := w.FinishTask(t.Context(), fence(got), done)
		require.NoError(t, err, "sending it again is success")
		require.Equal(t, lifecycle.TaskSucceeded, status)
	}
	_, err = w.FinishTask(t.Context(), fence(got), lifecycle.TaskResult{Code: lifecycle.TaskCodeStepFailed})
	require.ErrorIs(t, err, db.ErrTaskEnded, "the first result counts")
	end := w.is(got.ID, lifecycle.TaskSucceeded)
	require.Equal(t, "done", end.Result.Message)
	require.NotNil(t, end.FinishedAt)
	require.Nil(t, end.LeaseUntil)
	require.ErrorIs(t, w.RenewTask(t.Context(), fence(got), "", time.Minute), db.ErrTaskEnded)
	require.Equal(t, []string{got.ID, "task_unknown"}, w.try(db.TaskClaim{Unfinished: []string{got.ID, "task_unknown"}}).Dropped)
	w.untouched()
}

func TestOfManyClaimsOneIsGivenTheTask(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindScrub, "a")
	w.enqueue(lifecycle.TaskKindDrain, "b")
	var wg sync.WaitGroup
	given := make(chan string, 8)
	for range 8 {
		wg.Go(func() {
			got, err := w.ClaimTask(t.Context(), db.TaskClaim{NodeID: w.node.ID, BootID: "boot-1", Generation: 1, Lease: time.Minute})
			if err == nil && got.Task != nil {
				given <- got.Task.ID
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Len(t, given, 1)
}

// A lease that expires changes no state: it must not be the reason for which a node stays in
// draining or removing.
func TestTasks_ExpiredLeaseKeepsNodeState(t *testing.T) {
	t.Parallel()
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindDrain, lifecycle.TaskKindScrub, lifecycle.TaskKindUninstall} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newTasks(t)
			info, _ := lifecycle.TaskKindOf(kind)
			w.enqueue(kind, "k")
			first := w.claim()
			require.Zero(t, w.settle(), "the lease holds")
			w.leaseEnds()
			if info.Redeliver {
				require.Equal(t, db.TasksSettled{Requeued: 1}, w.settle())
				w.untouched()
				second := w.claim()
				require.Equal(t, first.ID, second.ID)
				require.Equal(t, 2, second.Attempt)
				_, err := w.FinishTask(t.Context(), fence(first), done)
				require.ErrorIs(t, err, db.ErrLeaseLost, "a newer delivery counts")
				require.ErrorIs(t, w.RenewTask(t.Context(), fence(first), "", time.Minute), db.ErrLeaseLost)
				_, err = w.FinishTask(t.Context(), fence(second), done)
				require.NoError(t, err)
			} else {
				require.Equal(t, db.TasksSettled{Uncertain: 1}, w.settle())
				w.untouched()
				require.Nil(t, w.try(db.TaskClaim{}).Task, "it is not given again by itself")
				require.ErrorIs(t, w.RenewTask(t.Context(), fence(first), "", time.Minute), db.ErrLeaseLost)
				w.deadlinePasses()
				require.Zero(t, w.settle(), "no clock ends what is uncertain")
				_, err := w.FinishTask(t.Context(), fence(first), done)
				require.NoError(t, err, "the agent's journal decides")
			}
			w.is(first.ID, lifecycle.TaskSucceeded)
			w.untouched()
		})
	}
}

func TestAResultOfTheLastDeliveryCountsWhileNobodyElseHoldsTheTask(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindDrain, "k")
	first := w.claim()
	w.leaseEnds()
	w.settle()
	w.is(first.ID, lifecycle.TaskQueued)
	status, err := w.FinishTask(t.Context(), fence(first), lifecycle.TaskResult{Code: lifecycle.TaskCodeLeaseLost})
	require.NoError(t, err)
	require.Equal(t, lifecycle.TaskQueued, status, "an agent that gave it up has not done it")
	status, err = w.FinishTask(t.Context(), fence(first), done)
	require.NoError(t, err)
	require.Equal(t, lifecycle.TaskSucceeded, status)
	require.Nil(t, w.try(db.TaskClaim{}).Task)
	w.untouched()
}

func TestALateRenewalKeepsALeaseThatNobodyTook(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindScrub, "k")
	got := w.claim()
	w.leaseEnds()
	require.NoError(t, w.RenewTask(t.Context(), fence(got), "", time.Minute))
	require.Zero(t, w.settle())
	w.deadlinePasses()
	require.ErrorIs(t, w.RenewTask(t.Context(), fence(got), "", time.Minute), db.ErrTaskEnded)
	require.Equal(t, db.TasksSettled{Expired: 1}, w.settle())
	_, err := w.FinishTask(t.Context(), fence(got), done)
	require.ErrorIs(t, err, db.ErrTaskEnded)
	line, err := w.ResourceTimeline(t.Context(), "node_task", got.ID, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "late_result", line[0].Name, "what came too late is on record")
	w.untouched()
}

func TestAnotherBootEndsADelivery(t *testing.T) {
	t.Parallel()
	for name, see := range map[string]func(*tasks) db.TaskClaimed{
		"by its claim": func(w *tasks) db.TaskClaimed { return w.try(db.TaskClaim{BootID: "boot-2"}) },
		"by its heartbeat": func(w *tasks) db.TaskClaimed {
			require.NoError(w, w.RecordHeartbeats(w.Context(), []db.Heartbeat{{NodeID: w.node.ID, BootID: "boot-2", Generation: 1, ReceivedAt: time.Now().Add(time.Minute)}}))
			w.settle()
			return w.try(db.TaskClaim{BootID: "boot-2"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTasks(t)
			w.enqueue(lifecycle.TaskKindDrain, "k")
			first := w.claim()
			again := see(w).Task
			require.NotNil(t, again)
			require.Equal(t, first.ID, again.ID)
			require.Equal(t, 2, again.Attempt)
			require.Equal(t, "boot-2", again.BootID)
			_, err := w.FinishTask(t.Context(), fence(*again), done)
			require.NoError(t, err)

			scrub := w.enqueue(lifecycle.TaskKindScrub, "s")
			got := w.try(db.TaskClaim{BootID: "boot-2"}).Task
			require.Equal(t, scrub.ID, got.ID)
			claimed := w.try(db.TaskClaim{BootID: "boot-3", Unfinished: []string{scrub.ID}})
			require.Nil(t, claimed.Task)
			require.Empty(t, claimed.Dropped, "the journal's word is still wanted")
			w.is(scrub.ID, lifecycle.TaskUncertain)
			w.untouched()
		})
	}
}

func TestAnAgentThatWasStartedAgainGoesOnWithItsDelivery(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindScrub, "k")
	got := w.claim()
	w.leaseEnds()
	exec(t, w.conn, "INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after) "+
		"VALUES ($1, 2, '2', sha256('k2'), 'PEM', now(), now())", w.node.ID)
	exec(t, w.conn, "UPDATE agent_identities SET generation = 2")
	again := w.try(db.TaskClaim{Unfinished: []string{got.ID}, Generation: 2})
	require.Equal(t, fence(got), fence(*again.Task), "the same delivery, whatever the journal knows of it")
	require.EqualValues(t, 2, again.Task.Generation, "for the identity that the agent has now")
	require.Empty(t, again.Dropped)
	require.Zero(t, w.settle(), "its lease was renewed")
	_, err := w.FinishTask(t.Context(), fence(got), done)
	require.NoError(t, err)
}

func TestALostAnswerToAClaimIsGivenAgain(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindScrub, "k")
	first := w.try(db.TaskClaim{ClaimID: "c1"}).Task
	same := w.try(db.TaskClaim{ClaimID: "c1"}).Task
	require.NotNil(t, same)
	require.Equal(t, fence(*first), fence(*same), "the same delivery")
	require.Nil(t, w.try(db.TaskClaim{ClaimID: "c2"}).Task, "another claim gets none")
	require.Nil(t, w.try(db.TaskClaim{}).Task)
	require.NoError(t, w.UnclaimTask(t.Context(), fence(*first)))
	require.NoError(t, w.UnclaimTask(t.Context(), fence(*first)), "repeatable")
	require.Equal(t, 2, w.claim().Attempt)
}

func TestOnlyThePresentIdentityClaims(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindDrain, "k")
	_, err := w.ClaimTask(t.Context(), db.TaskClaim{NodeID: w.node.ID, BootID: "b", Generation: 2, Lease: time.Minute})
	require.ErrorIs(t, err, db.ErrIdentityMoved)
	require.NoError(t, w.LockAgentIdentity(t.Context(), w.node.ID, "copied"))
	_, err = w.ClaimTask(t.Context(), db.TaskClaim{NodeID: w.node.ID, BootID: "b", Generation: 1, Lease: time.Minute})
	require.ErrorIs(t, err, db.ErrIdentityMoved)
}

// TestANewerDeliveryWhoseAnswerWasLost: the journal knows the attempt before,
// and a new process has forgotten the name of the claim.
func TestANewerDeliveryWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindDrain, "k")
	first := w.claim()
	w.leaseEnds()
	w.settle()
	second := w.try(db.TaskClaim{Unfinished: []string{first.ID}, ClaimID: "lost"}).Task
	require.Equal(t, 2, second.Attempt)
	_, err := w.FinishTask(t.Context(), fence(first), done)
	require.ErrorIs(t, err, db.ErrLeaseLost)
	again := w.try(db.TaskClaim{Unfinished: []string{first.ID}, ClaimID: "new"}).Task
	require.Equal(t, fence(*second), fence(*again))
	_, err = w.FinishTask(t.Context(), fence(*again), done)
	require.NoError(t, err)
}

// Every pair of states, by SQL: the trigger allows exactly the edges, and none
// without its audit row.
func TestTheSchemaRefusesEveryChangeOfATaskThatIsNoEdge(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	in := map[lifecycle.TaskStatus]string{}
	end := func(r lifecycle.TaskResult) string {
		got := w.claim()
		_, err := w.FinishTask(t.Context(), fence(got), r)
		require.NoError(t, err)
		return got.ID
	}
	w.enqueue(lifecycle.TaskKindScrub, "1")
	in[lifecycle.TaskSucceeded] = end(done)
	w.enqueue(lifecycle.TaskKindScrub, "2")
	in[lifecycle.TaskFailed] = end(lifecycle.TaskResult{Code: lifecycle.TaskCodeStepFailed})
	w.enqueue(lifecycle.TaskKindScrub, "3")
	in[lifecycle.TaskUncertain] = end(lifecycle.TaskResult{Code: lifecycle.TaskCodeUncertain})
	in[lifecycle.TaskExpired] = w.enqueue(lifecycle.TaskKindScrub, "4").ID
	w.deadlinePasses()
	w.settle()
	w.enqueue(lifecycle.TaskKindScrub, "5")
	in[lifecycle.TaskDispatched] = w.claim().ID
	in[lifecycle.TaskQueued] = w.enqueue(lifecycle.TaskKindScrub, "6").ID
	edges := lifecycle.NodeTask.Edges()
	for from, id := range in {
		w.is(id, from)
		for _, to := range lifecycle.NodeTask.States {
			if to.State == from {
				continue
			}
			tx, err := w.conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `UPDATE node_tasks SET status = $1::text, version = version + 1, attempt = 1, lease_id = 'l', boot_id = 'b', generation = 1, result = '{}',
				lease_until = CASE WHEN $1::text = 'dispatched' THEN now() END WHERE id = $2`, string(to.State), id)
			legal := slices.ContainsFunc(edges, func(e lifecycle.Edge) bool { return e.From == string(from) && e.To == string(to.State) })
			if legal && to.State == lifecycle.TaskDispatched {
				requireState(t, err, "23505") // the node holds one
			} else if legal {
				require.NoError(t, err, "%s to %s", from, to.State)
				requireState(t, tx.Commit(t.Context()), "SW002")
			} else {
				requireState(t, err, "SW001")
			}
			_ = tx.Rollback(t.Context())
		}
	}
	_, err := w.conn.Exec(t.Context(), "DELETE FROM node_tasks")
	requireState(t, err, "SW001")
}

// A root tenant has the agent's key. Whatever he claims, gives up and reports, a task writes a
// bounded number of audit rows.
func TestTask_LyingAgentWritesFewAuditRows(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	rows := func(task string) (n int) {
		require.NoError(t, w.conn.QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE resource_id = $1", task).Scan(&n))
		return n
	}
	boots := w.enqueue(lifecycle.TaskKindDrain, "boots")
	last := boots
	for i := range 100 {
		if got := w.try(db.TaskClaim{BootID: fmt.Sprint("boot-", i)}); got.Task != nil {
			last = *got.Task
		}
	}
	w.is(boots.ID, lifecycle.TaskUncertain)
	require.LessOrEqual(t, rows(boots.ID), 64)
	for range 100 {
		_, err := w.FinishTask(t.Context(), fence(last), lifecycle.TaskResult{Code: lifecycle.TaskCodeUncertain, Message: db.NewID("x")})
		require.NoError(t, err)
	}
	require.LessOrEqual(t, rows(boots.ID), 65)
	gives := w.enqueue(lifecycle.TaskKindDrain, "gives")
	for range 100 {
		if got := w.try(db.TaskClaim{}); got.Task != nil {
			_, err := w.FinishTask(t.Context(), fence(*got.Task), lifecycle.TaskResult{Code: lifecycle.TaskCodeLeaseLost})
			require.NoError(t, err)
		}
	}
	require.LessOrEqual(t, rows(gives.ID), 64)
	late := w.enqueue(lifecycle.TaskKindDrain, "late")
	given := w.claim()
	require.Equal(t, late.ID, given.ID)
	w.deadlinePasses()
	w.settle()
	w.is(late.ID, lifecycle.TaskExpired)
	before := rows(late.ID)
	for i := range 100 {
		_, err := w.FinishTask(t.Context(), fence(given), lifecycle.TaskResult{OK: i%2 == 0, Code: db.NewID("x")})
		require.ErrorIs(t, err, db.ErrTaskEnded)
	}
	require.LessOrEqual(t, rows(late.ID), before+1)
}
