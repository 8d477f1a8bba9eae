// Package payments compares payments with the payment provider, once a minute: it processes events,
// looks at what is due, and compares totals. Every part reads the current state and may be
// repeated.
package payments

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
)

// Activities is what these activities need.
type Activities struct {
	Sync *paymentsync.Syncer
	Log  *slog.Logger
}

// Plan is what a pass has to do. Off says that there is no account at the payment provider.
type Plan struct {
	Off        bool `json:"off,omitempty"`
	ListEvents bool `json:"list_events,omitempty"`
	Compare    bool `json:"compare,omitempty"`
}

// PlanPaymentPass decides what a pass has to do. While payments are off it ends what would wait for
// ever.
func (a *Activities) PlanPaymentPass(ctx context.Context) (Plan, error) {
	if !a.Sync.Policy.Enabled {
		return Plan{Off: true}, fault.Payments(ctx, a.Sync.EndWhileOff(ctx))
	}
	control, err := paymentsdb.ReadControl(ctx, a.Sync.Store)
	if err != nil {
		return Plan{}, fault.Payments(ctx, err)
	}
	differences, err := paymentsdb.ListDifferences(ctx, a.Sync.Store, paymentsdb.DifferenceTotal, "", 50)
	differs := false
	for _, d := range differences {
		differs = differs || d.Kind == paymentsdb.DifferenceTotal && d.Streak < 2
	}
	now := time.Now()
	return Plan{ListEvents: paymentsync.IsListDue(control, now), Compare: paymentsync.IsCompareDue(control, now, differs)}, fault.Payments(ctx, err)
}

// ProcessPaymentEvents processes the events that are due, and returns how many it has.
func (a *Activities) ProcessPaymentEvents(ctx context.Context) (int, error) {
	n, err := a.Sync.ProcessEvents(ctx)
	return n, a.failed(ctx, "events were not processed", err)
}

// SyncPayments compares the sessions, refunds and disputes that are due, and returns how many it
// has.
func (a *Activities) SyncPayments(ctx context.Context) (int, error) {
	n, err := a.Sync.SyncDue(ctx)
	return n, a.failed(ctx, "sessions, refunds or disputes were not compared", err)
}

// ListPaymentEvents stores the events that no webhook was accepted for, and returns how many were
// new.
func (a *Activities) ListPaymentEvents(ctx context.Context) (int, error) {
	n, err := a.Sync.ListEvents(ctx)
	return n, a.failed(ctx, "events were not listed", err)
}

// ComparePayments compares the sessions and the balance of the payment provider with the ledger.
func (a *Activities) ComparePayments(ctx context.Context) (int, error) {
	n, err := a.Sync.CompareSessions(ctx)
	// A session that cannot be compared does not keep the totals from being compared.
	return n, a.failed(ctx, "sessions or totals were not compared", errors.Join(err, a.Sync.CompareTotals(ctx)))
}

// FinishIn is the input of FinishPaymentPass. Problem is why not all was done.
type FinishIn struct {
	Problem string `json:"problem,omitempty"`
}

// FinishPaymentPass stores how the pass went.
func (a *Activities) FinishPaymentPass(ctx context.Context, in FinishIn) error {
	return fault.Payments(ctx, paymentsdb.StorePass(ctx, a.Sync.Store, in.Problem))
}

// failed logs what the answer to the workflow leaves out.
func (a *Activities) failed(ctx context.Context, what string, err error) error {
	if err != nil && ctx.Err() == nil {
		a.Log.WarnContext(ctx, "payments: "+what, "error", err)
	}
	return fault.Payments(ctx, err)
}
