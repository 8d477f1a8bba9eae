package billing_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/test/billing/model"
)

// run runs a plan and returns the first difference between the database and the model.
func (m *market) run(ctx context.Context, plan []step) (int, error) {
	w, err := m.newWalk(ctx)
	if err != nil {
		return 0, err
	}
	for i, s := range plan {
		if err := w.do(s); err != nil {
			return i + 1, fmt.Errorf("step %d, %s: %w", i, s.Kind, err)
		}
		if err := w.compare(); err != nil {
			return i + 1, fmt.Errorf("after step %d, %s: %w", i, s.Kind, err)
		}
	}
	if err := w.finish(); err != nil {
		return len(plan), fmt.Errorf("at the end: %w", err)
	}
	return len(plan), nil
}

func (w *walk) do(s step) error {
	switch s.Kind {
	case stepAdvance:
		w.clock = w.clock.Add(s.Passes)
		return w.setClock()
	case stepCreate:
		return w.create(s)
	case stepMake:
		return w.makeInstance(s)
	case stepPrice:
		return w.nextPrice(s)
	case stepTick:
		return w.tick(w.boundary(s.Lag))
	case stepRush:
		return w.rush(s)
	case stepAdjust:
		return w.adjustTo(w.payers[s.Account], s.Target)
	case stepRepeat:
		return w.repeat(w.payers[s.Account])
	case stepTamper:
		return w.tamper(w.payers[s.Account])
	}
	return w.move(s)
}

// boundary returns the minute that a tick charges up to.
func (w *walk) boundary(lag int) time.Time {
	return w.clock.Truncate(time.Minute).Add(-time.Duration(lag) * time.Minute)
}

func (w *walk) create(s step) error {
	taken := map[string]bool{}
	for _, a := range w.allocations {
		taken[a.node] = taken[a.node] || a.freed.IsZero() // instances have none
	}
	for _, node := range w.nodes {
		if taken[node] {
			continue
		}
		a := &allocation{id: db.NewID("alc"), node: node, account: s.Account, sku: s.Of % skus}
		w.allocations = append(w.allocations, a)
		_, err := w.owner.Exec(w.ctx, "INSERT INTO allocations (id, project_id, sku_id, status, node_id, requested_by) VALUES ($1, $2, $3, 'provisioning', $4, 'test')",
			a.id, w.payers[a.account].project, w.skuIDs[a.sku], node)
		return err
	}
	return nil
}

func (w *walk) makeInstance(s step) error {
	a := &allocation{id: db.NewID("inst"), account: s.Account, sku: skus, isInstance: true}
	w.allocations = append(w.allocations, a)
	provider, kind, _ := strings.Cut(w.skuIDs[skus], "/")
	_, err := w.owner.Exec(w.ctx, `INSERT INTO instances (id, project_id, name, provider, zone, type, image, model, status, job_id, drain_seconds, created_by)
		VALUES ($1, $2, $1, $3, 'z', $4, '', 'm', 'provisioning', 'job_x', 600, 'test')`, a.id, w.payers[a.account].project, provider, kind)
	return err
}

// instanceMoves are moves of an instance.
var instanceMoves = map[string]move{
	stepRun: {
		func(a *allocation) bool { return a.start.IsZero() && a.freed.IsZero() },
		"status = 'ready', ready_at = $2", func(a *allocation, at time.Time) { a.start = at },
	},
	stepDrain: {
		func(a *allocation) bool { return !a.start.IsZero() && a.cap.IsZero() && a.freed.IsZero() },
		"status = 'draining'", func(a *allocation, at time.Time) { a.cap = at.Add(drainTime + chargeCap) },
	},
	stepHurry: {
		func(a *allocation) bool { return !a.cap.IsZero() && a.freed.IsZero() },
		"drain_seconds = 0", func(a *allocation, at time.Time) {
			if sooner := at.Add(chargeCap); sooner.Before(a.cap) && a.released.IsZero() {
				a.cap = sooner
			}
			a.released = at // it is asked once
		},
	},
	stepEnd: {
		func(a *allocation) bool { return a.freed.IsZero() },
		"status = 'terminating'", func(a *allocation, at time.Time) { a.freed = at },
	},
}

// move is a step of an allocation or an instance.
type move struct {
	may  func(*allocation) bool
	set  string
	note func(*allocation, time.Time)
}

// moves are the steps of an allocation: which may take it, what it changes, and what the model
// notes.
var moves = map[string]move{
	stepActivate: {
		func(a *allocation) bool { return a.start.IsZero() && a.released.IsZero() },
		"status = 'active', start_time = $2, access_given_at = $2", func(a *allocation, at time.Time) { a.start = at },
	},
	stepRelease: {
		func(a *allocation) bool { return a.released.IsZero() },
		"status = 'releasing', charge_capped_at = $2", func(a *allocation, at time.Time) { a.released = at },
	},
	stepEndAccess: {
		func(a *allocation) bool {
			return !a.released.IsZero() && !a.start.IsZero() && a.accessEnded.IsZero() && a.freed.IsZero()
		},
		"access = 'revoked', access_ended_at = $2", func(a *allocation, at time.Time) { a.accessEnded = at },
	},
	stepFail: {
		func(a *allocation) bool { return !a.released.IsZero() && a.failed.IsZero() && a.freed.IsZero() },
		"status = 'release_failed'", func(a *allocation, at time.Time) { a.failed = at },
	},
	stepFree: {
		func(a *allocation) bool { return !a.released.IsZero() && a.freed.IsZero() },
		"status = 'released', outcome = 'assignment_removed', released_at = $2, node_released_at = $2", func(a *allocation, at time.Time) { a.freed = at },
	},
}

