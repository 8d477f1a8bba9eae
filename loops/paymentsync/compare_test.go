package paymentsync_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// narrow is a payment provider that lists one session at a time and keeps the cursors it was asked
// with.
type narrow struct {
	providers.Payments
	asked   []string
	listed  func()
	failing error
}

func (c *narrow) Sessions(ctx context.Context, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentSession], error) {
	q.Limit, c.asked = 1, append(c.asked, q.Before)
	page, err := c.Payments.Sessions(ctx, q)
	c.listed()
	if c.failing != nil {
		return providers.PaymentPage[providers.PaymentSession]{}, c.failing
	}
	return page, err
}

// TestCompare_GoesOnWhereItStopped: a comparison whose time is over, or that fails at a page, keeps
// its place, so that a list of any length comes to its end.
func TestCompare_GoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(c *narrow, cancel func()){
		"the time of the pass is over": func(_ *narrow, cancel func()) { cancel() },
		"the provider does not answer": func(c *narrow, _ func()) {
			c.failing = &providers.Error{Kind: providers.KindUnavailable, Op: "stripe.list_sessions", Message: "503"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var pages []paymentsdb.Session
			for _, key := range []string{"1", "2", "3"} {
				s := r.open(key)
				require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
				pages = append(pages, s)
			}
			client := &narrow{Payments: r.client}
			r.sync.Connect = func(context.Context) (providers.Payments, error) { return client, nil }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client.listed = func() {
				if len(client.asked) == 2 {
					stop(client, cancel)
				}
			}
			_, err := r.sync.CompareSessions(ctx)
			require.Error(t, err)
			control, err := paymentsdb.ReadControl(t.Context(), r.store)
			require.NoError(t, err)
			require.NotNil(t, control.SessionsUntil)
			require.Equal(t, *pages[2].StripeCheckoutSessionID, control.SessionsPage, "the newest was compared")
			client.asked, client.failing, client.listed = nil, nil, func() {}
			r.alter("UPDATE payment_sessions SET next_look_at = now() WHERE next_look_at IS NOT NULL")
			_, err = r.sync.CompareSessions(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{*pages[2].StripeCheckoutSessionID, *pages[1].StripeCheckoutSessionID}, client.asked, "it went on there")
			require.NoError(t, r.runJobs(t.Context()))
			for _, s := range pages {
				require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
			}
			control, err = paymentsdb.ReadControl(t.Context(), r.store)
			require.NoError(t, err)
			require.Nil(t, control.SessionsUntil, "the list came to its end")
		})
	}
}

// TestCompare_StopsBeforeItsDeadline: a pass that has little time left takes nothing more, does not
// fail, and is due again.
func TestCompare_StopsBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	n, err := r.sync.CompareSessions(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	control, err := paymentsdb.ReadControl(t.Context(), r.store)
	require.NoError(t, err)
	require.NotNil(t, control.SessionsUntil)
	require.Empty(t, r.compare())
	require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
}

// moved is a payment provider that lists its movements as change says.
type moved struct {
	providers.Payments
	change func(*providers.PaymentMovement)
}

func (c moved) Movements(ctx context.Context, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentMovement], error) {
	page, err := c.Payments.Movements(ctx, q)
	for i := range page.Items {
		c.change(&page.Items[i])
	}
	return page, err
}

// TestCompare_OfOtherCurrencies: where Stripe settles in another currency than that of the
// accounts, its amounts and those of the ledger are never taken for a difference: an operator is
// told once that they cannot be compared.
func TestCompare_OfOtherCurrencies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	converted := moved{r.client, func(m *providers.PaymentMovement) {
		m.Currency, m.Amount, m.Converted = "EUR", m.Amount*9/10, true
	}}
	r.sync.Connect = func(context.Context) (providers.Payments, error) { return converted, nil }
	const raised = "SELECT count(*) FROM payment_attention WHERE kind = 'payment_difference'"
	for _, key := range []string{"1", "2"} {
		r.credited(key)
		r.compare()
		found := r.compare()
		require.Len(t, found, 1, "%+v", found)
		require.Equal(t, "USD", found[0].Subject)
		require.Contains(t, found[0].Message, "cannot be compared: the payment provider has converted")
		require.Zero(t, found[0].AmountMinor)
		if key == "1" {
			require.Equal(t, int64(1), r.count(raised))
			require.NoError(t, r.tx(func(tx *db.Tx) error {
				return payments.Acknowledge(t.Context(), tx, paymentsdb.DifferenceTotal, "USD", "we settle in EUR", operator)
			}))
		}
	}
	require.Zero(t, r.count(raised), "more payments are no reason to tell it again")
}

