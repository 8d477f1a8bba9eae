// Package pass has what the workflows of periodic work share: a pass runs its parts one after the
// other, each with a limit and without repetition, since the next pass is the repetition. A part
// that fails is reported, and the pass goes on. contract.Passes is the table of passes.
package pass

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

const (
	waitLimit = 5 * time.Minute // until a worker takes a part up
	heartbeat = 30 * time.Second
)

var once = &temporal.RetryPolicy{MaximumAttempts: 1}

// Do runs an activity of at most limit in any worker, and reads its result into out, which may be
// nil.
func Do(ctx workflow.Context, summary string, limit time.Duration, activity, out any, in ...any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: limit, ScheduleToStartTimeout: waitLimit, HeartbeatTimeout: heartbeat, RetryPolicy: once, Summary: summary,
	})
	return workflow.ExecuteActivity(ctx, activity, in...).Get(ctx, out)
}

// DoLocally is Do in the worker that runs the workflow. Stages that wait for hours can fill every
// place that a worker has for other activities, and a pass that looks for stuck jobs must not wait
// behind them.
func DoLocally(ctx workflow.Context, limit time.Duration, activity, out any, in ...any) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: limit, RetryPolicy: once})
	return workflow.ExecuteLocalActivity(ctx, activity, in...).Get(ctx, out)
}

// Problems are the parts that failed, in sentences.
type Problems []string

// Add adds that a part failed. It adds nothing for no error.
func (p *Problems) Add(text string, err error) {
	if err != nil {
		*p = append(*p, text+": "+Reason(err))
	}
}

// Reason returns an activity's own words, without Temporal's around them.
func Reason(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
