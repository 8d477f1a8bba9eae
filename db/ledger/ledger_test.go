package ledgerdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// shop is an installation with one tenant and a SKU.
type shop struct {
	*testing.T
	dsn     string
	store   *db.Store
	project tenancydb.Project
	account string
	sku     db.SKU
}

func newShop(t *testing.T) *shop {
	t.Helper()
	dsn := dbtest.Database(t)
	s := &shop{T: t, dsn: dsn, store: dbtest.Open(t, dsn)}
	s.project, s.sku = dbtest.Project(t, s.store), dbtest.SKU(t, s.store)
	s.account = s.project.BillingAccountID
	return s
}

func (s *shop) tx(do func(*db.Tx) error) error {
	s.Helper()
	return s.store.Tx(s.Context(), do)
}

func (s *shop) balance() ledgerdb.Balance {
	s.Helper()
	b, err := ledgerdb.ReadBalance(s.Context(), s.store, s.account)
	require.NoError(s, err)
	return b
}

func (s *shop) credit(minor int64) { s.Helper(); dbtest.Credit(s, s.store, s.account, minor) }

func (s *shop) count(sql string, args ...any) (n int64) {
	s.Helper()
	require.NoError(s, s.store.DBTX().QueryRow(s.Context(), sql, args...).Scan(&n), sql)
	return n
}

func (s *shop) post(key string, legs ...ledgerdb.Leg) (t ledgerdb.Transaction, isNew bool, err error) {
	s.Helper()
	err = s.tx(func(tx *db.Tx) (err error) {
		t, isNew, err = ledgerdb.Post(s.Context(), tx, ledgerdb.Posting{
			Key: key, Kind: ledgerdb.KindAdjustment, BillingAccountID: s.account, Reason: "a test", Actor: "test", Legs: legs,
		})
		return err
	})
	return t, isNew, err
}

// legs moves an amount to prepaid.
func legs(minor int64) []ledgerdb.Leg {
	return []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: minor}, {Code: ledgerdb.CodeAdjustments, AmountMinor: -minor}}
}

// requireWhole checks that the books of an account are as they were written and sum to zero.
func (s *shop) requireWhole() {
	s.Helper()
	accounts, err := ledgerdb.ListAccounts(s.Context(), s.store, s.account)
	require.NoError(s, err)
	total := int64(0)
	for _, a := range accounts {
		broken, err := ledgerdb.Verify(s.Context(), s.store, s.account, a.Code)
		require.NoError(s, err)
		require.Zero(s, broken, a.Code)
		total += a.BalanceMinor
	}
	require.Zero(s, total)
}

func TestPost_IsIdempotentByKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first, isNew, err := s.post("a", legs(500)...)
	require.NoError(t, err)
	require.True(t, isNew)
	again, isNew, err := s.post("a", legs(500)...)
	require.NoError(t, err)
	require.False(t, isNew)
	require.Equal(t, first.ID, again.ID)
	_, _, err = s.post("a", legs(501)...)
	require.ErrorIs(t, err, ledgerdb.ErrKeyReused)
	require.Equal(t, int64(500), s.balance().BalanceMinor)
	_, _, err = s.post("b", ledgerdb.Leg{Code: ledgerdb.CodePrepaid, AmountMinor: 5})
	require.ErrorIs(t, err, db.ErrInvalid)
	_, _, err = s.post("c", ledgerdb.Leg{Code: ledgerdb.CodePrepaid, AmountMinor: 5}, ledgerdb.Leg{Code: ledgerdb.CodeRevenue, AmountMinor: -4})
	require.ErrorIs(t, err, db.ErrInvalid)
	_, _, err = s.post("d")
	require.ErrorContains(t, err, "has no lines")
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM ledger_transactions"))
	s.requireWhole()
}

// TestLedger_IsAppendOnly tries what would change the past, as a serving process and as the owner.
func TestLedger_IsAppendOnly(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.credit(700)
	owner := dbtest.Owner(t, s.dsn)
	for _, sql := range []string{
		"UPDATE ledger_entries SET amount_minor = amount_minor + 1", "DELETE FROM ledger_entries", "TRUNCATE ledger_entries CASCADE",
		"UPDATE ledger_transactions SET reason = 'x'", "DELETE FROM ledger_transactions", "DELETE FROM ledger_accounts",
		"UPDATE ledger_accounts SET balance_minor = 1000000 WHERE code = 'prepaid'",
		"INSERT INTO ledger_accounts (billing_account_id, code, currency, balance_minor) SELECT id, 'write_off', currency, 5 FROM billing_accounts",
		"INSERT INTO ledger_transactions (key, kind, billing_account_id, currency, effective_at, posted_at, reason) SELECT 'x', 'adjustment', id, currency, now(), now() - interval '1 day', 'r' FROM billing_accounts",
	} {
		_, err := s.store.DBTX().Exec(t.Context(), sql)
		require.Error(t, err, sql)
		_, err = owner.Exec(t.Context(), sql)
		require.Error(t, err, sql)
	}
	s.requireWhole()
	_, err := owner.Exec(t.Context(), "SET session_replication_role = replica; UPDATE ledger_entries SET amount_minor = amount_minor * 2")
	require.NoError(t, err)
	broken, err := ledgerdb.Verify(t.Context(), s.store, s.account, ledgerdb.CodePrepaid)
	require.NoError(t, err)
	require.Equal(t, int64(1), broken, "what a superuser changes is found")
	_, err = owner.Exec(t.Context(), "UPDATE ledger_entries SET amount_minor = amount_minor / 2; UPDATE ledger_transactions SET reason = 'another'")
	require.NoError(t, err)
	broken, err = ledgerdb.Verify(t.Context(), s.store, s.account, ledgerdb.CodePrepaid)
	require.NoError(t, err)
	require.Equal(t, int64(2), broken, "the texts are covered too")
}

