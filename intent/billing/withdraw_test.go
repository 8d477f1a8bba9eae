package billing_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/intent/billing"
)

// TestWithdrawPrice: the last price can be deleted before it begins, and the price before it goes
// on. A price that has begun stays, whatever tries to delete it.
func TestWithdrawPrice(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	dbtest.SetPrices(t, s.dsn, s.sku.ID, "USD", dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 100},
		dbtest.Rate{From: now.Add(2 * time.Hour), RateMinorPerHour: 120}, dbtest.Rate{From: now.Add(3 * time.Hour), RateMinorPerHour: 150})
	prices := func() []ledgerdb.Price {
		t.Helper()
		out, err := ledgerdb.ListPrices(t.Context(), s.store, ledgerdb.PriceFilter{Item: ledgerdb.Item{SKUID: s.sku.ID}}, "", 10)
		require.NoError(t, err)
		slices.SortFunc(out, func(a, b ledgerdb.Price) int { return a.ValidFrom.Compare(b.ValidFrom) })
		return out
	}
	withdraw := func(id string) (p ledgerdb.Price, err error) {
		by := operator
		by.Comment = "the offer is not made"
		err = s.tx(func(tx *db.Tx) (err error) { p, err = billing.WithdrawPrice(t.Context(), tx, id, by); return err })
		return p, err
	}
	all := prices()
	require.Len(t, all, 3)
	var conflict *db.ConflictError
	_, err := withdraw(all[0].ID)
	require.ErrorAs(t, err, &conflict)
	require.ErrorContains(t, err, "has begun")
	_, err = withdraw(all[1].ID)
	require.ErrorAs(t, err, &conflict)
	require.ErrorContains(t, err, "withdraw that one first")
	require.Equal(t, all[2].ID, conflict.Existing)
	_, err = withdraw("prc_none")
	require.ErrorIs(t, err, db.ErrNotFound)

	gone, err := withdraw(all[2].ID)
	require.NoError(t, err)
	require.EqualValues(t, 150, gone.RateMinorPerHour)
	_, err = withdraw(all[2].ID)
	require.ErrorIs(t, err, db.ErrNotFound)
	left := prices()
	require.Len(t, left, 2)
	require.Nil(t, left[1].ValidUntil, "it is valid without end again")
	_, err = withdraw(all[1].ID)
	require.NoError(t, err)
	require.Nil(t, prices()[0].ValidUntil)
	rows, err := s.store.ResourceTimeline(t.Context(), "price", all[2].ID, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "withdraw_price", rows[0].Name)
	require.Equal(t, "the offer is not made", *rows[0].Comment)

	dbtest.SetPrices(t, s.dsn, s.sku.ID, "EUR", dbtest.Rate{From: now.Add(3 * time.Minute), RateMinorPerHour: 100})
	for _, p := range prices() {
		if p.Currency == "EUR" {
			_, err = withdraw(p.ID)
			require.ErrorContains(t, err, "begins within five minutes")
		}
	}
	for _, sql := range []string{"DELETE FROM prices WHERE currency = 'EUR'", "DELETE FROM prices WHERE lower(valid) < now()", "TRUNCATE prices"} {
		_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), sql)
		require.Error(t, err, sql)
	}
	require.Len(t, prices(), 2)
}
