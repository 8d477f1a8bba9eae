package db_test

import (
	"errors"
	"net/url"
	"strings"
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
INSERT INTO allocations (id, project_id, sku_id, status, requested_by) SELECT 'alc_' || p, 'prj_' || p, 'sku_x', 'requested', 'x' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO allocation_keys (project_id, allocation_id, fingerprint, public_key) SELECT 'prj_' || p, 'alc_' || p, 'SHA256:x', 'k' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO notices (project_id, id, kind, episode, message) SELECT 'prj_' || p, 'ntc_' || p, 'x', '1', 'm' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO notice_emails (project_id, notice_id, recipient, message_id) SELECT 'prj_' || p, 'ntc_' || p, 'a@example.com', 'm' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO usage_records (project_id, allocation_id, id, billing_account_id, sku_id, currency)
    SELECT 'prj_' || p, 'alc_' || p, 'usg_' || p, 'acc_' || p, 'sku_x', 'USD' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
    SELECT 'prj_' || p, 'usg_' || p, 0, 'acc_' || p, 'USD', 1, now(), now() FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO usage_windows (project_id, record_id, window_start, window_end, segment, amount_minor)
    SELECT 'prj_' || p, 'usg_' || p, now(), now() + interval '1 minute', 0, 0 FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO machines (id, project_id, status, spec) SELECT 'm-' || p, 'prj_' || p, 'READY', '{}' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO runs (id, machine_id, project_id, request_id, type, plan_id, steps, status, job_id, created_by)
    SELECT 'run_' || p, 'm-' || p, 'prj_' || p, 'r', 'REBOOT', 'x', '[]', 'PENDING', 'job_' || p, 'x' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO run_campaigns (id, project_id, request_id, display_name, type, plan_id, filter, selection_hash, max_parallel, stop_after, skip_canary, accept_risk, status,
    restore_id, created_by) SELECT 'campaign_' || p, 'prj_' || p, 'r', 'c', 'REBOOT', 'x', 'f', '', 1, 1, false, false, 'RUNNING', 0, 'x' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO clusters (ref, project_id, spec) SELECT 'c-' || p, 'prj_' || p, '{}' FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO balance_holds (project_id, allocation_id, billing_account_id, currency, amount_minor)
    SELECT 'prj_' || p, 'alc_' || p, 'acc_' || p, 'USD', 1 FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO project_budgets (project_id, limit_minor) SELECT 'prj_' || p, 1 FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO payment_sessions (id, billing_account_id, project_id, requested_by, idempotency_key, request_hash, status, requested_amount_minor, currency, live,
    success_url, cancel_url, expires_at) SELECT 'pay_' || p, 'acc_' || p, 'prj_' || p, 'oidc:' || p, 'k', '', 'initiated', 500, 'USD', false, '', '', now()
    FROM unnest(ARRAY['a', 'b']) p;
INSERT INTO instances (id, project_id, name, provider, zone, type, image, model, status, job_id, created_by)
    SELECT 'inst_' || p, 'prj_' || p, 'chat', 'mock', 'mock-1', 'MOCK-GPU', '', 'm', 'provisioning', 'job_' || p, 'x' FROM unnest(ARRAY['a', 'b']) p;
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

// TestTenantTables_AreIsolated walks the catalogue: a table that has a project is bound to it by
// row-level security, and nothing that the role of customers may use walks around that.
func TestTenantTables_AreIsolated(t *testing.T) {
	t.Parallel()
	conn := dbtest.Owner(t, dbtest.Database(t))
	for table, key := range projectTables(t, conn) {
		const flags = "SELECT (relrowsecurity AND relforcerowsecurity)::text FROM pg_class WHERE oid = $1::text::regclass"
		require.Equal(t, []string{"true"}, texts(t, conn, flags, table), "%s: call isolate_by_project in its migration", table)
		for _, command := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			const granted = `SELECT (has_table_privilege($1, $2, $3) OR $3 <> 'DELETE' AND has_any_column_privilege($1, $2, $3))::text`
			for role, policy := range map[string]string{db.RoleCustomer: key + " = ( SELECT app_project() AS app_project)", db.RoleApp: "true"} {
				if texts(t, conn, granted, role, table, command)[0] != "true" {
					continue
				}
				const find = `SELECT coalesce(qual, '') || '|' || coalesce(with_check, '') FROM pg_policies
					WHERE tablename = $1 AND roles = ARRAY[$2::name] AND cmd IN ('ALL', $3) AND permissive = 'PERMISSIVE'`
				got := texts(t, conn, find, table, role, command)
				require.Len(t, got, 1, "%s: one policy for %s by %s", table, command, role)
				for _, part := range strings.Split(got[0], "|") {
					require.Equal(t, policy, strings.Trim(part, "()")+strings.Repeat(")", strings.Count(policy, ")")-strings.Count(strings.Trim(part, "()"), ")")))
				}
			}
		}
		const leads = `SELECT indexrelid::regclass::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
			WHERE i.indrelid = $1::text::regclass AND a.attname = $2 AND i.indpred IS NULL`
		require.NotEmpty(t, texts(t, conn, leads, table, key), "%s: an index that begins with %s", table, key)
		const reaching = `SELECT indexrelid::regclass::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
			WHERE i.indrelid = $1::text::regclass AND i.indisunique AND a.attname <> $2 AND indexrelid::regclass::text <> ALL ($3)`
		// Values that nobody chooses: hashes of random bits, ids, the cursor of events, the node
		// that a claim took, and the names that the payment provider, a cloud provider and the
		// ledger give; a user with a key of this user's own; machines and clusters, which operators
		// name; and what runs on one machine, which belongs to the project.
		require.Empty(t, texts(t, conn, reaching, table, key, []string{
			"project_tokens_hash_unique", "project_invitations_id_unique", "events_pkey", "allocations_pkey", "allocations_one_occupant", "payment_sessions_pkey",
			"payment_sessions_stripe_unique", "payment_sessions_intent_unique", "payment_sessions_credit_unique", "payment_sessions_suspense_unique",
			"payment_sessions_request_unique", "machines_pkey", "machines_node_unique", "clusters_ref_unique", "runs_pkey", "runs_job_unique", "runs_request_unique", "runs_one_active", "run_campaigns_pkey", "instances_pkey", "instances_enroll_unique", "instances_server_unique",
			"usage_records_instance_unique", "balance_holds_instance_unique",
		}),
			"%s: a unique index over projects tells one tenant what another has", table)
	}
	require.Empty(t, texts(t, conn, `SELECT c.relname || '.' || f.relname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class f ON f.oid = k.confrelid
		WHERE k.contype = 'f' AND f.relname LIKE 'project\_%' AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey) AND a.attname = 'project_id')`),
		"a foreign key to a row of a project holds the project too, or it accepts another project's row")
	require.Empty(t, texts(t, conn, `SELECT relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('v', 'm')
		AND has_any_column_privilege($1, c.oid, 'SELECT') AND NOT coalesce(c.reloptions @> ARRAY['security_invoker=true'], false)`, db.RoleCustomer), "views")
	require.ElementsMatch(t, []string{"node_occupant", "project_audit", "project_audit_append"}, texts(t, conn, `SELECT proname::text FROM pg_proc
		WHERE pronamespace = 'public'::regnamespace AND prosecdef AND prorettype <> 'trigger'::regtype AND has_function_privilege($1, oid, 'EXECUTE')`, db.RoleCustomer),
		"functions that run as their owner: each must be bound by app_project, and is listed here once that was reviewed")
	require.Empty(t, texts(t, conn, `SELECT proname::text FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
		WHERE pronamespace = 'public'::regnamespace AND prosecdef AND (r.rolsuper OR r.rolbypassrls)`), "functions that would run as a superuser")
	free := []string{"lifecycle_edges", "skus"} // tables without a project, of which the role reads what is no secret
	require.ElementsMatch(t, free, texts(t, conn, `SELECT relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
		AND (has_any_column_privilege($1, c.oid, 'SELECT, INSERT, UPDATE') OR has_table_privilege($1, c.oid, 'DELETE')) AND NOT c.relrowsecurity`, db.RoleCustomer))
}

