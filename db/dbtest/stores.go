package dbtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
)

// stores keeps the Store of each ended test, by DSN, for the next test that gets the same database.
// A new connection costs the server more CPU time than most tests need: it reads the catalogs and
// plans each statement again.
type stores struct {
	mu   sync.Mutex
	kept map[string]*db.Store
}

// openStore opens the database at dsn until the test ends. A database of FreshDatabase is dropped
// then, and its Store is not kept.
func (k *stores) openStore(t testing.TB, dsn string) *db.Store {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	reused := strings.Contains(cfg.Database, usedInfix)
	sized := func(dsn, size string) string {
		dsn = withOption(dsn, "pool_max_conns", size)
		if reused {
			dsn = withOption(dsn, "application_name", kept)
		}
		return dsn
	}
	store := k.takeStore(dsn)
	if store == nil {
		store, err = db.Open(context.WithoutCancel(t.Context()), sized(dsn, poolSize), db.CustomerLogin(sized(CustomerDSN(t, dsn), customerPoolSize)))
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if !reused {
			store.Close()
			return
		}
		k.keepStore(t, dsn, store)
	})
	return store
}

func (k *stores) takeStore(dsn string) *db.Store {
	k.mu.Lock()
	defer k.mu.Unlock()
	store := k.kept[dsn]
	delete(k.kept, dsn)
	return store
}

// keepStore keeps a Store whose test has not failed and has left nothing that runs, and closes
// another one.
func (k *stores) keepStore(t testing.TB, dsn string, store *db.Store) {
	t.Helper()
	if t.Failed() || !isQuiet(store) {
		store.Close()
		return
	}
	k.mu.Lock()
	before := k.kept[dsn] // a test may open two
	k.kept[dsn] = store
	k.mu.Unlock()
	if before != nil {
		before.Close()
	}
}

// dropStores closes the Stores of a database that will be dropped.
func (k *stores) dropStores(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for dsn, store := range k.kept {
		if cfg, err := pgx.ParseConfig(dsn); err == nil && cfg.Database == name {
			store.Close()
			delete(k.kept, dsn)
		}
	}
}

const (
	quietLimit = 5 * time.Second
	maxIdle    = 6 // connections of a kept Store
)

// isQuiet waits until no statement runs, and reports whether every connection is in order. It
// closes connections above maxIdle.
func isQuiet(store *db.Store) bool {
	ctx, cancel := context.WithTimeout(context.Background(), quietLimit)
	defer cancel()
	pool, ok := store.DBTX().(*pgxpool.Pool)
	if !ok {
		return false
	}
	for pool.Stat().AcquiredConns() > 0 {
		if poll.Sleep(ctx, time.Millisecond) != nil {
			return false
		}
	}
	idle := pool.AcquireAllIdle(ctx)
	quiet := len(idle) > 0
	for i, conn := range idle {
		quiet = quiet && conn.Ping(ctx) == nil
		if i >= maxIdle {
			_ = conn.Conn().Close(ctx)
		}
		conn.Release()
	}
	return quiet
}
