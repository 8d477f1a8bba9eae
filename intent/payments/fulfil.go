package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Actor is who fulfils payments: they follow what the payment provider answers, whoever asked it.
var Actor = db.Actor{Owner: lifecycle.OwnerSystem, ID: "payments"}

// Observed is a payment page as the payment provider has just answered.
type Observed struct {
	PageID                  string
	Complete, Expired, Paid bool
	AmountMinor             int64
	Currency                string
	Reference, Installation string
	PaymentID               string // "" before the payer tried to pay
	URL                     string
	Live                    bool
}

// ErrDisagrees is the cause of an error about a page that is not the one of the session.
var ErrDisagrees = errors.New("the payment page is not that of the session")

// checkIdentity returns ErrDisagrees unless the page is the session's own.
func checkIdentity(s paymentsdb.Session, o Observed, installation string) error {
	switch {
	case o.Installation != installation:
		return fmt.Errorf("%w: page %s is of another installation", ErrDisagrees, o.PageID)
	case o.Reference != s.ID:
		return fmt.Errorf("%w: page %s names another session", ErrDisagrees, o.PageID)
	case o.Live != s.Live:
		return fmt.Errorf("%w: page %s is of the other mode", ErrDisagrees, o.PageID)
	case s.StripeCheckoutSessionID != nil && *s.StripeCheckoutSessionID != o.PageID:
		return fmt.Errorf("%w: the session has page %s, and page %s names it too", ErrDisagrees, *s.StripeCheckoutSessionID, o.PageID)
	}
	return nil
}

// Follow stores what is known of a payment page: that it exists, that the payer has finished it,
// that it is paid, that it has expired. It credits nothing: it starts the job that does, in the
// same transaction. It can be repeated and called in any order: what is known already stays.
func Follow(ctx context.Context, tx *db.Tx, id string, o Observed, installation string, actor db.Actor) (paymentsdb.Session, error) {
	s, err := followPage(ctx, tx, id, o, installation, actor)
	if err == nil && IsToCredit(s) {
		_, _, err = StartReconcile(ctx, tx, s, actor)
	}
	return s, err
}

func followPage(ctx context.Context, tx *db.Tx, id string, o Observed, installation string, actor db.Actor) (paymentsdb.Session, error) {
	s, err := paymentsdb.Lock(ctx, tx, id)
	if err != nil {
		return s, err
	}
	if err := checkIdentity(s, o, installation); err != nil {
		return s, err
	}
	if s.StripeCheckoutSessionID == nil {
		if err := paymentsdb.StorePage(ctx, tx, s.ID, o.PageID, o.URL, time.Now().Add(firstLook)); err != nil {
			return s, err
		}
		if s, err = paymentsdb.Get(ctx, tx, s.ID); err != nil {
			return s, err
		}
	}
	switch {
	case o.Complete:
		return complete(ctx, tx, s, o, actor)
	case o.Expired && s.Status == lifecycle.PaymentInitiated:
		return paymentsdb.MoveTo(ctx, tx, s, paymentsdb.Move{To: lifecycle.PaymentExpire, Actor: actor})
	}
	return s, nil
}

func complete(ctx context.Context, tx *db.Tx, s paymentsdb.Session, o Observed, actor db.Actor) (paymentsdb.Session, error) {
	paid := lifecycle.PaidNot
	if o.Paid {
		paid = lifecycle.PaidFull
	}
	var payment *string
	if o.PaymentID != "" && s.StripePaymentIntentID == nil {
		payment = &o.PaymentID
	}
	switch {
	case s.Status == lifecycle.PaymentInitiated || s.Status == lifecycle.PaymentExpired:
		now, err := tx.Clock(ctx)
		if err != nil {
			return s, err
		}
		return paymentsdb.MoveTo(ctx, tx, s, paymentsdb.Move{
			To: lifecycle.PaymentComplete, PaymentStatus: paid, ReceivedMinor: &o.AmountMinor, ReceivedCurrency: o.Currency, PaymentID: payment, NextLook: &now,
			Actor: actor,
		})
	case s.Status == lifecycle.PaymentCheckoutCompleted && (o.Paid && s.PaymentStatus != lifecycle.PaidFull || payment != nil):
		if !o.Paid {
			paid = s.PaymentStatus
		}
		if err := paymentsdb.StorePaid(ctx, tx, s.ID, paid, o.AmountMinor, o.Currency, payment); err != nil {
			return s, err
		}
		now, err := tx.Clock(ctx)
		if err == nil { // a job that read the page before it was paid ends without a credit, and a pass starts the next
			err = paymentsdb.ScheduleLook(ctx, tx, s.ID, &now, "")
		}
		if err != nil {
			return s, err
		}
		return paymentsdb.Get(ctx, tx, s.ID)
	}
	return s, nil
}

