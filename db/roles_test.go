package db_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

func texts(t testing.TB, conn *pgx.Conn, sql string, args ...any) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return out
}

// TestGrants_NameEveryObject walks the catalogue: what a migration adds must be given to the roles,
// or kept from them, in db/grants.go.
func TestGrants_NameEveryObject(t *testing.T) {
	t.Parallel()
	conn := dbtest.Owner(t, dbtest.Database(t))
	const where = " WHERE c.relnamespace = 'public'::regnamespace "
	require.ElementsMatch(t, slices.Collect(maps.Keys(db.TableAccess)),
		texts(t, conn, "SELECT relname::text FROM pg_class c"+where+"AND relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT relispartition"),
		"tables and views: say in tableAccess of db/grants.go what slipway_app may do with a new one (AccessFull, AccessKeep, AccessAppend, AccessRead, ...); "+
			"if it holds a secret or a hash of one, name in tableReads the columns that slipway_read may see")
	require.ElementsMatch(t, slices.Collect(maps.Keys(db.SequenceAccess)), texts(t, conn, "SELECT relname::text FROM pg_class c"+where+
		"AND relkind = 'S' AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i'))"),
		"sequences: say in sequenceAccess of db/grants.go what slipway_app may do with a new one")
	require.ElementsMatch(t, slices.Collect(maps.Keys(db.FunctionCallers)), texts(t, conn,
		"SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prorettype <> 'trigger'::regtype"),
		"functions: say in functionCallers of db/grants.go who may call a new one; {} is nobody")
	require.Empty(t, texts(t, conn, `SELECT proname::text FROM pg_proc
		WHERE pronamespace = 'public'::regnamespace AND prosqlbody IS NULL AND prokind <> 'a' AND NOT coalesce(proconfig @> ARRAY['search_path=pg_catalog, public, pg_temp'], false)`),
		"functions: write SET search_path = pg_catalog, public, pg_temp into the migration, or a session could have the function read its own tables; "+
			"the names in a body of standard SQL (RETURN ...) are found when it is made")
	require.Empty(t, texts(t, conn, `SELECT relname::text FROM pg_class c`+where+`AND relowner <> $1::text::regrole
		UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner <> $1::text::regrole`, db.RoleOwner), "owner")
	require.Empty(t, texts(t, conn, `SELECT relname || ' ' || a.privilege_type FROM pg_class c, aclexplode(c.relacl) a`+where+`AND a.grantee = 0
		UNION ALL SELECT proname || ' ' || a.privilege_type FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
			WHERE pronamespace = 'public'::regnamespace AND a.grantee = 0`), "everybody")
	require.Empty(t, texts(t, conn, `SELECT relname::text FROM pg_class c`+where+`AND relkind IN ('r', 'p', 'v')
		AND has_table_privilege($1, c.oid, 'TRUNCATE, REFERENCES, TRIGGER')`, db.RoleApp), "tables with a right that no serving process needs")
}

// TestGrants_ReadRoleSeesNoSecret requires a decision about each column that holds bytes or is
// named like a secret. Those that slipway_read may see hold public keys, hashes of chains and
// signatures.
func TestGrants_ReadRoleSeesNoSecret(t *testing.T) {
	t.Parallel()
	conn := dbtest.Owner(t, dbtest.Database(t))
	require.ElementsMatch(t, []string{
		"agent_certificates.key_hash", "agent_releases.manifest", "agent_releases.signature", "audit_checks.part_hash", "audit_heads.hash", "audit_log.hash", "audit_log.prev_hash", "bmc_log_reads.gone", "certificates.payload", "certificates.signature", "ledger_accounts.head", "ledger_anchors.head", "ledger_transactions.request_hash", "payment_sessions.request_hash",
		"signing_keys.public", "signing_keys.secret_ref", "state_transitions.hash", "state_transitions.prev_hash",
	}, texts(t, conn, `SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
			AND (a.atttypid = 'bytea'::regtype OR a.attname ~ '(token|cipher|secret|password|private)' AND a.attname NOT IN ('ipmi_cipher_suite'))
			AND has_column_privilege($1, c.oid, a.attnum, 'SELECT')`, db.RoleRead),
		"columns: name those that slipway_read may see in tableReads of db/grants.go, or add a harmless one to this list")
	for table, columns := range db.TableReads {
		exec(t, conn, "SET ROLE "+db.RoleRead)
		exec(t, conn, "SELECT "+columns+" FROM "+table)
		_, err := conn.Exec(t.Context(), "SELECT * FROM "+table)
		requireState(t, err, "42501")
	}
	_, err := conn.Exec(t.Context(), "UPDATE nodes SET hostname = 'x'")
	requireState(t, err, "42501")
}

