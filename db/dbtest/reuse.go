package dbtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
)

// locks holds a lock for each database that this process has used, so that no other process takes
// it. The server releases them when the process ends.
type locks struct {
	mu   sync.Mutex
	conn *pgx.Conn
	held map[string]bool // by name: whether a test uses the database now
}

func (l *locks) try(ctx context.Context, name string) (mine bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if used, held := l.held[name]; held { // the server would give this connection a lock twice
		l.held[name] = true
		return !used, nil
	}
	err = l.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name).Scan(&mine)
	if mine {
		l.held[name] = true
	}
	return mine, err
}

// release lets the next test of this process have the database, unless another process got it at
// this moment. It returns an error when the lock was lost.
func (l *locks) release(ctx context.Context, name string) (ours bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const renew = "SELECT pg_advisory_unlock(k), pg_try_advisory_lock(k) FROM hashtextextended($1, 0) AS k"
	var held bool
	err = l.conn.QueryRow(ctx, renew, name).Scan(&held, &ours)
	if err == nil && !held {
		err = errors.New("the server does not know the lock")
	}
	if err != nil {
		return false, fmt.Errorf("another test may have used database %s at the same time: %w", name, err)
	}
	if l.held[name] = false; !ours {
		delete(l.held, name)
	}
	return ours, nil
}

// take returns an empty database that only this test uses until it ends. The lock of a database is
// kept until this process ends, since a kept Store is connected to it.
func (s source) take(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), createLimit)
	defer cancel()
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s%s%s%d", s.template, usedInfix, s.group, n)
		mine, err := s.locks.try(ctx, name)
		require.NoError(t, err)
		if !mine {
			continue
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), createLimit)
			defer cancel()
			ours, err := s.locks.release(ctx, name)
			if !ours {
				s.stores.dropStores(name)
			}
			require.NoError(t, err)
		})
		s.makeEmpty(ctx, t, name)
		return name
	}
}

// usedInfix is in the name of each database that several tests use, one after the other.
const usedInfix = "_used_"

// makeEmpty makes the database, or deletes what another test has left in it.
func (s source) makeEmpty(ctx context.Context, t testing.TB, name string) {
	t.Helper()
	err := s.empty(ctx, name)
	if errors.Is(err, errChanged) {
		t.Logf("database %s is made again: a test before has changed its schema", name)
		s.stores.dropStores(name)
		admin(t, s, "DROP DATABASE "+quote(name)+" WITH (FORCE)")
		s.create(t, name)
		return
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" { // this user may not disable triggers
		s.stores.dropStores(name)
		admin(t, s, "DROP DATABASE "+quote(name)+" WITH (FORCE)")
		refused.Code = "3D000"
	}
	if refused != nil && refused.Code == "3D000" { // there is none of that name
		s.create(t, name)
		return
	}
	require.NoError(t, err)
}

// The application names of connections that outlive a test: a keeper only empties a database, and
// the connections of a kept Store are named kept.
const (
	keeper = "slipway_dbtest_keeper"
	kept   = "slipway_kept"
)

// endOthersSQL ends all connections but these, and one of a kept Store that is at work.
const endOthersSQL = `
SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name <> '` + keeper + `' AND NOT (application_name = '` + kept + `' AND state = 'idle')`

// emptySQL deletes all rows without their triggers, and restores what the migrations have put into
// the tables.
const emptySQL = `
DO $$
DECLARE
    relation regclass;
    counter regclass;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR relation IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
        AND relname NOT IN ('lifecycle_edges', 'goose_db_version', 'currencies') AND pg_relation_size(oid) > 0 LOOP
        EXECUTE 'DELETE FROM ' || relation;
    END LOOP;
    FOR counter IN SELECT quote_ident(sequencename) FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL
        AND sequencename <> 'goose_db_version_id_seq' LOOP
        EXECUTE 'ALTER SEQUENCE ' || counter || ' RESTART';
    END LOOP;
    INSERT INTO event_cursor (last) VALUES (0);
    INSERT INTO webhook_cursor (last) VALUES (0);
    INSERT INTO sweep_passes DEFAULT VALUES;
    INSERT INTO audit_checks DEFAULT VALUES;
    INSERT INTO billing_control DEFAULT VALUES;
    INSERT INTO payment_control DEFAULT VALUES;
END $$`

// empty returns errChanged when the database no longer has the template's schema.
func (s source) empty(ctx context.Context, name string) error {
	conn, err := s.keepers.take(ctx, s.server, name)
	if err != nil {
		return err
	}
	if err := empty(ctx, conn, s.schema); err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	s.keepers.put(name, conn)
	return nil
}

func empty(ctx context.Context, conn *pgx.Conn, want string) error {
	if _, err := conn.Exec(ctx, endOthersSQL); err != nil {
		return err
	}
	schema, err := schemaOf(ctx, conn)
	if err != nil {
		return err
	}
	if schema != want {
		return errChanged
	}
	_, err = conn.Exec(ctx, emptySQL)
	return err
}

// keepers are this process's connections to the databases that it has emptied. A new connection
// costs the server more CPU time than the emptying, most of it to read the catalogs again.
type keepers struct {
	mu    sync.Mutex
	conns map[string]*pgx.Conn
}

// take returns the kept connection, or a new one. A test may have ended the kept one.
func (k *keepers) take(ctx context.Context, server *pg.Server, name string) (*pgx.Conn, error) {
	k.mu.Lock()
	kept := k.conns[name]
	delete(k.conns, name)
	k.mu.Unlock()
	if kept != nil {
		if kept.Ping(ctx) == nil {
			return kept, nil
		}
		_ = kept.Close(ctx)
	}
	cfg, err := pgx.ParseConfig(server.DSN(name))
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["application_name"] = keeper
	return pgx.ConnectConfig(ctx, cfg)
}

func (k *keepers) put(name string, conn *pgx.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns[name] = conn
}