// Credit posts the paid amount, once: to the balance when it is the requested amount, else to
// suspense, where an operator decides. A session that is not paid, or is credited, stays as it is.
func Credit(ctx context.Context, tx *db.Tx, id string, actor db.Actor) (paymentsdb.Session, error) {
	s, err := paymentsdb.Lock(ctx, tx, id)
	if err != nil || !IsToCredit(s) || s.ReceivedMinor == nil {
		return s, err
	}
	if !IsWhatWasAsked(s) {
		return failMismatch(ctx, tx, s, actor)
	}
	entry, err := post(ctx, tx, s, actor, "topup:"+s.ID, ledgerdb.KindTopup, ledgerdb.CodePrepaid, ledgerdb.CodeClearing, *s.ReceivedMinor, "")
	if err != nil {
		return s, err
	}
	return paymentsdb.MoveTo(ctx, tx, s, paymentsdb.Move{To: lifecycle.PaymentCredit, LedgerEntry: &entry, CreditedMinor: s.ReceivedMinor, Actor: actor})
}

// post moves an amount in the ledger of the billing account of a session, from one account to
// another. It returns the id of the transaction. The key names the fact, so that it is booked once.
func post(ctx context.Context, tx *db.Tx, s paymentsdb.Session, actor db.Actor, key, kind, to, from string, minor int64, reason string) (int64, error) {
	t, _, err := ledgerdb.Post(ctx, tx, ledgerdb.Posting{
		Key: key, Kind: kind, BillingAccountID: s.BillingAccountID, Reason: reason, Actor: paymentsdb.ActorName(actor),
		Legs: []ledgerdb.Leg{{Code: to, AmountMinor: minor}, {Code: from, AmountMinor: -minor}},
	})
	return t.ID, err
}

// failMismatch books the received amount to suspense and leaves the rest to an operator. An amount
// in another currency than that of the billing account is in no ledger.
func failMismatch(ctx context.Context, tx *db.Tx, s paymentsdb.Session, actor db.Actor) (paymentsdb.Session, error) {
	balance, err := ledgerdb.ReadBalance(ctx, tx, s.BillingAccountID)
	if err != nil {
		return s, err
	}
	format := func(minor int64, currency string) string {
		return lifecycle.FormatMinor(minor, int(balance.Exponent)) + " " + currency
	}
	m := paymentsdb.Move{To: lifecycle.PaymentFail, FailureCode: lifecycle.PaymentMismatch, Actor: actor}
	m.FailureMessage = fmt.Sprintf("%s were asked for and %s were paid", format(s.RequestedAmountMinor, s.Currency), format(*s.ReceivedMinor, s.ReceivedCurrency))
	if s.ReceivedCurrency != s.Currency {
		m.FailureMessage = fmt.Sprintf("%s were asked for and %d minor units of %s were paid; an account has one currency, so it is in no ledger: refund it at the payment provider",
			format(s.RequestedAmountMinor, s.Currency), *s.ReceivedMinor, s.ReceivedCurrency)
	} else if *s.ReceivedMinor > 0 {
		entry, err := bookSuspense(ctx, tx, s, actor)
		if err != nil {
			return s, err
		}
		m.SuspenseEntry = &entry
		m.FailureMessage += "; it is in suspense"
	}
	return paymentsdb.MoveTo(ctx, tx, s, m)
}

func bookSuspense(ctx context.Context, tx *db.Tx, s paymentsdb.Session, actor db.Actor) (int64, error) {
	return post(ctx, tx, s, actor, "suspense:"+s.ID, ledgerdb.KindSuspense, ledgerdb.CodeSuspense, ledgerdb.CodeClearing, *s.ReceivedMinor, "")
}

// The members of a project read why a payment failed. The error itself is in last_error, for
// operators.
const (
	creditFailed = "The payment arrived and could not be credited; operators were told."
	// Refused says that the payment provider refuses a payment.
	Refused = "The payment provider refused the request."
)

// CountFailedCredit counts a credit that failed, and stores why, for operators. The job of the
// session tries it again.
func CountFailedCredit(ctx context.Context, tx *db.Tx, id, problem string) error {
	s, err := paymentsdb.Lock(ctx, tx, id)
	if err != nil || !IsToCredit(s) {
		return err
	}
	return paymentsdb.CountCreditAttempt(ctx, tx, s.ID, problem)
}

// Expire ends a session that the payment provider knows no page of, or none that counts, with a
// code that says why.
func Expire(ctx context.Context, tx *db.Tx, id, code, message string, actor db.Actor) (paymentsdb.Session, error) {
	s, err := paymentsdb.Lock(ctx, tx, id)
	if err != nil || s.Status != lifecycle.PaymentInitiated {
		return s, err
	}
	return paymentsdb.MoveTo(ctx, tx, s, paymentsdb.Move{To: lifecycle.PaymentExpire, FailureCode: code, FailureMessage: message, Actor: actor})
}