// TestAuditLog_AppCannotForge tries, as a user with the rights of a serving process, everything
// that would change the past.
func TestAuditLog_AppCannotForge(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t) // temporary tables are allowed in it, which Migrate takes away elsewhere
	s, app := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.Node(t, s, dbtest.Active())
	part := texts(t, app, "SELECT tableoid::regclass::text FROM audit_log LIMIT 1")[0]
	const insert = "INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, triggered_by, owner"
	values := ") VALUES ('evt_x', 'node', '" + n.ID + "', 'action', 'x', 'admin', 'admin'"
	before := texts(t, app, "SELECT l::text FROM audit_log l ORDER BY pos")
	for name, sql := range map[string]string{
		"update":                       "UPDATE audit_log SET comment = 'nothing happened'",
		"delete":                       "DELETE FROM audit_log",
		"truncate":                     "TRUNCATE audit_log",
		"merge":                        "MERGE INTO audit_log l USING nodes n ON l.node_id = n.id WHEN MATCHED THEN DELETE",
		"upsert":                       insert + values + ") ON CONFLICT (at, pos) DO UPDATE SET comment = 'x'",
		"partition insert":             strings.Replace(insert, "audit_log", part, 1) + values + ")",
		"partition delete":             "DELETE FROM " + part,
		"partition truncate":           "TRUNCATE " + part,
		"false seq":                    insert + ", seq" + values + ", 99)",
		"false previous hash":          insert + ", prev_hash" + values + ", 'x')",
		"false hash":                   insert + ", hash" + values + ", 'x')",
		"false position":               insert + ", pos" + values + ", 1)",
		"false transaction":            insert + ", txid" + values + ", 1)",
		"dated back":                   insert + ", at" + values + ", now() - interval '1 day')",
		"sequence":                     "SELECT setval('audit_pos', 1)",
		"heads insert":                 "INSERT INTO audit_heads VALUES ('node', 'node_x', 1, 'x')",
		"heads update":                 "UPDATE audit_heads SET seq = 0",
		"heads delete":                 "DELETE FROM audit_heads",
		"heads read":                   "SELECT hash FROM audit_heads",
		"heads through the view":       "UPDATE audit_chains SET resource_id = 'node_x'",
		"hash of a forged row":         "SELECT audit_row_hash(l) FROM audit_log l",
		"disable triggers":             "ALTER TABLE audit_log DISABLE TRIGGER ALL",
		"replication role":             "SET session_replication_role = replica",
		"add a trigger":                "CREATE TRIGGER x BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_refuse_edit()",
		"add a rule":                   "CREATE RULE x AS ON INSERT TO audit_log DO INSTEAD NOTHING",
		"drop a trigger":               "DROP TRIGGER audit_log_chain ON audit_log",
		"alter":                        "ALTER TABLE audit_log DROP COLUMN hash",
		"detach":                       "ALTER TABLE audit_log DETACH PARTITION " + part,
		"attach":                       "CREATE TABLE audit_log_2001_01 PARTITION OF audit_log FOR VALUES FROM ('2001-01-01') TO ('2001-02-01')",
		"drop":                         "DROP TABLE audit_log",
		"lock":                         "DO $$ BEGIN LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE; END $$",
		"replace a function":           "CREATE OR REPLACE FUNCTION public.audit_row_hash(r audit_log) RETURNS bytea LANGUAGE sql AS $$ SELECT ''::bytea $$",
		"alter a function":             "ALTER FUNCTION audit_chain() SECURITY INVOKER",
		"create a table":               "CREATE TABLE public.x ()",
		"create a function":            "CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2001-01-01'::timestamptz $$",
		"create a schema":              "CREATE SCHEMA x",
		"run a program":                "COPY audit_log FROM PROGRAM 'true'",
		"write a file":                 "COPY audit_log TO '/tmp/slipway-forged'",
		"copy rows in":                 "COPY audit_log FROM STDIN",
		"become the owner":             "SET ROLE " + db.RoleOwner,
		"become the owner by setting":  "SELECT set_config('role', '" + db.RoleOwner + "', true)",
		"become a superuser":           "SET SESSION AUTHORIZATION " + pg.User,
		"join the owner":               "GRANT " + db.RoleOwner + " TO CURRENT_USER",
		"own rights":                   "ALTER ROLE " + db.RoleApp + " BYPASSRLS",
		"grant itself":                 "GRANT UPDATE ON audit_heads TO CURRENT_USER",
		"edges":                        "INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES ('node', 'maas', 'x', 'active', 'deleted')",
		"versions":                     "DELETE FROM goose_db_version",
		"certificates of agents":       "TRUNCATE agent_certificates",
		"certificates of erasure":      "DELETE FROM certificates",
		"certificates of erasure, all": "TRUNCATE certificates",
		"jobs":                         "DELETE FROM jobs",
		"events":                       "UPDATE events SET type = 'x'",
	} {
		_, err := app.Exec(t.Context(), sql)
		require.Error(t, err, name)
		if name == "grant itself" || name == "heads through the view" {
			continue // the code differs between versions
		}
		requireState(t, err, "42501")
	}
	require.Equal(t, before, texts(t, app, "SELECT l::text FROM audit_log l ORDER BY pos"))
	requireWhole(t, s, "node", n.ID)
}