// TestForProject_LeavesNothingOnTheConnection panics and fails inside transactions of the only
// connection of a pool.
func TestForProject_LeavesNothingOnTheConnection(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	newTwoTenants(t, dsn)
	one := dbtest.CustomerDSN(t, dsn)
	u, err := url.Parse(one)
	require.NoError(t, err)
	q := u.Query()
	q.Set("pool_max_conns", "1")
	u.RawQuery = q.Encode()
	s, err := db.Open(t.Context(), dsn, db.CustomerLogin(u.String()))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.CheckCustomerUser(t.Context()))
	count := func(project string) (n int) {
		require.NoError(t, s.ForProject(t.Context(), project, func(tx *db.ProjectTx) error {
			return tx.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM project_members").Scan(&n)
		}))
		return n
	}
	require.Panics(t, func() {
		_ = s.ForProject(t.Context(), "prj_a", func(tx *db.ProjectTx) error {
			_, err := tx.DBTX().Exec(t.Context(), "UPDATE projects SET name = 'changed'")
			require.NoError(t, err)
			panic("a bug")
		})
	})
	require.Equal(t, 1, count("prj_b"))
	require.Zero(t, count("prj_none"))
	require.Error(t, s.ForProject(t.Context(), "prj_a", func(*db.ProjectTx) error { return errors.New("failed") }))
	const others = "UPDATE project_members SET role = 'viewer' WHERE project_id = 'prj_a'"
	require.NoError(t, s.ForProject(t.Context(), "prj_b", func(tx *db.ProjectTx) error {
		for _, sql := range []string{
			"INSERT INTO project_ssh_keys (project_id, id, member_id, name, type, public_key, fingerprint) VALUES ('prj_a', 'key_x', 'mem_a', 'n', 't', 'k', 'SHA256:y')",
			"INSERT INTO project_ssh_keys (project_id, id, member_id, name, type, public_key, fingerprint) VALUES ('prj_b', 'key_x', 'mem_a', 'n', 't', 'k', 'SHA256:y')",
			others,
			"SELECT hash FROM project_tokens", "SELECT * FROM audit_log", "SELECT * FROM nodes", "SELECT * FROM billing_accounts", "TRUNCATE project_members",
			"UPDATE projects SET status = 'closed'", "SET ROLE " + db.RoleApp, "UPDATE project_members SET project_id = 'prj_a'",
		} {
			_, err := tx.DBTX().Exec(t.Context(), "SAVEPOINT s")
			require.NoError(t, err)
			tag, err := tx.DBTX().Exec(t.Context(), sql)
			if sql == others {
				require.NoError(t, err, "no row of another project is touched")
				require.Zero(t, tag.RowsAffected())
			} else {
				require.Error(t, err, sql)
			}
			_, err = tx.DBTX().Exec(t.Context(), "ROLLBACK TO s")
			require.NoError(t, err)
		}
		return nil
	}))
	require.Equal(t, []string{"a"}, texts(t, dbtest.Owner(t, dsn), "SELECT name FROM projects WHERE id = 'prj_a'"), "what panicked was rolled back")
	wrong, err := db.Open(t.Context(), dsn, db.CustomerLogin(dsn))
	require.NoError(t, err)
	t.Cleanup(wrong.Close)
	require.ErrorIs(t, wrong.CheckCustomerUser(t.Context()), db.ErrPrivilegedUser, "the platform's login does not serve customers")
	admin, err := db.Open(t.Context(), dsn, db.CustomerLogin(dbtest.OwnerDSN(t, dsn)))
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	require.ErrorIs(t, admin.CheckCustomerUser(t.Context()), db.ErrPrivilegedUser)
}

// TestEvents_CustomerSeesNoGlobalCursor reads the columns of events that count what all customers
// do.
func TestEvents_CustomerSeesNoGlobalCursor(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s := dbtest.Open(t, dsn)
	newTwoTenants(t, dsn)
	for column, readable := range map[string]bool{"cursor": false, "node_id": false, "*": false, "project_cursor": true} {
		err := s.ForProject(t.Context(), "prj_a", func(tx *db.ProjectTx) error {
			_, err := tx.DBTX().Exec(t.Context(), "SELECT "+column+" FROM events")
			return err
		})
		if readable {
			require.NoError(t, err, column)
			continue
		}
		requireState(t, err, "42501")
	}
}
