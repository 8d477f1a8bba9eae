// Package paymentsync keeps payments in step with the payment provider: it makes payment pages,
// reads what became of them, and sends refunds. intent/payments decides what is booked. Only the
// job of a payment session credits it, by Credit. Webhooks, the page to which a payer returns and
// the passes start that job. Whoever asks, the payment is always read from the provider, with the
// platform's own key. No transaction is open during a call to the provider.
package paymentsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// Syncer keeps payments in step. Its methods may be called from any goroutine and repeated.
type Syncer struct {
	Store *db.Store
	// Connect returns a client of the payment provider. It is called when Policy.Enabled.
	Connect func(context.Context) (providers.Payments, error)
	Policy  payments.Policy
	Log     *slog.Logger
	// MayAsk reports whether a user who waits for a payment of the billing account may cause a call
	// to the payment provider now. Nil allows every call. Passes do not ask it.
	MayAsk func(accountID string) bool
}

const (
	// product is the name that the payer reads on the page.
	product = "Account balance"
	// lookEvery is the shortest time between two reads of a session for users who wait for it.
	lookEvery = 3 * time.Second
)

// CreateCheckout makes a payment page. It stores the row first and then asks for the page. The same
// user with the same key gets the same session and no second page, also after a crash and after the
// session has expired. The provider has not confirmed a session that is initiated and has no URL.
// The same request then tries again, with the same key towards the provider.
func (y *Syncer) CreateCheckout(ctx context.Context, r payments.Request) (paymentsdb.Session, error) {
	var s paymentsdb.Session
	isNew := false
	err := y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		s, isNew, err = payments.Begin(ctx, tx, y.Policy, r)
		return err
	})
	if err != nil || s.Status != lifecycle.PaymentInitiated || s.StripeCheckoutSessionID != nil {
		return s, err
	}
	if !isNew && !y.mayAsk(s.BillingAccountID) { // new sessions have a limit for each hour
		return s, &intent.Refusal{Kind: intent.RateLimited, Detail: "there were too many requests at once for this billing account; send the same request with the same key again in some seconds"}
	}
	client, err := y.Connect(ctx)
	if err != nil {
		return s, err
	}
	s, err = y.openPage(ctx, client, s)
	if err == nil && s.Status == lifecycle.PaymentExpired {
		return s, &intent.Refusal{Kind: intent.Conflict, Detail: "the payment has ended: " + s.FailureMessage + " Ask for another one with a new key."}
	}
	return s, err
}

