package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
)

// Rate is a price from a moment on.
type Rate struct {
	From             time.Time
	RateMinorPerHour int64
}

// SetPrices replaces the prices of a SKU in a currency, past ones too, as no operator may. The rates
// are in the order of their times. dsn is that of Database.
func SetPrices(t testing.TB, dsn, skuID, currency string, rates ...Rate) {
	t.Helper()
	conn := Owner(t, dsn)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL session_replication_role = replica")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "DELETE FROM prices WHERE sku_id = $1 AND currency = $2", skuID, currency)
	require.NoError(t, err)
	for i, r := range rates {
		var until *time.Time
		if i+1 < len(rates) {
			until = &rates[i+1].From
		}
		_, err = tx.Exec(t.Context(), "INSERT INTO prices (id, sku_id, currency, rate_minor_per_hour, valid, set_by) VALUES ($1, $2, $3, $4, tstzrange($5, $6), 'dbtest')",
			db.NewID("prc"), skuID, currency, r.RateMinorPerHour, r.From, until)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit(t.Context()))
}

// Credit posts an amount to a billing account; a negative one is taken.
func Credit(t testing.TB, s *db.Store, accountID string, minor int64) {
	t.Helper()
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, _, err := ledgerdb.Post(t.Context(), tx, ledgerdb.Posting{
			Key: db.NewID("key"), Kind: ledgerdb.KindAdjustment, BillingAccountID: accountID, Reason: "dbtest", Actor: "dbtest",
			Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: minor}, {Code: ledgerdb.CodeAdjustments, AmountMinor: -minor}},
		})
		return err
	}))
}
