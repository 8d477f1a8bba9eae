package paymentsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// RequestRefund takes the amount from the balance, stores the refund and sends it. A refund that
// could not be sent stays requested, and a pass sends it.
func (y *Syncer) RequestRefund(ctx context.Context, r payments.RefundRequest) (paymentsdb.Refund, error) {
	if !y.Policy.Enabled {
		return paymentsdb.Refund{}, payments.ErrOff
	}
	var refund paymentsdb.Refund
	err := y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		refund, _, err = payments.RequestRefund(ctx, tx, y.Policy, r)
		return err
	})
	if err != nil || refund.State != lifecycle.RefundRequested {
		return refund, err
	}
	if err := y.SendRefund(ctx, refund.ID); err != nil {
		y.Log.WarnContext(ctx, "payments: a refund was not sent and will be tried again", "refund", refund.ID, "error", err)
	}
	return paymentsdb.GetRefund(ctx, y.Store, refund.ID)
}

// The times between two tries to send a refund: doubled from the first, at most the last.
const (
	refundRetry    = time.Minute
	refundRetryMax = time.Hour
)

// SendRefund sends a refund that is requested, or reads the outcome of one that is pending.
func (y *Syncer) SendRefund(ctx context.Context, id string) error {
	r, err := paymentsdb.GetRefund(ctx, y.Store, id)
	if err != nil || r.State != lifecycle.RefundRequested && r.State != lifecycle.RefundPending {
		return err
	}
	err = y.sendRefund(ctx, r)
	if err == nil {
		return nil
	}
	wait := refundRetryMax
	if r.Attempts < 8 {
		wait = min(refundRetry<<r.Attempts, refundRetryMax)
	}
	return errors.Join(err, paymentsdb.PostponeRefund(ctx, y.Store, r.ID, err.Error(), time.Now().Add(wait)))
}

func (y *Syncer) sendRefund(ctx context.Context, r paymentsdb.Refund) error {
	s, err := paymentsdb.Get(ctx, y.Store, r.SessionID)
	if err != nil {
		return err
	}
	client, _, err := y.open(ctx)
	if err != nil {
		return err
	}
	if r.StripeRefundID != nil {
		made, err := client.Refund(ctx, *r.StripeRefundID)
		if err != nil {
			return err
		}
		_, err = y.followRefund(ctx, s.ID, observedRefund(made)) // its session is booked
		return err
	}
	// This also covers tries by a process whose rows a restored backup has lost. The key alone may
	// be too old to show them.
	if isDecided, err := y.followRefundsOf(ctx, client, s, r); err != nil || isDecided {
		return err
	}
	made, err := client.CreateRefund(ctx, providers.RefundCreate{Key: r.ID, PaymentID: *s.StripePaymentIntentID, Reference: r.ID, Amount: r.AmountMinor})
	var refused *providers.Error
	switch {
	case err == nil:
		_, err = y.followRefund(ctx, s.ID, observedRefund(made))
		return err
	case errors.As(err, &refused) && (refused.Kind == providers.KindStateConflict || refused.Kind == providers.KindInvalid || refused.Kind == providers.KindNotFound):
		return y.rejectRefund(ctx, client, s, r, refused.Message)
	}
	return err
}

// followRefundsOf books the refunds that the provider has of a session, before one of them is sent.
// It returns true when nothing must be sent: the refund was made although its answer was lost, or
// the provider has another one that was not known here and may return the same money. An operator
// decides about the latter.
func (y *Syncer) followRefundsOf(ctx context.Context, client providers.Payments, s paymentsdb.Session, r paymentsdb.Refund) (bool, error) {
	found, err := readRefunds(ctx, client, s)
	if err != nil {
		return false, err
	}
	known, err := paymentsdb.ListRefunds(ctx, y.Store, s.ID)
	if err != nil {
		return false, err
	}
	isMade, unknown := false, ""
	for _, o := range found {
		isMade = isMade || o.Reference == r.ID
		isKnown := slices.ContainsFunc(known, func(k paymentsdb.Refund) bool {
			// A refund that was given back to the balance before it was known that the provider has
			// it may return the same money, too.
			isGivenBack := k.State == lifecycle.RefundFailed && k.StripeRefundID == nil
			return payments.IsRefund(k, o) && !isGivenBack
		})
		if !isKnown && !o.Failed {
			unknown = fmt.Sprintf("refund %s over %d minor units of %s was made at the payment provider and was not known here", o.ID, o.AmountMinor, o.Currency)
		}
	}
	// One transaction books the unknown refund and rejects this one. Otherwise the next try would
	// know the unknown refund already, and would send this one.
	return isMade || unknown != "", y.Store.Tx(ctx, func(tx *db.Tx) error {
		for _, o := range found {
			if _, err := payments.FollowRefund(ctx, tx, s.ID, o, payments.Actor); err != nil {
				return err
			}
		}
		if isMade || unknown == "" {
			return nil
		}
		return payments.RejectRefund(ctx, tx, r.ID, "not sent: "+unknown+"; it is booked now. Ask again if another one is to be made", payments.Actor)
	})
}

func (y *Syncer) rejectRefund(ctx context.Context, client providers.Payments, s paymentsdb.Session, r paymentsdb.Refund, why string) error {
	if isDecided, err := y.followRefundsOf(ctx, client, s, r); err != nil || isDecided {
		return err
	}
	return y.Store.Tx(ctx, func(tx *db.Tx) error {
		return payments.RejectRefund(ctx, tx, r.ID, "the payment provider refuses it: "+db.ClipText(why, 400), payments.Actor)
	})
}

func (y *Syncer) followRefund(ctx context.Context, sessionID string, o payments.ObservedRefund) (booked bool, err error) {
	err = y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		booked, err = payments.FollowRefund(ctx, tx, sessionID, o, payments.Actor)
		return err
	})
	return booked, err
}

// Resolve carries out what an operator decided about a session, and sends the refund where that is
// the decision. The job of the session, if it is parked, ends with the next pass.
func (y *Syncer) Resolve(ctx context.Context, d payments.Decision) (paymentsdb.Session, error) {
	if err := payments.CheckDecision(d); err != nil {
		return paymentsdb.Session{}, err
	}
	if d.Resolution == lifecycle.ResolveRefund && !y.Policy.Enabled {
		return paymentsdb.Session{}, payments.ErrOff // it could not be sent
	}
	var s paymentsdb.Session
	err := y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		s, err = payments.Resolve(ctx, tx, y.Policy, d)
		return err
	})
	if err != nil || d.Resolution != lifecycle.ResolveRefund {
		return s, err
	}
	refunds, err := paymentsdb.ListRefunds(ctx, y.Store, s.ID)
	if err != nil {
		return s, err
	}
	for _, r := range refunds {
		if r.State == lifecycle.RefundRequested {
			if err := y.SendRefund(ctx, r.ID); err != nil {
				y.Log.WarnContext(ctx, "payments: a refund was not sent and will be tried again", "refund", r.ID, "error", err)
			}
		}
	}
	return s, nil
}
