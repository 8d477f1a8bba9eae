package temporalx_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

func TestTheSweepIsScheduledOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := temporalx.Sweeps{Client: w.Client, TaskQueue: w.TaskQueue}
	t.Cleanup(func() { _ = s.Remove(context.WithoutCancel(t.Context())) })
	var passes atomic.Int64
	wk := worker.New(w.Client, w.TaskQueue, worker.Options{})
	wk.RegisterWorkflowWithOptions(func(workflow.Context) error {
		passes.Add(1)
		return nil
	}, workflow.RegisterOptions{Name: contract.SweepWorkflow})
	require.NoError(t, wk.Start())
	t.Cleanup(wk.Stop)

	require.NoError(t, s.Ensure(t.Context(), time.Hour))
	require.Eventually(t, func() bool { return passes.Load() == 1 }, runenv.Patience(30*time.Second), 50*time.Millisecond, "the first pass is made at once")
	h := w.Client.ScheduleClient().GetHandle(t.Context(), s.ID())
	require.NoError(t, h.Pause(t.Context(), client.SchedulePauseOptions{Note: "somebody has a reason"}))
	require.NoError(t, s.Ensure(t.Context(), time.Second))
	d, err := h.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, time.Second, d.Schedule.Spec.Intervals[0].Every, "the program's settings are taken")
	require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, d.Schedule.Policy.Overlap)
	require.True(t, d.Schedule.State.Paused, "a schedule that an operator paused stays paused")
	require.NoError(t, h.Unpause(t.Context(), client.ScheduleUnpauseOptions{}))
	require.Eventually(t, func() bool { return passes.Load() >= 3 }, runenv.Patience(30*time.Second), 50*time.Millisecond, "it goes on by itself")

	require.NoError(t, s.Remove(t.Context()))
	require.NoError(t, s.Remove(t.Context()), "it is gone: no error")
}

// TestSweeps_FormerStaysPaused: a Schedule that an operator paused in the namespace of an earlier
// release is paused in the new one, with the note, and is deleted there.
func TestSweeps_FormerStaysPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv, err := engine()
	require.NoError(t, err)
	passes, err := temporalx.Dial(temporalx.ClientOptions{
		Address: srv.Address(), Namespace: config.Temporal{Namespace: w.Namespace}.PassNamespace(), Log: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(passes.Close)
	before := temporalx.Sweeps{Client: w.Client, TaskQueue: w.TaskQueue}
	s := temporalx.Sweeps{Client: passes, Former: w.Client, TaskQueue: w.TaskQueue}
	t.Cleanup(func() { _ = s.Remove(context.WithoutCancel(t.Context())) })
	require.NoError(t, before.Ensure(t.Context(), time.Hour))
	former := w.Client.ScheduleClient().GetHandle(t.Context(), s.ID())
	require.NoError(t, former.Pause(t.Context(), client.SchedulePauseOptions{Note: "the region is moved"}))
	for range 2 {
		require.NoError(t, s.Ensure(t.Context(), time.Hour))
		d, err := passes.ScheduleClient().GetHandle(t.Context(), s.ID()).Describe(t.Context())
		require.NoError(t, err)
		require.True(t, d.Schedule.State.Paused)
		require.Equal(t, "the region is moved", d.Schedule.State.Note)
		require.Zero(t, d.Info.NumActions)
		_, err = former.Describe(t.Context())
		var gone *serviceerror.NotFound
		require.ErrorAs(t, err, &gone)
	}
}