// move takes one allocation, or one instance, that may take the step.
func (w *walk) move(s step) error {
	m, ofInstance := instanceMoves[s.Kind]
	table := "instances"
	if !ofInstance {
		m, table = moves[s.Kind], "allocations"
	}
	var may []*allocation
	for _, a := range w.allocations {
		if a.isInstance == ofInstance && m.may(a) {
			may = append(may, a)
		}
	}
	if len(may) == 0 {
		return nil
	}
	a := may[s.Of%len(may)]
	m.note(a, w.clock)
	_, err := w.owner.Exec(w.ctx, "UPDATE "+table+" SET "+m.set+", version = version + 1, updated_at = $2 WHERE id = $1", a.id, w.clock)
	return err
}

type execer func(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)

// setPrice sets a price that begins at a time, which follows the last one.
func (w *walk) setPrice(exec execer, sku int, from time.Time, rate int64) error {
	if n := len(w.prices[sku]); n > 0 {
		last := w.prices[sku][n-1].From
		if !from.After(last) {
			return nil
		}
		if _, err := exec(w.ctx, "UPDATE prices SET valid = tstzrange(lower(valid), $3) WHERE item = $1 AND currency = $2 AND upper_inf(valid)", w.skuIDs[sku], currency, from); err != nil {
			return err
		}
	}
	_, err := exec(w.ctx, `INSERT INTO prices (id, sku_id, instance_type, currency, rate_minor_per_hour, valid, set_by)
		SELECT $1, CASE WHEN $2::text NOT LIKE '%/%' THEN $2::text END, CASE WHEN $2::text LIKE '%/%' THEN $2::text END, $3, $4, tstzrange($5, NULL), 'test'`,
		db.NewID("prc"), w.skuIDs[sku], currency, rate, from)
	w.prices[sku] = append(w.prices[sku], model.Price{From: from, Rate: big.NewInt(rate)})
	return err
}

func (w *walk) nextPrice(s step) error {
	tx, err := w.app.Begin(w.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(w.ctx) }()
	if err := w.setPrice(tx.Exec, s.Of%items, w.clock.Add(s.Passes), s.Rate); err != nil {
		return err
	}
	return tx.Commit(w.ctx)
}

const tickSQL = "SELECT FROM bill_accounts($1, $2)"

func (w *walk) accountIDs() []string {
	ids := make([]string, len(w.payers))
	for i, p := range w.payers {
		ids[i] = p.id
	}
	return ids
}

// tick charges all accounts up to a boundary, in the database and in the model.
func (w *walk) tick(boundary time.Time) error {
	if _, err := w.app.Exec(w.ctx, tickSQL, w.accountIDs(), boundary); err != nil {
		return err
	}
	return w.charge(boundary)
}

// charge is a tick of the model.
func (w *walk) charge(boundary time.Time) error {
	sums := make([]*big.Int, accounts)
	for i := range sums {
		sums[i] = new(big.Int)
	}
	for _, a := range w.allocations {
		before, err := w.cost(a)
		if err != nil {
			return err
		}
		if boundary.After(a.through) {
			a.through = boundary
		}
		after, err := w.cost(a)
		if err != nil {
			return err
		}
		sums[a.account].Add(sums[a.account], after.Sub(after, before))
	}
	for i, sum := range sums {
		if sum.Sign() != 0 {
			w.payers[i].Post(sum.Neg(sum))
			w.payers[i].Assess()
		}
	}
	return nil
}

// segments returns the segments of an allocation up to the last tick.
func (w *walk) segments(a *allocation) ([]model.Segment, error) {
	to := a.through
	if end, ok := a.end(); ok && end.Before(to) {
		to = end
	}
	if a.start.IsZero() || !to.After(a.start) {
		return nil, nil
	}
	return model.Segments(w.prices[a.sku], a.start, to, model.Keep)
}

func (w *walk) cost(a *allocation) (*big.Int, error) {
	segments, err := w.segments(a)
	return model.Cost(segments, a.through), err
}

// rush runs workers at once, and then one more tick, so that the result is certain.
func (w *walk) rush(s step) error {
	var wg sync.WaitGroup
	failed := make([]error, len(s.Workers))
	conns := make([]*pgx.Conn, len(s.Workers))
	for i, k := range s.Workers {
		conn, err := pgx.Connect(w.ctx, w.dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(w.ctx) }()
		conns[i] = conn
		wg.Go(func() { failed[i] = w.work(conn, k) })
	}
	var kills error
	for i, k := range s.Workers {
		if k.Ends == endsSomewhere {
			_, err := w.owner.Exec(w.ctx, "SELECT pg_terminate_backend($1)", conns[i].PgConn().PID())
			kills = errors.Join(kills, err)
		}
	}
	wg.Wait()
	if err := errors.Join(append(failed, kills)...); err != nil {
		return err
	}
	return w.tick(w.boundary(0))
}

// work is one worker. It returns an error only where it should have committed.
func (w *walk) work(conn *pgx.Conn, k worker) error {
	tx, err := conn.Begin(w.ctx)
	if err == nil {
		_, err = tx.Exec(w.ctx, tickSQL, w.accountIDs(), w.boundary(k.Lag))
	}
	switch {
	case k.Ends == endsSomewhere:
		if err == nil {
			_ = tx.Commit(w.ctx)
		}
		return nil
	case err != nil:
		return err
	case k.Ends == endsRollback:
		return tx.Rollback(w.ctx)
	case k.Ends == endsKilled:
		var pid int
		if err := tx.QueryRow(w.ctx, "SELECT pg_terminate_backend(pg_backend_pid()), pg_backend_pid()").Scan(nil, &pid); err == nil {
			return fmt.Errorf("backend %d was not killed", pid)
		}
		return nil
	}
	return tx.Commit(w.ctx)
}
