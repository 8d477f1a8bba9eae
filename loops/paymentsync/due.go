package paymentsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	// batch bounds how many of each kind one pass handles. The next pass continues.
	batch = 200
	// openLook is the time between two reads of an open page. unpaidLook is that of a page that
	// waits for a delayed payment, for as long as unpaidFor.
	openLook   = time.Hour
	unpaidLook = 6 * time.Hour
	unpaidFor  = 40 * 24 * time.Hour
	// expiryGrace is how long after its end a page is closed, since a payment may be under way.
	expiryGrace = time.Minute

	lookRetry    = time.Minute
	lookRetryMax = time.Hour
)

// SyncDue compares the sessions, refunds and disputes that are due with the payment provider, and
// returns how many it has compared. It finds changes that no webhook has reported, and starts the
// jobs of sessions that are paid.
func (y *Syncer) SyncDue(ctx context.Context) (int, error) {
	sessions, err := paymentsdb.ListDue(ctx, y.Store, batch)
	if err != nil {
		return 0, err
	}
	done, err := y.each(ctx, sessions, y.syncSession)
	refunds, listed := paymentsdb.ListRefundsDue(ctx, y.Store, batch)
	sent, failed := y.each(ctx, refunds, y.SendRefund)
	disputes, listedToo := paymentsdb.ListDisputesDue(ctx, y.Store, batch)
	read, failedToo := y.each(ctx, disputes, y.syncDispute)
	return done + sent + read, errors.Join(err, listed, failed, listedToo, failedToo)
}

// each calls do for each id, and stops after some failures in a row.
func (y *Syncer) each(ctx context.Context, ids []string, do func(context.Context, string) error) (int, error) {
	var failed []error
	done, row := 0, 0
	for _, id := range ids {
		if err := do(ctx, id); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
			if row++; row >= maxFailures || ctx.Err() != nil {
				break
			}
			continue
		}
		done, row = done+1, 0
	}
	return done, errors.Join(failed...)
}

// syncSession compares one session and stores when it is compared next.
func (y *Syncer) syncSession(ctx context.Context, id string) error {
	s, err := paymentsdb.Get(ctx, y.Store, id)
	if err != nil {
		return err
	}
	s, failed := y.lookAt(ctx, s)
	now := time.Now()
	switch {
	case failed != nil:
		return errors.Join(failed, paymentsdb.ScheduleLook(ctx, y.Store, id, ptr(now.Add(backOff(lookRetry, lookRetryMax, s.Looks))), failed.Error()))
	case payments.IsToCredit(s): // its job has it; another one is started here should that end without a credit
		return paymentsdb.ScheduleLook(ctx, y.Store, id, ptr(now.Add(backOff(lookRetry, lookRetryMax, s.Looks))), s.LastError)
	case s.Status == lifecycle.PaymentInitiated && s.StripeCheckoutSessionID == nil:
		return paymentsdb.ScheduleLook(ctx, y.Store, id, ptr(s.ExpiresAt.Add(expiryGrace)), s.LastError)
	case s.Status == lifecycle.PaymentInitiated:
		next := s.ExpiresAt.Add(expiryGrace)
		if soon := now.Add(openLook); soon.Before(next) {
			next = soon
		} else if next.Before(now) {
			next = now.Add(lookRetry)
		}
		return paymentsdb.ScheduleLook(ctx, y.Store, id, &next, "")
	case s.Status == lifecycle.PaymentCheckoutCompleted && now.Sub(s.CreatedAt) < unpaidFor:
		return paymentsdb.ScheduleLook(ctx, y.Store, id, ptr(now.Add(unpaidLook)), "")
	case s.FailureCode != "":
		return paymentsdb.ScheduleLook(ctx, y.Store, id, nil, s.LastError) // operators read it
	}
	return paymentsdb.ScheduleLook(ctx, y.Store, id, nil, "")
}

func ptr[T any](v T) *T { return &v }

