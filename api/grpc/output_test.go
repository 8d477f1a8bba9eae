package grpc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// storedChunk is a chunk of the output of a run.
type storedChunk struct {
	seq  int64
	data string
}

// chunks returns the stored output of a run after a position.
func (w *world) chunks(runID string, after int64) (out []storedChunk) {
	w.t.Helper()
	rows, err := machinesdb.LogsAfter(w.t.Context(), w.store, runID, after, 10_000)
	require.NoError(w.t, err)
	for _, c := range rows {
		out = append(out, storedChunk{c.Seq, string(c.Data)})
	}
	return out
}

// readOutput reads the output of a run after a position to its end.
func readOutput(ctx context.Context, c caller, runID string, after int64) (out []storedChunk, err error) {
	s, err := c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: runID, ResumeAfter: after}))
	if err != nil {
		return nil, err
	}
	for s.Receive() {
		if m := s.Msg(); len(m.GetData()) > 0 {
			out = append(out, storedChunk{m.GetSeq(), string(m.GetData())})
		}
	}
	return out, s.Err()
}

// writeSlowly stores a chunk in a transaction that takes a number for it, and stays open for a
// random time before and after that. One of four transactions fails, so that its number is used
// again.
func (w *world) writeSlowly(runID, step string, n int) error {
	errRolledBack := errors.New("rolled back on purpose")
	err := w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		ctx, wait := w.t.Context(), "SELECT pg_sleep(random() * 0.01)"
		if _, err := tx.DBTX().Exec(ctx, wait); err != nil {
			return err
		}
		var seq int64
		if err := tx.DBTX().QueryRow(ctx, `INSERT INTO run_log_heads (run_id, seq) VALUES ($1, 1)
			ON CONFLICT (run_id) DO UPDATE SET seq = run_log_heads.seq + 1 RETURNING seq`, runID).Scan(&seq); err != nil {
			return err
		}
		if _, err := tx.DBTX().Exec(ctx, `INSERT INTO run_logs (run_id, seq, step, attempt, stream, next, data) VALUES ($1, $2, $3, 1, 'stdout', $4, $5)`,
			runID, seq, step, n, fmt.Appendf(nil, "%s %d", step, n)); err != nil {
			return err
		}
		if _, err := tx.DBTX().Exec(ctx, wait); err != nil {
			return err
		}
		if rand.N(4) == 0 { //nolint:gosec // no secret
			return errRolledBack
		}
		return nil
	})
	if errors.Is(err, errRolledBack) {
		return nil
	}
	return err
}

// TestStreamRunLogs_JoinedWhileWritten opens readers at random moments and positions, while several
// transactions store chunks at once, end in another order than they began, or fail. Each reader
// gets each chunk after its position once and in order, and then the end of the stream.
func TestStreamRunLogs_JoinedWhileWritten(t *testing.T) {
	t.Parallel()
	const writers, each, readers = 4, 40, 30
	w := newWorld(t)
	w.register("m-1")
	run := w.mustStart("m-1", "a").GetRunId()
	clients := w.clients(readers/streamsEach + 1)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	var writing, reading sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for n := range each {
				if err := w.writeSlowly(run, fmt.Sprint("step-", i), n+1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	got, from := map[int][]storedChunk{}, map[int]int64{}
	for i := range readers {
		reading.Go(func() {
			if _, err := w.store.DBTX().Exec(ctx, "SELECT pg_sleep(random())"); err != nil {
				t.Error(err)
			}
			after := int64(0)
			if i%3 > 0 {
				head, err := machinesdb.ReadLogHead(ctx, w.store, run)
				if err != nil {
					t.Error(err)
				}
				after = rand.N(head.Last + 1) //nolint:gosec // no secret
			}
			out, err := readOutput(ctx, clients[i/streamsEach], run, after)
			if err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[i], from[i] = out, after
		})
	}
	writing.Wait()
	w.project(run, machinesdb.Step{Status: lifecycle.JobCancelled})
	reading.Wait()
	require.NotEmpty(t, w.chunks(run, 0))
	for i := range readers {
		require.Equal(t, w.chunks(run, from[i]), got[i], "reader %d after %d", i, from[i])
	}
	late, err := readOutput(ctx, clients[0], run, 0)
	require.NoError(t, err)
	require.Equal(t, w.chunks(run, 0), late, "a reader after the end of the run")
}

// TestStreamRunLogs_EndsAfterARestore: no output of the restored database is sent, and a position
// of the database before is refused.
func TestStreamRunLogs_EndsAfterARestore(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, time.Hour)
	w.register("m-1")
	run := w.mustStart("m-1", "a").GetRunId()
	place := machinesdb.LogPlace{RunID: run, Step: "reboot", Attempt: 1}
	require.NoError(t, machinesdb.AppendLog(t.Context(), w.store, place, "stdout", 1, []byte("x")))
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	c := w.as("viewer")
	s, err := c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run, ResumeAfter: 1}))
	require.NoError(t, err)
	require.True(t, s.Receive(), "%v", s.Err())
	plan, err := w.store.PlanEndOfAccess(t.Context())
	require.NoError(t, err)
	_, err = w.store.EndRestoredAccess(t.Context(), plan.Hash)
	require.NoError(t, err)
	require.NoError(t, machinesdb.AppendLog(t.Context(), w.store, place, "stdout", 2, []byte("y")))
	require.False(t, s.Receive())
	require.Equal(t, connect.CodeOutOfRange, connect.CodeOf(s.Err()))
	_, err = readOutput(ctx, w.clients(1)[0], run, 3)
	require.Equal(t, connect.CodeOutOfRange, connect.CodeOf(err))
	require.ErrorContains(t, err, "ends at 2")
}
