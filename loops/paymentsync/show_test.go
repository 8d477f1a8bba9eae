package paymentsync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// TestShow_StartsTheJob: the page on which the payer lands starts the job that credits, and asks
// Stripe every few seconds at most, and no more once it is paid.
func TestShow_StartsTheJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	for range 5 {
		shown, err := r.sync.Show(t.Context(), s.ID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.PaymentInitiated, shown.Status)
	}
	require.Equal(t, 1, r.sim.Counters().Requests["get_session"])
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	r.alter("UPDATE payment_sessions SET looked_at = NULL")
	shown, err := r.sync.Show(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.PaymentCheckoutCompleted, shown.Status)
	require.Empty(t, r.balances(), "no handler credits")
	asked := r.sim.Counters().Requests["get_session"]
	r.alter("UPDATE payment_sessions SET looked_at = NULL")
	_, err = r.sync.Show(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, asked, r.sim.Counters().Requests["get_session"])
	require.NoError(t, r.runJobs(t.Context()))
	require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
	require.Equal(t, int64(paid), r.balances()["prepaid"])
}

// TestShow_IsBoundedByAccount: an account that asks for too much is shown what is stored, and has
// no page made again and again; the passes credit it all the same.
func TestShow_IsBoundedByAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	asked := []string{}
	r.sync.MayAsk = func(account string) bool { asked = append(asked, account); return false }
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	shown, err := r.sync.Show(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.PaymentInitiated, shown.Status)
	require.Zero(t, r.sim.Counters().Requests["get_session"])
	r.fault(stripesim.Fault{Name: stripesim.FaultInternalError, Op: "create_session", Count: 3, Phase: stripesim.Before})
	_, err = r.sync.CreateCheckout(t.Context(), r.request("none"))
	require.Nil(t, intent.AsRefusal(err), "the first try is bounded by the hour: %v", err)
	tried := r.sim.Counters().Requests["create_session"]
	_, err = r.sync.CreateCheckout(t.Context(), r.request("none"))
	require.Equal(t, intent.RateLimited, intent.AsRefusal(err).Kind)
	require.Equal(t, tried, r.sim.Counters().Requests["create_session"])
	require.Equal(t, []string{s.BillingAccountID, s.BillingAccountID}, asked)
	require.NoError(t, r.syncNow())
	require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
}
