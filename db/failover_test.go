package db_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	failoverWriters = 16
	failoverRounds  = 3
	// failoverLimit is how long writes may stand still after the promotion.
	failoverLimit = 5 * time.Second
)

// cluster is a primary with a synchronous standby, and a store whose DSN names both.
type cluster struct {
	*testing.T
	primary, standby *pg.Server
	store            *db.Store
	last             atomic.Int64 // when the last write was acknowledged, in Unix nanoseconds
	failed           atomic.Int64
	heard            atomic.Int64
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	const name, login = "slipway", "failover_app"
	ctx := t.Context()
	c := &cluster{T: t}
	var err error
	c.primary, err = pg.Start(ctx, pg.Options{Replicated: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.primary.Stop() })
	require.NoError(t, c.primary.CreateDatabase(ctx, name))
	require.NoError(t, db.Migrate(ctx, c.primary.DSN(name)))
	require.NoError(t, c.primary.EnsureLogin(ctx, login, db.RoleApp))
	c.standby, err = c.primary.Standby(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.standby.Stop() })
	dsn, err := c.primary.LoginDSN(name, login)
	require.NoError(t, err)
	c.store, err = db.Open(ctx, pg.SeveralHosts(dsn, c.standby)+"&pool_max_conns=20")
	require.NoError(t, err)
	t.Cleanup(c.store.Close)
	return c
}

// write makes one change under an idempotency key, as a request does.
func (c *cluster) write(ctx context.Context, key string) error {
	return c.store.Tx(ctx, func(tx *db.Tx) error {
		state, _, err := tx.BeginIdempotent(ctx, "token:load", "POST /load", key, []byte(key))
		if err != nil || state == db.IdempotencyReplay {
			return err
		}
		if state != db.IdempotencyNew {
			return fmt.Errorf("key %s is %s", key, state)
		}
		if err := tx.AppendEvent(ctx, db.Event{ResourceKind: "node", ResourceID: key, Type: "node.load", Payload: []byte("{}")}); err != nil {
			return err
		}
		return tx.FinishIdempotent(ctx, "token:load", "POST /load", key, 201, nil, nil)
	})
}

// load writes until ctx ends, and repeats each write under its key until it is acknowledged. It
// returns the keys.
func (c *cluster) load(ctx context.Context, writer int) (acknowledged []string) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("w%d-%d", writer, n)
		for {
			one, cancel := context.WithTimeout(c.Context(), 30*time.Second)
			err := c.write(one, key)
			cancel()
			if err == nil {
				acknowledged = append(acknowledged, key)
				c.last.Store(time.Now().UnixNano())
				break
			}
			c.failed.Add(1)
			if !db.IsUnavailable(err) {
				c.Errorf("write %s: %v", key, err)
				return acknowledged
			}
			if ctx.Err() != nil {
				return acknowledged
			}
			_ = poll.Sleep(ctx, 20*time.Millisecond)
		}
	}
	return acknowledged
}

// TestFailover_WritesGoOn promotes a real standby under load. Writes go on within five seconds, a
// listener hears of them, no acknowledged write is lost, and none is made twice.
func TestFailover_WritesGoOn(t *testing.T) {
	t.Parallel()
	runenv.ProofOnly(t, "failover")
	for round := range failoverRounds {
		c := newCluster(t)
		ctx, stop := context.WithCancel(t.Context())
		listening, endListening := context.WithCancel(t.Context())
		go func() { _ = c.store.Listen(listening, db.ChannelOutbox, func() { c.heard.Add(1) }) }()
		keys := make([][]string, failoverWriters)
		var writers sync.WaitGroup
		for i := range failoverWriters {
			writers.Go(func() { keys[i] = c.load(ctx, i) })
		}
		acknowledged := func(since time.Time) bool { return c.last.Load() > since.UnixNano() }
		began := time.Now()
		require.Eventually(t, func() bool { return acknowledged(began.Add(2 * time.Second)) }, runenv.Patience(time.Minute), 10*time.Millisecond)

		require.NoError(t, c.primary.Pause(t.Context()))
		away := time.Unix(0, c.last.Load())
		require.NoError(t, c.standby.Promote(t.Context()))
		promoted, failed, heard := time.Now(), c.failed.Load(), c.heard.Load()
		require.Eventually(t, func() bool { return acknowledged(promoted) }, runenv.Patience(failoverLimit), time.Millisecond, runenv.Deadline)
		again := time.Since(promoted)
		require.Eventually(t, func() bool { return c.heard.Load() > heard+1 }, runenv.Patience(2*failoverLimit), 10*time.Millisecond, "the listener is on the new primary")
		require.Eventually(t, func() bool { return acknowledged(promoted.Add(2 * time.Second)) }, runenv.Patience(time.Minute), 10*time.Millisecond)
		stop()
		writers.Wait()
		endListening()
		late := c.failed.Load() - failed

		total := 0
		for _, of := range keys {
			total += len(of)
			for _, key := range of {
				var effects int
				require.NoError(t, c.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE resource_id = $1", key).Scan(&effects))
				require.Equal(t, 1, effects, "effects of %s: lost, or a doubled effect", key)
			}
		}
		t.Logf("round %d: %d writes acknowledged, the last before the failover %s before the promotion ended; writes went on after %s; %d tries failed before the promotion and %d after it",
			round, total, promoted.Sub(away).Round(time.Millisecond), again.Round(time.Millisecond), failed, late)
	}
}
