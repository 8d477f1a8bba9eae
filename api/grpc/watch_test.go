package grpc_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const streamsEach = 20 // of one token

// watchers opens streams of WatchRuns, which count the events of runs that they receive, until stop is called. They
// follow what comes after the cursor.
func (w *world) watchers(n int, after int64, heard *atomic.Int64) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var streams sync.WaitGroup
	var open atomic.Int64
	var c caller
	protocols := []connect.ClientOption{connect.WithGRPC(), grpc.WithJSON().(connect.ClientOption)}
	for i := range n {
		if i%streamsEach == 0 {
			token, err := op.CreateToken(w.t.Context(), w.store, "watcher-"+db.NewID("x"), []string{"viewer"}, time.Hour)
			require.NoError(w.t, err)
			c = w.with(token, "", protocols[i/streamsEach%2])
		}
		streams.Go(func() {
			s, err := c.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{ResumeAfter: after}))
			if err != nil {
				w.t.Error(err)
				return
			}
			defer func() { _ = s.Close() }()
			for begun := false; s.Receive(); {
				if !begun {
					begun = true
					open.Add(1)
				}
				if s.Msg().GetSnapshot() != nil {
					heard.Add(1)
				}
			}
		})
	}
	require.Eventually(w.t, func() bool { return open.Load() == int64(n) }, runenv.Patience(time.Minute), time.Millisecond, "all streams are open")
	return func() {
		cancel()
		streams.Wait()
	}
}

func (w *world) lastCursor() int64 {
	w.t.Helper()
	c, err := w.store.ReadEventCursor(w.t.Context())
	require.NoError(w.t, err)
	return c.Last
}

// TestWatchRuns_ReadsEachEventOnce counts the statements of a server for the same events, with one reader
// and with forty.
func TestWatchRuns_ReadsEachEventOnce(t *testing.T) {
	t.Parallel()
	const readers, events = 40, 10
	store := dbtest.Store(t)
	served, statements := dbtest.Counted(t, store)
	w := newWorldServing(t, store, served, time.Hour)
	w.register("m-1")
	run := w.mustStart("m-1", "a")
	w.relay()
	count := func(readers int) int64 {
		var heard atomic.Int64
		defer w.watchers(readers, w.lastCursor(), &heard)()
		before := statements()
		for n := range int64(events) {
			stages := []lifecycle.StageRow{{Ordinal: 1, Name: "reboot", State: lifecycle.StageRunning, Attempts: int(n) + readers}}
			w.project(run.GetRunId(), machinesdb.Step{Status: lifecycle.JobRunning, Current: "reboot", Stages: stages})
			require.Eventually(t, func() bool { return heard.Load() == (n+1)*int64(readers) }, runenv.Patience(30*time.Second), time.Millisecond, "all have the event")
		}
		return statements() - before
	}
	one, many := count(1), count(readers)
	t.Logf("%d events: %d statements for one reader, %d for %d readers", events, one, many, readers)
	require.Less(t, many, one+int64(readers*events/2), "each reader asks the database")
}

// TestStartRun_BesideReaders: two hundred readers of every event do not hold up the calls that write.
func TestStartRun_BesideReaders(t *testing.T) {
	const readers, starts, most = 200, 40, 3
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	var relay sync.WaitGroup
	relay.Go(func() {
		_ = w.store.Listen(ctx, db.ChannelOutbox, func() { _, _ = w.store.RelayEvents(ctx, 1000) })
	})
	defer relay.Wait()
	defer cancel()
	made := 0
	c := w.as("operator", connect.WithGRPC())
	p50 := func() time.Duration {
		var took []time.Duration
		for range starts {
			made++
			machine := fmt.Sprint("m-", made)
			w.register(machine)
			began := time.Now()
			_, err := c.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "a", MachineId: machine, Type: "REBOOT"}))
			require.NoError(t, err)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	p50() // warms the pool
	alone := p50()
	var heard atomic.Int64
	stop := w.watchers(readers, w.lastCursor(), &heard)
	beside := p50()
	stop()
	alone = max(alone, p50()) // the machine may be busier now than at first
	t.Logf("StartRun: p50 %s alone, %s beside %d readers, who got %d messages", alone, beside, readers, heard.Load())
	require.Positive(t, heard.Load())
	require.Less(t, beside, most*alone)
}
