package paymentsync_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// hidden is a payment provider behind a proxy that answers in its place.
type hidden struct{ providers.Payments }

func (hidden) Session(context.Context, string) (providers.PaymentSession, error) {
	return providers.PaymentSession{}, &providers.Error{Kind: providers.KindNotFound, Op: "stripe.session", Message: "not found"}
}

// TestEvents_BehindAProxy: an answer of a proxy ends neither the job that an event started nor the
// event of a page that is not known yet; the payment is credited later.
func TestEvents_BehindAProxy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	direct := r.sync.Connect
	r.sync.Connect = func(context.Context) (providers.Payments, error) { return hidden{r.client}, nil }
	events := r.eventsOf("checkout.session.completed")
	require.Error(t, r.deliver(events...))
	require.Equal(t, lifecycle.JobRunning, r.jobOf(s.ID).Status)
	r.alter("UPDATE stripe_events SET state = 'pending', processed_at = NULL, next_at = now()")
	_, err := r.sync.ProcessEvents(t.Context())
	require.NoError(t, err)
	require.Equal(t, "pending", r.eventState(events[0].ID))
	r.sync.Connect = direct
	require.NoError(t, r.deliver(events...))
	require.Equal(t, "processed", r.eventState(events[0].ID))
	require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
}

// refusing is a payment provider that refuses every page.
type refusing struct{ providers.Payments }

func (refusing) CreateSession(context.Context, providers.SessionCreate) (providers.PaymentSession, error) {
	return providers.PaymentSession{}, &providers.Error{Kind: providers.KindInvalid, Op: "stripe.create_session", Message: "account acct_1 is restricted"}
}

// TestCheckout_Refused: members read that the provider refuses a payment, and operators why.
func TestCheckout_Refused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sync.Connect = func(context.Context) (providers.Payments, error) { return refusing{r.client}, nil }
	s, err := r.sync.CreateCheckout(t.Context(), r.request("k"))
	require.Equal(t, intent.Conflict, intent.AsRefusal(err).Kind)
	require.NotContains(t, err.Error(), "acct_1")
	require.Equal(t, lifecycle.PaymentExpired, s.Status)
	s = r.get(s.ID)
	require.Equal(t, payments.Refused, s.FailureMessage)
	require.Contains(t, s.LastError, "acct_1")
}

// TestCompare_ADifferenceThatGrows: a total that differs by another amount each time is told of, at
// the second comparison at the latest.
func TestCompare_ADifferenceThatGrows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const raised = "SELECT count(*) FROM payment_attention WHERE kind = 'payment_difference'"
	put := func(minor int64) {
		t.Helper()
		require.NoError(t, paymentsdb.PutDifference(t.Context(), r.store, paymentsdb.DifferenceTotal, "USD", "it differs", minor))
	}
	put(5)
	require.Zero(t, r.count(raised), "a total may differ for a moment")
	for _, minor := range []int64{9, -3} {
		put(minor)
		require.Equal(t, int64(1), r.count(raised))
	}
	require.Equal(t, int64(3), r.count("SELECT streak FROM payment_differences"))
	require.NoError(t, r.tx(func(tx *db.Tx) error {
		return payments.Acknowledge(t.Context(), tx, paymentsdb.DifferenceTotal, "USD", "a fee", operator)
	}))
	put(-3)
	require.Zero(t, r.count(raised))
	put(7)
	require.Equal(t, int64(1), r.count(raised), "another amount is told again")
	require.NoError(t, paymentsdb.DropDifference(t.Context(), r.store, paymentsdb.DifferenceTotal, "USD"))
	put(7)
	require.Zero(t, r.count(raised), "both agreed meanwhile")
}
