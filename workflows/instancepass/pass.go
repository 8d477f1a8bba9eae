// Package instancepass is the workflow that a Schedule starts to compare instances with their providers,
// to check the health of those that work, and to move on what waits for nobody. It only sequences;
// activities/instance says what is done.
package instancepass

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
)

var acts *instanceact.Activities

// Report is what one pass did; it stands in the workflow's result.
type Report struct {
	Compare  instanceact.CompareReport `json:"compare,omitzero"`
	Checked  int                       `json:"checked,omitempty"`
	MovedOn  instanceact.MoveOnReport  `json:"moved_on,omitzero"`
	Problems []string                  `json:"problems,omitempty"`
}

// The longest that each part may take and wait for a worker; together they are less than the run may
// take. A part that fails is not repeated: the next pass is the repetition.
const (
	partLimit = 5 * time.Minute
	waitLimit = 2 * time.Minute
	heartbeat = 30 * time.Second
)

// Pass is one pass. A part that fails keeps no other from being done.
func Pass(ctx workflow.Context) (Report, error) {
	var r Report
	in := instanceact.PassIn{At: workflow.Now(ctx)}
	r.add("instances were not compared with their providers", do(ctx, "compares instances with their providers", acts.CompareInstances, in, &r.Compare))
	r.add("not every instance was checked", do(ctx, "checks the instances that work", acts.CheckInstances, in, &r.Checked))
	r.add("not every instance was moved on", do(ctx, "moves on what waits", acts.MoveInstancesOn, in, &r.MovedOn))
	return r, nil
}

func (r *Report) add(what string, err error) {
	if err == nil {
		return
	}
	reason := err.Error()
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		reason = app.Message()
	}
	r.Problems = append(r.Problems, what+": "+reason)
}

// do runs one activity without repeating it.
func do(ctx workflow.Context, summary string, activity any, in instanceact.PassIn, out any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: partLimit, ScheduleToStartTimeout: waitLimit, HeartbeatTimeout: heartbeat,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
	return workflow.ExecuteActivity(ctx, activity, in).Get(ctx, out)
}