// manyPostings books transactions of one minor unit each in one statement.
const manyPostings = `
WITH t AS (
    INSERT INTO ledger_transactions (key, kind, billing_account_id, currency, effective_at, reason)
    SELECT 'k' || i, 'adjustment', $1, 'USD', now(), 'x' FROM generate_series(1, 10001) i RETURNING id
)
INSERT INTO ledger_entries (transaction_id, line, ledger_account_id, currency, amount_minor, account_seq, balance_after_minor)
SELECT t.id, c.line, a.id, 'USD', c.sign, row_number() OVER places, c.sign * row_number() OVER places
FROM t CROSS JOIN (VALUES (1, 'prepaid', 1), (2, 'adjustments', -1)) AS c (line, code, sign) JOIN ledger_accounts a ON a.billing_account_id = $1 AND a.code = c.code
WINDOW places AS (PARTITION BY a.id ORDER BY t.id)`

// TestLedger_IsVerifiedInParts: the background verification of the audit log goes over the ledger,
// ten thousand entries at a time, and says which part was altered.
func TestLedger_IsVerifiedInParts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	owner := dbtest.Owner(t, s.dsn)
	for _, sql := range []string{"INSERT INTO ledger_accounts (billing_account_id, code, currency) VALUES ($1, 'prepaid', 'USD'), ($1, 'adjustments', 'USD')", manyPostings} {
		_, err := s.store.DBTX().Exec(t.Context(), sql, s.account)
		require.NoError(t, err)
	}
	require.Equal(t, int64(10_001), s.balance().BalanceMinor)
	require.Equal(t, int64(2), s.count("SELECT count(*) FROM ledger_anchors WHERE seq = 10000"))
	round := func() []db.ChainCheck {
		t.Helper()
		var broken []db.ChainCheck
		for more := true; more; { // a part of the ledger is a step of its own
			step, err := s.store.CheckNextChains(t.Context(), 0, 1000, 100000)
			require.NoError(t, err)
			broken, more = append(broken, step.Broken...), step.More
		}
		return broken
	}
	require.Empty(t, round())
	s.requireWhole()
	_, err := owner.Exec(t.Context(), "SET session_replication_role = replica") // no triggers
	require.NoError(t, err)
	for part, seq := range map[string]int64{"000000000000000": 7, "000000000010000": 10_001} {
		const entry = "UPDATE ledger_transactions t SET reason = $1 FROM ledger_entries e WHERE e.transaction_id = t.id AND e.line = 1 AND e.account_seq = $2"
		_, err = owner.Exec(t.Context(), entry, "another one", seq)
		require.NoError(t, err)
		broken := round()
		require.Len(t, broken, 2, "both accounts of the transaction")
		for i, code := range []string{"adjustments", "prepaid"} {
			require.Equal(t, "ledger", broken[i].ResourceKind)
			require.Equal(t, s.account+"/"+code+"/"+part, broken[i].ResourceID)
		}
		require.Equal(t, int64(1), s.count("SELECT count(*) FROM audit_attention WHERE message LIKE 'the ledger of billing account ' || $1 || ', account prepaid, is missing %'", s.account))
		_, err = owner.Exec(t.Context(), entry, "x", seq)
		require.NoError(t, err)
	}
	_, err = owner.Exec(t.Context(), "DELETE FROM ledger_anchors")
	require.NoError(t, err)
	broken := round()
	require.Len(t, broken, 2)
	require.Equal(t, int64(10_001), broken[0].BrokenSeq, "an anchor is missing")
}

