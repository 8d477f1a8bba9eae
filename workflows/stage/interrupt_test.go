package stage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// interruptedEnds are the ways in which an activity that is being cancelled may end.
// Temporal does not start it again then, so a worker that dies on it leaves a
// timeout.
func interruptedEnds() map[string]error {
	return map[string]error{
		"cancelled":       nil,
		"worker died":     temporal.NewTimeoutError(enums.TIMEOUT_TYPE_HEARTBEAT, nil),
		"never finished":  temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil),
		"never started":   temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil),
		"failed for now":  stagetest.Failure(lifecycle.FailMAASUnavailable),
		"failed for ever": stagetest.Failure(lifecycle.FailNodeUnhealthy), // which would quarantine the node
		"panicked":        errors.New("nil pointer"),
	}
}

// ending is Temporal as it really ends an activity that is being cancelled; the
// test environment answers "cancelled" at once.
type ending struct {
	interceptor.WorkerInterceptorBase
	with error
}

type endingIn struct {
	interceptor.WorkflowInboundInterceptorBase
	with error
}

type endingOut struct {
	interceptor.WorkflowOutboundInterceptorBase
	with error
}

func (e *ending) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &endingIn{interceptor.WorkflowInboundInterceptorBase{Next: next}, e.with}
}

func (e *endingIn) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return e.Next.Init(&endingOut{interceptor.WorkflowOutboundInterceptorBase{Next: out}, e.with})
}

func (e *endingOut) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	done := e.Next.ExecuteActivity(ctx, name, args...)
	out, set := workflow.NewFuture(ctx)
	free, _ := workflow.NewDisconnectedContext(ctx)
	workflow.Go(free, func(c workflow.Context) {
		var v string
		err := done.Get(c, &v)
		if temporal.IsCanceledError(err) {
			err = e.with
		}
		set.Set(v, err)
	})
	return out
}

// cancelledEndWith has every activity that is cancelled end with an error; nil
// leaves it.
func (b *fixture) cancelledEndWith(err error) {
	if err != nil {
		b.Env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&ending{with: err}}})
	}
}

// TestTheActionDecidesWhateverTheInterruptedActivityEndsWith: a stage that an
// action interrupts does not fail, and the job is never parked for it. Found by
// the chaos run: a worker died while it was about to hear of a cancellation.
func TestTheActionDecidesWhateverTheInterruptedActivityEndsWith(t *testing.T) {
	t.Parallel()
	running, cleaning := lifecycle.JobRunning, lifecycle.JobCompensating
	for name, c := range map[string]struct {
		action lifecycle.Action
		found  string // outside, when it is observed
		states []lifecycle.JobStatus
		waits  int // how often the stage waits in all
	}{
		"cancel":          {lifecycle.ActionCancel, "", []lifecycle.JobStatus{running, cleaning, lifecycle.JobCancelled}, 1},
		"freeze":          {lifecycle.ActionMarkManual, "", []lifecycle.JobStatus{running, lifecycle.JobFailedManual, running, lifecycle.JobCompleted}, 2},
		"adopt":           {lifecycle.ActionAdopt, "Deploying", []lifecycle.JobStatus{running, lifecycle.JobReconciled}, 1},
		"a refused adopt": {lifecycle.ActionAdopt, "Broken", []lifecycle.JobStatus{running, lifecycle.JobCompleted}, 2},
	} {
		for how, end := range interruptedEnds() {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.out.block["wait"], b.out.found["wait"] = true, c.found
				b.cancelledEndWith(end)
				asked := b.at(waiting, c.action, contract.ActionRequest{Reason: "now"})
				b.after(waiting-100*time.Millisecond, b.out.release)
				b.at(1000*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
				b.Run()
				require.Equal(t, c.states, b.Store.Statuses())
				require.Equal(t, c.found == "Broken", asked.Err != nil, "%v", asked.Err)
				require.Len(t, b.out.made("wait"), c.waits)
				for _, s := range b.Store.Steps() {
					require.True(t, s.Failure == nil || s.Failure.Class == lifecycle.FailFrozen, "%v", s.Failure)
				}
			})
		}
	}
}

// TestAFullHistoryIsNoFailureEither: the runner itself interrupts a stage to go
// on in a new run, and the worker dies at that moment.
func TestAFullHistoryIsNoFailureEither(t *testing.T) {
	t.Parallel()
	for how, end := range interruptedEnds() {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.block["wait"] = true
			b.cancelledEndWith(end)
			b.fills(waiting)
			b.at(waiting, lifecycle.ActionRerun, contract.ActionRequest{Actor: "anna"}) // refused; what it leaves fills the history
			n := b.continues(t)
			require.Equal(t, lifecycle.JobRunning, n.Store.Last().Status)
			require.Equal(t, lifecycle.JobCompleted, n.Run().Status)
			require.NotContains(t, append(b.Store.Statuses(), n.Store.Statuses()...), lifecycle.JobFailedRetryable)
		})
	}
}

// TestAWorkerLostInACleanUpIsOneOfItsTries: an undo, and the look that proves it,
// that no worker finished are done again; the job is not parked.
func TestAWorkerLostInACleanUpIsOneOfItsTries(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"undo-two", "undo-one"} {
		b := setup(t)
		b.out.block["wait"] = true
		lost := temporal.NewTimeoutError(enums.TIMEOUT_TYPE_HEARTBEAT, nil)
		b.out.fail[call] = []error{lost, lost, lost}
		b.at(waiting, lifecycle.ActionCancel, contract.ActionRequest{})
		require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
		require.Equal(t, []lifecycle.JobStatus{lifecycle.JobRunning, lifecycle.JobCompensating, lifecycle.JobCancelled}, b.Store.Statuses())
		require.Len(t, b.out.made(call), 4)
	}
}

// TestAJobThatCannotBeLoadedWaits, as one that cannot be written does: a database
// that is away for hours loses no workflow.
func TestAJobThatCannotBeLoadedWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Store.FailReads = 1300 // more than an hour of tries
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Zero(t, b.Store.FailReads)
}
