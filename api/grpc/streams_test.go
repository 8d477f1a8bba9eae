package grpc_test

import (
	"bytes"
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/slipway-cloud/slipway/api/grpc"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestWatchRuns_SendsEveryChangeInOrder watches from the beginning, closes the stream and resumes.
func TestWatchRuns_SendsEveryChangeInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	w.register("m-2")
	run := w.mustStart("m-1", "a")
	w.mustStart("m-2", "b")
	w.relay()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	c := w.as("viewer")
	first, stop := context.WithCancel(ctx)
	s, err := c.WatchRuns(first, connect.NewRequest(&slipwayv1.WatchRunsRequest{Filter: "machine_id=m-1"}))
	require.NoError(t, err)
	next := func() *slipwayv1.RunEvent {
		for s.Receive() {
			if s.Msg().GetSnapshot() != nil {
				return s.Msg()
			}
		}
		require.NoError(t, s.Err())
		return nil
	}
	present := next()
	require.Equal(t, slipwayv1.Run_PENDING, present.GetSnapshot().GetPhase(), "as it is now")
	require.Zero(t, present.GetCursor(), "who has some of these and resumes would miss the others")
	step := func(state lifecycle.StageState) []lifecycle.StageRow {
		return []lifecycle.StageRow{{Ordinal: 1, Name: "reboot", State: state, Attempts: 2}}
	}
	w.project(run.GetRunId(), machinesdb.Step{Status: lifecycle.JobRunning, Current: "reboot", Stages: step(lifecycle.StageRunning)})
	got := next()
	require.Equal(t, slipwayv1.Run_RUNNING, got.GetSnapshot().GetPhase())
	require.EqualValues(t, 1, got.GetSnapshot().GetSteps()[0].GetRetryCount())
	require.Equal(t, "step reboot", got.GetMessage())
	stop()
	w.project(run.GetRunId(), machinesdb.Step{Status: lifecycle.JobRunning, Current: "reboot", Stages: step(lifecycle.StageSucceeded)})
	w.project(run.GetRunId(), machinesdb.Step{Status: lifecycle.JobCompleted, Current: "reboot", Stages: step(lifecycle.StageSucceeded)})
	s, err = c.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{Filter: "machine_id=m-1", ResumeAfter: got.GetCursor()}))
	require.NoError(t, err)
	require.Equal(t, slipwayv1.StepStatus_SUCCEEDED, next().GetSnapshot().GetSteps()[0].GetState())
	require.Equal(t, slipwayv1.Run_SUCCEEDED, next().GetSnapshot().GetPhase())
	_, err = w.store.DBTX().Exec(t.Context(), "UPDATE events SET at = now() - interval '2 days'")
	if err != nil { // the role of a serving process does not change events
		_, err = w.store.PruneEvents(t.Context(), time.Now().Add(time.Hour))
	}
	require.NoError(t, err)
	late, err := c.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{ResumeAfter: 1}))
	require.NoError(t, err)
	require.False(t, late.Receive())
	require.Equal(t, connect.CodeOutOfRange, connect.CodeOf(late.Err()))
}

