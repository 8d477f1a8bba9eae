package replay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/test/bench/rig"
)

// changeWaitsTwice names the change that had the workflow of the test wait twice.
const changeWaitsTwice = "v0.2.0-waits-twice"

func wait(ctx workflow.Context) error { return workflow.Sleep(ctx, time.Millisecond) }

// The workflow of the test as one release has it, as the next one changes it behind a marker, and
// as a later one has it, which deleted the marker.
func waitsOnce(ctx workflow.Context) error { return wait(ctx) }

func waitsTwiceIfNew(ctx workflow.Context) error {
	if workflow.GetVersion(ctx, changeWaitsTwice, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return waitsOnce(ctx)
	}
	return waitsTwice(ctx)
}

func waitsTwice(ctx workflow.Context) error {
	if err := wait(ctx); err != nil {
		return err
	}
	return wait(ctx)
}

// TestMarker_GuardsOneRelease runs the workflow of each release and replays its history on the
// others: a marker has runs of the release before go on, and may be deleted once there are none.
func TestMarker_GuardsOneRelease(t *testing.T) {
	t.Parallel()
	c := rig.Temporal(t, nil)
	record := func(run func(workflow.Context) error) *historypb.History {
		queue := "marker-" + db.NewID("q")
		w := worker.New(c, queue, worker.Options{})
		w.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: "Waits"})
		require.NoError(t, w.Start())
		defer w.Stop()
		r, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue, WorkflowExecutionTimeout: patience}, "Waits")
		require.NoError(t, err)
		require.NoError(t, r.Get(t.Context(), nil))
		h := &historypb.History{}
		it := c.GetWorkflowHistory(t.Context(), r.GetID(), r.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for it.HasNext() {
			e, err := it.Next()
			require.NoError(t, err)
			h.Events = append(h.Events, e)
		}
		return h
	}
	replayed := func(run func(workflow.Context) error, h *historypb.History) error {
		r := worker.NewWorkflowReplayer()
		r.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: "Waits"})
		return r.ReplayWorkflowHistory(nil, h)
	}
	before, marked := record(waitsOnce), record(waitsTwiceIfNew)
	require.NoError(t, replayed(waitsTwiceIfNew, before), "a run of the release before goes on")
	require.NoError(t, replayed(waitsTwiceIfNew, marked))
	require.NoError(t, replayed(waitsTwice, marked), "a run that has the marker goes on without it")
	require.ErrorContains(t, replayed(waitsTwice, before), "TMPRL1100", "a change without a marker, or one that was deleted too early")
	require.ErrorContains(t, replayed(waitsOnce, marked), "TMPRL1100", "the release before cannot go on with it")
}
