package machinesdb_test

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// oldRuns is a machine with runs that ended 500 days ago. Their ids sort after those of runs that
// are made now.
type oldRuns struct {
	*testing.T
	store *db.Store
	owner *pgx.Conn
	first machinesdb.Run
}

func newOldRuns(t *testing.T) oldRuns {
	t.Helper()
	dsn := dbtest.Database(t)
	o := oldRuns{T: t, store: dbtest.Open(t, dsn), owner: dbtest.Owner(t, dsn)}
	o.first = newRun(t, o.store, newMachine(t, o.store, "m-1", spec.MachineSpec{}))
	project(t, o.store, o.first, machinesdb.Step{Status: lifecycle.JobRunning})
	project(t, o.store, o.first, machinesdb.Step{Status: lifecycle.JobCompleted})
	o.execSQL("UPDATE runs SET finished_at = now() - interval '500 days' WHERE id = $1", o.first.ID)
	return o
}

// exec runs a statement without triggers.
func (o oldRuns) execSQL(sql string, args ...any) {
	o.Helper()
	tx, err := o.owner.Begin(o.Context())
	require.NoError(o, err)
	_, err = tx.Exec(o.Context(), "SET LOCAL session_replication_role = replica")
	require.NoError(o, err)
	_, err = tx.Exec(o.Context(), sql, args...)
	require.NoError(o, err)
	require.NoError(o, tx.Commit(o.Context()))
}

// add adds a run that is as the first one, but for some columns.
func (o oldRuns) addRun(id string, columns map[string]any) string {
	o.Helper()
	row := map[string]any{"id": id, "request_id": id, "job_id": "job_" + id}
	maps.Copy(row, columns)
	b, err := json.Marshal(row)
	require.NoError(o, err)
	o.execSQL("INSERT INTO runs SELECT (jsonb_populate_record(r, $2::jsonb)).* FROM runs r WHERE r.id = $1", o.first.ID, string(b))
	return id
}

// prune prunes once with the default retention, and returns the runs that are left.
func (o oldRuns) pruneAll() (n int64, left []string) {
	o.Helper()
	n, err := machinesdb.PruneRuns(o.Context(), o.store, time.Now().Add(-400*24*time.Hour))
	require.NoError(o, err)
	rows, err := o.owner.Query(o.Context(), "SELECT id FROM runs ORDER BY id")
	require.NoError(o, err)
	left, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(o, err)
	return n, left
}

// TestPruneRuns deletes what ended before. It keeps live runs, the newest of a machine, evidence of
// a tenant, and what something still names; and the audit log stays whole.
func TestPruneRuns_KeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	o := newOldRuns(t)
	traced := map[string]any{"project_id": "prj_x"}
	o.addRun("run_z01", traced)
	trace := o.addRun("run_z02", traced)
	retried := o.addRun("run_z03", nil)
	o.addRun("run_z04", map[string]any{"retry_of": retried})
	member, token, logged, worked := o.addRun("run_z05", nil), o.addRun("run_z06", nil), o.addRun("run_z07", nil), o.addRun("run_z08", nil)
	fresh := o.addRun("run_z09", map[string]any{"finished_at": time.Now().Add(-48 * time.Hour)})
	newest := o.addRun("run_z10", nil)
	o.execSQL(`INSERT INTO run_campaign_members (campaign_id, ordinal, machine_id, status, run_id) VALUES ('campaign_x', 1, 'm-1', 'SUCCEEDED', $1)`, member)
	o.execSQL(`INSERT INTO cluster_tokens (cluster_ref, id, run_id, step, attempt, expires_at) VALUES ('c', 'abcdef', $1, 'a', 1, now())`, token)
	require.NoError(t, machinesdb.AppendLog(t.Context(), o.store, machinesdb.LogPlace{RunID: logged, Step: "a", Attempt: 1}, "stdout", 1, []byte("x")))
	open := dbtest.Job(t, o.store, dbtest.JobStatus(lifecycle.JobFailedManual))
	o.execSQL("UPDATE runs SET job_id = $2 WHERE id = $1", worked, open.ID)
	other := newMachine(t, o.store, "m-2", spec.MachineSpec{})
	live := newRun(t, o.store, other)
	o.execSQL("UPDATE runs SET created_at = now() - interval '500 days' WHERE id = $1", live.ID)

	n, left := o.pruneAll()
	require.EqualValues(t, 3, n)
	require.Equal(t, []string{live.ID, trace, retried, member, token, logged, worked, fresh, newest}, left)
	broken, err := o.store.VerifyAudit(t.Context(), "run", o.first.ID)
	require.NoError(t, err)
	require.Zero(t, broken)
	var dirty bool
	require.NoError(t, o.owner.QueryRow(t.Context(), "SELECT holds_traces('m-1', NULL)").Scan(&dirty))
	require.True(t, dirty, "what the project left on the machine")

	_, err = machinesdb.PruneLogs(t.Context(), o.store, time.Now().Add(time.Hour))
	require.NoError(t, err)
	n, left = o.pruneAll()
	require.EqualValues(t, 2, n, "the run whose retry is gone, and the one whose output is")
	require.Equal(t, []string{live.ID, trace, member, token, worked, fresh, newest}, left)
	var heads int
	require.NoError(t, o.owner.QueryRow(t.Context(), "SELECT count(*) FROM run_log_heads").Scan(&heads))
	require.Zero(t, heads)

	o.execSQL("UPDATE runs SET finished_at = now() - interval '23 hours' WHERE id = $1", fresh)
	_, err = machinesdb.PruneRuns(t.Context(), o.store, time.Now().Add(time.Hour))
	require.NoError(t, err)
	for _, id := range []string{live.ID, trace, fresh, member, newest} {
		_, err := machinesdb.GetRun(t.Context(), o.store, id)
		require.NoError(t, err, "whatever is asked for")
		_, err = o.store.DBTX().Exec(t.Context(), "DELETE FROM runs WHERE id = $1", id)
		require.ErrorContains(t, err, "still needed", id)
	}
}

// TestPruneRuns_GoesOn: runs that stay are not looked at each time, and after the last one it
// starts over.
func TestPruneRuns_GoesOn(t *testing.T) {
	t.Parallel()
	o := newOldRuns(t)
	o.execSQL(`INSERT INTO runs SELECT (jsonb_populate_record(r, jsonb_build_object('id', 'run_y' || i, 'request_id', i, 'job_id', 'job_y' || i,
		'finished_at', now() - interval '600 days'))).* FROM runs r, generate_series(1001, 2000) i WHERE r.id = $1`, o.first.ID)
	o.execSQL(`INSERT INTO cluster_tokens (cluster_ref, id, run_id, step, attempt, expires_at)
		SELECT 'c', lpad(i::text, 6, '0'), 'run_y' || i, 'a', 1, now() FROM generate_series(1001, 2000) i`)
	for i, want := range []int64{0, 1} {
		n, left := o.pruneAll()
		require.Equal(t, want, n, "pass %d", i)
		require.Len(t, left, 1001-i)
	}
	o.execSQL("DELETE FROM cluster_tokens")
	n, _ := o.pruneAll()
	require.EqualValues(t, 100, n, "one batch, from the start")
}
