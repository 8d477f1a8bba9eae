package db_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// switchable is a database whose server can be made to look like a standby, for connections that
// are opened from then on, and for open ones.
type switchable struct {
	*testing.T
	dsn   string
	store *db.Store
	owner *pgx.Conn
}

func newSwitchable(t *testing.T) *switchable {
	t.Helper()
	dsn := dbtest.FreshDatabase(t)
	return &switchable{t, dsn, dbtest.Open(t, dsn), dbtest.Owner(t, dsn)}
}

func (s *switchable) exec(sql string, args ...any) {
	s.Helper()
	_, err := s.owner.Exec(s.Context(), sql, args...)
	require.NoError(s, err)
}

// readOnly says whether connections that are opened from now on can write.
func (s *switchable) readOnly(on string) {
	s.Helper()
	s.exec("ALTER DATABASE " + pgx.Identifier{s.owner.Config().Database}.Sanitize() + " SET default_transaction_read_only = " + on)
}

func (s *switchable) terminate() {
	s.Helper()
	s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'slipway'")
}

func (s *switchable) write() error {
	return s.store.Tx(s.Context(), func(tx *db.Tx) error {
		_, err := tx.DBTX().Exec(s.Context(), "UPDATE nodes SET updated_at = now() WHERE id = 'none'")
		return err
	})
}

// fill opens several connections of the pool, and makes each of them one that cannot write.
func (s *switchable) fill(sql string) {
	s.Helper()
	const connections = 4
	var open, done sync.WaitGroup
	open.Add(connections)
	for range connections {
		done.Go(func() {
			err := s.store.Tx(s.Context(), func(tx *db.Tx) error {
				_, err := tx.DBTX().Exec(s.Context(), sql)
				open.Done()
				open.Wait()
				return err
			})
			if err != nil {
				s.Error(err)
			}
		})
	}
	done.Wait()
}

// TestPool_LeavesTheFormerPrimary: connections of before answer reads and refuse writes, and new
// ones reach the primary. At most one write fails for it.
func TestPool_LeavesTheFormerPrimary(t *testing.T) {
	t.Parallel()
	s := newSwitchable(t)
	s.fill("SET default_transaction_read_only = on")
	failed := 0
	for range 10 {
		if err := s.write(); err != nil {
			require.ErrorContains(t, err, "25006")
			failed++
		}
	}
	require.LessOrEqual(t, failed, 1, "writes failed on connections of before")
}

// TestPool_ConnectsToNoStandby: while the address leads to a server that takes no writes, nothing
// is read there, and the error says that the database is unavailable. Writes work as soon as the
// address leads to the primary.
func TestPool_ConnectsToNoStandby(t *testing.T) {
	t.Parallel()
	s := newSwitchable(t)
	s.readOnly("on")
	s.terminate()
	require.Eventually(t, func() bool { return s.write() != nil }, runenv.Patience(5*time.Second), 10*time.Millisecond)
	err := s.store.ReadTx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.DBTX().Exec(t.Context(), "SELECT 1")
		return err
	})
	require.True(t, db.IsUnavailable(err), "a read: %v", err)
	s.readOnly("off")
	require.NoError(t, s.write())
}

// TestPool_ChecksTheRestAfterABrokenConnection: one connection ends by 57P01, and the others, which
// lead to a server that takes no writes, are not used any more.
func TestPool_ChecksTheRestAfterABrokenConnection(t *testing.T) {
	t.Parallel()
	s := newSwitchable(t)
	s.fill("SET default_transaction_read_only = on")
	err := s.store.ReadTx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.DBTX().Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	})
	require.Error(t, err)
	for range 10 {
		require.NoError(t, s.write())
	}
}

// TestPool_CustomersLeaveTheFormerPrimaryToo: the pool of customers only reads, so that it meets no
// error. It is checked when the other pool of the process meets one.
func TestPool_CustomersLeaveTheFormerPrimaryToo(t *testing.T) {
	t.Parallel()
	s := newSwitchable(t)
	project := dbtest.Project(t, s.store).ID
	readOnly := func(first string) (on string) {
		require.NoError(t, s.store.ForProject(t.Context(), project, func(tx *db.ProjectTx) error {
			if _, err := tx.DBTX().Exec(t.Context(), first); err != nil {
				return err
			}
			return tx.DBTX().QueryRow(t.Context(), "SHOW default_transaction_read_only").Scan(&on)
		}))
		return on
	}
	require.Equal(t, "on", readOnly("SET default_transaction_read_only = on"))
	require.Error(t, s.store.ReadTx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.DBTX().Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	}))
	require.Equal(t, "off", readOnly("SELECT 1"))
}

// TestPool_CancelledCallersCauseNoChecks: a caller who goes away says nothing about the server.
func TestPool_CancelledCallersCauseNoChecks(t *testing.T) {
	t.Parallel()
	s := newSwitchable(t)
	before := db.PrimaryPeriod(s.store)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := s.store.DBTX().Exec(ctx, "SELECT pg_sleep(30)")
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, db.PrimaryPeriod(s.store))
}

// TestListen_LeavesTheFormerPrimary: a connection that listens is checked when another one of the
// process finds that the server takes no writes, and not only when it is silent for long. It may
// find it while nobody waits for notifications.
func TestListen_LeavesTheFormerPrimary(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"while it waits": false, "while a notification is handled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSwitchable(t)
			ctx, cancel := context.WithCancel(t.Context())
			calls, handled := make(chan struct{}, 100), make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				ended <- s.store.Listen(ctx, db.ChannelOutbox, func() { calls <- struct{}{}; <-handled })
			}()
			<-calls
			if !busy {
				close(handled)
			}
			s.fill("SELECT 1")
			var pid int
			const backends = " FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'slipway' AND query "
			require.NoError(t, s.owner.QueryRow(t.Context(), "SELECT pid"+backends+"ILIKE '%listen slipway%'").Scan(&pid))
			s.exec("SELECT pg_terminate_backend(pid)" + backends + "NOT ILIKE '%listen slipway%'")
			before := db.PrimaryPeriod(s.store)
			require.Eventually(t, func() bool {
				_ = s.write() // finds the ended backends
				return db.PrimaryPeriod(s.store) != before
			}, runenv.Patience(5*time.Second), 20*time.Millisecond)
			if busy {
				close(handled)
			}
			require.Eventually(t, func() bool {
				var query string
				err := s.owner.QueryRow(t.Context(), "SELECT query FROM pg_stat_activity WHERE pid = $1", pid).Scan(&query)
				return err == nil && query == "show transaction_read_only"
			}, runenv.Patience(5*time.Second), 20*time.Millisecond, "the listening connection is checked")
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		})
	}
}
