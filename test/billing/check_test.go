package billing_test

import (
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/test/billing/model"
)

// balanceRow is what the database says of an account.
type balanceRow struct {
	ID         string
	Balance    int64
	State      string
	Episodes   int
	Depletions int
}

const balanceSQL = `
SELECT b.billing_account_id, coalesce(l.balance_minor, 0), b.state,
    (SELECT count(DISTINCT n.episode) FROM balance_notices n WHERE n.billing_account_id = b.billing_account_id), b.depletions
FROM account_balances b LEFT JOIN ledger_accounts l ON l.billing_account_id = b.billing_account_id AND l.code = 'prepaid'
WHERE b.billing_account_id = ANY ($1)`

// compare requires the balances, states and notices of the model, which is I13.
func (w *walk) compare() error {
	got, err := rows[balanceRow](w.ctx, w.app, balanceSQL, w.accountIDs())
	if err != nil {
		return err
	}
	byID := map[string]balanceRow{}
	for _, r := range got {
		byID[r.ID] = r
	}
	for _, p := range w.payers {
		want := balanceRow{p.id, p.Balance.Int64(), string(p.StateAt(p.Balance)), p.Notices, p.Depletions}
		if byID[p.id] != want {
			return fmt.Errorf("the database says %+v, the model %+v", byID[p.id], want)
		}
	}
	return nil
}

// finish ticks once more, far behind every end, and compares all that was written.
func (w *walk) finish() error {
	w.clock = w.clock.Add(10 * 24 * time.Hour)
	if err := w.setClock(); err != nil {
		return err
	}
	if err := w.tick(w.boundary(0)); err != nil {
		return err
	}
	if err := w.compare(); err != nil {
		return err
	}
	return errors.Join(w.checkLedger(), w.checkUsage())
}

type problem struct{ What, Of string }

// ledgerSQL lists what is wrong with the ledger of some accounts: I1, I2 and I7.
const ledgerSQL = `
SELECT 'a transaction without balance (I1)', t.key FROM ledger_transactions t LEFT JOIN ledger_entries e ON e.transaction_id = t.id
WHERE t.billing_account_id = ANY ($1) GROUP BY t.key, t.currency
HAVING coalesce(sum(e.amount_minor), 1) <> 0 OR count(*) < 2 OR count(DISTINCT e.currency) <> 1 OR min(e.currency) <> t.currency
UNION ALL
SELECT 'a balance that does not follow from its entries (I2)', a.code FROM ledger_accounts a
WHERE a.billing_account_id = ANY ($1) AND (ledger_verify(a.id) IS NOT NULL
    OR a.balance_minor <> (SELECT coalesce(sum(e.amount_minor), 0) FROM ledger_entries e WHERE e.ledger_account_id = a.id)
    OR a.last_seq <> (SELECT count(*) FROM ledger_entries e WHERE e.ledger_account_id = a.id))
UNION ALL
SELECT 'revenue that is not what the windows say (I7)', a.billing_account_id FROM ledger_accounts a WHERE a.billing_account_id = ANY ($1) AND a.code = 'revenue'
    AND a.balance_minor <> (SELECT coalesce(sum(w.amount_minor), 0) FROM usage_windows w JOIN usage_records r ON r.project_id = w.project_id AND r.id = w.record_id
        WHERE r.billing_account_id = a.billing_account_id)
UNION ALL
SELECT 'a window whose transaction is not its own', w.record_id FROM usage_windows w JOIN usage_records r ON r.project_id = w.project_id AND r.id = w.record_id
JOIN ledger_transactions t ON t.id = w.transaction_id
WHERE r.billing_account_id = ANY ($1) AND (t.kind <> 'usage' OR t.of_project <> w.project_id OR t.of_allocation <> coalesce(r.allocation_id, '') OR t.billing_account_id <> r.billing_account_id)
UNION ALL
SELECT 'a debit that is not the sum of its windows', t.key FROM ledger_transactions t JOIN ledger_entries e ON e.transaction_id = t.id AND e.line = 1
WHERE t.billing_account_id = ANY ($1) AND t.kind = 'usage'
    AND -e.amount_minor <> (SELECT coalesce(sum(w.amount_minor), 0) FROM usage_windows w WHERE w.transaction_id = t.id)
UNION ALL
SELECT 'more than one debit of a project in a tick', t.of_project FROM ledger_transactions t WHERE t.billing_account_id = ANY ($1) AND t.kind = 'usage'
GROUP BY t.of_project, t.posted_at HAVING count(*) > 1`

func (w *walk) checkLedger() error {
	wrong, err := rows[problem](w.ctx, w.app, ledgerSQL, w.accountIDs())
	if err != nil {
		return err
	}
	for _, p := range wrong {
		err = errors.Join(err, fmt.Errorf("%s: %s", p.What, p.Of))
	}
	return err
}

type segmentRow struct {
	Allocation string
	Segment    int
	Rate       int64
	From       time.Time
	To         *time.Time
	Through    time.Time
	Charged    int64
	Windows    int64 // the sum of its windows
	Gaps       int   // windows that do not begin where the last one ended
	First      *time.Time
	Last       *time.Time
	Closed     bool
}

