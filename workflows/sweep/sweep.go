// Package sweep is the workflow that a Schedule starts every few seconds to
// look for what is stuck. It only sequences; activities/sweep says what is
// done.
package sweep

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/sweep"
)

var looks *sweep.Activities

// Report is what one pass found; it stands in the workflow's result.
type Report struct {
	Starts     sweep.StartsReport     `json:"starts"`
	Heartbeats sweep.HeartbeatsReport `json:"heartbeats"`
	Installs   sweep.InstallsReport   `json:"installs"`
	Jobs       sweep.JobsReport       `json:"jobs"`
	Problem    string                 `json:"problem,omitempty"`
}

// The longest that each part may take; together they are less than the run may
// take. They are local activities: stages that wait for hours can fill every
// place that a worker has for remote ones, and the sweeper must not wait
// behind them.
const (
	startsLimit     = 8 * time.Second
	heartbeatsLimit = 14 * time.Second
	installsLimit   = 4 * time.Second
	jobsLimit       = 25 * time.Second
	doneLimit       = 8 * time.Second
)

// Sweep is one pass. A part that fails keeps neither the others nor the note
// of the pass from being done.
func Sweep(ctx workflow.Context) (Report, error) {
	var r Report
	if err := workflow.ExecuteLocalActivity(within(ctx, startsLimit), looks.SweepStarts).Get(ctx, &r.Starts); err != nil {
		r.Problem = "starts were not looked at: " + err.Error()
	}
	if err := workflow.ExecuteLocalActivity(within(ctx, heartbeatsLimit), looks.SweepHeartbeats).Get(ctx, &r.Heartbeats); err != nil {
		r.Problem += " heartbeats were not looked at: " + err.Error()
	}
	if err := workflow.ExecuteLocalActivity(within(ctx, installsLimit), looks.SweepInstalls).Get(ctx, &r.Installs); err != nil {
		r.Problem += " installations were not looked at: " + err.Error()
	}
	err := workflow.ExecuteLocalActivity(within(ctx, jobsLimit), looks.SweepJobs).Get(ctx, &r.Jobs)
	switch {
	case err != nil:
		r.Problem += " jobs were not looked at: " + err.Error()
	case len(r.Jobs.Problems) > 0:
		r.Problem += " " + r.Jobs.Problem()
	}
	err = workflow.ExecuteLocalActivity(within(ctx, doneLimit), looks.SweepDone, sweep.Outcome{Problem: r.Problem}).Get(ctx, nil)
	return r, err
}

// within: no retries, the next pass is one.
func within(ctx workflow.Context, d time.Duration) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: d, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}
