package ledgerdb_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestMigrations_FillUsage upgrades a database with allocations. Row-level security binds the owner,
// who would find none of them.
func TestMigrations_FillUsage(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	cfg, err := pgx.ParseConfig(dbtest.OwnerDSN(t, dsn))
	require.NoError(t, err)
	sqlDB := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { _ = sqlDB.Close() })
	p, err := goose.NewProvider(goose.DialectPostgres, sqlDB, db.Migrations())
	require.NoError(t, err)
	_, err = p.DownTo(t.Context(), 46)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dbtest.OwnerDSN(t, dsn))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	for _, sql := range []string{
		"SET session_replication_role = replica",
		"INSERT INTO skus (id, name, spec) VALUES ('sku_1', 's', '{}')",
		"INSERT INTO billing_accounts (id, name) VALUES ('acc_1', 'a')",
		"INSERT INTO projects (id, billing_account_id, name) VALUES ('prj_1', 'acc_1', 'p')",
		`INSERT INTO allocations (id, project_id, sku_id, status, requested_by, node_id, start_time, access_given_at, access, access_ended_at, outcome,
			node_released_at, released_at) VALUES
			('alc_run', 'prj_1', 'sku_1', 'active', 'x', 'n1', now() - interval '1 hour', now(), '', NULL, '', NULL, NULL),
			('alc_end', 'prj_1', 'sku_1', 'released', 'x', 'n2', now() - interval '1 hour', now(), 'revoked', now(), 'released', now(), now()),
			('alc_new', 'prj_1', 'sku_1', 'requested', 'x', NULL, NULL, NULL, '', NULL, '', NULL, NULL)`,
		"SET session_replication_role = origin",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	require.NoError(t, db.Migrate(t.Context(), dbtest.OwnerDSN(t, dsn)))
	for sql, want := range map[string]string{
		"SELECT string_agg(id, ' ' ORDER BY id) FROM usage_records WHERE closed_at IS NULL":                                                           "usg_new usg_run",
		"SELECT string_agg(record_id || '=' || (ended_at IS NULL), ' ' ORDER BY record_id) FROM usage_segments":                                       "usg_end=false usg_run=true",
		"SELECT state || ' ' || depletions FROM account_balances":                                                                                     "depleted 0",
		"SELECT count(*)::text FROM pg_class WHERE relname IN ('allocations', 'projects', 'usage_records', 'usage_segments') AND relforcerowsecurity": "4",
	} {
		var got string
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&got), sql)
		require.Equal(t, want, got, sql)
	}
}
