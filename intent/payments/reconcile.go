package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// StartReconcile gives a locked session the job that reconciles it. A session has one live job at
// most: it returns false with the one that is there.
func StartReconcile(ctx context.Context, tx *db.Tx, s paymentsdb.Session, actor db.Actor) (db.Job, bool, error) {
	live, err := tx.LiveJobOfResource(ctx, paymentsdb.Resource, s.ID)
	if err == nil || !errors.Is(err, db.ErrNotFound) {
		return live, false, err
	}
	input, err := json.Marshal(contract.PaymentInput{SessionID: s.ID})
	if err != nil {
		return db.Job{}, false, fmt.Errorf("request of payment session %s: %w", s.ID, err)
	}
	job, err := tx.CreateJob(ctx, db.NewJob{
		Kind: string(contract.KindPaymentReconcile), ResourceKind: paymentsdb.Resource, ResourceID: s.ID, Input: input, Actor: actor,
	})
	return job, err == nil, err
}

// Reconcile has a session reconciled for an operator. It returns the job that does so, a new one or
// the live one. It refuses a session about which nothing is left to find out.
func Reconcile(ctx context.Context, tx *db.Tx, p Policy, id string, actor db.Actor) (db.Job, error) {
	if !p.Enabled {
		return db.Job{}, ErrOff
	}
	s, err := paymentsdb.Lock(ctx, tx, id)
	if err != nil {
		return db.Job{}, err
	}
	switch {
	case s.Status == lifecycle.PaymentCredited || s.Resolution != "":
		return db.Job{}, refuse(intent.Conflict, "the payment session is %s and needs no reconciliation", endedAs(s))
	case s.StripeCheckoutSessionID == nil:
		return db.Job{}, refuse(intent.Conflict, "the payment session has no payment page yet; wait until it has one or expires")
	case s.Live != p.Live:
		return db.Job{}, checkMode(s, p)
	}
	job, _, err := StartReconcile(ctx, tx, s, actor)
	return job, err
}

func endedAs(s paymentsdb.Session) string {
	if s.Resolution != "" {
		return "resolved by " + string(s.Resolution)
	}
	return string(s.Status)
}

// IsToCredit reports whether a session is paid and waits for its credit.
func IsToCredit(s paymentsdb.Session) bool {
	return s.Status == lifecycle.PaymentCheckoutCompleted && s.PaymentStatus == lifecycle.PaidFull
}

// isUnbooked reports whether a session failed before anything of it was booked or decided, so that
// its job may go on with it.
func isUnbooked(s paymentsdb.Session) bool {
	return s.Status == lifecycle.PaymentFailedReconcile && s.FailureCode == lifecycle.PaymentCreditFailed && s.SuspenseEntryID == nil && s.Resolution == ""
}

// FollowJob moves a locked session with its job. When the job is parked, or ends without a credit,
// a session that is paid needs an operator; one whose job goes on is completed again. A session
// that is not paid keeps its status: no job expires anything.
func FollowJob(ctx context.Context, tx *db.Tx, s paymentsdb.Session, status lifecycle.JobStatus, class lifecycle.FailureClass, problem string, actor db.Actor) error {
	switch {
	case (status.Parked() || status == lifecycle.JobCancelled) && IsToCredit(s):
		m := paymentsdb.Move{To: lifecycle.PaymentFail, FailureCode: lifecycle.PaymentCreditFailed, FailureMessage: creditFailed, Actor: actor}
		if class == lifecycle.FailPaymentMismatch {
			m.FailureCode = lifecycle.PaymentMismatch
		}
		if _, err := paymentsdb.MoveTo(ctx, tx, s, m); err != nil {
			return err
		}
		return paymentsdb.ScheduleLook(ctx, tx, s.ID, nil, problem)
	case status == lifecycle.JobRunning && isUnbooked(s):
		_, err := paymentsdb.MoveTo(ctx, tx, s, paymentsdb.Move{To: lifecycle.PaymentRetry, Actor: actor})
		return err
	}
	return nil
}

