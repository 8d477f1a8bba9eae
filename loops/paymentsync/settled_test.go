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
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// inEuros is a payment provider that says of everything that it is in another currency than was
// asked for.
type inEuros struct{ providers.Payments }

func (c inEuros) Session(ctx context.Context, id string) (providers.PaymentSession, error) {
	s, err := c.Payments.Session(ctx, id)
	s.Currency = "EUR"
	return s, err
}

func (c inEuros) Refund(ctx context.Context, id string) (providers.PaymentRefund, error) {
	r, err := c.Payments.Refund(ctx, id)
	r.Currency = "EUR"
	return r, err
}

func (c inEuros) Dispute(ctx context.Context, id string) (providers.PaymentDispute, error) {
	d, err := c.Payments.Dispute(ctx, id)
	d.Currency = "EUR"
	return d, err
}

// TestReversal_InAnotherCurrency: what was paid in another currency is in no ledger, so that
// nothing is booked when an operator refunds it at Stripe, and no event waits for it; a dispute of
// it is told of.
func TestReversal_InAnotherCurrency(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sync.Connect = func(context.Context) (providers.Payments, error) { return inEuros{r.client}, nil }
	s := r.open("k")
	page := *s.StripeCheckoutSessionID
	require.NoError(t, r.sim.Pay(page))
	require.NoError(t, r.deliver(r.eventsOf("checkout.session.completed")...))
	require.Equal(t, lifecycle.PaymentFailedReconcile, r.get(s.ID).Status)
	_, err := r.sim.RefundInDashboard(page, 700)
	require.NoError(t, err)
	_, err = r.sim.OpenDispute(page)
	require.NoError(t, err)
	require.NoError(t, r.deliver(r.events()...))
	require.Zero(t, r.count("SELECT count(*) FROM stripe_events WHERE state = 'pending'"))
	require.Empty(t, r.balances())
	require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_differences WHERE kind = 'dispute' AND message LIKE '%of EUR, which no ledger has'"))
	require.Zero(t, r.count("SELECT count(*) FROM payment_differences WHERE kind = 'refund'"))
	_, err = r.sync.Resolve(t.Context(), payments.Decision{SessionID: s.ID, Resolution: lifecycle.ResolveWriteOff, Reason: "refunded at Stripe", Actor: operator})
	require.NoError(t, err)
	require.Equal(t, int64(1), r.raised(), "its job is parked")
	require.NoError(t, r.syncNow())
	require.Zero(t, r.raised())
}

// mismatched returns a session that was paid with 7 minor units too much, and waits for a decision.
func (r *rig) mismatched() paymentsdb.Session {
	r.Helper()
	s := r.open("k")
	require.NoError(r, r.sim.Pay(*s.StripeCheckoutSessionID))
	r.fault(stripesim.Fault{Name: stripesim.FaultAmount, Count: 1, Params: map[string]string{"by": "7"}})
	require.NoError(r, r.deliver(r.eventsOf("checkout.session.completed")...))
	s = r.get(s.ID)
	require.Equal(r, lifecycle.PaymentFailedReconcile, s.Status)
	return s
}

func (r *rig) resolve(s paymentsdb.Session, d lifecycle.Resolution) error {
	_, err := r.sync.Resolve(r.ctx, payments.Decision{SessionID: s.ID, Resolution: d, Reason: "checked with finance", Actor: operator})
	return err
}

