package paymentsync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
)

// TestRestore_LostPaymentsNameWhatWentBack: the line of a page that a restore has lost names its
// refunds and disputes with their amounts, and how much is left to credit. A refund or dispute that
// is made later opens the line again after it was acknowledged.
func TestRestore_LostPaymentsNameWhatWentBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	control, err := paymentsdb.ReadControl(t.Context(), r.store)
	require.NoError(t, err)
	line := func(page string) paymentsdb.Difference {
		t.Helper()
		for _, d := range r.compare() {
			if d.Subject == page {
				return d
			}
		}
		t.Fatalf("page %s is not listed", page)
		return paymentsdb.Difference{}
	}
	whole := r.page("whole", control.Installation)
	kept := line(whole)
	require.Contains(t, kept.Message, "none of it is refunded or disputed")
	require.Equal(t, int64(900), kept.AmountMinor)
	require.NoError(t, r.tx(func(tx *db.Tx) error {
		return payments.Acknowledge(t.Context(), tx, paymentsdb.DifferenceSession, whole, "credited by an adjustment", operator)
	}))
	refund, err := r.sim.RefundInDashboard(whole, 400)
	require.NoError(t, err)
	part := line(whole)
	require.Contains(t, part.Message, "refund "+refund+" of 400 (succeeded); so credit at most 500")
	require.Equal(t, int64(500), part.AmountMinor)
	require.Nil(t, part.AcknowledgedAt, "another amount is told again")

	disputed := r.page("disputed", control.Installation)
	dispute, err := r.sim.OpenDispute(disputed)
	require.NoError(t, err)
	taken := line(disputed)
	require.Contains(t, taken.Message, "dispute "+dispute+" of 900")
	require.Contains(t, taken.Message, "credit at most 0")
	require.NoError(t, r.sim.CloseDispute(dispute, true))
	require.Equal(t, int64(900), line(disputed).AmountMinor, "a dispute that was won took nothing")
}
