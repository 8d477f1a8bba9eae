package paymentsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	// Each list overlaps with the one before: an object may appear in the list some time after it
	// was made.
	eventOverlap   = time.Hour
	sessionOverlap = 3 * 24 * time.Hour
	moveOverlap    = 24 * time.Hour
	// eventsKept is for how long the payment provider lists events.
	eventsKept = 29 * 24 * time.Hour
	// pagesAtOnce bounds how much of a list one call reads. The next call continues where it
	// stopped.
	pagesAtOnce = 50
)

// placeReserve is the time that a part of a pass keeps for storing its place.
const placeReserve = time.Minute

// listing is a list of the payment provider that is read in parts.
type listing[T any] struct {
	overlap time.Duration
	id      func(T) string
	read    func(context.Context, providers.PaymentQuery) (providers.PaymentPage[T], error)
	take    func(T) error
	store   func(context.Context, paymentsdb.Place) error
}

// scan reads a list from a place on, the newest first, and calls take for each item. It stops at
// the end of the list, after some pages, shortly before the deadline of ctx, or at an item that
// fails. It stores the place after each page and when it stops, and returns it. The next call
// continues there.
func (l listing[T]) scan(ctx context.Context, p paymentsdb.Place) (paymentsdb.Place, error) {
	p, err := l.readOn(ctx, p)
	kept, cancel := context.WithTimeout(context.WithoutCancel(ctx), placeReserve/2) // also when the time of the pass is over
	defer cancel()
	return p, errors.Join(err, l.store(kept, p))
}

func (l listing[T]) readOn(ctx context.Context, p paymentsdb.Place) (paymentsdb.Place, error) {
	if p.Until == nil {
		p.Until, p.Page = ptr(time.Now()), ""
	}
	for range pagesAtOnce {
		q := providers.PaymentQuery{Before: p.Page}
		if p.From.Unix() > 0 {
			q.From = p.From
		}
		page, err := l.read(ctx, q)
		if providers.KindOf(err) == providers.KindNotFound && p.Page != "" { // the item where it stopped is gone
			return paymentsdb.Place{From: p.From}, err
		}
		if err != nil {
			return p, err
		}
		for _, item := range page.Items {
			if isShort(ctx) {
				return p, nil
			}
			if err := l.take(item); err != nil {
				return p, err
			}
			p.Page = l.id(item)
		}
		if !page.More || len(page.Items) == 0 {
			return paymentsdb.Place{From: p.Until.Add(-l.overlap)}, nil
		}
		if err := l.store(ctx, p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// isShort reports whether little is left of the time of a pass.
func isShort(ctx context.Context) bool {
	until, has := ctx.Deadline()
	return has && time.Until(until) < placeReserve
}

// ListEvents stores the events for which no webhook was accepted. It returns how many were new.
func (y *Syncer) ListEvents(ctx context.Context) (int, error) {
	client, control, err := y.open(ctx)
	if err != nil {
		return 0, err
	}
	place := paymentsdb.Place{From: control.EventsFrom, Until: control.EventsUntil, Page: control.EventsPage}
	if oldest := time.Now().Add(-eventsKept); place.From.Before(oldest) {
		place.From = oldest
	}
	stored := 0
	events := listing[providers.PaymentEvent]{
		overlap: eventOverlap, id: func(e providers.PaymentEvent) string { return e.ID },
		read: func(ctx context.Context, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentEvent], error) {
			return client.Events(ctx, providers.EventQuery{PaymentQuery: q, Types: payments.EventTypes(), Undelivered: true})
		},
		take: func(e providers.PaymentEvent) error {
			isNew, err := y.storeListed(ctx, e)
			if isNew {
				stored++
			}
			return err
		},
		store: func(ctx context.Context, p paymentsdb.Place) error {
			return paymentsdb.StoreEventsPlace(ctx, y.Store, p)
		},
	}
	_, err = events.scan(ctx, place)
	return stored, err
}

func (y *Syncer) storeListed(ctx context.Context, e providers.PaymentEvent) (isNew bool, err error) {
	body, err := json.Marshal(map[string]any{
		"id": e.ID, "object": "event", "type": e.Type, "api_version": e.Release, "created": e.Created.Unix(), "livemode": e.Live,
		"data": map[string]any{"object": e.Object},
	})
	if err != nil {
		return false, err
	}
	err = y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		isNew, err = payments.ReceiveEvent(ctx, tx, paymentsdb.NewEvent{
			ID: e.ID, Type: e.Type, ObjectKind: e.ObjectKind, ObjectID: e.ObjectID, Live: e.Live, Release: e.Release, Source: paymentsdb.FromList, Body: body,
			At: e.Created,
		}, e.Live != y.Policy.Live)
		return err
	})
	return isNew, err
}

