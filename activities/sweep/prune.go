package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	portaldb "github.com/slipway-cloud/slipway/db/portal"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// Keep says how long rows stay that nothing works on any more; zero keeps them
// for ever. The audit log is not among them.
type Keep struct {
	Tasks    time.Duration // of nodes, since they ended
	Findings time.Duration // since they were closed
	Outbox   time.Duration // since they were done
	Events   time.Duration // since they happened
	Actions  time.Duration // of the action log, since they ended
	Jobs     time.Duration // with their stages, since they ended

	RunLogs time.Duration // the output of runs, since it was stored
	Runs    time.Duration // of machines, since they ended

	Invitations time.Duration // to projects, since they ended
	Allocations time.Duration // what customers wrote in them, since they ended

	PaymentEvents time.Duration // of the payment provider, since they came

	BMCLogs time.Duration // entries of BMCs' logs, since they were copied
}

// pruneLimit is the longest that pruning may take in a pass. It leaves the rest of the activity's
// time to what is stored afterwards.
const pruneLimit = 6 * time.Second

// retention is one kind of rows that are deleted.
type retention struct {
	what string
	do   func(context.Context) error
}

// prune deletes at most one small batch of each kind: the next pass goes on, so that no statement
// holds much for long. Each kind gets an equal part of the time that is left, so that one that
// fails or is slow keeps no other from being done. The kinds that touch the most tables are last.
func (a *Activities) prune(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, pruneLimit)
	defer cancel()
	end, _ := ctx.Deadline()
	kinds := a.retentions(now)
	var failed []error
	for i, k := range kinds {
		part, done := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(kinds)-i))
		if err := k.do(part); err != nil {
			failed = append(failed, fmt.Errorf("%s were not pruned: %w", k.what, err))
		}
		done()
	}
	return errors.Join(failed...)
}

// retentions returns the kinds that are deleted after a time or that end by themselves. Age is
// measured by the clock that is behind, the database's or this process's: a clock that jumps ahead
// alone deletes nothing.
func (a *Activities) retentions(now time.Time) []retention {
	if own := time.Now(); own.Before(now) {
		now = own
	}
	var out []retention
	add := func(what string, do func(context.Context) (int64, error)) {
		out = append(out, retention{what, func(ctx context.Context) error {
			_, err := do(ctx)
			return err
		}})
	}
	after := func(what string, keep time.Duration, do func(context.Context, time.Time) (int64, error)) {
		if keep > 0 {
			add(what, func(ctx context.Context) (int64, error) { return do(ctx, now.Add(-keep)) })
		}
	}
	after("tasks", a.Keep.Tasks, a.Store.PruneTasks)
	after("findings", a.Keep.Findings, a.Store.PruneFindings)
	after("outbox rows", a.Keep.Outbox, a.Store.PruneOutbox)
	after("events", a.Keep.Events, a.Store.PruneEvents)
	after("action log rows", a.Keep.Actions, a.Store.PruneActionLogs)
	after("invitations", a.Keep.Invitations, func(ctx context.Context, before time.Time) (int64, error) {
		return tenancydb.PruneInvitations(ctx, a.Store, before)
	})
	after("allocations", a.Keep.Allocations, func(ctx context.Context, before time.Time) (int64, error) {
		return allocationdb.Prune(ctx, a.Store, before)
	})
	after("output of runs", a.Keep.RunLogs, func(ctx context.Context, before time.Time) (int64, error) {
		return machinesdb.PruneLogs(ctx, a.Store, before)
	})
	after("runs", a.Keep.Runs, func(ctx context.Context, before time.Time) (int64, error) {
		return machinesdb.PruneRuns(ctx, a.Store, before)
	})
	after("events of the payment provider", a.Keep.PaymentEvents, func(ctx context.Context, before time.Time) (int64, error) {
		return paymentsdb.PruneEvents(ctx, a.Store, before)
	})
	after("entries of BMCs' logs", a.Keep.BMCLogs, func(ctx context.Context, before time.Time) (int64, error) {
		return hardwaredb.PruneLogEntries(ctx, a.Store, before)
	})
	add("superseded certificates of agents", a.Store.PruneAgentIdentities)
	add("idempotency records", a.Store.PruneIdempotency)
	add("sessions of the portal", func(ctx context.Context) (int64, error) { return portaldb.Prune(ctx, a.Store) })
	after("jobs", a.Keep.Jobs, a.Store.PruneJobs)
	return out
}