// TestGuards_IgnoreTheSessionsTables hides the tables of functions behind temporary ones.
func TestGuards_IgnoreTheSessionsTables(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, app := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.Node(t, s)
	for _, sql := range []string{
		"CREATE TEMP TABLE audit_heads (resource_kind text, resource_id text, seq bigint, hash bytea)",
		"INSERT INTO pg_temp.audit_heads VALUES ('node', '" + n.ID + "', 41, 'forged')",
		"CREATE TEMP TABLE lifecycle_edges AS SELECT 'node'::text AS resource, 'maas'::text AS lifecycle, '" + string(n.Status) +
			"'::text AS from_state, 'active'::text AS to_state",
		"CREATE TEMP TABLE audit_log (resource_kind text, resource_id text, kind text, at timestamptz, txid bigint, version bigint, from_state text, to_state text)",
		"CREATE FUNCTION pg_temp.audit_row_hash(r public.audit_log) RETURNS bytea LANGUAGE sql AS $$ SELECT 'forged'::bytea $$",
		"CREATE FUNCTION pg_temp.guard_edge(a text, b text, c text, d text) RETURNS void LANGUAGE sql AS $$ SELECT $$",
		"SET search_path = pg_temp, public",
		"INSERT INTO public.audit_log (id, resource_kind, resource_id, kind, name, triggered_by, owner) VALUES ('evt_x', 'node', '" + n.ID + "', 'action', 'x', 'admin', 'admin')",
	} {
		exec(t, app, sql)
	}
	requireWhole(t, s, "node", n.ID)
	var forged int64
	require.NoError(t, app.QueryRow(t.Context(), "SELECT count(*) FROM pg_temp.audit_heads WHERE hash = 'forged'").Scan(&forged))
	require.EqualValues(t, 1, forged, "the trigger wrote to the table of the schema public")
	var broken *int64
	require.NoError(t, app.QueryRow(t.Context(), "SELECT public.audit_verify('node', $1)", n.ID).Scan(&broken))
	require.Nil(t, broken)
	_, err := app.Exec(t.Context(), "UPDATE public.nodes SET status = 'active', version = version + 1 WHERE id = $1", n.ID)
	requireState(t, err, "SW001")
	exec(t, app, "BEGIN")
	exec(t, app, `INSERT INTO pg_temp.audit_log SELECT 'node', $1, 'transition', now(), pg_current_xact_id()::text::bigint, version + 1, status, 'enrolling' FROM public.nodes WHERE id = $1`, n.ID)
	exec(t, app, "UPDATE public.nodes SET status = 'enrolling', version = version + 1 WHERE id = $1", n.ID)
	_, err = app.Exec(t.Context(), "COMMIT")
	requireState(t, err, "SW002")
	_, err = app.Exec(t.Context(), "SELECT public.audit_ensure_partitions(100000)")
	requireState(t, err, "22023")
}

