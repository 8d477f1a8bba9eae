package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// The wait for a connection has a limit of its own; the caller's deadline is told from it.
func TestPool_AcquireIsBounded(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(dbtest.Database(t))
	require.NoError(t, err)
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, db.BoundedAcquire(time.Second)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var held *pgxpool.Conn
	require.Eventually(t, func() bool { // a busy server may take longer than that to let one in
		held, err = pool.Acquire(t.Context())
		return err == nil
	}, runenv.Patience(30*time.Second), time.Millisecond)
	_, err = pool.Exec(t.Context(), "SELECT 1")
	require.ErrorIs(t, err, db.ErrNoConnection)
	require.True(t, db.IsUnavailable(err))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pool.Exec(ended, "SELECT 1")
	require.ErrorIs(t, err, context.Canceled)
	held.Release()
	var slept string // the limit is of the acquisition, not of the query
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_sleep(1.2)::text").Scan(&slept))
}
