package paymentsync_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestCredit_IsOneTransaction: a worker that dies after the credit and before the commit leaves
// neither the ledger entry nor the status, and the next look has both.
func TestCredit_IsOneTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	died := errors.New("the worker died")
	page := payments.Observed{
		PageID: *s.StripeCheckoutSessionID, Complete: true, Paid: true, AmountMinor: paid, Currency: s.Currency, Reference: s.ID, PaymentID: "pi_1",
	}
	require.ErrorIs(t, r.tx(func(tx *db.Tx) error {
		_, err := payments.Follow(r.ctx, tx, s.ID, page, page.Installation, payments.Actor)
		require.NoError(t, err)
		got, err := payments.Credit(r.ctx, tx, s.ID, payments.Actor)
		require.NoError(t, err)
		require.Equal(t, lifecycle.PaymentCredited, got.Status)
		return died
	}), died)
	require.Equal(t, lifecycle.PaymentInitiated, r.get(s.ID).Status)
	require.Empty(t, r.balances())
	_, err := r.fulfil(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
	require.Equal(t, int64(1), r.topups(s.ID))
}
