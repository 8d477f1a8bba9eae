package db_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func (w *tasks) resume(kind lifecycle.TaskKind) (db.NodeTask, db.Resumed) {
	w.Helper()
	var got db.NodeTask
	var how db.Resumed
	require.NoError(w, w.Tx(w.Context(), func(tx *db.Tx) error {
		var err error
		got, how, err = tx.ResumeTask(w.Context(), w.node.ID, kind, admin)
		return err
	}))
	return got, how
}

func (w *tasks) count() int {
	w.Helper()
	rows, err := w.ListTasks(w.Context(), db.TaskFilter{NodeID: w.node.ID}, "", 100)
	require.NoError(w, err)
	return len(rows)
}

// A job that is resumed keeps a task that is queued or that an agent works on. It queues one again
// whose lease or outcome is lost, and replaces one that has expired.
func TestResumeTask_KeepsQueuesOrReplaces(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	err := w.Tx(t.Context(), func(tx *db.Tx) error {
		_, _, err := tx.ResumeTask(t.Context(), w.node.ID, lifecycle.TaskKindScrub, admin)
		return err
	})
	require.ErrorIs(t, err, db.ErrNotFound)
	made := w.enqueue(lifecycle.TaskKindScrub, "k")
	under := func(status lifecycle.TaskStatus) {
		t.Helper()
		got, how := w.resume(lifecycle.TaskKindScrub)
		require.Equal(t, db.ResumedNothing, how)
		require.Equal(t, made.ID, got.ID)
		require.Equal(t, status, got.Status)
		require.Equal(t, 1, w.count(), "no duplicate")
	}
	requeued := func() {
		t.Helper()
		got, how := w.resume(lifecycle.TaskKindScrub)
		require.Equal(t, db.ResumedRequeued, how)
		require.Equal(t, made.ID, got.ID)
		under(lifecycle.TaskQueued)
	}
	under(lifecycle.TaskQueued)
	w.claim()
	under(lifecycle.TaskDispatched)
	w.leaseEnds()
	requeued()
	w.claim()
	w.leaseEnds()
	w.settle()
	w.is(made.ID, lifecycle.TaskUncertain)
	w.deadlinePasses()
	requeued()
	require.True(t, w.is(made.ID, lifecycle.TaskQueued).DeadlineAt.After(time.Now().Add(time.Hour)), "it has its time again")
	w.deadlinePasses()
	again, how := w.resume(lifecycle.TaskKindScrub)
	require.Equal(t, db.ResumedRecreated, how, "an overdue one has expired, whoever notices it first")
	require.NotEqual(t, made.ID, again.ID)
	require.JSONEq(t, string(made.Args), string(again.Args))
	w.is(made.ID, lifecycle.TaskExpired)
	made = again
	same, how := w.resume(lifecycle.TaskKindScrub)
	require.Equal(t, db.ResumedNothing, how)
	require.Equal(t, again.ID, same.ID)
	got := w.claim()
	_, err = w.FinishTask(t.Context(), fence(got), lifecycle.TaskResult{Code: lifecycle.TaskCodeStepFailed, Message: "nvme0 is busy"})
	require.NoError(t, err)
	again, how = w.resume(lifecycle.TaskKindScrub)
	require.Equal(t, db.ResumedRecreated, how)
	got = w.claim()
	require.Equal(t, again.ID, got.ID)
	_, err = w.FinishTask(t.Context(), fence(got), done)
	require.NoError(t, err)
	same, how = w.resume(lifecycle.TaskKindScrub)
	require.Equal(t, db.ResumedNothing, how)
	require.Equal(t, again.ID, same.ID)
	w.untouched()
}

