package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/billing"
)

// TestAdjust_LargeAmountsAreConfirmed: an amount above the policy amount needs a confirmation, in
// each currency with its own digits. A repetition of a booked one needs none.
func TestAdjust_LargeAmountsAreConfirmed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for currency, most := range map[string]struct {
		minor int64
		says  string
	}{"USD": {20_000, "above 200.00 USD"}, "JPY": {20_000, "above 20000 JPY"}, "KWD": {200_000, "above 200.000 KWD"}} {
		account := s.account
		if currency != "USD" {
			require.NoError(t, s.tx(func(tx *db.Tx) error {
				a, err := tenancydb.CreateAccountIn(t.Context(), tx, "in "+currency, currency, 5)
				account = a.ID
				return err
			}))
		}
		book := func(key string, minor int64, confirm bool) (isNew bool, err error) {
			err = s.tx(func(tx *db.Tx) error {
				_, isNew, err = billing.Adjust(t.Context(), tx, billing.Adjustment{
					BillingAccountID: account, AmountMinor: minor, Reason: "credit note", Key: key, ConfirmAbove: 200, Confirm: confirm, Actor: operator,
				})
				return err
			})
			return isNew, err
		}
		isNew, err := book("most", most.minor, false)
		require.NoError(t, err, currency)
		require.True(t, isNew)
		for key, minor := range map[string]int64{"more": most.minor + 1, "less": -most.minor - 1} {
			_, err = book(key, minor, false)
			s.requireRefusal(err, intent.Invalid, "confirm")
			require.ErrorContains(t, err, most.says)
			isNew, err = book(key, minor, true)
			require.NoError(t, err, currency)
			require.True(t, isNew)
			isNew, err = book(key, minor, false)
			require.NoError(t, err, "a repetition without the confirmation is not refused: its sender would book it twice")
			require.False(t, isNew)
		}
	}
}

// TestCreate_SaysHowMuchIsMissing: whoever may read money learns what the balance lacks, and that
// amount is enough.
func TestCreate_SaysHowMuchIsMissing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(1993)
	s.freeNodes(2)
	dbtest.Credit(t, s.store, s.account, 700)
	ask := func(readsMoney bool) error {
		return s.tx(func(tx *db.Tx) error {
			_, err := allocation.Create(t.Context(), tx, allocation.Request{ProjectID: s.project.ID, SKUID: s.sku.ID, Actor: customer, ReadsMoney: readsMoney})
			return err
		})
	}
	err := ask(false)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
	require.Nil(t, intent.AsRefusal(err).Shortfall)
	require.NotContains(t, err.Error(), "12.93", "members may claim, and do not read money")
	err = ask(true)
	s.requireRefusal(err, intent.Conflict, "12.93 USD is missing")
	want := &intent.Shortfall{MissingMinor: 1293, RateMinorPerHour: 1993, HoldMinor: 1993, Currency: "USD", Exponent: 2}
	require.Equal(t, want, intent.AsRefusal(err).Shortfall)
	dbtest.Credit(t, s.store, s.account, want.MissingMinor)
	require.NoError(t, ask(true))
	dbtest.Credit(t, s.store, s.account, -5000) // depleted: the balance is -30.07, and all of an hour is held
	err = ask(true)
	missing := intent.AsRefusal(err).Shortfall.MissingMinor
	require.Equal(t, int64(3007+1993+1993), missing)
	dbtest.Credit(t, s.store, s.account, missing-1)
	require.Equal(t, int64(1), intent.AsRefusal(ask(true)).Shortfall.MissingMinor)
	dbtest.Credit(t, s.store, s.account, 1)
	require.NoError(t, ask(true))
}

// TestLeastTime_IsThatOfTheDatabase: the minimum charge that is shown is the one that is charged.
func TestLeastTime_IsThatOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var least time.Duration
	require.NoError(t, s.store.DBTX().QueryRow(t.Context(), "SELECT least_end(now()) - now()").Scan(&least))
	require.Equal(t, ledgerdb.LeastTime, least)
	for _, rate := range []int64{0, 1, 5, 6, 1993, 1_000_000_000_000} {
		var cost int64
		require.NoError(t, s.store.DBTX().QueryRow(t.Context(), "SELECT usage_cost($1, now(), least_end(now()))", rate).Scan(&cost))
		require.Equal(t, cost, ledgerdb.MinimumCharge(rate), rate)
	}
}

// TestTryCreate_LocksAndWritesNothing: a dry run in a transaction that only reads, while a claim
// holds the locks of the account and the project, says what the claim would.
func TestTryCreate_LocksAndWritesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(1993)
	try := func(r allocation.Request) (out allocation.DryRun) {
		t.Helper()
		r.ProjectID, r.SKUID, r.Actor, r.ReadsMoney = s.project.ID, s.sku.ID, customer, true
		require.NoError(t, s.store.ReadTx(t.Context(), func(tx *db.Tx) (err error) {
			out, err = allocation.TryCreate(t.Context(), tx, r)
			return err
		}))
		return out
	}
	out := try(allocation.Request{})
	require.False(t, out.IsFree)
	require.Len(t, out.Refusals, 2, "all reasons at once")
	require.Equal(t, int64(1993), out.Refusals[0].Shortfall.MissingMinor)
	require.Equal(t, intent.NoCapacity, out.Refusals[1].Kind)
	require.Len(t, try(allocation.Request{WaitSeconds: 60}).Refusals, 1, "it would wait for a node")
	s.freeNodes(1)
	dbtest.Credit(t, s.store, s.account, 5000)
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		if _, err := allocation.Create(t.Context(), tx, allocation.Request{ProjectID: s.project.ID, SKUID: s.sku.ID, Actor: customer}); err != nil {
			return err
		}
		out = try(allocation.Request{}) // would wait for ever if it locked
		return nil
	}))
	require.True(t, out.IsFree)
	require.Empty(t, out.Refusals)
	require.Equal(t, []int64{1993, 1993, 5000}, []int64{out.Quote.RateMinorPerHour, out.Quote.HoldMinor, out.Quote.Balance.AvailableMinor()})
	out = try(allocation.Request{})
	require.Equal(t, int64(3007), out.Quote.Balance.AvailableMinor(), "what the claim holds back")
	require.Len(t, out.Refusals, 1)
	require.Equal(t, intent.NoCapacity, out.Refusals[0].Kind)
}