const usageSQL = `
SELECT coalesce(r.allocation_id, r.instance_id), s.segment, s.rate_minor_per_hour, s.started_at, s.ended_at, s.billed_through, s.charged_minor, coalesce(w.total, 0)::bigint, coalesce(w.gaps, 0)::int,
    w.first, w.last, r.closed_at IS NOT NULL
FROM usage_records r JOIN usage_segments s ON s.project_id = r.project_id AND s.record_id = r.id
LEFT JOIN LATERAL (SELECT sum(amount_minor) AS total, count(*) FILTER (WHERE window_start <> before) AS gaps, min(window_start) AS first, max(window_end) AS last
    FROM (SELECT v.*, lag(v.window_end) OVER (ORDER BY v.window_start) AS before FROM usage_windows v
        WHERE v.project_id = r.project_id AND v.record_id = r.id AND v.segment = s.segment) v) w ON true
WHERE r.billing_account_id = ANY ($1) ORDER BY 1, s.segment`

// checkUsage compares each segment with the model (I9), and its windows with it (I5, I6).
func (w *walk) checkUsage() error {
	got, err := rows[segmentRow](w.ctx, w.app, usageSQL, w.accountIDs())
	if err != nil {
		return err
	}
	of := map[string][]segmentRow{}
	for _, r := range got {
		of[r.Allocation] = append(of[r.Allocation], r)
	}
	for _, a := range w.allocations {
		want, err := w.segments(a)
		if err != nil {
			return err
		}
		have := of[a.id]
		if len(have) > len(want) && len(have) > 0 && have[len(have)-1].Through.Equal(have[len(have)-1].From) {
			have = have[:len(have)-1] // begun, and not charged yet
		}
		if len(have) != len(want) {
			return fmt.Errorf("%s has %d segments, the model %d: %+v", a.id, len(have), len(want), have)
		}
		_, ended := a.end()
		for i := range want {
			if err := checkSegment(a, have[i], want[i], ended || i < len(want)-1, ended); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkSegment(a *allocation, have segmentRow, want model.Segment, over, closed bool) error {
	cost := model.Charge(want.Rate, want.To.Sub(want.From))
	switch {
	case have.Rate != want.Rate.Int64() || !have.From.Equal(want.From) || !have.Through.Equal(want.To) || over && (have.To == nil || !have.To.Equal(want.To)):
		return fmt.Errorf("%s: the segment is %+v, in the model %+v", a.id, have, want)
	case big.NewInt(have.Charged).Cmp(cost) != 0 || have.Windows != have.Charged:
		return fmt.Errorf("%s: segment %d is charged %d with windows of %d, in the model %s (I5)", a.id, have.Segment, have.Charged, have.Windows, cost)
	case have.Gaps != 0 || have.First == nil || !have.First.Equal(want.From) || !have.Last.Equal(want.To):
		return fmt.Errorf("%s: the windows of segment %d leave gaps: %+v (I6)", a.id, have.Segment, have)
	case have.Closed != closed:
		return fmt.Errorf("%s: usage is closed: %t, and should be: %t (I17)", a.id, have.Closed, closed)
	}
	return nil
}

// edits are what a serving process may not do to what was posted (I3).
var edits = []string{
	"UPDATE ledger_entries SET amount_minor = amount_minor + 1", "DELETE FROM ledger_entries", "TRUNCATE ledger_entries", "UPDATE ledger_transactions SET reason = 'x'",
	"DELETE FROM ledger_transactions", "UPDATE ledger_accounts SET balance_minor = balance_minor + 1", "UPDATE usage_windows SET amount_minor = 0",
	"DELETE FROM usage_windows", "UPDATE usage_segments SET charged_minor = 0, billed_through = started_at", "DELETE FROM prices",
}

// tamper tries one edit, with the rights of a serving process and of the owner.
func (w *walk) tamper(p *payer) error {
	edit := edits[w.edits%len(edits)]
	w.edits++
	posted := p.Balance.Sign() != 0 // else there may be nothing to edit
	for name, conn := range map[string]*pgx.Conn{"a serving process": w.app, "the owner": w.owner} {
		_, err := conn.Exec(w.ctx, edit)
		var refused *pgconn.PgError
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		if err == nil && posted {
			return fmt.Errorf("%s may run %q (I3)", name, edit)
		}
	}
	return nil
}

// adjustTo books the adjustment that brings the balance of an account to an amount.
func (w *walk) adjustTo(p *payer, target int64) error {
	amount := target - p.Balance.Int64()
	if amount == 0 {
		return nil
	}
	p.last = adjustment{db.NewID("adjust"), amount}
	_, isNew, err := w.post(p, p.last)
	if err == nil && !isNew {
		err = errors.New("a new key was booked before")
	}
	p.Post(big.NewInt(amount))
	p.Assess()
	return err
}

func (w *walk) post(p *payer, a adjustment) (t ledgerdb.Transaction, isNew bool, err error) {
	err = w.store.Tx(w.ctx, func(tx *db.Tx) (err error) {
		t, isNew, err = ledgerdb.Post(w.ctx, tx, ledgerdb.Posting{
			Key: a.key, Kind: ledgerdb.KindAdjustment, BillingAccountID: p.id, Reason: "test", Actor: "test",
			Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: a.amount}, {Code: ledgerdb.CodeAdjustments, AmountMinor: -a.amount}},
		})
		return err
	})
	return t, isNew, err
}

// repeat sends the last adjustment again, as it was and with another amount (I4).
func (w *walk) repeat(p *payer) error {
	if p.last.key == "" {
		return nil
	}
	t, isNew, err := w.post(p, p.last)
	if err != nil || isNew || t.Key != p.last.key {
		return fmt.Errorf("the same key and amount answered %+v, new: %t, %w", t, isNew, err)
	}
	if _, _, err = w.post(p, adjustment{p.last.key, p.last.amount + 1}); !errors.Is(err, ledgerdb.ErrKeyReused) {
		return fmt.Errorf("the same key with another amount: %w", err)
	}
	return nil
}
