package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
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

	Invitations time.Duration // to projects, since they ended
	Allocations time.Duration // what customers wrote in them, since they ended
}

// prune deletes at most one small batch of each kind, by the database's clock:
// the next pass goes on, so that no statement holds much for long. One that
// fails keeps no other from being done.
func (a *Activities) prune(ctx context.Context, now time.Time) error {
	var failed []error
	for _, c := range []struct {
		what string
		keep time.Duration
		do   func(context.Context, time.Time) (int64, error)
	}{
		{"tasks", a.Keep.Tasks, a.Store.PruneTasks},
		{"findings", a.Keep.Findings, a.Store.PruneFindings},
		{"outbox rows", a.Keep.Outbox, a.Store.PruneOutbox},
		{"events", a.Keep.Events, a.Store.PruneEvents},
		{"action log rows", a.Keep.Actions, a.Store.PruneActionLogs},
		{"jobs", a.Keep.Jobs, a.Store.PruneJobs},
		{"invitations", a.Keep.Invitations, func(ctx context.Context, before time.Time) (int64, error) {
			return tenancydb.PruneInvitations(ctx, a.Store, before)
		}},
		{"allocations", a.Keep.Allocations, func(ctx context.Context, before time.Time) (int64, error) {
			if own := time.Now().Add(-a.Keep.Allocations); own.Before(before) {
				before = own // one clock that jumps ahead alone deletes nothing of customers
			}
			return allocationdb.Prune(ctx, a.Store, before)
		}},
	} {
		if c.keep <= 0 {
			continue
		}
		if _, err := c.do(ctx, now.Add(-c.keep)); err != nil {
			failed = append(failed, fmt.Errorf("%s were not pruned: %w", c.what, err))
		}
	}
	if _, err := a.Store.PruneAgentIdentities(ctx); err != nil { // so does each of these
		failed = append(failed, fmt.Errorf("denied keys of agents were not pruned: %w", err))
	}
	if _, err := a.Store.PruneIdempotency(ctx); err != nil { // each says itself when it ends
		failed = append(failed, fmt.Errorf("idempotency records were not pruned: %w", err))
	}
	if _, err := portaldb.Prune(ctx, a.Store); err != nil {
		failed = append(failed, fmt.Errorf("sessions of the portal were not pruned: %w", err))
	}
	return errors.Join(failed...)
}