// TestCompare_OfWhatNobodyKnows: a refund or dispute that has moved money, and whose session never
// comes, is told of; one of a session that is not ours is in no total.
func TestCompare_OfWhatNobodyKnows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	age := time.Duration(0)
	r.sync.Connect = func(context.Context) (providers.Payments, error) {
		return moved{r.client, func(m *providers.PaymentMovement) { m.Created = time.Now().Add(-age) }}, nil
	}
	theirs := r.page("theirs", "another-installation")
	_, err := r.sim.RefundInDashboard(theirs, 300)
	require.NoError(t, err)
	_, err = r.sim.OpenDispute(theirs)
	require.NoError(t, err)
	age = 2 * absentFor
	require.Empty(t, r.compare(), "what is not ours is in no total, and neither is what goes back of it")

	s := r.credited("k")
	payment := *s.StripePaymentIntentID
	r.alter("ALTER TABLE payment_sessions DISABLE TRIGGER payment_sessions_edge_update")
	r.alter("UPDATE payment_sessions SET stripe_payment_intent_id = NULL WHERE id = $1", s.ID)
	_, err = r.sim.RefundInDashboard(*s.StripeCheckoutSessionID, 700)
	require.NoError(t, err)
	kinds := func() (out []string) {
		for _, d := range r.compare() {
			out = append(out, d.Kind)
		}
		return out
	}
	age = 0
	require.Equal(t, []string{"total"}, kinds(), "its row may come")
	age = 2 * absentFor
	require.Equal(t, []string{"refund", "total"}, kinds())
	require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_differences WHERE kind = 'refund' AND message LIKE '%no payment session has payment ' || $1::text || '%'", payment))
	r.alter("UPDATE payment_sessions SET stripe_payment_intent_id = $2 WHERE id = $1", s.ID, payment)
	require.Empty(t, kinds(), "it came")
	require.Equal(t, int64(1800), r.balances()["prepaid"])
}

// TestCompare_OfASessionThatIsNotBooked: a refund of a payment that could not be credited yet is
// told of, until the payment is credited and the refund is booked.
func TestCompare_OfASessionThatIsNotBooked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sync.Connect = func(context.Context) (providers.Payments, error) {
		return moved{r.client, func(m *providers.PaymentMovement) { m.Created = time.Now().Add(-2 * absentFor) }}, nil
	}
	s := r.open("k")
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	page, err := r.client.Session(t.Context(), *s.StripeCheckoutSessionID)
	require.NoError(t, err)
	control, err := paymentsdb.ReadControl(t.Context(), r.store)
	require.NoError(t, err)
	require.NoError(t, r.tx(func(tx *db.Tx) error {
		_, err := payments.Follow(t.Context(), tx, s.ID, payments.Observed{
			PageID: page.ID, Complete: true, Paid: true, AmountMinor: page.Amount, Currency: page.Currency, Reference: s.ID, Installation: control.Installation,
			PaymentID: page.PaymentID,
		}, control.Installation, payments.Actor)
		return err
	}))
	_, err = r.sim.RefundInDashboard(page.ID, 700)
	require.NoError(t, err)
	const told = "SELECT count(*) FROM payment_differences WHERE kind = 'refund' AND message LIKE '%is not booked; resolve the session%'"
	require.NoError(t, r.sync.CompareTotals(t.Context()))
	require.Equal(t, int64(1), r.count(told))
	_, err = r.fulfil(t.Context(), s.ID)
	require.NoError(t, err)
	require.NoError(t, r.sync.CompareTotals(t.Context()))
	require.Zero(t, r.count(told))
	require.Equal(t, int64(paid-700), r.balances()["prepaid"])
}

const absentFor = time.Hour