// MatchAmount books what was paid to suspense when it is not what was asked for. It returns the
// session as it is then.
func MatchAmount(ctx context.Context, tx *db.Tx, id string, actor db.Actor) (paymentsdb.Session, error) {
	s, err := paymentsdb.Lock(ctx, tx, id)
	if err != nil || !IsToCredit(s) || s.ReceivedMinor == nil || IsWhatWasAsked(s) {
		return s, err
	}
	return failMismatch(ctx, tx, s, actor)
}

// IsWhatWasAsked reports whether the received amount is the requested one.
func IsWhatWasAsked(s paymentsdb.Session) bool {
	return *s.ReceivedMinor == s.RequestedAmountMinor && s.ReceivedCurrency == s.Currency
}

// Decide carries out what an operator decided about the money of a session by adopting what the
// payment provider shows: Resolve does it, but for suspense, which books the money there and leaves
// the rest to a later resolution. It can be repeated.
func Decide(ctx context.Context, tx *db.Tx, p Policy, d Decision) (paymentsdb.Session, error) {
	if d.Resolution != lifecycle.ResolveSuspense {
		return Resolve(ctx, tx, p, d)
	}
	s, err := paymentsdb.Lock(ctx, tx, d.SessionID)
	switch {
	case err != nil:
		return s, err
	case s.Status != lifecycle.PaymentFailedReconcile || s.Resolution != "":
		return s, refuse(intent.Conflict, "the session is %s, so nothing of it goes to suspense", endedAs(s))
	case !isOurs(s):
		return s, refuse(intent.Conflict, "the ledger cannot have what was paid; refund it at the payment provider and take the resolution write_off")
	}
	if s, err = moveToSuspense(ctx, tx, s, d.Actor); err != nil {
		return s, err
	}
	actor := d.Actor
	actor.Comment = d.Reason
	actor.Metadata = map[string]any{"resolution": d.Resolution, "amount_minor": *s.ReceivedMinor, "currency": s.Currency}
	return s, audit(ctx, tx, s.ID, "resolve_payment", actor)
}

// moveToSuspense books what was paid for a failed session to suspense, unless it is there.
func moveToSuspense(ctx context.Context, tx *db.Tx, s paymentsdb.Session, actor db.Actor) (paymentsdb.Session, error) {
	if !isOurs(s) || s.SuspenseEntryID != nil {
		return s, nil
	}
	entry, err := bookSuspense(ctx, tx, s, actor)
	if err == nil {
		err = paymentsdb.StoreSuspense(ctx, tx, s.ID, entry)
	}
	if err != nil {
		return s, err
	}
	return paymentsdb.Get(ctx, tx, s.ID)
}

// ErrNotBooked is the cause of an error about a credit that the ledger does not have as the session
// says.
var ErrNotBooked = errors.New("the ledger does not have the credit of the session")

// Confirm reads a session and its ledger transaction back. It returns ErrNotBooked when a session
// that was to be credited is neither credited nor decided, or the ledger disagrees.
func Confirm(ctx context.Context, c paymentsdb.Conn, id string) (paymentsdb.Session, error) {
	s, err := paymentsdb.Get(ctx, c, id)
	if err != nil || s.Status == lifecycle.PaymentFailedReconcile && (s.Resolution != "" || s.SuspenseEntryID != nil) {
		return s, err
	}
	if s.Status != lifecycle.PaymentCredited || s.LedgerEntryID == nil {
		return s, fmt.Errorf("%w: it is %s", ErrNotBooked, s.Status)
	}
	t, err := ledgerdb.FindTransaction(ctx, c, "topup:"+s.ID)
	switch {
	case err != nil && !errors.Is(err, db.ErrNotFound):
		return s, err
	case err != nil || t.ID != *s.LedgerEntryID || t.Kind != ledgerdb.KindTopup || t.BillingAccountID != s.BillingAccountID:
		return s, fmt.Errorf("%w: transaction %d is not its credit", ErrNotBooked, *s.LedgerEntryID)
	}
	return s, nil
}

// IsSettled reports whether a session is credited, or an operator has decided about its money.
func IsSettled(s paymentsdb.Session) bool {
	return s.Status == lifecycle.PaymentCredited || s.Status == lifecycle.PaymentFailedReconcile && s.Resolution != ""
}
