package payments

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
)

// ReadPayment reads the session of the job from the payment provider, and stores its state there.
func (a *Activities) ReadPayment(ctx context.Context, ref contract.JobRef) (contract.PaymentFacts, error) {
	s, err := a.Sync.Read(ctx, ref.ResourceID)
	return a.factsOf(s), a.faultOf(ctx, err)
}

// MatchPayment compares the received amount with the requested amount. When they differ it returns
// an error: the money is in suspense then, and an operator decides.
func (a *Activities) MatchPayment(ctx context.Context, ref contract.JobRef) (contract.PaymentFacts, error) {
	s, err := a.Sync.Match(ctx, ref.ResourceID)
	if err == nil && s.Status == lifecycle.PaymentFailedReconcile && !payments.IsSettled(s) && s.FailureCode == lifecycle.PaymentMismatch {
		err = fault.New(lifecycle.FailPaymentMismatch, "%s", s.FailureMessage)
	}
	return a.factsOf(s), a.faultOf(ctx, err)
}

// CreditPayment credits the payment, once.
func (a *Activities) CreditPayment(ctx context.Context, ref contract.JobRef) (contract.PaymentFacts, error) {
	s, err := a.Sync.Credit(ctx, ref.ResourceID)
	return a.factsOf(s), a.faultOf(ctx, err)
}

// ConfirmPayment reads the session and its credit back.
func (a *Activities) ConfirmPayment(ctx context.Context, ref contract.JobRef) (contract.PaymentFacts, error) {
	s, err := a.Sync.Confirm(ctx, ref.ResourceID)
	if errors.Is(err, payments.ErrNotBooked) {
		err = fault.New(lifecycle.FailPaymentMismatch, "%v; compare the ledger of the billing account with Stripe's dashboard", err)
	}
	return a.factsOf(s), a.faultOf(ctx, err)
}

// ObservePayment reads what the payment provider shows of the payment. It books nothing.
func (a *Activities) ObservePayment(ctx context.Context, ref contract.JobRef) (contract.PaymentObservation, error) {
	s, err := a.Sync.Read(ctx, ref.ResourceID)
	if err != nil {
		return contract.PaymentObservation{}, a.faultOf(ctx, err)
	}
	o := contract.PaymentObservation{State: contract.PaymentUnpaid, Note: noteOf(s)}
	switch {
	case payments.IsSettled(s):
		o.State = contract.PaymentSettled
	case s.PaymentStatus != lifecycle.PaidFull || s.ReceivedMinor == nil:
	case payments.IsWhatWasAsked(s):
		o.State = contract.PaymentPaidInFull
	default:
		o.State = contract.PaymentOtherAmount
	}
	return o, nil
}

// DecidePayment books what an operator decided about the money by an action. The audit row names
// the operator when the action is proven, and otherwise the engine with the name that the action
// claims. It can be repeated.
func (a *Activities) DecidePayment(ctx context.Context, in contract.PaymentDecision) (contract.PaymentFacts, error) {
	var s paymentsdb.Session
	err := a.Sync.Store.Tx(ctx, func(tx *db.Tx) error {
		unproven, _, err := signing.VerifyAction(ctx, tx, in.JobID, in.RunID, in.Entry, false)
		if err != nil {
			return err
		}
		d := payments.Decision{
			SessionID: in.ResourceID, Resolution: in.Entry.Resolution, Reason: in.Entry.Reason, Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: in.Entry.Actor},
		}
		if unproven != "" {
			d.Actor = db.Actor{Owner: lifecycle.OwnerEngine, ID: lifecycle.Claimed(in.Entry.Actor)}
		}
		d.Actor.WorkflowID = contract.JobWorkflowID(contract.KindPaymentReconcile, in.JobID)
		s, err = payments.Decide(ctx, tx, a.Sync.Policy, d)
		return err
	})
	return a.factsOf(s), a.faultOf(ctx, err)
}

// faultOf turns an error of a stage into a typed failure.
func (a *Activities) faultOf(ctx context.Context, err error) error {
	var credit *paymentsync.CreditError
	refusal := intent.AsRefusal(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, payments.ErrOff):
		return fault.New(lifecycle.FailPaymentsRejected, "payments are off on this installation; set payment.stripe_key_ref, then retry the stage")
	case errors.Is(err, paymentsync.ErrOtherMode):
		return fault.New(lifecycle.FailPaymentsRejected, "%v; set payment.stripe_live as it was, or cancel the job", err)
	case errors.Is(err, payments.ErrDisagrees):
		return fault.New(lifecycle.FailPaymentMismatch, "%v", err)
	case refusal != nil:
		return fault.New(lifecycle.FailPaymentMismatch, "%s", refusal.Error())
	case errors.As(err, &credit) && ctx.Err() == nil && !db.IsUnavailable(credit.Err):
		return fault.New(lifecycle.FailPaymentCredit, "%v", credit)
	}
	return fault.Payments(ctx, err)
}

func (a *Activities) factsOf(s paymentsdb.Session) contract.PaymentFacts {
	f := contract.PaymentFacts{
		SessionID: s.ID, Status: s.Status, Paid: s.PaymentStatus == lifecycle.PaidFull, Currency: s.ReceivedCurrency, Settled: payments.IsSettled(s),
		CreditAttempts: a.Sync.Policy.CreditMaxAttempts, Note: noteOf(s),
	}
	if s.ReceivedMinor != nil {
		f.Received = *s.ReceivedMinor
	}
	return f
}

// noteOf is what the timeline says of a session.
func noteOf(s paymentsdb.Session) string {
	if s.ID == "" {
		return ""
	}
	return "payment session " + s.ID + " is " + string(s.Status) + ", " + s.PaymentStatus
}
