package db_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// newTwoTenants fills every table that has a project with rows of two projects.
func newTwoTenants(t testing.TB, dsn string) {
	t.Helper()
	exec(t, dbtest.Owner(t, dsn), `
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO billing_accounts (id, name) VALUES ('acc_a', 'a'), ('acc_b', 'b');
INSERT INTO projects (id, billing_account_id, name) SELECT 'prj_' || p, 'acc_' || p, p FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_members (project_id, id, subject, role) SELECT 'prj_' || p, 'mem_' || p, 'oidc:' || p, 'owner' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_group_roles (project_id, group_name, role) SELECT 'prj_' || p, 'staff', 'viewer' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_invitations (project_id, id, email, role, invited_by, expires_at)
    SELECT 'prj_' || p, 'inv_' || p, 'x@example.com', 'viewer', 'oidc:' || p, now() + interval '1 day' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_ssh_keys (project_id, id, member_id, name, type, public_key, fingerprint)
    SELECT 'prj_' || p, 'key_' || p, 'mem_' || p, 'laptop', 'ssh-ed25519', 'ssh-ed25519 A', 'SHA256:x' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_tokens (project_id, id, member_id, name, hash, role, expires_at)
    SELECT 'prj_' || p, 'tok_' || p, 'mem_' || p, 'ci', sha256(p::bytea), 'member', now() + interval '1 day' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_quotas (project_id, max_nodes) SELECT 'prj_' || p, 8 FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_idempotency_records (project_id, principal, route, key, request_hash, state, expires_at)
    SELECT 'prj_' || p, 'oidc:x', 'POST /x', 'k', 'h', 'done', now() + interval '1 day' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO events (cursor, resource_kind, resource_id, type, payload, at, project_id, project_cursor, event_id)
    SELECT ascii(p), 'project', 'prj_' || p, 'project.created', '{}', now(), 'prj_' || p, 1, 'evt_' || p FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_event_cursors (project_id, last) SELECT 'prj_' || p, 1 FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO webhooks (project_id, id, name, url, secret_ref) SELECT 'prj_' || p, 'whk_' || p, 'hook', 'https://example.com', 's' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO webhook_deliveries (project_id, webhook_id, event_id, event_cursor, type, subject, data, occurred_at)
    SELECT 'prj_' || p, 'whk_' || p, 'evt_' || p, 1, 'project.created', 'x', '{}', now() FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO notices (project_id, id, kind, episode, message) SELECT 'prj_' || p, 'ntc_' || p, 'x', '1', 'm' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO notice_emails (project_id, notice_id, recipient, message_id) SELECT 'prj_' || p, 'ntc_' || p, 'a@example.com', 'm' FROM unnest(ARRAY['a', 'b']) p;
COMMIT`)
}

// projectTables lists the tables that have a project, with the column that names it.
func projectTables(t testing.TB, conn *pgx.Conn) map[string]string {
	t.Helper()
	out := map[string]string{"projects": "id"}
	for _, name := range texts(t, conn, `SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'project_id' AND NOT a.attisdropped`) {
		out[name] = "project_id"
	}
	return out
}

// TestForProject_ShowsOneProject counts without a WHERE in every table that has a project.
func TestForProject_ShowsOneProject(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	newTwoTenants(t, dsn)
	for table, key := range projectTables(t, owner) {
		require.Equal(t, []string{"2"}, texts(t, owner, "SELECT count(*)::text FROM "+table), "newTwoTenants must fill %s", table)
		require.NoError(t, s.ForProject(t.Context(), "prj_a", func(tx *db.ProjectTx) error {
			rows, err := tx.DBTX().Query(t.Context(), "SELECT "+key+" FROM "+table)
			require.NoError(t, err)
			ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Equal(t, []string{"prj_a"}, ids, table)
			return nil
		}))
		var all int
		require.NoError(t, s.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&all))
		require.Equal(t, 2, all, "the platform sees all of %s", table)
		exec(t, owner, "SET ROLE "+db.RoleOwner)
		require.Equal(t, []string{"0"}, texts(t, owner, "SELECT count(*)::text FROM "+table), "the owner of %s has no policy", table)
		exec(t, owner, "RESET ROLE")
	}
}

// TestForProject_WithoutAProjectFails queries as the login of customers, on connections that never
// had a project and on one that had.
func TestForProject_WithoutAProjectFails(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	newTwoTenants(t, dsn)
	login := raw(t, dbtest.CustomerDSN(t, dsn))
	for table, key := range projectTables(t, owner) {
		_, err := login.Exec(t.Context(), "SELECT "+key+" FROM "+table)
		requireState(t, err, "42501")
	}
	exec(t, login, "BEGIN; SELECT set_config('app.project', 'prj_a', true); COMMIT")
	_, err := login.Exec(t.Context(), "SELECT id FROM project_members")
	requireState(t, err, "42501")
	for _, id := range []string{"", "prj_", "node_a", "prj_\x00", "prj_\xff"} {
		require.ErrorIs(t, s.ForProject(t.Context(), id, func(*db.ProjectTx) error { return errors.New("ran") }), db.ErrNotFound, "%q", id)
	}
	plain, err := db.Open(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(plain.Close)
	require.ErrorIs(t, plain.ForProject(t.Context(), "prj_a", nil), db.ErrNoCustomerLogin)
}
