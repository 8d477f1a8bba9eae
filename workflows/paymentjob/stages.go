package paymentjob

import (
	"context"
	"time"

	"go.temporal.io/sdk/workflow"

	paymentsact "github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// acts names the activities; it is nil.
var acts *paymentsact.Activities

const (
	// providerDeadline bounds a stage that asks the payment provider, which may be away for hours.
	providerDeadline = 2 * time.Hour
	shortDeadline    = 30 * time.Minute
)

func reconcileStages() []stage.Stage[State] {
	adoptable := []string{contract.PaymentPaidInFull, contract.PaymentOtherAmount}
	return []stage.Stage[State]{
		{
			Name: lifecycle.StageReadSession, Weight: 2, Deadline: providerDeadline, Doc: "read the payment page at the payment provider, and store what it shows",
			Run: runActivity(lifecycle.StageReadSession, "read the payment", acts.ReadPayment),
		},
		{
			Name: lifecycle.StageMatchAmount, Weight: 1, Deadline: shortDeadline, Doc: "compare what was paid with what was asked for; another amount goes to suspense",
			Skip: needless, Run: runActivity(lifecycle.StageMatchAmount, "compare the amounts", acts.MatchPayment),
			Observe: observe, Adoptable: adoptable, Adopt: adoptPayment,
		},
		{
			Name: lifecycle.StagePostCredit, Weight: 2, Deadline: providerDeadline, Doc: "credit the payment, with the refunds that were made meanwhile, in one transaction",
			Skip: needless, Run: runActivity(lifecycle.StagePostCredit, "credit the payment", acts.CreditPayment),
			Observe: observe, Adoptable: adoptable, Adopt: adoptPayment,
		},
		{
			Name: lifecycle.StageConfirm, Weight: 1, Deadline: shortDeadline, Doc: "read the session and its ledger transaction back",
			Skip: unpaid, Run: runActivity(lifecycle.StageConfirm, "read the credit back", acts.ConfirmPayment),
		},
	}
}

// unpaid returns why nothing is to be credited: a delayed method pays later, and its webhook, or a
// pass, starts another job.
func unpaid(s *State) string {
	if s.Facts.Paid {
		return ""
	}
	return "the payment provider says that it is not paid"
}

func needless(s *State) string {
	if s.Decision != "" {
		return "an operator has decided about the money: " + string(s.Decision)
	}
	return unpaid(s)
}

// runActivity runs an activity at a stage, and keeps what it found.
func runActivity(at, summary string, act func(context.Context, contract.JobRef) (contract.PaymentFacts, error)) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		f, err := stage.Do(ctx, stage.KindLocalWork, summary, act, s.Job.At(at))
		if err == nil {
			s.Facts = f
		}
		return err
	}
}

func observe(ctx workflow.Context, s *State) (stage.Observation, error) {
	o, err := stage.Do(ctx, stage.KindLocalWork, "read what the payment provider shows", acts.ObservePayment, s.Job)
	out := stage.Observation{Done: o.State == contract.PaymentSettled, State: o.State, Note: o.Note}
	if o.State == contract.PaymentUnpaid {
		out.Refused = "the payment provider says that the payment is not paid, so there is nothing to adopt"
	}
	return out, err
}

// adoptPayment takes what the payment provider shows as the truth, and books it as the operator
// decided.
func adoptPayment(ctx workflow.Context, s *State, entry contract.ActionEntry) error {
	if entry.Resolution == "" {
		return stage.Fail(lifecycle.FailPaymentMismatch, "say what becomes of the money: pass resolution %s", lifecycle.OneOf(lifecycle.AdoptResolutions))
	}
	in := contract.PaymentDecision{JobRef: s.Job, Entry: entry, RunID: workflow.GetInfo(ctx).WorkflowExecution.RunID}
	f, err := stage.Do(ctx, stage.KindLocalWork, "book the decision: "+string(entry.Resolution), acts.DecidePayment, in)
	if err == nil {
		s.Facts, s.Decision = f, entry.Resolution
	}
	return err
}
