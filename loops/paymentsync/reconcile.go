package paymentsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// The stages of the job that reconciles a payment session call the functions of this file, in their
// order. Each of them reads the session again and may be repeated.

// ErrOtherMode is the cause of an error about a session of the other mode of the payment provider,
// test or live.
var ErrOtherMode = errors.New("the payment session is of the other mode of the payment provider, test or live")

// CreditError says that what was paid could not be booked.
type CreditError struct{ Err error }

func (e *CreditError) Error() string { return "the credit was not booked: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CreditError) Unwrap() error { return e.Err }

// Read reads the page of a session for its job and stores what it shows. A session that is settled
// is not read again. A page that is not the session's own is told to operators.
func (y *Syncer) Read(ctx context.Context, id string) (paymentsdb.Session, error) {
	s, err := paymentsdb.Get(ctx, y.Store, id)
	if err != nil || payments.IsSettled(s) {
		return s, err
	}
	if s.Live != y.Policy.Live {
		return s, ErrOtherMode
	}
	if s.StripeCheckoutSessionID == nil {
		return s, fmt.Errorf("payment session %s has no payment page: %w", s.ID, db.ErrInvalid)
	}
	page, installation, err := y.readPage(ctx, *s.StripeCheckoutSessionID)
	if err != nil {
		return s, err
	}
	return y.followOrReport(ctx, s.ID, page, installation)
}

// followOrReport follows a page, and stores a difference for operators when it is not the session's
// own.
func (y *Syncer) followOrReport(ctx context.Context, id string, page providers.PaymentSession, installation string) (paymentsdb.Session, error) {
	s, err := y.follow(ctx, id, page, installation)
	if errors.Is(err, payments.ErrDisagrees) {
		return s, errors.Join(err, y.reportDisagreement(ctx, page, err))
	}
	return s, err
}

// Match books what was paid to suspense when it is not what was asked for.
func (y *Syncer) Match(ctx context.Context, id string) (s paymentsdb.Session, err error) {
	err = y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		s, err = payments.MatchAmount(ctx, tx, id, payments.Actor)
		return err
	})
	return s, err
}

// Credit credits a session that is paid, once. The same transaction books the refunds that were
// made meanwhile, so that no balance has what went back already. It returns a *CreditError when the
// ledger does not take the credit.
func (y *Syncer) Credit(ctx context.Context, id string) (paymentsdb.Session, error) {
	s, err := paymentsdb.Get(ctx, y.Store, id)
	if err != nil || s.Status != lifecycle.PaymentCheckoutCompleted {
		return s, err
	}
	client, _, err := y.open(ctx)
	if err != nil {
		return s, err
	}
	refunds, err := readRefunds(ctx, client, s)
	if err != nil {
		return s, err
	}
	failed := y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		if s, err = payments.Credit(ctx, tx, id, payments.Actor); err != nil {
			return err
		}
		for _, r := range refunds {
			if _, err := payments.FollowRefund(ctx, tx, id, r, payments.Actor); err != nil {
				return err
			}
		}
		return nil
	})
	if failed == nil {
		return paymentsdb.Get(ctx, y.Store, id)
	}
	err = y.Store.Tx(ctx, func(tx *db.Tx) error { return payments.CountFailedCredit(ctx, tx, id, failed.Error()) })
	return s, errors.Join(&CreditError{failed}, err)
}

// Confirm reads the session and its credit back.
func (y *Syncer) Confirm(ctx context.Context, id string) (paymentsdb.Session, error) {
	return payments.Confirm(ctx, y.Store, id)
}