// CompareSessions reads every page that the payment provider has made since the last call. It
// starts the jobs of sessions that are paid and not booked, and reports differences. The list of
// events alone would not be enough, because the provider may never have made an event.
func (y *Syncer) CompareSessions(ctx context.Context) (int, error) {
	client, control, err := y.open(ctx)
	if err != nil {
		return 0, err
	}
	compared := 0
	sessions := listing[providers.PaymentSession]{
		overlap: sessionOverlap, id: func(p providers.PaymentSession) string { return p.ID }, read: client.Sessions,
		take: func(p providers.PaymentSession) error {
			compared++
			return y.comparePage(ctx, client, control.Installation, p)
		},
		store: func(ctx context.Context, p paymentsdb.Place) error {
			return paymentsdb.StoreSessionsPlace(ctx, y.Store, p)
		},
	}
	_, err = sessions.scan(ctx, paymentsdb.Place{From: control.SessionsFrom, Until: control.SessionsUntil, Page: control.SessionsPage})
	return compared, err
}

func (y *Syncer) comparePage(ctx context.Context, client providers.Payments, installation string, page providers.PaymentSession) error {
	s, o, err := y.sessionOf(ctx, client, installation, page)
	if err != nil || o.state != "" {
		return err
	}
	isBooked := s.LedgerEntryID != nil || s.Status == lifecycle.PaymentFailedReconcile
	if page.Paid && !isBooked {
		if s, err = y.follow(ctx, s.ID, page, installation); errors.Is(err, payments.ErrDisagrees) {
			return y.reportDisagreement(ctx, page, err)
		} else if err != nil {
			return err
		}
		if payments.IsToCredit(s) {
			return nil // its job books it, or leaves it to an operator
		}
		isBooked = s.LedgerEntryID != nil || s.Status == lifecycle.PaymentFailedReconcile
	}
	why := ""
	switch {
	case s.StripeCheckoutSessionID != nil && *s.StripeCheckoutSessionID != page.ID:
		if !page.Paid {
			return nil // a page to which no payer was sent
		}
		why = fmt.Sprintf("page %s is paid and names payment session %s, which has another page", page.ID, s.ID)
	case page.Paid && !isBooked:
		why = fmt.Sprintf("payment session %s is paid and not booked", s.ID)
	case isBooked && !page.Paid:
		why = fmt.Sprintf("payment session %s is booked, and the payment provider says that it is not paid", s.ID)
	case isBooked && s.ReceivedMinor != nil && (*s.ReceivedMinor != page.Amount || s.ReceivedCurrency != page.Currency):
		why = fmt.Sprintf("payment session %s is booked with %d %s, and the payment provider says %d %s", s.ID, *s.ReceivedMinor, s.ReceivedCurrency, page.Amount, page.Currency)
	default:
		return paymentsdb.DropDifference(ctx, y.Store, paymentsdb.DifferenceSession, page.ID)
	}
	return paymentsdb.PutDifference(ctx, y.Store, paymentsdb.DifferenceSession, page.ID, why, page.Amount)
}