// TestReversal_AfterAWriteOff: what was written off goes back to the payer from there, and what
// comes back is written off again: nothing is taken from, or left in, suspense, where nobody would
// look.
func TestReversal_AfterAWriteOff(t *testing.T) {
	t.Parallel()
	const all = paid + 7
	r := newRig(t)
	s := r.mismatched()
	before, err := r.sim.RefundInDashboard(*s.StripeCheckoutSessionID, 500)
	require.NoError(t, err)
	require.NoError(t, r.deliver(r.eventsOf("refund.created")...))
	require.Equal(t, map[string]int64{"suspense": all - 500, "clearing": -all + 500}, r.balances())
	require.NoError(t, r.resolve(s, lifecycle.ResolveWriteOff))
	require.Equal(t, map[string]int64{"write_off": all - 500, "clearing": -all + 500}, r.balances())
	after, err := r.sim.RefundInDashboard(*s.StripeCheckoutSessionID, 700)
	require.NoError(t, err)
	require.NoError(t, r.deliver(r.eventsOf("refund.created")...))
	require.Equal(t, map[string]int64{"write_off": all - 1200, "clearing": -all + 1200}, r.balances())
	for _, id := range []string{before, after} {
		require.NoError(t, r.sim.SettleRefund(id, false))
	}
	require.NoError(t, r.deliver(r.eventsOf("refund.failed")...))
	require.Equal(t, map[string]int64{"write_off": all, "clearing": -all}, r.balances())
	id, err := r.sim.OpenDispute(*s.StripeCheckoutSessionID)
	require.NoError(t, err)
	require.NoError(t, r.deliver(r.eventsOf("charge.dispute.created")...))
	held := r.balances()
	require.Zero(t, held["suspense"])
	require.Equal(t, int64(all), held["write_off"]+held["dispute_hold"])
	require.Positive(t, held["dispute_hold"])
	require.NoError(t, r.sim.CloseDispute(id, true))
	require.NoError(t, r.syncNow())
	require.Equal(t, map[string]int64{"write_off": all, "clearing": -all}, r.balances())
}

// TestResolve_WhileDisputed: only what is in suspense is written off, not what a dispute has taken,
// and nothing of that is refunded.
func TestResolve_WhileDisputed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.mismatched()
	id, err := r.sim.OpenDispute(*s.StripeCheckoutSessionID)
	require.NoError(t, err)
	require.NoError(t, r.deliver(r.eventsOf("charge.dispute.created")...))
	require.Equal(t, map[string]int64{"suspense": 7, "dispute_hold": paid, "clearing": -paid - 7}, r.balances())
	err = r.resolve(s, lifecycle.ResolveCredit)
	require.Equal(t, intent.Conflict, intent.AsRefusal(err).Kind)
	r.sync.Policy.Enabled = false
	require.ErrorIs(t, r.resolve(s, lifecycle.ResolveRefund), payments.ErrOff, "nobody would send it")
	r.sync.Policy.Enabled = true
	require.NoError(t, r.resolve(s, lifecycle.ResolveWriteOff))
	require.Equal(t, map[string]int64{"write_off": 7, "dispute_hold": paid, "clearing": -paid - 7}, r.balances())
	require.NoError(t, r.sim.CloseDispute(id, true))
	require.NoError(t, r.syncNow())
	require.Equal(t, map[string]int64{"write_off": paid + 7, "clearing": -paid - 7}, r.balances())
}

// TestDispute_DecidedAgain: a bank that decides again moves the amount again, and a loss freezes
// the account also when an operator had cleared the dispute before it was known.
func TestDispute_DecidedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	follow := func(o payments.ObservedDispute) {
		t.Helper()
		o.ID, o.AmountMinor, o.Currency = "du_1", 900, "USD"
		require.NoError(t, r.tx(func(tx *db.Tx) error {
			_, err := payments.FollowDispute(t.Context(), tx, s.ID, o, payments.Actor)
			return err
		}))
	}
	held := map[string]int64{"prepaid": paid - 900, "dispute_hold": 900, "clearing": -paid}
	lost := map[string]int64{"prepaid": paid - 900, "clearing": -paid + 900}
	won := map[string]int64{"prepaid": paid, "clearing": -paid}
	follow(payments.ObservedDispute{})
	require.Equal(t, held, r.balances())
	require.NoError(t, r.tx(func(tx *db.Tx) error { return payments.ClearDispute(t.Context(), tx, "du_1", "trusted", operator) }))
	require.False(t, r.isFrozen())
	for range 2 {
		for range 2 {
			follow(payments.ObservedDispute{Lost: true})
			require.Equal(t, lost, r.balances())
			require.True(t, r.isFrozen(), "the loss was not known when an operator cleared it")
		}
		require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_attention WHERE kind = 'payment_dispute'"))
		for range 2 {
			follow(payments.ObservedDispute{Won: true})
			require.Equal(t, won, r.balances())
			require.False(t, r.isFrozen())
		}
	}
	require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_disputes WHERE closings = 4 AND next_look_at > now()"), "it is looked at once more")
}
