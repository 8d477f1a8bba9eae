package billing_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/billing"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
)

// TestChargeUsage_ComparesThreeClocks: nothing is charged or released while one of them differs,
// and everything once they agree.
func TestChargeUsage_ComparesThreeClocks(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	p, sku := dbtest.Project(t, store), dbtest.SKU(t, store)
	now, err := store.Clock(t.Context())
	require.NoError(t, err)
	dbtest.SetPrices(t, dsn, sku.ID, "USD", dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 6000})
	node := dbtest.Node(t, store, dbtest.Active(), dbtest.Of(sku.ID))
	id := dbtest.RunOn(t, dsn, p.ID, sku.ID, node.ID, now.Add(-2*time.Hour))
	var ahead time.Duration
	acts := &billing.Activities{Store: store, Log: slog.New(slog.DiscardHandler), Domain: "example.com", Ahead: func() time.Duration { return ahead }}
	for _, c := range []struct{ worker, temporal time.Duration }{{worker: -24 * time.Hour}, {temporal: -24 * time.Hour}, {worker: 2 * time.Minute}} {
		ahead = c.worker
		r, err := acts.ChargeUsage(t.Context(), billing.TickIn{At: time.Now().Add(c.temporal)})
		require.NoError(t, err)
		require.NotEmpty(t, r.ClockDisagrees)
		enforced, err := acts.EnforceBalances(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, enforced.Stopped)
		require.Empty(t, enforced.Released)
	}
	ahead = 0
	r, err := acts.ChargeUsage(t.Context(), billing.TickIn{At: time.Now()})
	require.NoError(t, err)
	require.Equal(t, 1, r.Windows)
	b, err := ledgerdb.ReadBalance(t.Context(), store, p.BillingAccountID)
	require.NoError(t, err)
	require.Equal(t, int64(6000*r.Boundary.Sub(now.Add(-2*time.Hour))/time.Hour), -b.BalanceMinor)
	enforced, err := acts.EnforceBalances(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{id}, enforced.Released)
}
