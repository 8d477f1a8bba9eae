package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
)

const (
	fewRecords       = 10_000
	manyRecords      = 100_000
	recordsOfAccount = 10
	tickRounds       = 3
	postsARound      = 400
	postsAtOnce      = 4
	postRounds       = 5
)

// openRecords makes usage records that run since a moment, ten to an account, at 10 minor units a
// minute. The triggers of the tables are off meanwhile.
const openRecords = `
BEGIN; SET LOCAL session_replication_role = replica;
INSERT INTO billing_accounts (id, name) SELECT 'acc_' || i, 'a' || i FROM generate_series(1, %[1]d / 10) i;
INSERT INTO account_balances (billing_account_id) SELECT 'acc_' || i FROM generate_series(1, %[1]d / 10) i;
INSERT INTO projects (id, billing_account_id, name) SELECT 'prj_' || i, 'acc_' || i, 'p' FROM generate_series(1, %[1]d / 10) i;
INSERT INTO allocations (id, project_id, sku_id, status, requested_by, node_id, start_time, access_given_at)
    SELECT 'alc_' || i, 'prj_' || (i + 9) / 10, '%[2]s', 'active', 'x', 'node_' || i, '%[3]s', now() FROM generate_series(1, %[1]d) i;
INSERT INTO usage_records (project_id, allocation_id, id, billing_account_id, sku_id, currency, start_time)
    SELECT 'prj_' || (i + 9) / 10, 'alc_' || i, 'usg_' || i, 'acc_' || (i + 9) / 10, '%[2]s', 'USD', '%[3]s' FROM generate_series(1, %[1]d) i;
INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
    SELECT 'prj_' || (i + 9) / 10, 'usg_' || i, 0, 'acc_' || (i + 9) / 10, 'USD', 600, '%[3]s', '%[3]s' FROM generate_series(1, %[1]d) i;
COMMIT;
CREATE TABLE bare_segments (LIKE usage_segments INCLUDING ALL EXCLUDING GENERATED);
CREATE TABLE bare_windows (LIKE usage_windows INCLUDING ALL);
CREATE TABLE bare_transactions (LIKE ledger_transactions INCLUDING ALL);
CREATE TABLE bare_entries (LIKE ledger_entries INCLUDING ALL);
CREATE TABLE bare_balances (LIKE ledger_accounts INCLUDING ALL);
INSERT INTO bare_segments SELECT * FROM usage_segments;
INSERT INTO bare_balances (billing_account_id, code, currency) SELECT b.id, c.code, 'USD' FROM billing_accounts b, (VALUES ('prepaid'), ('revenue')) c (code);
ANALYZE`

// bareTick writes the rows of a tick in one statement: with no check, no hash and no lock.
const bareTick = `
WITH due AS MATERIALIZED (
    SELECT s.*, 10::bigint AS amount FROM bare_segments s WHERE s.ended_at IS NULL AND s.billed_through < $1
), booked AS (
    INSERT INTO bare_transactions (key, kind, billing_account_id, currency, of_project, effective_at, request_hash)
    SELECT 'usage:' || min(record_id) || ':' || min(billed_through)::text, 'usage', billing_account_id, currency, project_id, $1, decode(repeat('ab', 32), 'hex')
    FROM due GROUP BY billing_account_id, currency, project_id RETURNING id, of_project
), lines AS (
    INSERT INTO bare_entries (transaction_id, line, ledger_account_id, currency, amount_minor, account_seq, balance_after_minor)
    SELECT b.id, c.line, c.line, 'USD', c.sign * 10, b.id, 0 FROM booked b, (VALUES (1, -1), (2, 1)) AS c (line, sign)
), written AS (
    INSERT INTO bare_windows (project_id, record_id, window_start, window_end, segment, amount_minor, transaction_id)
    SELECT d.project_id, d.record_id, d.billed_through, $1, d.segment, d.amount, b.id FROM due d JOIN booked b ON b.of_project = d.project_id
), moved AS (
    UPDATE bare_balances a SET balance_minor = balance_minor - x.total, last_seq = last_seq + x.n
    FROM (SELECT billing_account_id, sum(amount) AS total, count(DISTINCT project_id) AS n FROM due GROUP BY 1) x WHERE a.billing_account_id = x.billing_account_id
)
UPDATE bare_segments s SET billed_through = $1, charged_minor = s.charged_minor + d.amount FROM due d
WHERE s.project_id = d.project_id AND s.record_id = d.record_id AND s.segment = d.segment`

// usageFleet is a database with open usage records, and how far ours and the bare ones are charged.
type usageFleet struct {
	*testing.B
	store      *db.Store
	conn       *pgx.Conn
	monitor    *pgx.Conn // it is idle while a tick runs
	records    int
	ours, bare time.Time
}

func newUsageFleet(b *testing.B, records int) *usageFleet {
	b.Helper()
	dsn := dbtest.FreshDatabase(b)
	f := &usageFleet{B: b, store: dbtest.Open(b, dsn), conn: dbtest.Owner(b, dsn), monitor: dbtest.Owner(b, dsn), records: records}
	start := time.Now().UTC().Truncate(time.Minute).Add(-24 * time.Hour)
	f.ours, f.bare = start, start
	sku := dbtest.SKU(b, f.store)
	dbtest.SetPrices(b, dsn, sku.ID, "USD", dbtest.Rate{From: start.Add(-time.Hour), RateMinorPerHour: 600})
	_, err := f.conn.Exec(b.Context(), fmt.Sprintf(openRecords, records, sku.ID, start.Format(time.RFC3339)))
	require.NoError(b, err)
	return f
}

