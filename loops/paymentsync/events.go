package paymentsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	// eventBatch bounds how many events one call processes. eventLease is how long no other process
	// takes them.
	eventBatch = 50
	eventLease = 2 * time.Minute
	// The times between two tries of an event: doubled from the first, at most the last.
	eventRetry    = 15 * time.Second
	eventRetryMax = time.Hour
	// eventTries is how often the session or the object of an event is looked for, over some hours.
	// An event may arrive before its row is committed.
	eventTries = 12
	// maxFailures is the number of failures after which a batch ends, because the payment provider
	// is away.
	maxFailures = 3
)

// ProcessEvents processes the events that are due and that started no job when they were stored,
// and returns how many it has processed. An event that fails is tried again later, and does not
// stop the others.
func (y *Syncer) ProcessEvents(ctx context.Context) (int, error) {
	events, err := paymentsdb.ClaimEvents(ctx, y.Store, eventBatch, eventLease)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	client, control, err := y.open(ctx)
	if err != nil {
		return 0, err
	}
	var failed []error
	done := 0
	for _, e := range events {
		out, err := y.processEvent(ctx, client, control.Installation, e)
		if err == nil && out.state != paymentsdb.EventPending {
			if err := paymentsdb.FinishEvent(ctx, y.Store, e.ID, out.state, out.session, out.note); err != nil {
				return done, err
			}
			done++
			continue
		}
		problem := out.note
		if err != nil {
			problem = err.Error()
			failed = append(failed, fmt.Errorf("event %s: %w", e.ID, err))
		}
		if err := paymentsdb.PostponeEvent(ctx, y.Store, e.ID, backOff(eventRetry, eventRetryMax, e.Attempts), problem); err != nil {
			return done, err
		}
		if len(failed) >= maxFailures || ctx.Err() != nil {
			break
		}
	}
	return done, errors.Join(failed...)
}

// backOff doubles a wait with each try.
func backOff(first, most time.Duration, tries int) time.Duration {
	if tries > 20 {
		return most
	}
	return min(first<<tries, most)
}

// outcome says how the processing of an event ended. A pending event is tried again.
type outcome struct {
	state         paymentsdb.EventState
	session, note string
}

// later returns pending, so that the session or the object of an event is looked for again. After
// some hours it gives up.
func later(e paymentsdb.DueEvent, last paymentsdb.EventState, note string) outcome {
	if e.Attempts >= eventTries {
		return outcome{state: last, note: note}
	}
	return outcome{state: paymentsdb.EventPending, note: note}
}

func (y *Syncer) processEvent(ctx context.Context, client providers.Payments, installation string, e paymentsdb.DueEvent) (outcome, error) {
	switch e.ObjectKind {
	case "checkout.session":
		return y.processPage(ctx, client, installation, e)
	case "refund", "charge":
		return y.processRefund(ctx, client, e)
	case "dispute":
		return y.processDispute(ctx, client, e)
	}
	return outcome{state: paymentsdb.EventIgnored}, nil
}

// processPage reads the page that an event names and follows it: a session that is paid gets its
// job. It uses nothing else of the event. A signature only proves that the sender knows a secret;
// only the provider's answer proves a payment.
func (y *Syncer) processPage(ctx context.Context, client providers.Payments, installation string, e paymentsdb.DueEvent) (outcome, error) {
	page, err := client.Session(ctx, e.ObjectID)
	if o, ok := absent(e, err); ok {
		return o, nil
	} else if err != nil {
		return outcome{}, err
	}
	s, o, err := y.sessionOf(ctx, client, installation, page)
	if o.state == paymentsdb.EventUnmatched {
		return later(e, o.state, o.note), err
	}
	if err != nil || o.state != "" {
		return o, err
	}
	seen, err := y.follow(ctx, s.ID, page, installation)
	if errors.Is(err, payments.ErrDisagrees) {
		return outcome{paymentsdb.EventUnmatched, s.ID, err.Error()}, y.reportDisagreement(ctx, page, err)
	} else if err != nil {
		return outcome{}, err
	}
	if strings.HasSuffix(e.Type, ".async_payment_failed") && !page.Paid {
		err = y.Store.Tx(ctx, func(tx *db.Tx) error { return paymentsdb.StoreAsyncFailed(ctx, tx, seen.ID) })
	}
	return outcome{state: paymentsdb.EventProcessed, session: seen.ID}, err
}

// absent handles an object that the provider says it does not have. The event is of the other mode,
// or forged. A proxy may also answer so, so the event is ignored only after the last try.
func absent(e paymentsdb.DueEvent, err error) (outcome, bool) {
	if isAbsent(err) {
		return later(e, paymentsdb.EventIgnored, "the payment provider has no such object: "+err.Error()), true
	}
	return outcome{}, false
}

func isAbsent(err error) bool {
	return slices.Contains([]providers.Kind{providers.KindNotFound, providers.KindForeign, providers.KindInvalid}, providers.KindOf(err))
}