// CompareTotals reads the movements of the balance at the payment provider since the last call, and
// compares their sum with the ledger.
func (y *Syncer) CompareTotals(ctx context.Context) error {
	client, control, err := y.open(ctx)
	if err != nil {
		return err
	}
	movements := listing[providers.PaymentMovement]{
		overlap: moveOverlap, id: func(m providers.PaymentMovement) string { return m.ID }, read: client.Movements,
		take: func(m providers.PaymentMovement) error { return y.storeMovement(ctx, client, m) },
		store: func(ctx context.Context, p paymentsdb.Place) error {
			return paymentsdb.StoreMovementsPlace(ctx, y.Store, p)
		},
	}
	place, err := movements.scan(ctx, paymentsdb.Place{From: control.MovementsFrom, Until: control.MovementsUntil, Page: control.MovementsPage})
	if err != nil || place.Until != nil {
		return err
	}
	totals, err := paymentsdb.ReadTotals(ctx, y.Store)
	if err != nil {
		return err
	}
	var problems []error
	for _, t := range totals {
		problems = append(problems, y.compareTotal(ctx, t))
	}
	if y.Policy.Live {
		problems = append(problems, y.reportTestCredits(ctx))
	}
	return errors.Join(append(problems, paymentsdb.StoreTotalsTime(ctx, y.Store))...)
}

func (y *Syncer) storeMovement(ctx context.Context, client providers.Payments, m providers.PaymentMovement) error {
	if isOutside(m.Category) {
		return nil
	}
	payment, err := y.followMovement(ctx, client, m)
	if err != nil {
		return err
	}
	return paymentsdb.StoreMovement(ctx, y.Store, paymentsdb.Movement{
		ID: m.ID, Category: m.Category, Source: m.Source, AmountMinor: m.Amount, FeeMinor: m.Fee, Currency: m.Currency, MovedAt: m.Created,
		PaymentIntentID: payment, IsConverted: m.Converted,
	})
}

// followMovement reads the refund or dispute behind a movement, because the provider may never have
// made an event of it. It returns the payment of the movement, or "" for other movements.
func (y *Syncer) followMovement(ctx context.Context, client providers.Payments, m providers.PaymentMovement) (string, error) {
	switch {
	case strings.HasPrefix(m.Category, "refund") || strings.HasPrefix(m.Category, "payment_refund"):
		r, err := client.Refund(ctx, m.Source)
		return r.PaymentID, y.followOf(ctx, m, paymentsdb.DifferenceRefund, r.PaymentID, err, func(sessionID string) (bool, error) {
			return y.followRefund(ctx, sessionID, observedRefund(r))
		})
	case strings.HasPrefix(m.Category, "dispute"):
		d, err := client.Dispute(ctx, m.Source)
		return d.PaymentID, y.followOf(ctx, m, paymentsdb.DifferenceDispute, d.PaymentID, err, func(sessionID string) (bool, error) {
			return y.followDispute(ctx, sessionID, d)
		})
	}
	return "", nil
}

// absentFor is how long the session of a refund or dispute may be missing, since its row may not be
// committed yet. Movements are read again for a day.
const absentFor = time.Hour

// followOf books an object that has moved money. It gets the error with which the object was read.
// An object without a session, or of one that is not booked, is booked nowhere, so it becomes a
// difference that operators see.
func (y *Syncer) followOf(ctx context.Context, m providers.PaymentMovement, kind, paymentID string, readErr error, follow func(sessionID string) (bool, error)) error {
	why, next := fmt.Sprintf("the payment provider has no %s %s", kind, m.Source), "find out whose it is, book it by an adjustment, and acknowledge this"
	if readErr == nil {
		s, err := paymentsdb.FindByPayment(ctx, y.Store, paymentID)
		switch {
		case err == nil:
			booked, err := follow(s.ID)
			if err != nil {
				return err
			}
			if booked {
				return paymentsdb.DropDifference(ctx, y.Store, kind, m.ID)
			}
			why = fmt.Sprintf("payment session %s of %s %s is not booked", s.ID, kind, m.Source)
			next = fmt.Sprintf("resolve the session; when the %s is not booked a day later, book it by an adjustment, and acknowledge this", kind)
		case !errors.Is(err, db.ErrNotFound):
			return err
		default:
			isForeign, err := paymentsdb.IsForeign(ctx, y.Store, paymentID)
			if err != nil {
				return err
			}
			if isForeign { // it may have been told of before its session was listed
				return paymentsdb.DropDifference(ctx, y.Store, kind, m.ID)
			}
			why = fmt.Sprintf("no payment session has payment %s of %s %s", paymentID, kind, m.Source)
			next = fmt.Sprintf("where the line of a paid page names %s, what is left of that page counts it already: then book nothing for it and acknowledge both; otherwise ", m.Source) + next
		}
	} else if !isAbsent(readErr) {
		return readErr
	}
	if time.Since(m.Created) < absentFor {
		return nil
	}
	return paymentsdb.PutDifference(ctx, y.Store, kind, m.ID, fmt.Sprintf(
		"movement %s of %d minor units of %s is booked nowhere: %s; %s", m.ID, m.Amount, m.Currency, why, next), m.Amount)
}