// openPage has the provider make the page of a session that has none.
func (y *Syncer) openPage(ctx context.Context, client providers.Payments, s paymentsdb.Session) (paymentsdb.Session, error) {
	control, err := paymentsdb.ReadControl(ctx, y.Store)
	if err != nil {
		return s, err
	}
	now, err := y.Store.Clock(ctx)
	if err != nil {
		return s, err
	}
	// The later of two clocks decides. A key that the provider has already forgotten would make a
	// second page.
	if later := latest(now, time.Now()); later.Sub(s.AttemptAt) > providers.KeyLife || later.After(s.ExpiresAt) {
		return y.adoptOrExpire(ctx, client, s, control.Installation, "Its page was not made in time.", "")
	}
	page, err := client.CreateSession(ctx, providers.SessionCreate{
		Key: fmt.Sprintf("%s:%d", s.ID, s.Attempt), Reference: s.ID, Installation: control.Installation, Amount: s.RequestedAmountMinor, Currency: s.Currency,
		Product: product, SuccessURL: s.SuccessURL, CancelURL: s.CancelURL, Expires: s.ExpiresAt,
	})
	var refused *providers.Error
	switch {
	case err == nil:
		return y.follow(ctx, s.ID, page, control.Installation)
	case providers.IsKeySpent(err):
		return y.afterSpentKey(ctx, client, s, control.Installation)
	case errors.As(err, &refused) && refused.Kind == providers.KindInvalid:
		return y.adoptOrExpire(ctx, client, s, control.Installation, payments.Refused, refused.Error())
	}
	return s, err
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// afterSpentKey adopts the page that a failed call has made all the same. If there is none, it
// stores the next key, which the next call uses.
func (y *Syncer) afterSpentKey(ctx context.Context, client providers.Payments, s paymentsdb.Session, installation string) (paymentsdb.Session, error) {
	page, found, err := findPage(ctx, client, s, installation)
	switch {
	case err != nil:
		return s, err
	case found:
		return y.follow(ctx, s.ID, page, installation)
	}
	err = y.Store.Tx(ctx, func(tx *db.Tx) error { return paymentsdb.NextAttempt(ctx, tx, s.ID, s.Attempt) })
	if err != nil && !errors.Is(err, db.ErrStale) {
		return s, err
	}
	return s, &providers.Error{Kind: providers.KindUncertain, Op: "stripe.create_session", Message: "the page was not made; ask again with the same key"}
}

// adoptOrExpire adopts the page that the provider has for a session, or ends the session. Members
// of the project can read why; only operators can read the problem, if there is one.
func (y *Syncer) adoptOrExpire(ctx context.Context, client providers.Payments, s paymentsdb.Session, installation, why, problem string) (paymentsdb.Session, error) {
	page, found, err := findPage(ctx, client, s, installation)
	switch {
	case err != nil:
		return s, err
	case found:
		return y.follow(ctx, s.ID, page, installation)
	}
	err = y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		if s, err = payments.Expire(ctx, tx, s.ID, lifecycle.PaymentCreateFailed, why, payments.Actor); err != nil || problem == "" {
			return err
		}
		s.LastError = problem
		return paymentsdb.ScheduleLook(ctx, tx, s.ID, nil, problem)
	})
	return s, err
}

const (
	// clockSlack is how much our clock and the provider's may differ.
	clockSlack = 10 * time.Minute
	// maxPages bounds a list that is read without a break.
	maxPages = 200
)

// findPage looks for the page of a session among those that the provider has made since.
func findPage(ctx context.Context, client providers.Payments, s paymentsdb.Session, installation string) (providers.PaymentSession, bool, error) {
	q := providers.PaymentQuery{From: s.CreatedAt.Add(-clockSlack)}
	for range maxPages {
		list, err := client.Sessions(ctx, q)
		if err != nil {
			return providers.PaymentSession{}, false, err
		}
		for _, page := range list.Items {
			if page.Reference == s.ID && page.Installation == installation {
				return page, true, nil
			}
		}
		if !list.More || len(list.Items) == 0 {
			return providers.PaymentSession{}, false, nil
		}
		q.Before = list.Items[len(list.Items)-1].ID
	}
	return providers.PaymentSession{}, false, fmt.Errorf("the provider has made over %d pages since payment session %s", maxPages*100, s.ID)
}

func observed(p providers.PaymentSession) payments.Observed {
	return payments.Observed{
		PageID: p.ID, Complete: p.Status == providers.SessionComplete, Expired: p.Status == providers.SessionExpired, Paid: p.Paid, AmountMinor: p.Amount,
		Currency: p.Currency, Reference: p.Reference, Installation: p.Installation, PaymentID: p.PaymentID, URL: p.URL, Live: p.Live,
	}
}

// Look reads the page of a session at the payment provider and stores what it shows. A session that
// is paid gets its job in the same transaction. It returns the session as it is afterwards, and can
// be called at any time.
func (y *Syncer) Look(ctx context.Context, id string) (paymentsdb.Session, error) {
	s, err := paymentsdb.Get(ctx, y.Store, id)
	if err != nil || s.StripeCheckoutSessionID == nil || s.Live != y.Policy.Live || lifecycle.Payment.Terminal(s.Status) {
		return s, err
	}
	page, installation, err := y.readPage(ctx, *s.StripeCheckoutSessionID)
	if err != nil {
		return s, err
	}
	return y.follow(ctx, s.ID, page, installation)
}

