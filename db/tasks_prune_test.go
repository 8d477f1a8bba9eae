package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestOnlyTasksThatNobodyNeedsArePruned: the audit trail of what was pruned
// stays whole.
func TestOnlyTasksThatNobodyNeedsArePruned(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	end := func(key string) db.NodeTask {
		w.enqueue(lifecycle.TaskKindDrain, key)
		got := w.claim()
		_, err := w.FinishTask(t.Context(), fence(got), done)
		require.NoError(t, err)
		return got
	}
	old, ofJob, untold, fresh := end("old"), end("of a live job"), end("untold"), end("fresh")
	job := dbtest.Job(t, w.Store)
	exec(t, w.conn, "UPDATE node_tasks SET job_id = $1 WHERE id = $2", job.ID, ofJob.ID)
	exec(t, w.conn, "UPDATE node_tasks SET waiter_activity_id = 'a', told_at = NULL WHERE id = $1", untold.ID)
	exec(t, w.conn, "UPDATE node_tasks SET finished_at = now() - interval '2 hours' WHERE id <> $1", fresh.ID)
	w.enqueue(lifecycle.TaskKindScrub, "uncertain")
	uncertain := w.claim()
	_, err := w.FinishTask(t.Context(), fence(uncertain), lifecycle.TaskResult{Code: lifecycle.TaskCodeUncertain})
	require.NoError(t, err)
	for _, id := range []string{ofJob.ID, untold.ID, uncertain.ID} {
		_, err := w.conn.Exec(t.Context(), "DELETE FROM node_tasks WHERE id = $1", id)
		requireState(t, err, "SW001")
	}

	prune := func(age time.Duration) int64 {
		now, err := w.Clock(t.Context())
		require.NoError(t, err)
		n, err := w.PruneTasks(t.Context(), now.Add(-age))
		require.NoError(t, err)
		return n
	}
	require.Zero(t, prune(3*time.Hour))
	require.EqualValues(t, 1, prune(time.Hour))
	_, err = w.Task(t.Context(), old.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
	broken, err := w.VerifyAudit(t.Context(), "node_task", old.ID)
	require.NoError(t, err)
	require.Zero(t, broken)
	require.Zero(t, prune(-time.Hour), "the last of its kind stays, as do those that are needed")
	exec(t, w.conn, "UPDATE node_tasks SET told_at = now() WHERE id = $1", untold.ID)
	require.EqualValues(t, 1, prune(-time.Hour))
	w.untouched()
}

func TestAListOfTasksLoadsNoResults(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindDrain, "k")
	_, err := w.FinishTask(t.Context(), fence(w.claim()), done)
	require.NoError(t, err)
	full, err := w.ListTasks(t.Context(), db.TaskFilter{NodeID: w.node.ID}, "", 10)
	require.NoError(t, err)
	require.NotNil(t, full[0].Result)
	lines, err := w.ListTaskLines(t.Context(), db.TaskFilter{NodeID: w.node.ID, Kind: lifecycle.TaskKindDrain}, "", 10)
	require.NoError(t, err)
	full[0].Result, full[0].Args = &lifecycle.TaskResult{Code: full[0].Result.Code, Simulated: full[0].Result.Simulated}, nil
	require.Equal(t, full, lines, "all else is there")
}