func TestOnlyAnUncertainTaskIsRequeuedByHand(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindScrub, "k")
	got := w.claim()
	again := func() (out db.NodeTask, err error) {
		err = w.Tx(t.Context(), func(tx *db.Tx) error {
			out, err = tx.RequeueTask(t.Context(), got.ID, admin)
			return err
		})
		return out, err
	}
	_, err := again()
	require.ErrorIs(t, err, lifecycle.ErrIllegalTransition)
	w.leaseEnds()
	w.settle()
	require.Contains(t, kinds(t, w.Store), db.AttentionTaskUncertain)
	out, err := again()
	require.NoError(t, err)
	require.Equal(t, lifecycle.TaskQueued, out.Status)
	require.NotContains(t, kinds(t, w.Store), db.AttentionTaskUncertain)
	require.Equal(t, 2, w.claim().Attempt)
}

func TestAJobWithdrawsWhatNobodyTook(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	job := dbtest.Job(t, w.Store, dbtest.On(w.node.ID))
	var ids []string
	for _, key := range []string{"a", "b"} {
		require.NoError(t, w.Tx(t.Context(), func(tx *db.Tx) error {
			got, _, err := tx.EnqueueTask(t.Context(), db.NewTask{NodeID: w.node.ID, JobID: job.ID, Kind: lifecycle.TaskKindUninstall, Key: key, Actor: admin})
			ids = append(ids, got.ID)
			return err
		}))
	}
	w.claim()
	for i := range 2 {
		require.NoError(t, w.Tx(t.Context(), func(tx *db.Tx) error {
			out, err := tx.RevokeTasks(t.Context(), job.ID, db.Actor{Owner: lifecycle.OwnerJob})
			require.Len(t, out.Left, 1)
			require.Equal(t, ids[0], out.Left[0].ID)
			require.Len(t, out.Withdrawn, 1-i, "repeatable")
			return err
		}))
	}
	w.is(ids[0], lifecycle.TaskDispatched)
	w.is(ids[1], lifecycle.TaskExpired)
}

// An execution of a cancelled job that comes late must not give the node a task.
func TestAwaitTask_RefusesAJobThatDoesNotRun(t *testing.T) {
	t.Parallel()
	for _, status := range []lifecycle.JobStatus{lifecycle.JobPending, lifecycle.JobRunning, lifecycle.JobCompensating, lifecycle.JobCancelled, lifecycle.JobFailedRetryable} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			w := newTasks(t)
			job := dbtest.Job(t, w.Store, dbtest.On(w.node.ID), dbtest.JobStatus(status))
			ask := db.NewTask{NodeID: w.node.ID, JobID: job.ID, Kind: lifecycle.TaskKindUninstall, Key: "late",
				Waiter: db.TaskWaiter{WorkflowID: "w", RunID: "r", ActivityID: "1"}, Actor: admin}
			_, _, err := w.AwaitTask(t.Context(), ask)
			tasks, lookErr := w.ListTasks(t.Context(), db.TaskFilter{JobID: job.ID}, "", 10)
			require.NoError(t, lookErr)
			if status == lifecycle.JobRunning {
				require.NoError(t, err)
				require.Len(t, tasks, 1)
				return
			}
			var conflict *db.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Contains(t, err.Error(), string(status))
			require.Empty(t, tasks)

			ask.Undo = true
			_, _, err = w.AwaitTask(t.Context(), ask)
			require.Equal(t, status == lifecycle.JobCompensating, err == nil, "%v", err)
		})
	}
}