// readPage reads a page at the payment provider. It returns the id of this installation with it.
func (y *Syncer) readPage(ctx context.Context, id string) (providers.PaymentSession, string, error) {
	client, control, err := y.open(ctx)
	if err != nil {
		return providers.PaymentSession{}, "", err
	}
	page, err := client.Session(ctx, id)
	return page, control.Installation, err
}

// open returns a client and the id of this installation.
func (y *Syncer) open(ctx context.Context) (providers.Payments, paymentsdb.Control, error) {
	if !y.Policy.Enabled {
		return nil, paymentsdb.Control{}, payments.ErrOff
	}
	control, err := paymentsdb.ReadControl(ctx, y.Store)
	if err != nil {
		return nil, control, err
	}
	client, err := y.Connect(ctx)
	return client, control, err
}

func (y *Syncer) follow(ctx context.Context, id string, page providers.PaymentSession, installation string) (s paymentsdb.Session, err error) {
	err = y.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		s, err = payments.Follow(ctx, tx, id, observed(page), installation, payments.Actor)
		return err
	})
	return s, err
}

func readRefunds(ctx context.Context, client providers.Payments, s paymentsdb.Session) ([]payments.ObservedRefund, error) {
	if s.StripePaymentIntentID == nil {
		return nil, nil
	}
	found, err := readAll(func(q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentRefund], error) {
		return client.Refunds(ctx, *s.StripePaymentIntentID, q)
	}, func(r providers.PaymentRefund) string { return r.ID })
	if err != nil {
		return nil, fmt.Errorf("refunds of payment session %s: %w", s.ID, err)
	}
	var out []payments.ObservedRefund
	for _, r := range found {
		out = append(out, observedRefund(r))
	}
	return out, nil
}

func observedRefund(r providers.PaymentRefund) payments.ObservedRefund {
	return payments.ObservedRefund{
		ID: r.ID, Failed: r.Status == providers.RefundFailed || r.Status == providers.RefundCanceled, Succeeded: r.Status == providers.RefundSucceeded,
		AmountMinor: r.Amount, Currency: r.Currency, Reference: r.Reference,
	}
}

func (y *Syncer) mayAsk(accountID string) bool { return y.MayAsk == nil || y.MayAsk(accountID) }

// Show returns a session for a user who waits for it. It first compares the session with the
// payment provider if that may change it: at most every few seconds, and within the limit of the
// billing account. A payment that is paid is credited by its job, soon after. If the provider does
// not answer, Show logs that and returns the session as it is stored.
func (y *Syncer) Show(ctx context.Context, id string) (paymentsdb.Session, error) {
	s, err := paymentsdb.Get(ctx, y.Store, id)
	isOpen := s.Status == lifecycle.PaymentInitiated || s.Status == lifecycle.PaymentCheckoutCompleted && s.PaymentStatus != lifecycle.PaidFull
	if err != nil || !isOpen || s.StripeCheckoutSessionID == nil || !y.Policy.Enabled {
		return s, err
	}
	if s.LookedAt != nil {
		// The time comes from the database's clock and lies in the future where this machine's
		// clock is behind. TakeLook decides then.
		if age := time.Since(*s.LookedAt); age >= 0 && age < lookEvery {
			return s, nil
		}
	}
	if !y.mayAsk(s.BillingAccountID) {
		return s, nil
	}
	if due, err := paymentsdb.TakeLook(ctx, y.Store, id, lookEvery); err != nil || !due {
		return s, err
	}
	seen, err := y.Look(ctx, id)
	if err != nil {
		y.Log.WarnContext(ctx, "payments: a session was not compared with the payment provider", "session", id, "error", err)
		return paymentsdb.Get(ctx, y.Store, id)
	}
	return seen, nil
}
