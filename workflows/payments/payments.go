// Package payments is the workflow that a Schedule starts once a minute to compare payments with the
// payment provider. It only sequences; activities/payments says what is done.
package payments

import (
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/payments"
)

var acts *payments.Activities

// Report is what one pass did; it stands in the workflow's result.
type Report struct {
	Off      bool     `json:"off,omitempty"`
	Events   int      `json:"events,omitempty"`   // processed
	Synced   int      `json:"synced,omitempty"`   // sessions, refunds and disputes
	Listed   int      `json:"listed,omitempty"`   // events that no webhook was accepted for
	Compared int      `json:"compared,omitempty"` // sessions of the payment provider
	Problems []string `json:"problems,omitempty"`
}

// The longest that each part may take and wait for a worker; together they are less than the run may
// take. A part that fails is not repeated: the next pass is the repetition.
const (
	shortLimit = time.Minute
	partLimit  = 5 * time.Minute
	waitLimit  = 2 * time.Minute
	heartbeat  = 30 * time.Second
)

// Pass is one pass. A part that fails keeps no other from being done.
func Pass(ctx workflow.Context) (Report, error) {
	var plan payments.Plan
	r := Report{}
	if err := do(ctx, "decides what to do", shortLimit, acts.PlanPaymentPass, &plan); err != nil {
		return r, err
	}
	if r.Off = plan.Off; plan.Off {
		return r, nil
	}
	if plan.ListEvents {
		r.add("events were not listed", do(ctx, "lists events", partLimit, acts.ListPaymentEvents, &r.Listed))
	}
	r.add("not every event was processed", do(ctx, "processes events", partLimit, acts.ProcessPaymentEvents, &r.Events))
	r.add("not every session, refund and dispute was compared", do(ctx, "compares what is due", partLimit, acts.SyncPayments, &r.Synced))
	if plan.Compare {
		r.add("the totals were not compared", do(ctx, "compares sessions and totals", partLimit, acts.ComparePayments, &r.Compared))
	}
	return r, do(ctx, "stores how it went", shortLimit, acts.FinishPaymentPass, nil, payments.FinishIn{Problem: strings.Join(r.Problems, "; ")})
}

func (r *Report) add(what string, err error) {
	if err != nil {
		r.Problems = append(r.Problems, what+": "+reason(err))
	}
}

// do runs one activity without repeating it.
func do(ctx workflow.Context, summary string, limit time.Duration, activity, out any, in ...any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: limit, ScheduleToStartTimeout: waitLimit, HeartbeatTimeout: heartbeat,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
	return workflow.ExecuteActivity(ctx, activity, in...).Get(ctx, out)
}

// reason is an activity's own words, without Temporal's around them.
func reason(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
