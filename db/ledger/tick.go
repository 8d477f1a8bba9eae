package ledgerdb

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/ledger/gen"
)

// Control is the row that all ticks share.
type Control = gen.BillingControl

// ReadControl returns the last tick and what keeps the next one, or the releases, from being done.
func ReadControl(ctx context.Context, c Conn) (Control, error) {
	row, err := queries(c).Control(ctx)
	return row, db.MapError("billing control", err)
}

// The limits of a tick.
const (
	// ClockTolerance is how far the clocks of database, worker and Schedule may be apart.
	ClockTolerance = time.Minute
	tickBatch      = 250
	maxReason      = 500
	// releaseSeconds is what an allocation runs on when its balance is used up, besides the grace:
	// until the next tick, and until its access is revoked.
	releaseSeconds = 60 + 120
	// More accounts than the larger of these, depleted in one tick, are a mistake more likely than
	// the truth.
	massDepleted        = 5
	massDepletedPercent = 2
	// A tick that charges more than this at once follows a long stop, or a clock that is ahead; on
	// one host all clocks are the same one.
	longestTick = time.Hour
	// After a plain outage the releases resume by themselves when so many ticks have agreed.
	agreeingTicks = 2
)

// TickInput says when a tick is done. Worker and Scheduled are compared with the database's clock;
// the zero value is not. Boundary is the moment up to which is charged; the zero value is the
// current minute of the database's clock, and tests choose others in the past.
type TickInput struct {
	Worker, Scheduled time.Time
	// Host is the clock of the worker's host. Before is the boundary of the last tick that Temporal
	// knows of. They tell a plain outage from a wrong clock and from a restored database.
	Host     HostClock
	Before   time.Time
	Boundary time.Time
	Batch    int // accounts in one transaction; 0 is the default
}

// TickReport is what a tick has done.
type TickReport struct {
	Boundary time.Time `json:"boundary"`
	// ClockDisagrees says why nothing was charged, "" when it was.
	ClockDisagrees string `json:"clock_disagrees,omitempty"`
	Accounts       int    `json:"accounts,omitempty"`
	Windows        int    `json:"windows,omitempty"`
	// SetAside are the accounts that could not be charged.
	SetAside []string `json:"set_aside,omitempty"`
	// EnforcementStopped says why nothing is released until an operator has looked.
	EnforcementStopped string `json:"enforcement_stopped,omitempty"`
}

// Tick charges what runs up to a boundary, in batches of accounts. Usage that was charged is not
// charged again, so that a tick can be repeated, come late, twice or not at all: the next one
// charges the whole time since the last. A batch that fails is halved until the account that fails
// stands alone; that one is set aside, and tried again by the next tick. It charges nothing while
// the clocks disagree or the database's time is behind the last tick.
func Tick(ctx context.Context, store *db.Store, in TickInput) (TickReport, error) {
	r, err := beginTick(ctx, store, in)
	if err != nil || r.ClockDisagrees != "" {
		return r, err
	}
	size := in.Batch
	if size <= 0 {
		size = tickBatch
	}
	for after := ""; ; {
		rows, err := queries(store).AccountsToBill(ctx, gen.AccountsToBillParams{After: after, Boundary: r.Boundary, MaxRows: int32(min(size, tickBatch*4))})
		if err != nil {
			return r, db.MapError("list accounts to charge", err)
		}
		if len(rows) == 0 {
			break
		}
		var batch []string
		for _, row := range rows {
			after = row.BillingAccountID
			if !row.SetAside {
				batch = append(batch, row.BillingAccountID)
				continue
			}
			if err := billBatch(ctx, store, []string{row.BillingAccountID}, &r); err != nil {
				return r, err
			}
		}
		if err := billBatch(ctx, store, batch, &r); err != nil {
			return r, err
		}
	}
	return r, finishTick(ctx, store, &r)
}