// analyze does what autovacuum does within minutes. Without it, plans that were made for empty
// tables stay.
func (f *usageFleet) analyze() {
	f.Helper()
	_, err := f.conn.Exec(f.Context(), "ANALYZE")
	require.NoError(f, err)
}

// tick charges one more minute and returns records a second.
func (f *usageFleet) tick() float64 {
	f.Helper()
	f.ours = f.ours.Add(time.Minute)
	began := time.Now()
	r, err := ledgerdb.Tick(f.Context(), f.store, ledgerdb.TickInput{Boundary: f.ours})
	require.NoError(f, err)
	require.Equal(f, f.records, r.Windows, "%+v", r)
	return float64(f.records) / time.Since(began).Seconds()
}

func (f *usageFleet) bareTick() float64 {
	f.Helper()
	f.bare = f.bare.Add(time.Minute)
	began := time.Now()
	tag, err := f.conn.Exec(f.Context(), bareTick, f.bare)
	require.NoError(f, err)
	require.Equal(f, int64(f.records), tag.RowsAffected())
	return float64(f.records) / time.Since(began).Seconds()
}

// BenchmarkTick measures a tick over 10,000 open usage records against one bare statement that
// writes the same rows, and a tick over 100,000 against that over 10,000.
func BenchmarkTick(b *testing.B) {
	few, many := newUsageFleet(b, fewRecords), newUsageFleet(b, manyRecords)
	var c contest
	used := map[string]float64{} // seconds of processor time, of this process and of PostgreSQL
	enter := func(name string, f *usageFleet, tick func() float64) {
		processor := func() float64 { return (processorTime(b) + postgresTime(b, f.monitor)).Seconds() }
		c.enter(name, func() float64 {
			began := processor()
			defer func() { used[name] += processor() - began }()
			return tick()
		})
	}
	enter("few", few, few.tick)
	enter("bare", few, few.bareTick)
	enter("many", many, many.tick)
	for _, f := range []*usageFleet{few, many} {
		f.tick() // it opens the accounts of the ledger
		f.analyze()
	}
	for b.Loop() {
		for range tickRounds {
			c.round()
		}
	}
	b.ReportMetric(c.of("few"), "records/s")
	measure(b, rowTick, c.ratio("few", "bare"), "%.1f times as long, %.1f by processor time; %.0f records a second", 1/c.ratio("few", "bare"), used["few"]/used["bare"], c.of("few"))
	measure(b, rowTickGrowth, c.ratio("many", "few")*fewRecords/manyRecords, "%.1f times as long, %.1f by processor time", manyRecords/fewRecords/c.ratio("many", "few"), used["many"]/used["few"])
}

// BenchmarkPost measures ledgerdb.Post against one bare statement that inserts the same rows.
func BenchmarkPost(b *testing.B) {
	f := newUsageFleet(b, postsAtOnce*recordsOfAccount)
	conns := make([]*pgx.Conn, postsAtOnce)
	for i := range conns {
		conn, err := pgx.ConnectConfig(b.Context(), f.conn.Config())
		require.NoError(b, err)
		b.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.Context())) })
		conns[i] = conn
	}
	enter := func(post func(ctx context.Context, worker int) error) func() float64 {
		return func() float64 {
			return postsARound * rate(b, postsAtOnce, postsAtOnce, func(ctx context.Context, worker int) error {
				for range postsARound {
					if err := post(ctx, worker); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	post := enter(func(ctx context.Context, worker int) error {
		return f.store.Tx(ctx, func(tx *db.Tx) error {
			_, _, err := ledgerdb.Post(ctx, tx, ledgerdb.Posting{
				Key: db.NewID("key"), Kind: ledgerdb.KindAdjustment, BillingAccountID: fmt.Sprintf("acc_%d", worker+1), Reason: "bench", Actor: "bench",
				Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: 1}, {Code: ledgerdb.CodeAdjustments, AmountMinor: -1}},
			})
			return err
		})
	})
	bare := enter(func(ctx context.Context, worker int) error {
		_, err := conns[worker].Exec(ctx, `
WITH t AS (
    INSERT INTO bare_transactions (key, kind, billing_account_id, currency, effective_at, reason) VALUES ($1, 'adjustment', $2, 'USD', now(), 'bench') RETURNING id
)
INSERT INTO bare_entries (transaction_id, line, ledger_account_id, currency, amount_minor, account_seq, balance_after_minor)
SELECT t.id, c.line, c.line, 'USD', c.amount, t.id, 0 FROM t, (VALUES (1, 1), (2, -1)) AS c (line, amount)`, db.NewID("key"), fmt.Sprintf("acc_%d", worker+1))
		return err
	})
	post()
	bare()
	f.analyze()
	var c contest
	c.enter("post", post)
	c.enter("bare", bare)
	for b.Loop() {
		for range postRounds {
			c.round()
		}
	}
	b.ReportMetric(c.of("post"), "posts/s")
	measure(b, rowPost, c.ratio("post", "bare"), "%.2f; %.0f posts a second", c.ratio("post", "bare"), c.of("post"))
}