// TestOpen_FixesTheSession gives the database settings that would change what names mean.
func TestOpen_FixesTheSession(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	owner := dbtest.Owner(t, dsn)
	for _, set := range []string{"search_path = evil", "row_security = off", "statement_timeout = 0", "idle_in_transaction_session_timeout = 0"} {
		exec(t, owner, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET "+set+"', current_database()); END $$")
	}
	s := dbtest.Open(t, dsn)
	for name, want := range map[string]string{
		"search_path": "public, pg_temp", "row_security": "on", "statement_timeout": "1min", "idle_in_transaction_session_timeout": "1min",
	} {
		var got string
		require.NoError(t, s.DBTX().QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got))
		require.Equal(t, want, got, name)
	}
	require.NoError(t, s.CheckUser(t.Context()))
	require.ErrorIs(t, dbtest.Open(t, dbtest.OwnerDSN(t, dsn)).CheckUser(t.Context()), db.ErrPrivilegedUser)
}

// TestMigrate_OnAClusterOfItsOwn has two databases create the roles at once, moves the objects of
// an earlier version to the owner, and refuses roles and users that are not as they must be.
func TestMigrate_OnAClusterOfItsOwn(t *testing.T) {
	t.Parallel()
	srv, err := pg.Start(t.Context(), pg.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Stop()) })
	ctx, errs := t.Context(), make(chan error, 2)
	for _, name := range []string{"one", "two"} {
		require.NoError(t, srv.CreateDatabase(ctx, name))
		go func() { errs <- db.Migrate(ctx, srv.DSN(name)) }()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)

	admin := raw(t, srv.DSN("one"))
	exec(t, admin, "CREATE ROLE reader NOLOGIN") // EnsureLogin adds the right to log in
	require.NoError(t, srv.EnsureLogin(ctx, "before", "reader"))
	dsn, err := srv.LoginDSN("one", "before")
	require.NoError(t, err)
	require.ErrorContains(t, dbtest.Open(t, dsn).CheckUser(ctx), "GRANT slipway_app TO before")

	// The state that a version without roles has left: one login owns everything, and the roles
	// have no rights.
	exec(t, admin, "GRANT USAGE ON SCHEMA public TO PUBLIC; DROP OWNED BY slipway_app")
	exec(t, admin, "ALTER DATABASE one OWNER TO before")
	exec(t, admin, "REASSIGN OWNED BY slipway_owner TO before")
	require.ErrorIs(t, dbtest.Open(t, dsn).CheckUser(ctx), db.ErrPrivilegedUser)
	require.ErrorContains(t, db.Migrate(ctx, dsn), "GRANT slipway_owner TO before")
	exec(t, admin, "CREATE EXTENSION pg_stat_statements SCHEMA public") // whose objects stay a superuser's
	exec(t, admin, "CREATE ROLE migrate LOGIN IN ROLE slipway_owner, before PASSWORD 'x'")
	exec(t, admin, "GRANT slipway_app TO before")
	exec(t, admin, "ALTER DATABASE one OWNER TO slipway_owner")
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	go func() { errs <- db.Migrate(ctx, strings.Replace(dsn, "before:"+cfg.Password, "migrate:x", 1)) }()
	serving, done := dbtest.Open(t, dsn), false
	for !done {
		dbtest.Node(t, serving) // a process of the version before has no gap
		select {
		case err := <-errs:
			require.NoError(t, err)
			done = true
		default:
		}
	}
	exec(t, admin, "DROP EXTENSION pg_stat_statements")
	owners := texts(t, admin, `SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
		UNION SELECT proowner::regrole::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace`)
	require.Equal(t, []string{db.RoleOwner}, owners)
	require.Equal(t, []string{"false"}, texts(t, admin, "SELECT has_database_privilege($1, 'one', 'TEMPORARY')::text", db.RoleApp))
	require.NoError(t, serving.CheckUser(ctx))
	dbtest.Node(t, serving, dbtest.Active())
	_, err = raw(t, dsn).Exec(ctx, "DELETE FROM audit_heads")
	requireState(t, err, "42501")

	for bad, undo := range map[string]string{
		"ALTER ROLE slipway_app BYPASSRLS":    "ALTER ROLE slipway_app NOBYPASSRLS",
		"ALTER ROLE slipway_owner LOGIN":      "ALTER ROLE slipway_owner NOLOGIN",
		"GRANT slipway_owner TO slipway_read": "REVOKE slipway_owner FROM slipway_read",
	} {
		exec(t, admin, bad)
		require.ErrorContains(t, db.Migrate(ctx, srv.DSN("one")), "superuser run: "+strings.Fields(undo)[0], bad)
		exec(t, admin, undo)
	}
	require.NoError(t, db.Migrate(ctx, srv.DSN("one")))
}
