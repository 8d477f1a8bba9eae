package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestPruneJobs deletes what ended before with its stages and tries. It keeps live jobs, the newest of
// a kind of a node, and those that something still names; and the audit log stays whole.
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