// sessionOf returns the session of a page. It returns the outcome foreign when another installation
// has made the page. It returns unmatched when this one has made it and there is no row; then it
// also stores a difference for operators.
func (y *Syncer) sessionOf(ctx context.Context, client providers.Payments, installation string, page providers.PaymentSession) (paymentsdb.Session, outcome, error) {
	if page.Installation != installation {
		return paymentsdb.Session{}, outcome{state: paymentsdb.EventForeign}, paymentsdb.PutForeign(ctx, y.Store, paymentsdb.Foreign{
			ID: page.ID, Installation: page.Installation, Reference: page.Reference, AmountMinor: page.Amount, Currency: page.Currency, Paid: page.Paid,
			CreatedAt: page.Created, PaymentIntentID: page.PaymentID,
		})
	}
	s, err := paymentsdb.FindByPage(ctx, y.Store, page.ID)
	if errors.Is(err, db.ErrNotFound) {
		s, err = paymentsdb.Get(ctx, y.Store, page.Reference) // the event came before our own commit
	}
	if !errors.Is(err, db.ErrNotFound) {
		return s, outcome{}, err
	}
	o := outcome{state: paymentsdb.EventUnmatched, note: "no payment session has page " + page.ID}
	if !page.Paid {
		return s, o, nil
	}
	return s, o, y.reportLost(ctx, client, page)
}

func (y *Syncer) reportDisagreement(ctx context.Context, page providers.PaymentSession, err error) error {
	return paymentsdb.PutDifference(ctx, y.Store, paymentsdb.DifferenceSession, page.ID, err.Error(), page.Amount)
}

// processRefund books the refund of an event, or all refunds of the charge that it names.
func (y *Syncer) processRefund(ctx context.Context, client providers.Payments, e paymentsdb.DueEvent) (outcome, error) {
	payment := intentIn(e.Body)
	var refunds []payments.ObservedRefund
	if e.ObjectKind == "refund" {
		r, err := client.Refund(ctx, e.ObjectID)
		if o, ok := absent(e, err); ok {
			return o, nil
		} else if err != nil {
			return outcome{}, err
		}
		payment, refunds = r.PaymentID, []payments.ObservedRefund{observedRefund(r)}
	} else if e.Type != "charge.refunded" {
		return outcome{state: paymentsdb.EventIgnored}, nil
	}
	s, err := paymentsdb.FindByPayment(ctx, y.Store, payment)
	if errors.Is(err, db.ErrNotFound) {
		return later(e, paymentsdb.EventForeign, "no payment session has this payment"), nil
	} else if err != nil {
		return outcome{}, err
	}
	if e.ObjectKind == "charge" {
		if refunds, err = readRefunds(ctx, client, s); err != nil {
			return outcome{}, err
		}
	}
	isBooked := true
	err = y.Store.Tx(ctx, func(tx *db.Tx) error {
		isBooked = true
		for _, r := range refunds {
			booked, err := payments.FollowRefund(ctx, tx, s.ID, r, payments.Actor)
			if err != nil {
				return err
			}
			isBooked = isBooked && booked
		}
		return nil
	})
	if err == nil && !isBooked {
		return outcome{state: paymentsdb.EventPending, note: "the payment is not booked yet"}, nil
	}
	return outcome{state: paymentsdb.EventProcessed, session: s.ID}, err
}

// intentIn returns the payment that the object of an event names. It is used only to find the
// session, whose refunds are then read from the provider.
func intentIn(body []byte) string {
	var e struct {
		Data struct {
			Object struct {
				PaymentIntent string `json:"payment_intent"`
			} `json:"object"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &e) != nil {
		return ""
	}
	return e.Data.Object.PaymentIntent
}

func (y *Syncer) processDispute(ctx context.Context, client providers.Payments, e paymentsdb.DueEvent) (outcome, error) {
	d, err := client.Dispute(ctx, e.ObjectID)
	if o, ok := absent(e, err); ok {
		return o, nil
	} else if err != nil {
		return outcome{}, err
	}
	s, err := paymentsdb.FindByPayment(ctx, y.Store, d.PaymentID)
	if errors.Is(err, db.ErrNotFound) {
		return later(e, paymentsdb.EventForeign, "no payment session has this payment"), nil
	} else if err != nil {
		return outcome{}, err
	}
	booked, err := y.followDispute(ctx, s.ID, d)
	if err == nil && !booked {
		return outcome{state: paymentsdb.EventPending, note: "the payment is not booked yet"}, nil
	}
	return outcome{state: paymentsdb.EventProcessed, session: s.ID}, err
}

func (y *Syncer) followDispute(ctx context.Context, sessionID string, d providers.PaymentDispute) (booked bool, err error) {
	err = y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		booked, err = payments.FollowDispute(ctx, tx, sessionID, payments.ObservedDispute{
			ID: d.ID, Won: d.Won, Lost: d.Lost, Warning: d.Warning, AmountMinor: d.Amount, Currency: d.Currency,
		}, payments.Actor)
		return err
	})
	return booked, err
}
