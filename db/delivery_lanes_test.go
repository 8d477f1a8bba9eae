package db_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestMigrations_FillLanesAndAddresses upgrades a database with webhooks, members and events, some of
// which were pruned. Row-level security binds the owner, whose updates would change no row.
func TestMigrations_FillLanesAndAddresses(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	cfg, err := pgx.ParseConfig(dbtest.OwnerDSN(t, dsn))
	require.NoError(t, err)
	sqlDB := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { _ = sqlDB.Close() })
	p, err := goose.NewProvider(goose.DialectPostgres, sqlDB, db.Migrations())
	require.NoError(t, err)
	_, err = p.DownTo(t.Context(), 36)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dbtest.OwnerDSN(t, dsn))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	for _, sql := range []string{
		"SET session_replication_role = replica",
		"INSERT INTO billing_accounts (id, name) VALUES ('acc_1', 'a')",
		"INSERT INTO projects (id, billing_account_id, name) VALUES ('prj_1', 'acc_1', 'p'), ('prj_2', 'acc_1', 'q')",
		`INSERT INTO webhooks (project_id, id, name, url, secret_ref, slow, last_success_at, last_failure_at) VALUES
			('prj_1', 'whk_fast', 'a', 'https://a.example', 'x', false, now(), NULL), ('prj_1', 'whk_slow', 'b', 'https://b.example', 'x', true, NULL, now()),
			('prj_1', 'whk_new', 'c', 'https://c.example', 'x', true, NULL, NULL)`,
		"INSERT INTO project_members (project_id, id, subject, role) VALUES ('prj_1', 'mem_1', 'oidc:1', 'owner'), ('prj_1', 'mem_2', 'oidc:2', 'owner')",
		`INSERT INTO project_invitations (project_id, id, email, role, status, invited_by, accepted_by, expires_at, ended_at) VALUES
			('prj_1', 'inv_1', 'old@example.com', 'owner', 'accepted', 'x', 'oidc:1', now(), now() - interval '1 day'),
			('prj_1', 'inv_2', 'new@example.com', 'owner', 'accepted', 'x', 'oidc:1', now(), now())`,
		"INSERT INTO project_event_cursors (project_id, last) VALUES ('prj_1', 5), ('prj_2', 3)",
		`INSERT INTO events (cursor, resource_kind, resource_id, type, payload, at, project_id, project_cursor, event_id)
			VALUES (9, 'project', 'prj_1', 'x', '{}', now(), 'prj_1', 5, 'evt_1')`,
		"UPDATE event_cursor SET last = 9",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	require.NoError(t, db.Migrate(t.Context(), dbtest.OwnerDSN(t, dsn)))
	for sql, want := range map[string]string{
		"SELECT string_agg(id || '=' || lane, ' ' ORDER BY id) FROM webhooks":                                                                                                    "whk_fast=fast whk_new=new whk_slow=slow",
		"SELECT string_agg(id || '=' || email, ' ' ORDER BY id) FROM project_members":                                                                                            "mem_1=new@example.com mem_2=",
		"SELECT string_agg(project_id || '=' || pruned, ' ' ORDER BY project_id) FROM project_event_cursors":                                                                     "prj_1=4 prj_2=3",
		"SELECT pruned::text FROM event_cursor":                                                                                                                                  "8",
		"SELECT count(*)::text FROM pg_class WHERE relname IN ('webhooks', 'project_members', 'project_invitations', 'project_event_cursors', 'events') AND relforcerowsecurity": "5",
	} {
		var got string
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&got), sql)
		require.Equal(t, want, got, sql)
	}
}

// The epoch of events is the same in every session, and another one after the operator renewed it.
func TestEventCursor_EpochIsRenewed(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	before, err := s.ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.Regexp(t, "^[0-9a-f]{8}$", before.Epoch)
	again, err := s.ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.Epoch, again.Epoch)
	_, err = s.DBTX().Exec(t.Context(), "UPDATE event_cursor SET epoch = gen_random_uuid()::text")
	require.NoError(t, err)
	after, err := s.ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before.Epoch, after.Epoch)
	other, err := dbtest.Open(t, dbtest.FreshDatabase(t)).ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, after.Epoch, other.Epoch, "of another database")
}
