package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestPruneJobs deletes what ended before with its stages and tries. It keeps live jobs, the newest
// of a kind of a node, and those that something still names; and the audit log stays whole.
func TestPruneJobs(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	n := dbtest.Node(t, s, dbtest.Active())
	ended := func(status lifecycle.JobStatus) db.Job {
		return dbtest.Job(t, s, dbtest.On(n.ID), dbtest.JobStatus(status))
	}
	old, cancelled, started, fresh := ended(lifecycle.JobCompleted), ended(lifecycle.JobCancelled), ended(lifecycle.JobCompleted), ended(lifecycle.JobCompleted)
	newest := ended(lifecycle.JobCompleted)
	live := dbtest.Job(t, s, dbtest.On(n.ID), dbtest.Kind("decommission"), dbtest.JobStatus(lifecycle.JobFailedManual))
	exec(t, conn, "DELETE FROM outbox WHERE job_id IS NOT NULL AND job_id <> $1", started.ID)
	exec(t, conn, "SET session_replication_role = replica")
	exec(t, conn, "UPDATE jobs SET finished_at = now() - CASE WHEN id = $1 THEN interval '2 days' ELSE interval '500 days' END", fresh.ID)
	exec(t, conn, `INSERT INTO action_logs (id, job_id, seq, stage, attempt, action_type, component, status, started_at)
		VALUES ('act_1', $1, 1, 's', 1, 's', 'orchestrator', 'in_progress', now())`, old.ID)
	exec(t, conn, "INSERT INTO job_stages (job_id, ordinal, name, state) VALUES ($1, 90, 's', 'pending')", old.ID)
	exec(t, conn, "SET session_replication_role = origin")

	now, err := s.Clock(t.Context())
	require.NoError(t, err)
	pruned, err := s.PruneJobs(t.Context(), now.Add(-400*24*time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 2, pruned)
	for _, j := range []db.Job{old, cancelled} {
		_, err := s.Job(t.Context(), j.ID)
		require.ErrorIs(t, err, db.ErrNotFound)
		requireWhole(t, s, "job", j.ID)
	}
	for _, j := range []db.Job{started, fresh, newest, live} {
		_, err := s.Job(t.Context(), j.ID)
		require.NoError(t, err)
	}
	exec(t, conn, "UPDATE jobs SET finished_at = now() - interval '23 hours' WHERE id = $1", fresh.ID)
	pruned, err = s.PruneJobs(t.Context(), now.Add(time.Hour))
	require.NoError(t, err)
	require.Zero(t, pruned, "nothing that ended within a day, whatever is asked for")
	_, err = raw(t, dsn).Exec(t.Context(), "DELETE FROM jobs WHERE id = $1", newest.ID)
	requireState(t, err, "42501")
}

// TestPruneJobs_GoesOn: jobs that stay are not looked at each time, and after the last one it
// starts over.
func TestPruneJobs_GoesOn(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	n := dbtest.Node(t, s, dbtest.Active())
	job := dbtest.Job(t, s, dbtest.On(n.ID), dbtest.JobStatus(lifecycle.JobCompleted))
	dbtest.Job(t, s, dbtest.On(n.ID), dbtest.JobStatus(lifecycle.JobCompleted))
	exec(t, conn, "SET session_replication_role = replica")
	exec(t, conn, "DELETE FROM outbox")
	exec(t, conn, `INSERT INTO jobs SELECT (jsonb_populate_record(j, jsonb_build_object('id', 'job_0' || i, 'workflow_id', 'w' || i))).*
		FROM jobs j, generate_series(1, 1000) i WHERE j.id = $1`, job.ID)
	exec(t, conn, "INSERT INTO batch_items (batch_id, ordinal, hostname, job_id) SELECT 'b', row_number() OVER (), 'h', id FROM jobs WHERE id LIKE 'job\\_0%' AND id <> $1", job.ID)
	exec(t, conn, "UPDATE jobs SET finished_at = now() - CASE WHEN id = $1 THEN interval '500 days' ELSE interval '600 days' END", job.ID)
	exec(t, conn, "SET session_replication_role = origin")
	now, err := s.Clock(t.Context())
	require.NoError(t, err)
	prune := func() int64 {
		pruned, err := s.PruneJobs(t.Context(), now.Add(-400*24*time.Hour))
		require.NoError(t, err)
		return pruned
	}
	require.Equal(t, []int64{0, 1}, []int64{prune(), prune()})
	exec(t, conn, "DELETE FROM batch_items WHERE ordinal <= 150")
	require.Equal(t, []int64{100, 50, 0, 0}, []int64{prune(), prune(), prune(), prune()})
}

// TestJobs_IndexedReferences: whether a job may be deleted is asked of every table that refers to
// it.
func TestJobs_IndexedReferences(t *testing.T) {
	t.Parallel()
	conn := dbtest.Owner(t, dbtest.Database(t))
	var missing []string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT array_agg(c.conrelid::regclass::text) FROM pg_constraint c
		WHERE c.contype = 'f' AND c.confrelid = 'jobs'::regclass AND NOT EXISTS (
			SELECT 1 FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1]
				AND (i.indpred IS NULL OR pg_get_expr(i.indpred, i.indrelid) = '(job_id IS NOT NULL)'))`).Scan(&missing))
	require.Empty(t, missing)
}
