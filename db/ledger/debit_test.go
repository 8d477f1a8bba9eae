package ledgerdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestTick_BooksOneDebitOfAProject: what a project uses in a tick is one transaction, and the
// statement says what each allocation cost.
func TestTick_BooksOneDebitOfAProject(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	var other tenancydb.Project
	require.NoError(t, s.tx(func(tx *db.Tx) (err error) {
		other, err = tenancydb.CreateProject(t.Context(), tx, s.account, "other", nil, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "oidc:op"})
		return err
	}))
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 1993})
	wants := map[string]time.Duration{}
	for _, since := range []time.Duration{time.Hour, 2 * time.Hour, 0} {
		wants[dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-since-3*time.Second))] = since + 3*time.Second
	}
	alone := dbtest.RunSince(t, s.dsn, other.ID, s.sku.ID, now.Add(-time.Hour))
	require.Equal(t, 4, s.tick(now.Add(-2*time.Second)).Windows)
	require.Equal(t, 4, s.tick(now).Windows)
	const debits = "SELECT count(*) FROM ledger_transactions WHERE kind = 'usage' AND of_project = $1"
	require.Equal(t, int64(2), s.count(debits, s.project.ID), "one a tick")
	require.Equal(t, int64(2), s.count(debits+" AND of_allocation = $2", other.ID, alone), "a debit for one allocation names it")
	total := int64(0)
	lines, err := ledgerdb.ListStatement(t.Context(), s.store, s.project.ID, now.Add(-time.Hour), now.Add(time.Hour), ledgerdb.StatementPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, lines, len(wants))
	for _, l := range lines {
		require.Equal(t, -cost(1993, wants[l.Subject]), l.AmountMinor, l.Subject)
		require.True(t, now.Equal(l.LastAt))
		total += l.AmountMinor
	}
	page, err := ledgerdb.ListStatement(t.Context(), s.store, s.project.ID, now.Add(-time.Hour), now.Add(time.Hour),
		ledgerdb.StatementPlace{Subject: lines[0].Subject, Kind: lines[0].Kind}, 10)
	require.NoError(t, err)
	require.Equal(t, lines[1:], page)
	ledger, err := ledgerdb.ListLines(t.Context(), s.store, s.account, s.project.ID, 0, 10)
	require.NoError(t, err)
	require.Len(t, ledger, 2)
	require.Equal(t, total, ledger[0].AmountMinor+ledger[1].AmountMinor, "the statement is the ledger")
	require.Equal(t, total-cost(1993, time.Hour), s.balance().BalanceMinor)
	s.requireWhole()
}

// TestVerify_FindsAlteredWindows moves a charge from one allocation to another without changing the
// sum of the debit.
func TestVerify_FindsAlteredWindows(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 1993})
	for range 2 {
		dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-2*time.Hour))
	}
	s.tick(now.Add(-time.Hour))
	s.tick(now)
	s.requireWhole()
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), `SET session_replication_role = replica;
UPDATE usage_windows w SET amount_minor = amount_minor + CASE WHEN record_id = (SELECT min(record_id) FROM usage_windows) THEN 5 ELSE -5 END
WHERE window_end = (SELECT max(window_end) FROM usage_windows)`)
	require.NoError(t, err)
	broken, err := ledgerdb.Verify(t.Context(), s.store, s.account, ledgerdb.CodePrepaid)
	require.NoError(t, err)
	require.Equal(t, int64(2), broken)
}

// TestDebit_IsTheSumOfItsWindows tries what a serving process could book wrongly: each is refused,
// and nothing of it stays.
func TestDebit_IsTheSumOfItsWindows(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 600})
	dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-time.Hour))
	other := dbtest.Project(t, s.store)
	s.tick(now)
	const window = `INSERT INTO usage_windows (project_id, record_id, window_start, window_end, segment, amount_minor, transaction_id)
SELECT project_id, id, now(), now() + interval '1 minute', `
	for _, x := range []struct{ name, sql, want string }{
		{"a window that comes after its debit", window + "0, 1, (SELECT max(id) FROM ledger_transactions) FROM usage_records", "no debit of its project"},
		{"a window without a segment", window + "7, 0, NULL FROM usage_records", "no segment"},
		{"a window of a debit that is not there", window + "0, 1, 123456 FROM usage_records", "no debit of its project"},
	} {
		_, err := s.store.DBTX().Exec(t.Context(), x.sql)
		require.ErrorContains(t, err, x.want, x.name)
	}
	for _, x := range []struct {
		name, project, sql, want string
	}{
		{"a debit without windows", s.project.ID, "SELECT $1::bigint", "is not the sum of its windows"},
		{"a window of another amount", s.project.ID, window + "0, 4, $1 FROM usage_records", "is not the sum of its windows, which is 4"},
		{"a window of another project", other.ID, window + "0, 5, $1 FROM usage_records", "no debit of its project"},
		{"a debit without the hash of its windows", s.project.ID, window + "0, 5, $1 FROM usage_records", "has not the hash of its windows"},
	} {
		err := s.tx(func(tx *db.Tx) error {
			posted, _, err := ledgerdb.Post(t.Context(), tx, ledgerdb.Posting{
				Key: x.name, Kind: ledgerdb.KindUsage, BillingAccountID: s.account, ProjectID: x.project,
				Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: -5}, {Code: ledgerdb.CodeRevenue, AmountMinor: 5}},
			})
			if err == nil {
				_, err = tx.DBTX().Exec(t.Context(), x.sql, posted.ID)
			}
			return err
		})
		require.ErrorContains(t, err, x.want, x.name)
	}
	require.Equal(t, int64(-600), s.balance().BalanceMinor)
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM usage_windows"))
	s.requireWhole()
}