// TestAwaitTask_RefusesWhatAJobAskedBeforeItWasTakenBack has a job that was taken back and begun
// again, and an execution of before that comes late.
func TestAwaitTask_RefusesWhatAJobAskedBeforeItWasTakenBack(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	job := dbtest.Job(t, w.Store, dbtest.On(w.node.ID), dbtest.JobStatus(lifecycle.JobRunning))
	pass := func() int {
		now, err := w.Job(t.Context(), job.ID)
		require.NoError(t, err)
		return db.PassOf(now.Compensations)
	}
	move := func(to ...lifecycle.JobStatus) {
		from := lifecycle.JobRunning
		for _, status := range to {
			step, err := lifecycle.JobTransition(from, status)
			require.NoError(t, err)
			require.NoError(t, w.Tx(t.Context(), func(tx *db.Tx) error {
				_, err := tx.TransitionJob(t.Context(), job.ID, step, nil, db.Actor{Owner: step.Owners[0], ID: "test"})
				return err
			}))
			from = status
		}
	}
	before := pass()
	require.Equal(t, 1, before)
	move(lifecycle.JobCompensating, lifecycle.JobRunning)
	require.Equal(t, 2, pass())
	ask := db.NewTask{NodeID: w.node.ID, JobID: job.ID, Kind: lifecycle.TaskKindUninstall, Key: "late", Pass: before,
		Waiter: db.TaskWaiter{WorkflowID: "w", RunID: "r", ActivityID: "1"}, Actor: admin}
	_, _, err := w.AwaitTask(t.Context(), ask)
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Contains(t, err.Error(), "was taken back since")
	tasks, err := w.ListTasks(t.Context(), db.TaskFilter{JobID: job.ID}, "", 10)
	require.NoError(t, err)
	require.Empty(t, tasks)
	for _, of := range []int{0, 2} {
		ask.Pass = of
		_, _, err = w.AwaitTask(t.Context(), ask)
		require.NoError(t, err, "of pass %d", of)
	}
}

func (w *tasks) await(key string, waiter db.TaskWaiter, uncertain ...int) (db.NodeTask, bool) {
	w.Helper()
	n := 0
	for _, d := range uncertain {
		n = d
	}
	got, over, err := w.AwaitTask(w.Context(), db.NewTask{NodeID: w.node.ID, Kind: lifecycle.TaskKindScrub, Args: json.RawMessage(argsOf[lifecycle.TaskKindScrub]),
		Key: key, Waiter: waiter, UncertainCount: n, Actor: db.Actor{Owner: lifecycle.OwnerJob}})
	require.NoError(w, err)
	return got, over
}

func (w *tasks) toTell() []db.NodeTask {
	w.Helper()
	rows, err := w.ClaimTaskEnds(w.Context(), 10, 0)
	require.NoError(w, err)
	return rows
}

