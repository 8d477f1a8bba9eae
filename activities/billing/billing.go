// Package billing charges what runs, once a minute, and does what follows from the balances. Every
// pass reads the current state and may be repeated.
package billing

import (
	"context"
	"log/slog"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/intent/billing"
)

// Activities is what these activities need.
type Activities struct {
	Store *db.Store
	Log   *slog.Logger
	// Domain ends the Message-ID of e-mails.
	Domain string
	// Host returns what the worker's host knows of its clock; nil is ReadHostClock.
	Host func() ledgerdb.HostClock
	// Ahead moves the worker's clock, for tests; nil leaves it.
	Ahead func() time.Duration
}

// The reports of the activities.
type (
	TickReport    = ledgerdb.TickReport
	EnforceReport = billing.Report
)

// TickIn is the input of ChargeUsage. At is the time by Temporal's clock. Before is the boundary of
// the last tick, as Temporal knows it; the zero time when it knows none.
type TickIn struct {
	At     time.Time `json:"at"`
	Before time.Time `json:"before,omitzero"`
}

// ChargeUsage charges what runs up to the current minute, and nothing while the clocks disagree.
func (a *Activities) ChargeUsage(ctx context.Context, in TickIn) (TickReport, error) {
	worker := time.Now()
	if a.Ahead != nil {
		worker = worker.Add(a.Ahead())
	}
	host := ReadHostClock
	if a.Host != nil {
		host = a.Host
	}
	r, err := ledgerdb.Tick(ctx, a.Store, ledgerdb.TickInput{Worker: worker, Scheduled: in.At, Host: host(), Before: in.Before})
	switch {
	case err != nil:
		return r, fault.Internal(ctx, err)
	case r.ClockDisagrees != "":
		a.Log.WarnContext(ctx, "billing: nothing was charged", "reason", r.ClockDisagrees)
	case len(r.SetAside) > 0 || r.EnforcementStopped != "":
		a.Log.WarnContext(ctx, "billing: an operator has to look", "set_aside", r.SetAside, "enforcement_stopped", r.EnforcementStopped)
	}
	return r, nil
}

// EnforceBalances releases what depleted accounts have, and passes notices on. It changes nothing
// while an operator has to look first.
func (a *Activities) EnforceBalances(ctx context.Context) (EnforceReport, error) {
	r, err := billing.Enforce(ctx, a.Store, a.Domain)
	if len(r.Released) > 0 {
		a.Log.WarnContext(ctx, "billing: allocations were released", "allocations", r.Released)
	}
	return r, fault.Internal(ctx, err)
}
