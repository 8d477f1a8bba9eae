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

// received is a stream of which a test receives messages. next reports whether the message has
// content, and ok is false at the end of the stream.
type received struct {
	next func() (content, ok bool)
	err  func() error
}

// openStream opens a stream with a client.
type openStream func(ctx context.Context, c caller) (received, error)

// watchAfter opens WatchRuns from a cursor.
func watchAfter(cursor int64) openStream {
	return func(ctx context.Context, c caller) (received, error) {
		s, err := c.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{ResumeAfter: cursor, Heartbeats: true}))
		if err != nil {
			return received{}, err
		}
		return received{func() (bool, bool) { ok := s.Receive(); return ok && s.Msg().GetSnapshot() != nil, ok }, s.Err}, nil
	}
}

// outputAfter opens the output of a run from a position.
func outputAfter(runID string, seq int64) openStream {
	return func(ctx context.Context, c caller) (received, error) {
		s, err := c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: runID, ResumeAfter: seq}))
		if err != nil {
			return received{}, err
		}
		return received{func() (bool, bool) { ok := s.Receive(); return ok && len(s.Msg().GetData()) > 0, ok }, s.Err}, nil
	}
}

// readers opens streams, which count the messages with content that they receive, until stop is
// called. A stream that ends earlier fails the test.
func (w *world) readers(n int, heard *atomic.Int64, open openStream) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var streams sync.WaitGroup
	var begun atomic.Int64
	clients := w.clients((n + streamsEach - 1) / streamsEach)
	for i := range n {
		streams.Go(func() {
			s, err := open(ctx, clients[i/streamsEach])
			if err != nil {
				w.t.Error(err)
				return
			}
			content, ok := s.next()
			for begun.Add(1); ok; content, ok = s.next() {
				if content {
					heard.Add(1)
				}
			}
			if ctx.Err() == nil {
				w.t.Error("a stream ended before the test stopped it:", s.err())
			}
		})
	}
	require.Eventually(w.t, func() bool { return begun.Load() == int64(n) }, runenv.Patience(time.Minute), time.Millisecond, "all streams are open")
	return func() {
		cancel()
		streams.Wait()
	}
}

// clients returns clients that have different tokens, with gRPC and with JSON in turn.
func (w *world) clients(n int) (out []caller) {
	w.t.Helper()
	protocols := []connect.ClientOption{connect.WithGRPC(), grpc.WithJSON().(connect.ClientOption)}
	for i := range n {
		token, err := op.CreateToken(w.t.Context(), w.store, "reader-"+db.NewID("x"), []string{"viewer"}, time.Hour)
		require.NoError(w.t, err)
		out = append(out, w.with(token, "", protocols[i%2]))
	}
	return out
}

func (w *world) lastCursor() int64 {
	w.t.Helper()
	c, err := w.store.ReadEventCursor(w.t.Context())
	require.NoError(w.t, err)
	return c.Last
}

// TestStreams_ReadOnceForAllReaders counts the statements of a server for the same events and
// chunks, with one reader and with forty.
func TestStreams_ReadOnceForAllReaders(t *testing.T) {
	t.Parallel()
	const readers, events = 40, 10
	store := dbtest.Store(t)
	served, statements := dbtest.Counted(t, store)
	w := newWorldServing(t, store, served, time.Hour)
	w.register("m-1")
	run := w.mustStart("m-1", "a").GetRunId()
	w.relay()
	made, seq := 0, int64(0)
	count := func(readers int, open openStream, emit func()) int64 {
		var heard atomic.Int64
		defer w.readers(readers, &heard, open)()
		before := statements()
		for n := range int64(events) {
			made++
			emit()
			require.Eventually(t, func() bool { return heard.Load() == (n+1)*int64(readers) }, runenv.Patience(30*time.Second), time.Millisecond, "all have it")
		}
		return statements() - before
	}
	change := func() {
		stages := []lifecycle.StageRow{{Ordinal: 1, Name: "reboot", State: lifecycle.StageRunning, Attempts: made}}
		w.project(run, machinesdb.Step{Status: lifecycle.JobRunning, Current: "reboot", Stages: stages})
	}
	write := func() {
		seq++
		require.NoError(t, machinesdb.AppendLog(t.Context(), store, machinesdb.LogPlace{RunID: run, Step: "reboot", Attempt: 1}, "stdout", seq, []byte("x")))
	}
	for what, count := range map[string]func(readers int) int64{
		"changes of a run": func(n int) int64 { return count(n, watchAfter(w.lastCursor()), change) },
		"chunks of output": func(n int) int64 { return count(n, outputAfter(run, seq), write) },
	} {
		one, many := count(1), count(readers)
		t.Logf("%d %s: %d statements with one reader, %d with %d", events, what, one, many, readers)
		require.Less(t, many, one+int64(readers*events/2), "each reader asks the database")
	}
}

// TestStartRun_BesideReaders: two hundred readers of every event do not delay calls that write.
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
	stop := w.readers(readers, &heard, watchAfter(w.lastCursor()))
	beside := p50()
	stop()
	alone = max(alone, p50()) // the machine may be busier now than at first
	t.Logf("StartRun: p50 %s alone, %s beside %d readers, who got %d messages", alone, beside, readers, heard.Load())
	require.Positive(t, heard.Load())
	require.Less(t, beside, most*alone)
}
