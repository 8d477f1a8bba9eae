package paymentsync_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// TestRefund_KilledBeforeItWasStored: a refund that Stripe has made, and whose sender died before
// it stored that it had tried, is not made again, although Stripe has forgotten the key.
func TestRefund_KilledBeforeItWasStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	r.fault(stripesim.Fault{Name: stripesim.FaultTruncated, Op: "create_refund", Count: 3})
	refund, err := r.refund(s, "a", 1000)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundRequested, refund.State)
	r.alter("UPDATE payment_refunds SET attempts = 0, last_error = ''")
	r.clock.Step(25 * time.Hour)
	require.NoError(t, r.syncNow())
	require.Equal(t, 1, r.sim.Counters().Refunds)
	require.Equal(t, map[string]int64{"prepaid": 1500, "clearing": -1500}, r.balances())
	require.Empty(t, r.compare())
}

// TestRefund_AfterARestore: a refund of which a restored backup has no row is booked, and the same
// request again does not send the money twice; an operator who means another one asks again.
func TestRefund_AfterARestore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	_, err := r.client.CreateRefund(t.Context(), providers.RefundCreate{Key: "rfd_lost", PaymentID: *s.StripePaymentIntentID, Reference: "rfd_lost", Amount: 1000})
	require.NoError(t, err)
	again, err := r.refund(s, "a", 1000)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundFailed, again.State)
	require.Contains(t, again.LastError, "over 1000 minor units of USD was made at the payment provider and was not known here")
	require.Equal(t, 1, r.sim.Counters().Refunds)
	require.Equal(t, map[string]int64{"prepaid": 1500, "clearing": -1500}, r.balances())
	require.Equal(t, int64(1000), r.get(s.ID).RefundedMinor)
	meant, err := r.refund(s, "b", 1000)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundSucceeded, meant.State)
	require.Equal(t, map[string]int64{"prepaid": 500, "clearing": -500}, r.balances())
	require.Empty(t, r.compare())
}

// refusingRefunds is a payment provider behind a proxy that refuses a refund which the provider has
// made, and hides it.
type refusingRefunds struct{ providers.Payments }

func (c refusingRefunds) CreateRefund(ctx context.Context, in providers.RefundCreate) (providers.PaymentRefund, error) {
	if _, err := c.Payments.CreateRefund(ctx, in); err != nil {
		return providers.PaymentRefund{}, err
	}
	return providers.PaymentRefund{}, &providers.Error{Kind: providers.KindInvalid, Op: "stripe.create_refund", Message: "bad request"}
}

func (refusingRefunds) Refunds(context.Context, string, providers.PaymentQuery) (providers.PaymentPage[providers.PaymentRefund], error) {
	return providers.PaymentPage[providers.PaymentRefund]{}, nil
}

// TestRefund_FoundAfterItWasGivenBack: a refund that was given back to the balance as refused, and
// that Stripe has all the same, is taken again; when it fails later it is in the balance again.
func TestRefund_FoundAfterItWasGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	direct := r.sync.Connect
	r.sync.Connect = func(context.Context) (providers.Payments, error) { return refusingRefunds{r.client}, nil }
	refused, err := r.refund(s, "a", 1000)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundFailed, refused.State)
	require.Equal(t, map[string]int64{"prepaid": paid, "clearing": -paid}, r.balances())
	r.sync.Connect = direct
	for range 2 {
		require.NoError(t, r.deliver(r.eventsOf("refund.created")...))
		require.Equal(t, map[string]int64{"prepaid": 1500, "clearing": -1500}, r.balances())
		require.Equal(t, int64(1000), r.get(s.ID).RefundedMinor)
	}
	require.Empty(t, r.compare())
	made, err := r.client.Refunds(t.Context(), *s.StripePaymentIntentID, providers.PaymentQuery{})
	require.NoError(t, err)
	require.Len(t, made.Items, 1)
	require.NoError(t, r.sim.SettleRefund(made.Items[0].ID, false))
	require.NoError(t, r.deliver(r.eventsOf("refund.failed")...))
	require.Equal(t, map[string]int64{"prepaid": paid, "clearing": -paid}, r.balances())
	require.Empty(t, r.compare())
}

// TestRefund_AskedForAgain: a refund that was given back as refused, and that Stripe has all the
// same, is booked when it is asked for again. The payer does not get the money twice.
func TestRefund_AskedForAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	direct := r.sync.Connect
	r.sync.Connect = func(context.Context) (providers.Payments, error) { return refusingRefunds{r.client}, nil }
	_, err := r.refund(s, "a", 1000)
	require.NoError(t, err)
	r.sync.Connect = direct
	again, err := r.refund(s, "b", 1000)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundFailed, again.State)
	require.Contains(t, again.LastError, "was not known here")
	require.Equal(t, 1, r.sim.Counters().Refunds)
	require.Equal(t, map[string]int64{"prepaid": paid - 1000, "clearing": 1000 - paid}, r.balances())
	require.Empty(t, r.compare())
}

// otherAmounts is a payment provider that says of each refund that it is one minor unit less.
type otherAmounts struct{ providers.Payments }

func (c otherAmounts) Refunds(ctx context.Context, payment string, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentRefund], error) {
	page, err := c.Payments.Refunds(ctx, payment, q)
	for i := range page.Items {
		page.Items[i].Amount--
	}
	return page, err
}

// TestRefund_OfAnotherAmount: a refund that has another amount at Stripe is told of, and is not
// asked for in each pass.
func TestRefund_OfAnotherAmount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	r.fault(stripesim.Fault{Name: stripesim.FaultTruncated, Op: "create_refund", Count: 3})
	_, err := r.refund(s, "a", 1000)
	require.NoError(t, err)
	r.sync.Connect = func(context.Context) (providers.Payments, error) { return otherAmounts{r.client}, nil }
	require.NoError(t, r.syncNow())
	require.Equal(t, 1, r.sim.Counters().Refunds)
	require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_differences WHERE kind = 'refund' AND amount_minor = -1"))
	require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_refunds WHERE state = 'requested' AND next_look_at > now()"))
}