// TestStreamRunLogs_Resumes reads output while it is written, closes the stream and resumes.
func TestStreamRunLogs_Resumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	run := w.mustStart("m-1", "a")
	place := machinesdb.LogPlace{RunID: run.GetRunId(), Step: "reboot", Attempt: 1}
	write := func(n int, text string) {
		require.NoError(t, machinesdb.AppendLog(t.Context(), w.store, place, "stderr", int64(n), []byte(text)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	c := w.as("viewer")
	first, stop := context.WithCancel(ctx)
	s, err := c.StreamRunLogs(first, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId()}))
	require.NoError(t, err)
	write(1, "one")
	next := func() *slipwayv1.LogChunk {
		for s.Receive() {
			if len(s.Msg().GetData()) > 0 {
				return s.Msg()
			}
		}
		return nil
	}
	got := next()
	require.Equal(t, []string{"one", "stderr", "reboot"}, []string{string(got.GetData()), got.GetStream(), got.GetStep()})
	stop()
	write(2, "two")
	s, err = c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId(), ResumeAfter: got.GetSeq()}))
	require.NoError(t, err)
	require.Equal(t, "two", string(next().GetData()))
	write(3, "three")
	w.project(run.GetRunId(), machinesdb.Step{Status: lifecycle.JobCancelled})
	require.Equal(t, "three", string(next().GetData()))
	require.Nil(t, next())
	require.NoError(t, s.Err(), "it ends with the run")
	_, err = machinesdb.PruneLogs(t.Context(), w.store, time.Now().Add(time.Hour))
	require.NoError(t, err)
	s, err = c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId(), ResumeAfter: got.GetSeq()}))
	require.NoError(t, err)
	require.Nil(t, next())
	require.Equal(t, connect.CodeOutOfRange, connect.CodeOf(s.Err()), "output is missing after the position")
	s, err = c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId()}))
	require.NoError(t, err)
	require.Nil(t, next())
	require.NoError(t, s.Err(), "from the beginning, of what is left")
}

// TestStreamRunLogs_AbortedWithAPosition: a client that does not read for a time loses its stream,
// and does not delay other calls. It receives the messages that were sent, and then ABORTED with
// the position to resume from.
func TestStreamRunLogs_AbortedWithAPosition(t *testing.T) {
	t.Parallel()
	const chunks = 32
	w := newWorld(t, func(c *grpc.Config) { c.WriteLimit = 300 * time.Millisecond })
	w.register("m-1")
	run := w.mustStart("m-1", "a")
	place := machinesdb.LogPlace{RunID: run.GetRunId(), Step: "reboot", Attempt: 1}
	for i := range chunks {
		require.NoError(t, machinesdb.AppendLog(t.Context(), w.store, place, "stdout", int64(i+1)<<18, bytes.Repeat([]byte{byte(i)}, 256<<10)))
	}
	for name, options := range map[string][]connect.ClientOption{"HTTP/1.1": nil, "gRPC": {connect.WithGRPC()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := w.as("viewer", options...)
			ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
			defer cancel()
			s, err := c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId()}))
			require.NoError(t, err)
			require.True(t, s.Receive())
			got, err := c.GetRun(ctx, connect.NewRequest(&slipwayv1.GetRunRequest{RunId: run.GetRunId()}))
			require.NoError(t, err)
			require.Equal(t, slipwayv1.Run_PENDING, got.Msg.GetPhase())
			time.Sleep(runenv.Patience(2 * time.Second)) //nolint:forbidigo // the reader that does not read is what is tested
			size, last := 0, int64(0)
			for s.Receive() {
				size, last = size+len(s.Msg().GetData()), s.Msg().GetSeq()
			}
			require.Equal(t, connect.CodeAborted, connect.CodeOf(s.Err()), "%v", s.Err())
			var coded *connect.Error
			require.ErrorAs(t, s.Err(), &coded)
			require.Equal(t, strconv.FormatInt(last, 10), coded.Meta().Get("Slipway-Resume-After"))
			require.Contains(t, coded.Message(), "resume_after "+strconv.FormatInt(last, 10))
			s, err = c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId(), ResumeAfter: last}))
			require.NoError(t, err)
			for size < chunks*256<<10 && s.Receive() {
				size += len(s.Msg().GetData())
			}
			require.Equal(t, chunks*256<<10, size, "%v", s.Err())
		})
	}
}

