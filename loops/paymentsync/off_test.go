package paymentsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// TestOff_LeavesNothingForEver: while payments are off a page that closed long ago ends, operators
// are told of what waits for Stripe and only then, and what was paid is credited once they are on
// again.
func TestOff_LeavesNothingForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const raised = "SELECT count(*) FROM payment_attention WHERE kind = 'payments_silent' AND message LIKE 'payments are off%'"
	credited, paidNow, left, open := r.credited("credited"), r.open("paid"), r.open("left"), r.open("open")
	require.NoError(t, r.sim.Pay(*paidNow.StripeCheckoutSessionID))
	r.sync.Policy.Enabled = false
	r.age(paidNow.ID, 49*time.Hour)
	r.age(left.ID, 49*time.Hour)
	r.age(open.ID, 25*time.Hour)
	r.alter("UPDATE payment_control SET passed_at = now() - interval '2 hours'")
	require.NoError(t, r.sync.EndWhileOff(t.Context()))
	require.Equal(t, int64(1), r.count(raised), "one page closed only now")
	for _, id := range []string{paidNow.ID, left.ID} {
		s := r.get(id)
		require.Equal(t, lifecycle.PaymentExpired, s.Status)
		require.Equal(t, lifecycle.PaymentOff, s.FailureCode)
		require.Contains(t, s.FailureMessage, "If it was paid it is credited")
	}
	require.Equal(t, lifecycle.PaymentInitiated, r.get(open.ID).Status)
	_, err := r.refund(credited, "off", 100)
	require.ErrorIs(t, err, payments.ErrOff)
	require.ErrorIs(t, r.tx(func(tx *db.Tx) error {
		_, err := payments.Reconcile(t.Context(), tx, r.sync.Policy, open.ID, operator)
		return err
	}), payments.ErrOff)

	r.age(open.ID, 24*time.Hour)
	require.NoError(t, r.sync.EndWhileOff(t.Context()))
	require.Zero(t, r.count(raised), "nothing waits")
	require.Zero(t, r.count("SELECT count(*) FROM payment_sessions WHERE status = 'initiated'"))

	r.sync.Policy.Enabled = true
	require.Empty(t, r.compare())
	now := r.get(paidNow.ID)
	require.Equal(t, []string{string(lifecycle.PaymentCredited), "", ""}, []string{string(now.Status), string(now.FailureCode), now.FailureMessage})
	require.Equal(t, lifecycle.PaymentExpired, r.get(left.ID).Status)

	// A refund that was not sent holds money back: it is told of until somebody has it sent.
	r.fault(stripesim.Fault{Name: stripesim.FaultUnavailable, Count: 3, Params: map[string]string{"retry_after": "0"}})
	refund, err := r.refund(credited, "a", 100)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundRequested, refund.State)
	r.sync.Policy.Enabled = false
	r.alter("UPDATE payment_refunds SET created_at = now() - interval '2 hours'")
	require.NoError(t, r.sync.EndWhileOff(t.Context()))
	require.Equal(t, int64(1), r.count(raised))
	r.sync.Policy.Enabled = true
	require.NoError(t, r.syncNow())
	require.Zero(t, r.count(raised))
	again, err := r.refund(credited, "a", 100)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundSucceeded, again.State)
	_, err = r.sync.CreateCheckout(t.Context(), r.request("on"))
	require.Nil(t, intent.AsRefusal(err))
}