// beginTick compares the clocks and fixes the boundary.
func beginTick(ctx context.Context, store *db.Store, in TickInput) (TickReport, error) {
	r := TickReport{}
	err := store.Tx(ctx, func(tx *db.Tx) error {
		r = TickReport{}
		control, err := queries(tx).LockControl(ctx)
		if err != nil {
			return db.MapError("billing control", err)
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		r.Boundary = now.Truncate(time.Minute)
		if !in.Boundary.IsZero() {
			r.Boundary = in.Boundary
		}
		r.ClockDisagrees = compareClocks(now, in, r.Boundary, control)
		if err := queries(tx).SetClockDisagrees(ctx, r.ClockDisagrees); err != nil || r.ClockDisagrees != "" {
			return db.MapError("billing control", err)
		}
		epoch, err := queries(tx).Epoch(ctx)
		if err != nil {
			return db.MapError("read the epoch of the database", err)
		}
		if r.EnforcementStopped, err = stopOrAgree(ctx, tx, in, r.Boundary, control, epoch); err != nil {
			return err
		}
		next := gen.SetBoundaryParams{Boundary: r.Boundary, Epoch: epoch, WorkerBoot: in.Host.Boot, WorkerUptimeMs: in.Host.Uptime.Milliseconds()}
		if !in.Worker.IsZero() {
			next.WorkerAt = &in.Worker
		}
		return db.MapError("billing control", queries(tx).SetBoundary(ctx, next))
	})
	return r, err
}

func compareClocks(now time.Time, in TickInput, boundary time.Time, control Control) string {
	const layout = "2006-01-02T15:04:05Z"
	clock := func(t time.Time) string { return t.UTC().Format(layout) }
	for _, other := range []struct {
		name string
		at   time.Time
	}{{"the worker", in.Worker}, {"the Schedule", in.Scheduled}} {
		if apart := now.Sub(other.at).Abs(); !other.at.IsZero() && apart > ClockTolerance {
			return fmt.Sprintf("the database says %s and %s says %s; nothing is charged or released until they agree", clock(now), other.name, clock(other.at))
		}
	}
	if control.Boundary != nil && now.Before(*control.Boundary) {
		return fmt.Sprintf("the database says %s and has charged up to %s already; nothing is charged or released until that time, or until an operator who has set the clock right resumes billing", clock(now), clock(*control.Boundary))
	}
	if boundary.After(now) {
		return fmt.Sprintf("the database says %s and is asked to charge up to %s", clock(now), clock(boundary))
	}
	return ""
}

// ReleaseStop says why nothing may be released for the time now, "" when it may: the last tick
// found that the clocks disagree, the database's clock differs from the worker's or is behind the
// last tick, an operator has to look first, or the last tick is so long ago that the next one may
// stop the releases. An installation on which no tick was done yet has nothing to compare with.
func ReleaseStop(ctx context.Context, store *db.Store, worker time.Time) (string, error) {
	control, err := ReadControl(ctx, store)
	switch {
	case err != nil || control.ClockDisagrees != "":
		return control.ClockDisagrees, err
	case control.EnforcementStoppedAt != nil:
		return control.EnforcementStopped, nil
	}
	now, err := store.Clock(ctx)
	if err != nil {
		return "", err
	}
	if control.Boundary != nil && now.Sub(*control.Boundary) > longestTick {
		return fmt.Sprintf("the last tick charged up to %s; nothing is released until the next one", control.Boundary.UTC().Format(time.RFC3339)), nil
	}
	return compareClocks(now, TickInput{Worker: worker}, time.Time{}, control), nil
}

// billBatch charges accounts in one transaction. A batch that fails is halved; an account that
// fails alone is set aside.
func billBatch(ctx context.Context, store *db.Store, accounts []string, r *TickReport) error {
	if len(accounts) == 0 {
		return nil
	}
	var billed gen.BillAccountsRow
	err := store.Tx(ctx, func(tx *db.Tx) (err error) {
		if billed, err = queries(tx).BillAccounts(ctx, gen.BillAccountsParams{Accounts: accounts, Boundary: r.Boundary}); err != nil {
			return db.MapError("charge accounts", err)
		}
		if len(accounts) == 1 {
			return db.MapError("charge accounts", queries(tx).PutBack(ctx, accounts[0]))
		}
		return nil
	})
	switch {
	case err == nil:
		r.Accounts += len(accounts)
		r.Windows += billed.Windows
		return nil
	case ctx.Err() != nil || db.IsUnavailable(err):
		return err
	case len(accounts) > 1:
		half := len(accounts) / 2
		if err := billBatch(ctx, store, accounts[:half], r); err != nil {
			return err
		}
		return billBatch(ctx, store, accounts[half:], r)
	}
	r.SetAside = append(r.SetAside, accounts[0])
	return db.MapError("set an account aside", queries(store).SetAside(ctx, gen.SetAsideParams{
		Reason: db.ClipText(err.Error(), maxReason), BillingAccountID: accounts[0],
	}))
}

// finishTick looks at the accounts that are depleted since the tick before. Too many of them stop
// the releases, until an operator has looked.
func finishTick(ctx context.Context, store *db.Store, r *TickReport) error {
	return store.Tx(ctx, func(tx *db.Tx) error {
		q := queries(tx)
		if _, err := q.LockControl(ctx); err != nil {
			return db.MapError("billing control", err)
		}
		n, err := q.CountUnreviewed(ctx)
		if err != nil {
			return db.MapError("count depleted accounts", err)
		}
		if limit := max(massDepleted, n.Charged*massDepletedPercent/100); n.Depleted > limit {
			r.EnforcementStopped = fmt.Sprintf(
				"%d of %d charged accounts are depleted since the tick before, and %d may be; nothing is released until an operator has looked at prices and charges",
				n.Depleted, n.Charged, limit)
			if err := q.StopEnforcement(ctx, r.EnforcementStopped); err != nil {
				return db.MapError("billing control", err)
			}
		}
		if err := resumeAfterOutage(ctx, tx); err != nil {
			return err
		}
		if err := q.ReviewDepletions(ctx); err != nil {
			return db.MapError("review depleted accounts", err)
		}
		if err := q.MarkShort(ctx, releaseSeconds); err != nil {
			return db.MapError("mark short balances", err)
		}
		return db.MapError("billing control", q.FinishTick(ctx, int64(r.Windows)))
	})
}

// ResumeEnforcement lets depleted accounts be released again after an operator has looked. It
// returns db.ErrStale when nothing was stopped. While the boundary lies ahead of the database's
// clock, because a clock was ahead and was set right, it sets the boundary back instead, so that
// ticks charge again: nothing twice, since each segment knows what it is charged through. The
// releases stay stopped then, until the operator has given back what was charged too much and
// resumes once more.
func ResumeEnforcement(ctx context.Context, tx *db.Tx, actor db.Actor) error {
	q := queries(tx)
	control, err := q.LockControl(ctx)
	if err != nil {
		return db.MapError("billing control", err)
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	entry := db.Entry{ResourceKind: "billing", ResourceID: "enforcement", Kind: db.EntryAction, Name: "resume_enforcement", Actor: actor}
	if control.Boundary != nil && control.Boundary.Sub(now) > ClockTolerance {
		from, to := control.Boundary.UTC().Format(time.RFC3339), now.Truncate(time.Minute)
		why := fmt.Sprintf("a wrong clock has charged up to %s; ticks charge from %s on again, and nothing is released until an operator has given back what was charged too much and resumes once more",
			from, to.UTC().Format(time.RFC3339))
		if control.EnforcementStopped != "" {
			why += "; before: " + control.EnforcementStopped
		}
		if err := q.SetBoundaryBack(ctx, gen.SetBoundaryBackParams{Boundary: to, Reason: db.ClipText(why, maxReason)}); err != nil {
			return db.MapError("billing control", err)
		}
		entry.Name = "set_boundary_back"
		entry.Actor.Metadata = map[string]any{"from": from, "to": to.UTC().Format(time.RFC3339)}
		return tx.AppendAudit(ctx, entry)
	}
	n, err := q.ResumeEnforcement(ctx)
	if err := db.CheckGuarded("forced releases", n, err); err != nil {
		return err
	}
	return tx.AppendAudit(ctx, entry)
}