// TestWatchRuns_OfAClosedWindow: the stream of a reader that opens its window too late ends with
// ABORTED and the cursor of the last message, and not with a reset, however late that is.
func TestWatchRuns_OfAClosedWindow(t *testing.T) {
	t.Parallel()
	limit := runenv.Patience(500 * time.Millisecond)
	w := newWorld(t, func(c *grpc.Config) { c.WriteLimit = limit })
	w.register("m-1")
	w.mustStart("m-1", "a")
	w.relay()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	var opened atomic.Int64
	r := closedReader{procedure: slipwayv1connect.RunServiceWatchRunsProcedure, request: &slipwayv1.WatchRunsRequest{ResumeAfter: 1, Heartbeats: true}}
	for _, r.after = range []time.Duration{2 * limit, 20 * limit} {
		end, err := r.read(ctx, w, w.tokens["viewer"], &opened)
		require.NoError(t, err)
		require.Equal(t, "10", end.status, "%+v", end)
		require.Equal(t, "1", end.resume)
		require.Contains(t, end.message, "resume_after 1")
	}
	require.EqualValues(t, 2, opened.Load())
}

// A revoked token ends the stream that it opened.
func TestStreams_EndWithTheAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	s, err := w.as("viewer").WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{Heartbeats: true}))
	require.NoError(t, err)
	_, err = w.store.DBTX().Exec(t.Context(), "UPDATE api_tokens SET revoked_at = now() WHERE name = 'the-viewer'")
	require.NoError(t, err)
	for s.Receive() {
	}
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(s.Err()), "%v", s.Err())
}

// When the access of a reader ends, its stream ends also if the reader takes nothing.
func TestStreams_OfAClosedWindowEndWithTheAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *grpc.Config) { c.WriteLimit = time.Second })
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	var opened atomic.Int64
	ends := make(chan ending, 1)
	go func() {
		r := closedReader{procedure: slipwayv1connect.RunServiceWatchRunsProcedure, request: &slipwayv1.WatchRunsRequest{Heartbeats: true}}
		end, _ := r.read(ctx, w, w.tokens["viewer"], &opened)
		ends <- end
	}()
	require.Eventually(t, func() bool { return opened.Load() == 1 }, runenv.Patience(20*time.Second), time.Millisecond)
	_, err := w.store.DBTX().Exec(ctx, "UPDATE api_tokens SET revoked_at = now() WHERE name = 'the-viewer'")
	require.NoError(t, err)
	require.Equal(t, http2.ErrCodeInternal, (<-ends).reset, runenv.Deadline)
}

// A stream without messages stays open for longer than a reader has for one message.
func TestWatchRuns_OutlivesASilence(t *testing.T) {
	t.Parallel()
	limit := runenv.Patience(500 * time.Millisecond)
	w := newWorld(t, func(c *grpc.Config) { c.WriteLimit = limit })
	w.register("m-1")
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	s, err := w.as("viewer", connect.WithGRPC()).WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{Heartbeats: true}))
	require.NoError(t, err)
	require.True(t, s.Receive(), "%v", s.Err())
	time.Sleep(2 * limit) //nolint:forbidigo // the silence is what is tested
	run := w.mustStart("m-1", "a")
	w.relay()
	require.True(t, s.Receive(), "%v", s.Err())
	require.Equal(t, run.GetRunId(), s.Msg().GetSnapshot().GetRunId())
}

// TestWatchRuns_EndsAfterARestore: no event of the restored database is sent, and the reader begins
// again.
func TestWatchRuns_EndsAfterARestore(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, time.Hour)
	w.register("m-1")
	run := w.mustStart("m-1", "a")
	w.relay()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	s, err := w.as("viewer").WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{Heartbeats: true}))
	require.NoError(t, err)
	require.True(t, s.Receive())
	require.True(t, s.Receive(), "the heartbeat after the runs that are active")
	plan, err := w.store.PlanEndOfAccess(t.Context())
	require.NoError(t, err)
	_, err = w.store.EndRestoredAccess(t.Context(), plan.Hash)
	require.NoError(t, err)
	w.project(run.GetRunId(), machinesdb.Step{Status: lifecycle.JobRunning})
	require.False(t, s.Receive())
	require.Equal(t, connect.CodeOutOfRange, connect.CodeOf(s.Err()))
}
