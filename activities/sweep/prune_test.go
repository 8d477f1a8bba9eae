package sweep_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestAPassPrunesASmallBatchOfWhatIsOlderThanItsRetention: a pass after it goes
// on, and what has no retention stays.
func TestAPassPrunesASmallBatchOfWhatIsOlderThanItsRetention(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	run := func(sql string) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	count := func(table string) (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
		return n
	}
	job := dbtest.Job(t, store)
	run("DELETE FROM outbox")
	run(`INSERT INTO events (cursor, type, resource_kind, resource_id, payload, at)
		SELECT i, 't', 'node', 'n', '{}', now() - CASE WHEN i < 2500 THEN interval '2 hours' ELSE interval '0' END FROM generate_series(1, 2600) i`)
	run(`INSERT INTO outbox (kind, type, resource_kind, resource_id, done_at) VALUES ('event', 't', 'node', 'n', now() - interval '2 hours'),
		('event', 't', 'node', 'n', now()), ('event', 't', 'node', 'n', NULL)`)
	run(`INSERT INTO idempotency_records (principal, route, key, request_hash, state, expires_at)
		SELECT 'p', 'r', i::text, sha256('x'), 'done', now() - interval '1 second' FROM generate_series(1, 1500) i`)
	_, _, err = store.SeeFinding(t.Context(), db.Finding{Kind: db.FindingOrphan, Subject: "onboarding/x", Message: "m"})
	require.NoError(t, err)
	_, err = store.CloseFinding(t.Context(), db.FindingOrphan, "onboarding/x", "ended")
	require.NoError(t, err)
	run("UPDATE sweep_findings SET closed_at = now() - interval '2 hours'")

	run(`INSERT INTO action_logs (id, job_id, seq, stage, attempt, action_type, component, status, started_at, finished_at, duration_ms)
		SELECT 'act_' || i, '` + job.ID + `', i, 's', 1, 's', 'orchestrator', 'failed', at, at, 0
		FROM generate_series(1, 2) i, LATERAL (SELECT now() - i * interval '40 minutes' AS at) t`)

	// A notice needs the address by which a present member was invited; what else has ended goes.
	_, err = dbtest.Owner(t, dsn).Exec(t.Context(), `BEGIN; SET LOCAL session_replication_role = replica;
		INSERT INTO project_members (project_id, id, subject, role) VALUES ('prj_a', 'mem_1', 'oidc:stays', 'owner');
		INSERT INTO project_invitations (project_id, id, email, role, invited_by, accepted_by, status, expires_at, ended_at)
		SELECT 'prj_a', 'inv_' || n, n || '@example.com', 'owner', 'x', CASE s WHEN 'accepted' THEN 'oidc:' || n ELSE '' END, s, now() - age, now() - ended
		FROM (VALUES ('stays', 'accepted', interval '3 hours', interval '3 hours'), ('left', 'accepted', '3 hours', '3 hours'),
			('late', 'revoked', '3 hours', '50 minutes'), ('revoked', 'revoked', '50 minutes', '2 hours'), ('expired', 'expired', '3 hours', '2 hours'),
			('overdue', 'pending', '2 hours', NULL), ('open', 'pending', '-1 hours', NULL)) v (n, s, age, ended);
		COMMIT`)
	require.NoError(t, err)

	// An event of the payment provider goes whatever became of it: the comparison finds what it was
	// about.
	run(`INSERT INTO stripe_events (id, type, live, source, body, event_at, received_at, state, processed_at)
		SELECT 'evt_' || n, 't', false, 'webhook', '', now(), now() - age, s, CASE WHEN s <> 'pending' THEN now() END
		FROM (VALUES ('processed', 'processed', interval '2 hours'), ('unmatched', 'unmatched', '2 hours'), ('pending', 'pending', '2 hours'),
			('late', 'ignored', '50 minutes')) v (n, s, age)`)

	a := &sweep.Activities{Store: store, Log: slog.New(slog.DiscardHandler)}
	require.NoError(t, a.SweepDone(t.Context(), sweep.Outcome{}))
	require.Equal(t, []int{2600, 3, 500, 1}, []int{count("events"), count("outbox"), count("idempotency_records"), count("sweep_findings")}, "nothing has a retention")
	a.Keep = sweep.Keep{Tasks: time.Hour, Findings: time.Hour, Outbox: time.Hour, Events: time.Hour, Actions: time.Hour, Invitations: time.Hour, PaymentEvents: time.Hour}
	require.NoError(t, a.SweepDone(t.Context(), sweep.Outcome{}))
	require.Equal(t, []int{1600, 2, 0, 0}, []int{count("events"), count("outbox"), count("idempotency_records"), count("sweep_findings")})
	var left string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT string_agg(email, ' ' ORDER BY email) FROM project_invitations").Scan(&left))
	require.Equal(t, "late@example.com open@example.com stays@example.com", left)
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT string_agg(id, ' ') FROM stripe_events").Scan(&left))
	require.Equal(t, "evt_late", left)
	for range 2 {
		require.NoError(t, a.SweepDone(t.Context(), sweep.Outcome{}))
	}
	require.Equal(t, []int{101, 1}, []int{count("events"), count("action_logs")})

	a.Ahead = func() time.Duration { return 48 * time.Hour } // a clock that is ahead alone
	require.NoError(t, a.SweepDone(t.Context(), sweep.Outcome{}))
	require.Equal(t, []int{101, 1, 2}, []int{count("events"), count("action_logs"), count("outbox")})
}

// TestPrune_SlowKind: rows that others hold keep no other rows from being deleted, and the pass
// says what was not done.
func TestPrune_SlowKind(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store, held := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	job := dbtest.Job(t, store)
	run := func(sql string, args ...any) {
		_, err := held.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	run(`INSERT INTO action_logs (id, job_id, seq, stage, attempt, action_type, component, status, started_at, finished_at, duration_ms)
		VALUES ('act_1', $1, 1, 's', 1, 's', 'orchestrator', 'failed', now() - interval '2 hours', now() - interval '2 hours', 0)`, job.ID)
	run("BEGIN")
	run("LOCK TABLE events")
	a := &sweep.Activities{Store: store, Log: slog.New(slog.DiscardHandler), Keep: sweep.Keep{Events: time.Hour, Actions: time.Hour}}
	require.Error(t, a.SweepDone(t.Context(), sweep.Outcome{}))
	pass, err := store.SweepPass(t.Context())
	require.NoError(t, err)
	require.Contains(t, pass.Problem, "events were not pruned")
	require.NotContains(t, pass.Problem, "action log")
	run("ROLLBACK")
	var left int
	require.NoError(t, held.QueryRow(t.Context(), "SELECT count(*) FROM action_logs").Scan(&left))
	require.Zero(t, left)
	require.NoError(t, a.SweepDone(t.Context(), sweep.Outcome{}))
	pass, err = store.SweepPass(t.Context())
	require.NoError(t, err)
	require.Empty(t, pass.Problem)
}
