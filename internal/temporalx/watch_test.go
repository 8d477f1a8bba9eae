package temporalx_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	devtemporal "github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const engineLimit = 10 * time.Minute // the first run on a machine builds the server

// engine is the Temporal server of this test process, or the one of the run.
var engine = sync.OnceValues(func() (*devtemporal.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineLimit)
	defer cancel()
	return devtemporal.Acquire(ctx, "SLIPWAY_TEMPORAL_ADDRESS", devtemporal.Options{})
})

// world is a task queue of its own on a real Temporal.
type world struct {
	temporalx.Watch
	t *testing.T
}

func newWorld(t *testing.T) *world {
	t.Helper()
	srv, err := engine()
	require.NoError(t, err, "a Temporal server for the tests")
	c, err := client.DialContext(t.Context(), client.Options{
		HostPort: srv.Address(), Namespace: devtemporal.Namespace, Identity: "watch-test", Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &world{temporalx.Watch{Client: c, Namespace: devtemporal.Namespace, TaskQueue: "watch's " + db.NewID("q")}, t}
}

// works runs a worker whose onboarding is f.
func (w *world) works(f func(workflow.Context, contract.JobInput) error) {
	w.t.Helper()
	wk := worker.New(w.Client, w.TaskQueue, worker.Options{})
	wk.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: contract.WorkflowOf(contract.KindOnboarding)})
	wk.RegisterActivityWithOptions(func(context.Context) error { return errors.New("the worker fell over") }, activity.RegisterOptions{Name: "Fails"})
	wk.RegisterActivityWithOptions(func(context.Context) error { return activity.ErrResultPending }, activity.RegisterOptions{Name: "IsEndedFromOutside"})
	require.NoError(w.t, wk.Start())
	w.t.Cleanup(wk.Stop)
}

func (w *world) start() (id, run string) {
	w.t.Helper()
	id = contract.JobWorkflowID(contract.KindOnboarding, db.NewID("job"))
	r, err := w.Client.ExecuteWorkflow(w.t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: w.TaskQueue}, contract.WorkflowOf(contract.KindOnboarding), contract.JobInput{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		_ = w.Client.TerminateWorkflow(context.WithoutCancel(w.t.Context()), id, "", "the test is over")
	})
	return id, r.GetRunID()
}

func (w *world) until(id, what string, ok func(temporalx.Execution) bool) temporalx.Execution {
	w.t.Helper()
	var e temporalx.Execution
	require.Eventually(w.t, func() bool {
		var err error
		e, err = w.Look(w.t.Context(), id)
		return err == nil && ok(e)
	}, runenv.Patience(30*time.Second), 50*time.Millisecond, what)
	return e
}

func over(e temporalx.Execution) bool { return e.Found && !e.Running }

func TestOnlyTheOwnTaskQueueIsListed(t *testing.T) {
	t.Parallel()
	mine, other := newWorld(t), newWorld(t)
	a, run := mine.start()
	b, _ := mine.start()
	other.start()
	var open []temporalx.Open
	require.Eventually(t, func() bool {
		var all bool
		var err error
		open, all, err = mine.OpenWorkflows(t.Context(), 100)
		return err == nil && all && len(open) == 2
	}, runenv.Patience(30*time.Second), 50*time.Millisecond)
	ids := map[string]temporalx.Open{}
	for _, o := range open {
		ids[o.WorkflowID] = o
	}
	require.Contains(t, ids, b)
	require.Equal(t, run, ids[a].RunID)
	require.WithinDuration(t, time.Now(), ids[a].Started, time.Minute)
	require.NoError(t, mine.Terminate(t.Context(), a, run, "enough"))
	require.NoError(t, mine.Terminate(t.Context(), a, run, "enough"), "it has ended: no error")
	require.Eventually(t, func() bool {
		open, _, err := mine.OpenWorkflows(t.Context(), 100)
		return err == nil && len(open) == 1
	}, runenv.Patience(30*time.Second), 50*time.Millisecond)
}

func TestHowAWorkflowEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, run := w.start()
	e := w.until(id, "it waits for a worker", func(e temporalx.Execution) bool { return e.Task != nil })
	require.True(t, e.Running)
	require.False(t, e.Task.Taken)
	require.NoError(t, w.Terminate(t.Context(), id, run, "no  reason\nat all"))
	e = w.until(id, "it is over", over)
	require.Equal(t, "Terminated", e.Status)
	require.WithinDuration(t, time.Now(), e.Closed, time.Minute)
	words, err := w.Ending(t.Context(), id, e.RunID)
	require.NoError(t, err)
	require.Equal(t, "was terminated by watch-test: no reason at all", words)

	none, err := w.Look(t.Context(), "onboarding/nobody")
	require.NoError(t, err)
	require.Equal(t, temporalx.Execution{}, none)
	require.NoError(t, w.Cancel(t.Context(), "onboarding/nobody", ""))

	w.works(func(_ workflow.Context, in contract.JobInput) error {
		return temporal.NewNonRetryableApplicationError("the database refused", "x", nil)
	})
	id, _ = w.start()
	e = w.until(id, "it failed", over)
	words, err = w.Ending(t.Context(), id, e.RunID)
	require.NoError(t, err)
	require.Equal(t, "failed: the database refused", words)
}

func TestEndingsInWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.works(func(ctx workflow.Context, _ contract.JobInput) error {
		if workflow.GetInfo(ctx).WorkflowExecutionTimeout > 0 {
			return workflow.Sleep(ctx, time.Hour)
		}
		return nil
	})
	id, _ := w.start()
	e := w.until(id, "it completed", over)
	words, err := w.Ending(t.Context(), id, e.RunID)
	require.NoError(t, err)
	require.Equal(t, "completed without writing the job's end", words)

	id = contract.JobWorkflowID(contract.KindOnboarding, db.NewID("job"))
	_, err = w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: w.TaskQueue, WorkflowExecutionTimeout: time.Second},
		contract.WorkflowOf(contract.KindOnboarding), contract.JobInput{})
	require.NoError(t, err)
	e = w.until(id, "it timed out", over)
	words, err = w.Ending(t.Context(), id, e.RunID)
	require.NoError(t, err)
	require.Equal(t, "timed out", words)
}

func TestCodeThatPanicsIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.works(func(workflow.Context, contract.JobInput) error { panic("index out of range") })
	id, _ := w.start()
	e := w.until(id, "its task failed", func(e temporalx.Execution) bool { return e.Task != nil && e.Task.Attempt >= 2 })
	require.True(t, e.Running)
	why, err := w.TaskFailure(t.Context(), id, e.RunID)
	require.NoError(t, err)
	require.Contains(t, why, "index out of range")
}

func TestAnActivityThatFailsIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.works(func(ctx workflow.Context, _ contract.JobInput) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "Fails").Get(ctx, nil)
	})
	id, _ := w.start()
	e := w.until(id, "it was tried twice", func(e temporalx.Execution) bool { return len(e.Activities) == 1 && e.Activities[0].Attempt >= 2 })
	a := e.Activities[0]
	require.Equal(t, "Fails", a.Name)
	require.Equal(t, "the worker fell over", a.Failure)
	why, err := w.TaskFailure(t.Context(), id, e.RunID)
	require.NoError(t, err)
	require.Empty(t, why, "its code does not fail")
}

// An activity that is ended from outside takes its wait up again and again: that
// is no failure, other than that of one whose worker falls silent.
func TestAnActivityThatWaitsWithoutAWorkerHasNotFailed(t *testing.T) {
	t.Parallel()
	for heartbeat, failure := range map[time.Duration]string{0: "", 300 * time.Millisecond: "activity Heartbeat timeout"} {
		w := newWorld(t)
		w.works(func(ctx workflow.Context, _ contract.JobInput) error {
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Second, HeartbeatTimeout: heartbeat})
			return workflow.ExecuteActivity(ctx, "IsEndedFromOutside").Get(ctx, nil)
		})
		id, _ := w.start()
		e := w.until(id, "it waits again", func(e temporalx.Execution) bool { return len(e.Activities) == 1 && e.Activities[0].Attempt >= 2 })
		require.Equal(t, failure, e.Activities[0].Failure)
	}
}
