package stage

import (
	"context"
	"math"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Kind of work decides an activity's options. Bounded retries of failures are
// the runner's, where operators see them; what Temporal retries by itself is
// only a lost worker (a heartbeat or start-to-close timeout).
type Kind int

// The kinds of work.
const (
	// KindMAASCall is one or a few calls to a MAAS region.
	KindMAASCall Kind = iota
	// KindBMCCall is a BMC conversation, power waits included.
	KindBMCCall
	// KindPoll waits on the outside world, heartbeating, for as long as the
	// stage's deadline allows.
	KindPoll
	// KindNodeTask is work on a node by SSH.
	KindNodeTask
	// KindAgentTask waits for a task that the node's agent does (RunTask). It is
	// ended from outside; while it waits it holds no worker and has no heartbeat.
	KindAgentTask
	// KindQueue looks once whether what the stage waits for is there, and is called again by
	// Temporal for as long as the stage's deadline allows: a wait of a day holds no worker and no
	// history. The activity says when, in its error.
	KindQueue
	// KindLocalWork renders or decides in the worker and touches the database.
	KindLocalWork
)

// lostWorker is how soon a dead worker is noticed: the worker heartbeats every
// activity by itself at a third of this.
const lostWorker = 10 * time.Second

func options(k Kind, summary string, left time.Duration) workflow.ActivityOptions {
	o := workflow.ActivityOptions{
		Summary:             summary,
		HeartbeatTimeout:    lostWorker,
		WaitForCancellation: true, // what touches hardware is never left half known
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second, MaximumAttempts: 20,
		},
	}
	switch k {
	case KindMAASCall, KindLocalWork:
		o.StartToCloseTimeout = 2 * time.Minute
	case KindBMCCall, KindNodeTask:
		o.StartToCloseTimeout = 10 * time.Minute
	case KindPoll:
		o.StartToCloseTimeout = left
	case KindQueue:
		// The deadline ends the attempts, not their number. The SDK would take zero for ten in
		// tests.
		o.StartToCloseTimeout, o.RetryPolicy.MaximumAttempts = 2*time.Minute, math.MaxInt32
	case KindAgentTask:
		// Each repetition takes the same wait up again, which makes up for a worker that died
		// before it had asked. The agent's work goes on when the job turns elsewhere; RevokeTasks
		// names that work.
		o.StartToCloseTimeout, o.HeartbeatTimeout, o.WaitForCancellation = 2*time.Minute, 0, false
		o.RetryPolicy.MaximumAttempts = 0
	}
	if o.StartToCloseTimeout > left {
		o.StartToCloseTimeout = left
	}
	// The deadline is the stage's; a minute more lets the activity report it.
	o.ScheduleToCloseTimeout = left + time.Minute
	return o
}

type ctxKey string

const deadlineKey ctxKey = "slipway-stage-deadline"

// DeadlineAt is when the current stage's deadline ends.
func DeadlineAt(ctx workflow.Context) time.Time { return workflow.Now(ctx).Add(timeLeft(ctx)) }

// Within returns the moment that is d from now, or margin before the deadline of the current stage
// where that is earlier.
func Within(ctx workflow.Context, d, margin time.Duration) time.Time {
	until := workflow.Now(ctx).Add(d)
	if last := DeadlineAt(ctx).Add(-margin); until.After(last) {
		return last
	}
	return until
}

// Limit returns a context whose activities end within d, where the deadline of the stage is not
// earlier.
func Limit(ctx workflow.Context, d time.Duration) workflow.Context {
	return workflow.WithValue(ctx, deadlineKey, Within(ctx, d, 0))
}

const startKey ctxKey = "slipway-activity-start"

// StartWithin returns a context whose activities fail when no worker begins them within d. That
// counts as Unfinished.
func StartWithin(ctx workflow.Context, d time.Duration) workflow.Context {
	return workflow.WithValue(ctx, startKey, d)
}

// PastDeadline reports that the current stage's deadline has come: what was
// awaited is being cancelled, and the stage may end in its own way.
func PastDeadline(ctx workflow.Context) bool {
	at, ok := ctx.Value(deadlineKey).(time.Time)
	return ok && !workflow.Now(ctx).Before(at)
}

const passKey ctxKey = "slipway-job-pass"

// passOf returns the pass of the job, 0 where it is not known.
func passOf(ctx workflow.Context) int {
	if pass, ok := ctx.Value(passKey).(*int); ok {
		return *pass
	}
	return 0
}

const attemptKey ctxKey = "slipway-stage-attempt"

// Attempt counts the automatic attempts of a stage from 1; it starts again at 1 when
// an operator retries the stage.
func Attempt(ctx workflow.Context) int {
	n, _ := ctx.Value(attemptKey).(int)
	return max(n, 1)
}

// timeLeft is what remains of the current stage's deadline.
func timeLeft(ctx workflow.Context) time.Duration {
	if at, ok := ctx.Value(deadlineKey).(time.Time); ok {
		return max(at.Sub(workflow.Now(ctx)), time.Second)
	}
	return 10 * time.Minute
}

// Do runs a remote activity with the options of its kind and a summary for the
// Temporal Web UI. act is a method of a nil pointer to an activity struct. The action log of the
// try gets what the activity did: the ActionMetadata of its result, or that of its failure.
func Do[I, O any](ctx workflow.Context, k Kind, summary string, act func(context.Context, I) (O, error), in I) (O, error) {
	var out O
	err := Start(ctx, k, summary, act, in).Get(ctx, &out)
	noteDone(ctx, out, err)
	return out, err
}

// Start is Do for what goes on while the workflow waits for something else as well.
func Start[I, O any](ctx workflow.Context, k Kind, summary string, act func(context.Context, I) (O, error), in I) workflow.Future {
	if ref, ok := any(&in).(interface{ SetPass(pass int) }); ok {
		ref.SetPass(passOf(ctx))
	}
	o := options(k, summary, timeLeft(ctx))
	o.ScheduleToStartTimeout, _ = ctx.Value(startKey).(time.Duration)
	ctx = workflow.WithActivityOptions(ctx, o)
	return workflow.ExecuteActivity(ctx, act, in)
}

// quickDB is for local activities: a database write of milliseconds. When
// Postgres is away the attempts go on, backing off, for an hour at a stretch.
func quickDB(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary:                summary,
		StartToCloseTimeout:    5 * time.Second,
		ScheduleToCloseTimeout: time.Hour,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 3 * time.Second,
		},
	})
}

const didKey ctxKey = "slipway-stage-did"

// noteDone keeps what an activity did for the action log of the try that asked for it. An activity
// that undoes a stage belongs to no try.
func noteDone(ctx workflow.Context, out any, err error) {
	note, ok := ctx.Value(didKey).(func(lifecycle.ActionMetadata))
	if !ok {
		return
	}
	if err != nil {
		note(fault.DidOf(err))
		return
	}
	if facts, ok := out.(interface {
		ActionMetadata() lifecycle.ActionMetadata
	}); ok {
		note(facts.ActionMetadata())
	}
}
