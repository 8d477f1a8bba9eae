package chaos

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestInvariants_FindBrokenRows: no query finds anything in a new database, and each of
// these finds what is planted for it.
func TestInvariants_FindBrokenRows(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	found := func() map[string]string {
		out := map[string]string{}
		for _, i := range invariants() {
			rows, err := broken(t.Context(), c, i)
			require.NoError(t, err, i.name)
			for _, v := range rows {
				out[i.name] = v.whose
			}
		}
		return out
	}
	require.Greater(t, len(invariants()), 20)
	require.Empty(t, found())

	node := dbtest.Node(t, store, dbtest.Active())
	job := dbtest.Job(t, store, dbtest.On(node.ID), dbtest.JobStatus(lifecycle.JobCompleted))
	plant := func(sql string, args ...any) {
		_, err := c.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	plant(`INSERT INTO job_stages (job_id, ordinal, name, state) VALUES ($1, 2, 'a', 'running'), ($1, 3, 'b', 'running'), ($1, 4, 'c', 'succeeded')`, job.ID)
	plant(`INSERT INTO enrollment_tokens (id, node_id, token_hash, expires_at)
		SELECT 'tok_' || n, $1, sha256(n::text::bytea), now() + interval '1 hour' FROM generate_series(1, 2) n`, node.ID)
	plant(`INSERT INTO secret_versions (name, version, keeper_url, ciphertext, fingerprint) VALUES ('userdata/' || $1 || '/1', 1, 'x', 'x', 'x')`, job.ID)
	plant(`UPDATE job_stages SET attempts = 1`)
	plant(`INSERT INTO action_logs (id, job_id, seq, stage, attempt, action_type, component, started_at) VALUES ('act_1', $1, 1, 'a', 1, 'a', 'orchestrator', now())`, job.ID)
	plant(`INSERT INTO action_logs (id, job_id, seq, stage, attempt, action_type, component, status, started_at, finished_at, duration_ms, metadata)
		VALUES ('act_2', $1, 2, 'a', 1, 'PROVIDER_CREATE', 'orchestrator', 'success', now(), now(), 0, '{"correlation_id": "run", "zone": "a"}')`, job.ID)
	plant(`INSERT INTO job_stages (job_id, ordinal, name, state, started_at, finished_at) VALUES ($1, 6, 'wait_for_deployed', 'succeeded', now(), now())`, job.ID)
	plant(`UPDATE nodes SET maas_system_id = 'abc'`)
	plant(`UPDATE event_cursor SET last = 5`)
	got := found()
	for name, whose := range map[string]string{
		"stage_ordinals_are_complete": job.ID, "at_most_one_stage_runs": job.ID, "no_stage_of_an_ended_job_runs": job.ID,
		"stages_of_completed_jobs_are_done": job.ID, "finished_stages_have_times": job.ID, "every_try_is_logged": job.ID, "no_try_of_a_resting_job_is_open": job.ID,
		"every_action_is_accounted_for": job.ID, "actions_say_what_they_did": job.ID, "deployed_nodes_have_their_address": node.ID, "no_sealed_user_data_outlives_its_job": job.ID,
		"one_good_token_a_node": node.ID, "active_nodes_have_an_identity": node.ID, "events_have_their_order": "",
	} {
		require.Contains(t, got, name)
		require.Equal(t, whose, got[name], name)
	}
}

// TestInvariants_FindBrokenRowsAllocations plants what must not be of an allocation, past the
// triggers.
func TestInvariants_FindBrokenRowsAllocations(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	owner := dbtest.Owner(t, dsn)
	_, err := owner.Exec(t.Context(), "SET session_replication_role = replica")
	require.NoError(t, err)
	lent := func() (nodeID, allocationID string) {
		n := dbtest.Node(t, store, dbtest.Active())
		return n.ID, dbtest.Occupy(t, store, n.ID).ID
	}
	for name, forge := range map[string]string{
		"pointer_names_the_occupant":            `UPDATE nodes SET allocation_id = NULL WHERE allocation_id = $1`,
		"moving_allocations_have_a_job":         `UPDATE allocations SET status = 'releasing', connection = NULL WHERE id = $1`,
		"allocations_and_their_audit_agree":     `UPDATE allocations SET status = 'releasing', connection = NULL WHERE id = $1`,
		"no_time_is_charged_without_access":     `UPDATE allocations SET access_given_at = start_time + interval '1 second' WHERE id = $1`,
		"no_record_charges_time_without_access": `UPDATE allocations SET status = 'release_failed', connection = NULL WHERE id = $1`,
		"no_hold_outlives_its_charge": `WITH a AS (UPDATE allocations SET status = 'release_failed', connection = NULL WHERE id = $1 RETURNING *)
			INSERT INTO balance_holds (project_id, allocation_id, billing_account_id, currency, amount_minor) SELECT a.project_id, a.id, 'acc_1', 'USD', 1 FROM a`,
	} {
		nodeID, id := lent()
		i := slices.IndexFunc(invariants(), func(i invariant) bool { return i.name == name })
		require.GreaterOrEqual(t, i, 0, name)
		found := func() bool {
			rows, err := broken(t.Context(), owner, invariants()[i])
			require.NoError(t, err, name)
			return slices.ContainsFunc(rows, func(v violation) bool { return v.whose == nodeID })
		}
		require.False(t, found(), name)
		_, err := owner.Exec(t.Context(), forge, id)
		require.NoError(t, err, name)
		require.True(t, found(), name)
	}
}

// TestInvariants_FindBrokenRowsRuns plants what must not be of a run, past the triggers.
func TestInvariants_FindBrokenRowsRuns(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	owner := dbtest.Owner(t, dsn)
	for _, sql := range []string{
		"SET session_replication_role = replica", "DROP INDEX runs_one_active", "ALTER TABLE run_logs DROP CONSTRAINT run_logs_place_unique",
	} {
		_, err := owner.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	ended := `UPDATE runs SET status = 'FAILED', failure_class = 'command_failed', finished_at = now() WHERE id = $1`
	for name, forge := range map[string]string{
		"one_live_run_a_machine": `INSERT INTO runs (id, machine_id, request_id, type, plan_id, steps, status, job_id, created_by)
			SELECT id || 'x', machine_id, 'another', type, plan_id, steps, status, job_id || 'x', created_by FROM runs WHERE id = $1`,
		"machine_points_to_its_run":    `UPDATE machines SET active_run_id = 'run_other' WHERE active_run_id = $1`,
		"machine_follows_its_last_run": ended,
		"run_follows_its_job":          ended,
		"runs_and_their_audit_agree":   ended,
		"steps_run_in_order":           `UPDATE runs SET status = 'CANCELED', finished_at = now(), stages = '[{"state": "pending"}, {"state": "succeeded"}]' WHERE id = $1`,
		"output_is_stored_once": `INSERT INTO run_logs (run_id, seq, step, attempt, stream, next, data)
			SELECT $1, n, 'a', 1, 'stdout', 1, 'x' FROM generate_series(1, 2) n`,
	} {
		var run machinesdb.Run
		require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
			if _, err := machines.Register(t.Context(), tx, machines.Registration{ID: "m-" + name, Spec: spec.MachineSpec{Provider: "any"}}, bootedBy); err != nil {
				return err
			}
			var err error
			run, err = machines.StartRun(t.Context(), tx, machines.Start{
				RequestID: "a", MachineID: "m-" + name, Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
			}, bootedBy)
			return err
		}))
		i := slices.IndexFunc(invariants(), func(i invariant) bool { return i.name == name })
		require.GreaterOrEqual(t, i, 0, name)
		found := func() bool {
			rows, err := broken(t.Context(), owner, invariants()[i])
			require.NoError(t, err, name)
			return slices.ContainsFunc(rows, func(v violation) bool { return v.whose == run.JobID })
		}
		require.False(t, found(), name)
		_, err := owner.Exec(t.Context(), forge, run.ID)
		require.NoError(t, err, name)
		require.True(t, found(), name)
	}
}