func TestWhoWaitsIsToldOfTheEnd(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	one, two := db.TaskWaiter{WorkflowID: "w", RunID: "r", ActivityID: "1"}, db.TaskWaiter{WorkflowID: "w", RunID: "r", ActivityID: "2"}
	made, over := w.await("k", one)
	require.False(t, over)
	same, over := w.await("k", two)
	require.False(t, over)
	require.Equal(t, made.ID, same.ID)
	require.Empty(t, w.toTell())
	got := w.claim()
	w.leaseEnds()
	w.settle()
	rows := w.toTell()
	require.Len(t, rows, 1)
	require.Equal(t, two, db.WaiterOf(rows[0]), "the wait was taken over")
	rows[0].WaiterActivityID = "1"
	require.NoError(t, w.MarkTaskTold(t.Context(), rows[0]))
	require.Len(t, w.toTell(), 1, "the present waiter was not told")
	rows[0].WaiterActivityID = "2"

	t.Run("a waiter that is gone", func(t *testing.T) {
		require.NoError(t, w.DeleteTaskWaiter(t.Context(), rows[0]))
		require.Empty(t, w.toTell())
		_, over := w.await("k", two)
		require.True(t, over, "asks by itself")
		require.Empty(t, w.toTell(), "and has been told by that")
		_, over = w.await("k", two)
		require.True(t, over, "the same wait once more, after a worker died with the answer")
	})

	// A reset asks again; only an operator who sends the parked job on decides.
	three := db.TaskWaiter{WorkflowID: "w", RunID: "r", ActivityID: "3"}
	_, over = w.await("k", three)
	require.True(t, over)
	again, over := w.await("k", three, 1)
	require.False(t, over)
	require.Equal(t, lifecycle.TaskQueued, again.Status)
	require.Equal(t, made.ID, again.ID)
	second := w.claim()
	require.Equal(t, got.Attempt+1, second.Attempt)
	w.leaseEnds()
	w.settle()
	_, over = w.await("k", three, 1)
	require.True(t, over, "that decision was used up")
	again, over = w.await("k", three, 2)
	require.False(t, over)
	require.Equal(t, lifecycle.TaskQueued, again.Status)
	second = w.claim()
	_, err := w.FinishTask(t.Context(), fence(second), done)
	require.NoError(t, err)
	rows = w.toTell()
	require.Len(t, rows, 1)
	require.True(t, rows[0].Result.OK)
	require.NoError(t, w.MarkTaskTold(t.Context(), rows[0]))
	require.Empty(t, w.toTell())
	end, over := w.await("k", db.TaskWaiter{WorkflowID: "w", RunID: "after a reset", ActivityID: "1"})
	require.True(t, over)
	require.True(t, end.Result.OK)
	require.Empty(t, w.toTell())

	claimed, err := w.ClaimTaskEnds(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Empty(t, claimed)
}

func TestAwaitTask_MakesAnExpiredTaskAgain(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	waiter := db.TaskWaiter{WorkflowID: "w", RunID: "r", ActivityID: "1"}
	first, _ := w.await("k", waiter)
	w.deadlinePasses()
	w.settle()
	same, over := w.await("k", waiter)
	require.True(t, over)
	require.Equal(t, first.ID, same.ID)
	second, over := w.await("k", waiter, 1)
	require.False(t, over)
	require.NotEqual(t, first.ID, second.ID)
	for range 2 {
		same, over = w.await("k", waiter, 1)
		require.False(t, over)
		require.Equal(t, second.ID, same.ID, "it has taken the place of the one before")
	}
	require.Empty(t, w.toTell(), "nobody tells the end of the first any more")
	got := w.claim()
	require.Equal(t, second.ID, got.ID)
	_, err := w.FinishTask(t.Context(), fence(got), lifecycle.TaskResult{Code: lifecycle.TaskCodeStepFailed})
	require.NoError(t, err)
	third, how := w.resume(lifecycle.TaskKindScrub)
	require.Equal(t, db.ResumedRecreated, how)
	same, over = w.await("k", waiter, 1)
	require.False(t, over)
	require.Equal(t, third.ID, same.ID, "and what an operator resumed is waited for")
}

func TestTheEndIsToldByOneRelayAtATime(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.await("k", db.TaskWaiter{WorkflowID: "w", RunID: "r", ActivityID: "1"})
	w.claim()
	w.leaseEnds()
	w.settle()
	rows, err := w.ClaimTaskEnds(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	rows, err = w.ClaimTaskEnds(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Empty(t, rows)
	exec(t, w.conn, "UPDATE node_tasks SET tell_at = now() - interval '1 second'")
	rows, err = w.ClaimTaskEnds(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, rows, 1, "a relay that died is followed by another")
}

func TestListeningTellsTheNodeOfATask(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	require.ErrorContains(t, w.ListenFor(t.Context(), "nonsense", func(string) {}), "no channel")
	heard := make(chan string, 10)
	go func() { _ = w.ListenFor(t.Context(), db.ChannelTasks, func(node string) { heard <- node }) }()
	require.Empty(t, <-heard, "connected")
	w.enqueue(lifecycle.TaskKindScrub, "k")
	require.Equal(t, w.node.ID, <-heard)
	nodes, err := w.NodesWithQueuedTasks(t.Context(), []string{w.node.ID, "node_other"})
	require.NoError(t, err)
	require.Equal(t, []string{w.node.ID}, nodes)
	open, err := w.HasOpenTasks(t.Context(), w.node.ID)
	require.NoError(t, err)
	require.True(t, open)
}
