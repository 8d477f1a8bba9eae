package temporalx_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func TestTheSweepIsScheduledOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := temporalx.Schedule{Client: w.Client, TaskQueue: w.TaskQueue, Pass: contract.SweepPass, Every: time.Hour}
	t.Cleanup(func() { _ = s.Remove(context.WithoutCancel(t.Context())) })
	var passes atomic.Int64
	wk := worker.New(w.Client, w.TaskQueue, worker.Options{})
	wk.RegisterWorkflowWithOptions(func(workflow.Context) error {
		passes.Add(1)
		return nil
	}, workflow.RegisterOptions{Name: contract.SweepPass.Workflow})
	require.NoError(t, wk.Start())
	t.Cleanup(wk.Stop)

	require.NoError(t, s.Ensure(t.Context()))
	require.Eventually(t, func() bool { return passes.Load() == 1 }, runenv.Patience(30*time.Second), 50*time.Millisecond, "the first pass is made at once")
	h := w.Client.ScheduleClient().GetHandle(t.Context(), s.ID())
	require.NoError(t, h.Pause(t.Context(), client.SchedulePauseOptions{Note: "somebody has a reason"}))
	s.Every = time.Second
	require.NoError(t, s.Ensure(t.Context()))
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
