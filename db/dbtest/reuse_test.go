package dbtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// contents returns how many rows each table has and where each sequence stands.
func contents(t *testing.T, dsn string) map[string]int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	rows, err := conn.Query(t.Context(), `
		SELECT relname::text, (xpath('/row/c/text()', query_to_xml('SELECT count(*) AS c FROM ' || oid::regclass, false, true, '')))[1]::text::bigint
		FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
		UNION ALL SELECT sequencename::text, coalesce(last_value, 0) FROM pg_sequences WHERE schemaname = 'public'`)
	require.NoError(t, err)
	out := map[string]int64{}
	var name string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error { out[name] = n; return nil })
	require.NoError(t, err)
	return out
}

// TestStore_UsedDatabaseIsEmpty uses a database, and compares what the next test
// gets with a copy of the template.
func TestStore_UsedDatabaseIsEmpty(t *testing.T) {
	src, err := ofProcess()
	require.NoError(t, err)
	var used string
	t.Run("use", func(t *testing.T) {
		used = src.take(t)
		store := Open(t, src.server.DSN(used))
		Job(t, store, Active())
		require.NotEqual(t, contents(t, FreshDatabase(t)), contents(t, src.server.DSN(used)))
	})
	other, err := pgx.Connect(t.Context(), src.server.DSN(used)) // a connection that the test has left
	require.NoError(t, err)
	require.Equal(t, used, src.take(t))
	require.Error(t, other.Ping(t.Context()))
	require.Equal(t, contents(t, FreshDatabase(t)), contents(t, src.server.DSN(used)))
	require.NotEqual(t, used, src.take(t), "one test at a time")
}
