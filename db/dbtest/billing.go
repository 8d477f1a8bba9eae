package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
)

// Rate is a price from a moment on.
type Rate struct {
	From             time.Time
	RateMinorPerHour int64
}

// SetPrices replaces the prices of an item in a currency, past ones too, as no operator may. An
// item is the id of a SKU, or a type of instances as provider/type. The rates are in the order of
// their times. dsn is that of Database.
func SetPrices(t testing.TB, dsn, item, currency string, rates ...Rate) {
	t.Helper()
	require.NoError(t, SetPricesOf(t.Context(), Owner(t, dsn), item, currency, rates...))
}

// SetPricesOf does so over a connection of the owner of the tables.
func SetPricesOf(ctx context.Context, owner *pgx.Conn, item, currency string, rates ...Rate) error {
	return pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM prices WHERE item = $1 AND currency = $2", item, currency); err != nil {
			return err
		}
		for i, r := range rates {
			var until *time.Time
			if i+1 < len(rates) {
				until = &rates[i+1].From
			}
			_, err := tx.Exec(ctx, `INSERT INTO prices (id, sku_id, instance_type, currency, rate_minor_per_hour, valid, set_by)
				VALUES ($1, CASE WHEN position('/' IN $2::text) = 0 THEN $2::text END, CASE WHEN position('/' IN $2::text) > 0 THEN $2::text END, $3, $4, tstzrange($5, $6), 'dbtest')`,
				db.NewID("prc"), item, currency, r.RateMinorPerHour, r.From, until)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Credit posts an amount to a billing account; a negative one is taken.
func Credit(t testing.TB, s *db.Store, accountID string, minor int64) {
	t.Helper()
	require.NoError(t, CreditAccount(t.Context(), s, accountID, minor))
}

// CreditAccount does so outside a test.
func CreditAccount(ctx context.Context, s *db.Store, accountID string, minor int64) error {
	return s.Tx(ctx, func(tx *db.Tx) error {
		_, _, err := ledgerdb.Post(ctx, tx, ledgerdb.Posting{
			Key: db.NewID("key"), Kind: ledgerdb.KindAdjustment, BillingAccountID: accountID, Reason: "dbtest", Actor: "dbtest",
			Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: minor}, {Code: ledgerdb.CodeAdjustments, AmountMinor: -minor}},
		})
		return err
	})
}

// usageSQL forges an allocation that runs since a moment, with its usage record.
const usageSQL = `
WITH a AS (
    INSERT INTO allocations (id, project_id, sku_id, status, requested_by, node_id, site_id, start_time, access_given_at)
    VALUES ($1, $2, $3, 'active', 'dbtest', $5, (SELECT o.site_id FROM nodes o WHERE o.id = $5), $4, $4) RETURNING *
), n AS (
    UPDATE nodes SET allocation_id = $1 WHERE id = $5
), r AS (
    INSERT INTO usage_records (project_id, allocation_id, id, billing_account_id, sku_id, currency, start_time)
    SELECT a.project_id, a.id, 'usg_' || substr(a.id, 5), b.id, a.sku_id, b.currency, a.start_time
    FROM a JOIN projects p ON p.id = a.project_id JOIN billing_accounts b ON b.id = p.billing_account_id RETURNING *
)
INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
SELECT r.project_id, r.id, 0, r.billing_account_id, r.currency, rate_at(r.sku_id, r.currency, r.start_time, r.start_time), r.start_time, r.start_time FROM r`

// RunSince forges an allocation of a project that runs since a moment in the past, on a node that
// does not exist, so that it can be charged and not released. It returns its id. dsn is that of
// Database.
func RunSince(t testing.TB, dsn, projectID, skuID string, start time.Time) string {
	t.Helper()
	return RunOn(t, dsn, projectID, skuID, db.NewID("node"), start)
}

// RunOn is RunSince on a node.
func RunOn(t testing.TB, dsn, projectID, skuID, nodeID string, start time.Time) string {
	t.Helper()
	id := db.NewID("alc")
	forge(t, dsn, usageSQL, id, projectID, skuID, start, nodeID)
	return id
}

// EndUsage forges the end of the charge of an allocation.
func EndUsage(t testing.TB, dsn, allocationID string, end time.Time) {
	t.Helper()
	forge(t, dsn, "UPDATE usage_records SET end_time = $2 WHERE allocation_id = $1", allocationID, end)
}

// forge runs a statement without the triggers of the tables.
func forge(t testing.TB, dsn, sql string, args ...any) {
	t.Helper()
	tx, err := Owner(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SET LOCAL session_replication_role = replica")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
}