func (y *Syncer) lookAt(ctx context.Context, s paymentsdb.Session) (paymentsdb.Session, error) {
	isOver, err := y.isPast(ctx, s.ExpiresAt.Add(expiryGrace))
	if err != nil {
		return s, err
	}
	if s.Live != y.Policy.Live {
		if s.Status != lifecycle.PaymentInitiated || !isOver {
			return s, nil
		}
		return y.expire(ctx, s, lifecycle.PaymentOtherMode, "it was asked for in the other mode of the payment provider, test or live")
	}
	if payments.IsToCredit(s) {
		return s, y.startJob(ctx, s.ID)
	}
	client, control, err := y.open(ctx)
	if err != nil {
		return s, err
	}
	if s.StripeCheckoutSessionID == nil {
		if s.Status != lifecycle.PaymentInitiated || !isOver {
			return s, nil
		}
		return y.adoptOrExpire(ctx, client, s, control.Installation, "The payment provider has no page of it.", "")
	}
	page, err := client.Session(ctx, *s.StripeCheckoutSessionID)
	if err == nil && page.Status == providers.SessionOpen && isOver {
		page, err = client.ExpireSession(ctx, page.ID)
		if providers.KindOf(err) == providers.KindStateConflict { // it was paid, or has expired, meanwhile
			page, err = client.Session(ctx, *s.StripeCheckoutSessionID)
		}
	}
	if err != nil {
		return s, err
	}
	found, err := y.followOrReport(ctx, s.ID, page, control.Installation)
	if err != nil {
		return s, err
	}
	return found, nil
}

// startJob gives a session that is paid the job that credits it, unless it has one.
func (y *Syncer) startJob(ctx context.Context, id string) error {
	return y.Store.Tx(ctx, func(tx *db.Tx) error {
		s, err := paymentsdb.Lock(ctx, tx, id)
		if err == nil && payments.IsToCredit(s) {
			_, _, err = payments.StartReconcile(ctx, tx, s, payments.Actor)
		}
		return err
	})
}

// isPast reports whether a time is past by both the clock of this process and that of the database,
// so that a single clock that jumps ends nothing.
func (y *Syncer) isPast(ctx context.Context, at time.Time) (bool, error) {
	now, err := y.Store.Clock(ctx)
	return now.After(at) && time.Now().After(at), err
}

func (y *Syncer) expire(ctx context.Context, s paymentsdb.Session, code, why string) (paymentsdb.Session, error) {
	err := y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		s, err = payments.Expire(ctx, tx, s.ID, code, why, payments.Actor)
		return err
	})
	return s, err
}

const (
	// offGrace is how long a session waits after the end of its page while payments are off. When
	// they are turned on again within that time, a page that was paid is found.
	offGrace = 24 * time.Hour
	offWhy   = "Payments were turned off before it was known to be paid. If it was paid it is credited when they are on again."
	// offProblem is what operators read about a session that waits.
	offProblem = "payments are off, and sessions, refunds, disputes or events wait for the payment provider: set payment.stripe_key_ref again until none of them does, or settle them at the payment provider"
)

// EndWhileOff does the work of a pass while payments are off. It ends a session whose page closed a
// day ago, and stores why nothing else continues, which operators read when something waits.
func (y *Syncer) EndWhileOff(ctx context.Context) error {
	now, err := y.Store.Clock(ctx)
	if err != nil {
		return err
	}
	if own := time.Now(); own.Before(now) {
		now = own
	}
	left, err := paymentsdb.ListLeft(ctx, y.Store, now.Add(-offGrace), batch)
	if err != nil {
		return err
	}
	_, err = y.each(ctx, left, func(ctx context.Context, id string) error {
		_, err := y.expire(ctx, paymentsdb.Session{ID: id}, lifecycle.PaymentOff, offWhy)
		return err
	})
	return errors.Join(err, paymentsdb.StorePass(ctx, y.Store, offProblem))
}

// syncDispute reads the outcome of a dispute. A dispute that cannot be read moves behind the
// others.
func (y *Syncer) syncDispute(ctx context.Context, id string) error {
	err := y.readDispute(ctx, id)
	return errors.Join(err, paymentsdb.PostponeDispute(ctx, y.Store, id, err != nil))
}

func (y *Syncer) readDispute(ctx context.Context, id string) error {
	client, _, err := y.open(ctx)
	if err != nil {
		return err
	}
	d, err := client.Dispute(ctx, id)
	if err != nil {
		return err
	}
	s, err := paymentsdb.FindByPayment(ctx, y.Store, d.PaymentID)
	if err != nil {
		return err
	}
	_, err = y.followDispute(ctx, s.ID, d)
	return err
}