func TestAccount_KeepsItsCurrency(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var yen, dinar tenancydb.Account
	require.NoError(t, s.tx(func(tx *db.Tx) (err error) {
		if yen, err = tenancydb.CreateAccountIn(t.Context(), tx, "yen", "JPY", 1); err != nil {
			return err
		}
		dinar, err = tenancydb.CreateAccountIn(t.Context(), tx, "dinar", "KWD", 1)
		return err
	}))
	require.ErrorIs(t, s.tx(func(tx *db.Tx) error {
		_, err := tenancydb.CreateAccountIn(t.Context(), tx, "none", "XXX", 1)
		return err
	}), db.ErrNotFound)
	_, err := s.store.DBTX().Exec(t.Context(), "UPDATE billing_accounts SET currency = 'EUR' WHERE id = $1", yen.ID)
	require.ErrorContains(t, err, "is fixed")
	for id, want := range map[string][2]int64{yen.ID: {10, 12}, dinar.ID: {10_000, 12_000}, s.account: {1000, 1200}} {
		b, err := ledgerdb.ReadBalance(t.Context(), s.store, id)
		require.NoError(t, err)
		require.Equal(t, want, [2]int64{b.LowMinor, b.RearmMinor}, b.Currency)
	}
	require.Equal(t, "-0.05", lifecycle.FormatMinor(-5, 2))
	require.Equal(t, "1200", lifecycle.FormatMinor(1200, 0))
	require.Equal(t, "1.200", lifecycle.FormatMinor(1200, 3))
}

// TestBalance_Thresholds walks the limits: they are inclusive, each episode has one notice of a
// kind, and a new one begins above 12.00.
func TestBalance_Thresholds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.Equal(t, string(lifecycle.BalanceDepleted), s.balance().State, "an empty balance")
	require.Zero(t, s.count("SELECT count(*) FROM balance_notices"), "nobody has used anything")
	at := int64(0)
	for i, c := range []struct {
		minor    int64
		state    lifecycle.BalanceState
		notices  int64
		depleted int64
	}{
		{1500, "healthy", 0, 0},
		{1001, "healthy", 0, 0},
		{1000, "low_balance", 1, 0},
		{1200, "healthy", 1, 0}, // not above: the episode goes on
		{999, "low_balance", 1, 0},
		{1, "low_balance", 1, 0},
		{0, "depleted", 2, 1},
		{-1, "depleted", 2, 1},
		{1, "low_balance", 2, 1},
		{-1, "depleted", 2, 2}, // depleted again in the same episode: no second notice, and enforced again
		{1201, "healthy", 2, 2},
		{1000, "low_balance", 3, 2},
		{0, "depleted", 4, 3},
	} {
		s.credit(c.minor - at)
		at = c.minor
		b := s.balance()
		require.Equal(t, c.minor, b.BalanceMinor, i)
		require.Equal(t, string(c.state), b.State, "%d: %d", i, c.minor)
		require.Equal(t, c.notices, s.count("SELECT count(*) FROM balance_notices"), "%d: %d", i, c.minor)
		require.Equal(t, int(c.depleted), b.Depletions, "%d: %d", i, c.minor)
		require.Equal(t, c.state == lifecycle.BalanceDepleted, b.GraceEndsAt() != nil)
	}
	low, rearm := int64(5000), int64(6000)
	b := s.balance()
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		return ledgerdb.SetThresholds(t.Context(), tx, s.account, b.Version, ledgerdb.Thresholds{LowMinor: &low, RearmMinor: &rearm, GraceSeconds: 600})
	}))
	require.ErrorIs(t, s.tx(func(tx *db.Tx) error {
		return ledgerdb.SetThresholds(t.Context(), tx, s.account, b.Version, ledgerdb.Thresholds{})
	}), db.ErrStale)
	s.credit(4000)
	require.Equal(t, string(lifecycle.BalanceLow), s.balance().State, "the threshold of the account")
	s.credit(-4001)
	require.Equal(t, string(lifecycle.BalanceDepleted), s.balance().State)
	line := int64(-5000)
	b = s.balance()
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		return ledgerdb.SetThresholds(t.Context(), tx, s.account, b.Version, ledgerdb.Thresholds{DepletedMinor: &line})
	}))
	require.Equal(t, string(lifecycle.BalanceLow), s.balance().State, "a credit line counts at once")
	require.Nil(t, s.balance().GraceEndsAt())
	s.requireWhole()
}

// TestPost_ParallelWriters posts from many connections at once: no number is given twice.
func TestPost_ParallelWriters(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const writers, each = 8, 10
	errs := make(chan error, writers)
	for range writers {
		go func() {
			for range each {
				if _, _, err := s.post(db.NewID("key"), legs(3)...); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		require.NoError(t, <-errs)
	}
	require.Equal(t, int64(writers*each*3), s.balance().BalanceMinor)
	require.Equal(t, int64(writers*each), s.count("SELECT max(account_seq) FROM ledger_entries"))
	s.requireWhole()
	lines, err := ledgerdb.ListLines(t.Context(), s.store, s.account, "", 11, 5)
	require.NoError(t, err)
	require.Len(t, lines, 5)
	require.Equal(t, []int64{10, 30}, []int64{lines[0].AccountSeq, lines[0].BalanceAfterMinor})
}