// isOutside reports whether a movement is not in the ledger: a transfer between the account at the
// payment provider and its bank, or a fee of the provider.
func isOutside(category string) bool {
	for _, prefix := range []string{"payout", "topup", "fee", "tax", "network_cost", "transfer", "contribution", "reserve"} {
		if strings.HasPrefix(category, prefix) {
			return true
		}
	}
	return false
}

func (y *Syncer) compareTotal(ctx context.Context, t paymentsdb.Total) error {
	differs := t.MovedMinor - t.ForeignMinor - t.BookedMinor
	if differs == 0 {
		return paymentsdb.DropDifference(ctx, y.Store, paymentsdb.DifferenceTotal, t.Currency)
	}
	why := fmt.Sprintf("the payment provider has %d minor units of %s, of which %d are not ours, and the ledger says %d: a difference of %d",
		t.MovedMinor, t.Currency, t.ForeignMinor, t.BookedMinor, differs)
	if t.Converted > 0 { // the amount would be a new difference each night
		why, differs = fmt.Sprintf("the total of %s cannot be compared: the payment provider has converted %d payments, refunds or disputes into the currency in which it settles; let it settle in the currencies of the billing accounts. Sessions are compared one by one all the same",
			t.Currency, t.Converted), 0
	}
	return paymentsdb.PutDifference(ctx, y.Store, paymentsdb.DifferenceTotal, t.Currency, why, differs)
}

// reportTestCredits tells operators of balances that payments of test mode have credited: in live
// mode they buy what nobody has paid for.
func (y *Syncer) reportTestCredits(ctx context.Context) error {
	credits, err := paymentsdb.ListTestCredits(ctx, y.Store)
	if err != nil {
		return err
	}
	var problems []error
	for _, c := range credits {
		problems = append(problems, paymentsdb.PutDifference(ctx, y.Store, paymentsdb.DifferenceSession, "test_mode:"+c.BillingAccountID, fmt.Sprintf(
			"payments of test mode (%d) have credited %d minor units of %s to billing account %s, and no money came; take them back by an adjustment, and acknowledge this",
			c.Sessions, c.AmountMinor, c.Currency, c.BillingAccountID), c.AmountMinor))
	}
	return errors.Join(problems...)
}

// The times between two reads of a list.
const (
	eventsEvery = time.Hour
	totalsEvery = 24 * time.Hour
)

// IsListDue reports whether it is time to list events that were not delivered.
func IsListDue(c paymentsdb.Control, now time.Time) bool {
	return c.EventsAt == nil || c.EventsUntil != nil || now.Sub(*c.EventsAt) >= eventsEvery
}

// IsCompareDue reports whether it is time to compare sessions and totals: each night, at once while
// a list is not read to its end, and an hour after totals have differed for the first time.
func IsCompareDue(c paymentsdb.Control, now time.Time, differs bool) bool {
	switch {
	case c.TotalsAt == nil || c.SessionsUntil != nil || c.MovementsUntil != nil:
		return true
	case differs:
		return now.Sub(*c.TotalsAt) >= eventsEvery
	}
	return now.Sub(*c.TotalsAt) >= totalsEvery
}
