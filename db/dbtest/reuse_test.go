package dbtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
)

// contents returns how many rows each table has and where each sequence stands.
func contents(t *testing.T, dsn string) map[string]int64 {
	t.Helper()
	rows, err := Owner(t, dsn).Query(t.Context(), `
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

// ownSource returns the source of this process with used databases of its own, so that tests of
// other processes cannot take one in between.
func ownSource(t *testing.T) source {
	t.Helper()
	src, err := ofProcess()
	require.NoError(t, err)
	src.group = fmt.Sprintf("pid%d_", os.Getpid())
	t.Cleanup(func() {
		for n := 1; n <= 2; n++ {
			name := fmt.Sprintf("%s_used_%s%d", src.template, src.group, n)
			src.stores.dropStores(name)
			admin(t, src, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
		}
	})
	return src
}

// TestStore_UsedDatabaseIsEmpty uses a database, and compares what the next test
// gets with a copy of the template.
func TestStore_UsedDatabaseIsEmpty(t *testing.T) {
	src := ownSource(t)
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

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestStore_ChangedSchemaIsNotReused changes the schema of a database in one way after the other.
// The next test gets one without the change.
func TestStore_ChangedSchemaIsNotReused(t *testing.T) {
	src := ownSource(t)
	for name, change := range map[string]string{
		"table":    "CREATE TABLE extra (id int)",
		"column":   "ALTER TABLE jobs ADD COLUMN extra int",
		"default":  "ALTER TABLE jobs ALTER COLUMN run_id SET DEFAULT 'x'",
		"trigger":  "ALTER TABLE jobs DISABLE TRIGGER ALL",
		"function": "CREATE FUNCTION extra() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"check":    "ALTER TABLE jobs ADD CHECK (run_id <> 'x')",
		"index":    "CREATE INDEX extra ON jobs (run_id)",
		"dropped":  "DROP TABLE lifecycle_edges",
		"edges":    "UPDATE lifecycle_edges SET from_state = from_state",
	} {
		t.Run(name, func(t *testing.T) {
			var used string
			t.Run("change", func(t *testing.T) {
				used = src.take(t)
				_, err := connect(t, src.server.DSN(used)).Exec(t.Context(), change)
				require.NoError(t, err)
			})
			require.Equal(t, used, src.take(t))
			schema, err := schemaOf(t.Context(), connect(t, src.server.DSN(used)))
			require.NoError(t, err)
			require.Equal(t, src.schema, schema)
		})
	}
}

// TestStore_UnchangedSchemaIsReused compares the ids of a database, which a new one would not
// share.
func TestStore_UnchangedSchemaIsReused(t *testing.T) {
	src := ownSource(t)
	conn := connect(t, src.server.DSN("postgres"))
	id := func(t *testing.T) (name string, id uint32) {
		name = src.take(t)
		Job(t, Open(t, src.server.DSN(name)), Active())
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT oid FROM pg_database WHERE datname = $1", name).Scan(&id))
		return name, id
	}
	var first, second uint32
	var one, two string
	t.Run("first", func(t *testing.T) { one, first = id(t) })
	t.Run("second", func(t *testing.T) { two, second = id(t) })
	require.Equal(t, one, two)
	require.Equal(t, first, second)
}

func TestDropOld_KeepsWhatAProcessUses(t *testing.T) {
	src, err := ofProcess()
	require.NoError(t, err)
	other, conn := connect(t, src.server.DSN("postgres")), connect(t, src.server.DSN("postgres"))
	template := templatePrefix + "test" + strings.TrimPrefix(db.NewID("x"), "x_")
	copied := template + "_used_1"
	for _, name := range []string{template, copied} {
		_, err := conn.Exec(t.Context(), "CREATE DATABASE "+quote(name))
		require.NoError(t, err)
	}
	there := func() (n int) {
		const count = "SELECT count(*) FROM pg_database WHERE datname IN ($1, $2)"
		require.NoError(t, conn.QueryRow(t.Context(), count, template, copied).Scan(&n))
		return n
	}
	_, err = other.Exec(t.Context(), "SELECT pg_advisory_lock_shared(hashtextextended($1, 0))", inUse(template))
	require.NoError(t, err)
	require.NoError(t, dropOld(t.Context(), conn, src.template))
	require.Equal(t, 2, there())
	_, err = other.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	require.NoError(t, dropOld(t.Context(), conn, src.template))
	require.Zero(t, there())
	var own bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", src.template).Scan(&own))
	require.True(t, own)
}

// TestLocks_LostLockIsAnError ends the connection that holds the lock, as a server does that
// restarts.
func TestLocks_LostLockIsAnError(t *testing.T) {
	src, err := ofProcess()
	require.NoError(t, err)
	l := &locks{conn: connect(t, src.server.DSN("postgres")), held: map[string]bool{}}
	for name, lose := range map[string]func(){
		"unlocked": func() { _, _ = l.conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()") },
		"broken": func() {
			_, _ = connect(t, src.server.DSN("postgres")).Exec(t.Context(), "SELECT pg_terminate_backend($1, 10000)", l.conn.PgConn().PID())
		},
	} {
		l.conn, l.held = connect(t, src.server.DSN("postgres")), map[string]bool{}
		mine, err := l.try(t.Context(), "a database of "+t.Name()+name)
		require.NoError(t, err)
		require.True(t, mine, name)
		lose()
		_, err = l.release(t.Context(), "a database of "+t.Name()+name)
		require.ErrorContains(t, err, "at the same time", name)
	}
}

// TestStore_EmptiedOnAKeptConnection: a database is emptied again on the connection that did it
// before. When that has ended, another one does it.
func TestStore_EmptiedOnAKeptConnection(t *testing.T) {
	src := ownSource(t)
	conn := connect(t, src.server.DSN("postgres"))
	emptiedBy := func() (pid uint32) {
		t.Run("use", func(t *testing.T) {
			used := src.take(t)
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND application_name = $2", used, keeper).Scan(&pid))
		})
		return pid
	}
	t.Run("make", func(t *testing.T) { src.take(t) }) // a copy of the template is empty
	first := emptiedBy()
	require.Equal(t, first, emptiedBy())
	_, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend($1, 10000)", first)
	require.NoError(t, err)
	require.NotEqual(t, first, emptiedBy())
}

// TestStore_ConnectionsAreKept: the next test that gets a database has the connections of the one
// before. A test that has failed, or that leaves a broken connection, leaves none.
func TestStore_ConnectionsAreKept(t *testing.T) {
	src := ownSource(t)
	conn := connect(t, src.server.DSN("postgres"))
	use := func(end func(*db.Store, uint32)) (pid uint32) {
		t.Run("use", func(t *testing.T) {
			store := Open(t, src.appDSN(t, src.take(t)))
			require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
			end(store, pid)
		})
		return pid
	}
	nothing := func(*db.Store, uint32) {}
	first := use(nothing)
	require.Equal(t, first, use(nothing))
	require.Equal(t, first, use(func(_ *db.Store, pid uint32) {
		_, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend($1, 10000)", pid)
		require.NoError(t, err)
	}))
	second := use(func(store *db.Store, _ uint32) { store.Close() })
	require.NotEqual(t, first, second)
	require.NotEqual(t, second, use(nothing))
}
