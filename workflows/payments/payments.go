// Package payments is the workflow that a Schedule starts once a minute to compare payments with
// the payment provider. It only sequences; activities/payments says what is done.
package payments

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/workflows/pass"
)

var acts *payments.Activities

// Report is what one pass did; it stands in the workflow's result.
type Report struct {
	Off      bool          `json:"off,omitempty"`
	Events   int           `json:"events,omitempty"`   // processed
	Synced   int           `json:"synced,omitempty"`   // sessions, refunds and disputes
	Listed   int           `json:"listed,omitempty"`   // events that no webhook was accepted for
	Compared int           `json:"compared,omitempty"` // sessions of the payment provider
	Problems pass.Problems `json:"problems,omitempty"`
}

// The longest that each part may take; together they are less than the run may take.
const (
	shortLimit = time.Minute
	partLimit  = 5 * time.Minute
)

// Pass is one pass. A part that fails keeps no other from being done.
func Pass(ctx workflow.Context) (Report, error) {
	var plan payments.Plan
	r := Report{}
	if err := pass.Do(ctx, "decides what to do", shortLimit, acts.PlanPaymentPass, &plan); err != nil {
		return r, err
	}
	if r.Off = plan.Off; plan.Off {
		return r, nil
	}
	if plan.ListEvents {
		r.Problems.Add("events were not listed", pass.Do(ctx, "lists events", partLimit, acts.ListPaymentEvents, &r.Listed))
	}
	r.Problems.Add("not every event was processed", pass.Do(ctx, "processes events", partLimit, acts.ProcessPaymentEvents, &r.Events))
	r.Problems.Add("not every session, refund and dispute was compared", pass.Do(ctx, "compares what is due", partLimit, acts.SyncPayments, &r.Synced))
	if plan.Compare {
		r.Problems.Add("the totals were not compared", pass.Do(ctx, "compares sessions and totals", partLimit, acts.ComparePayments, &r.Compared))
	}
	return r, pass.Do(ctx, "stores how it went", shortLimit, acts.FinishPaymentPass, nil, payments.FinishIn{Problem: strings.Join(r.Problems, "; ")})
}
