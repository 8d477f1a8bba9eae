// Package payments has the activities of payments: the stages of the job that reconciles a payment
// session, and the parts of the pass that finds what is due once a minute and starts those jobs.
// Every activity reads the current state and may be repeated.
package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
)

// Activities is what these activities need.
type Activities struct {
	Sync *paymentsync.Syncer
	Log  *slog.Logger
	// Ask sends an action to a job, in the name of the system. key makes a repetition the same
	// request.
	Ask func(ctx context.Context, kind contract.JobKind, jobID string, action lifecycle.Action, reason, key string) error
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

// settledBatch bounds how many parked jobs of settled sessions one pass asks.
const settledBatch = 200

// SyncPayments compares the sessions, refunds and disputes that are due, starts the jobs of
// sessions that are paid, and has parked jobs end whose sessions were settled meanwhile. It returns
// how many it has compared.
func (a *Activities) SyncPayments(ctx context.Context) (int, error) {
	n, err := a.Sync.SyncDue(ctx)
	err = errors.Join(err, a.endSettledJobs(ctx))
	return n, a.failed(ctx, "sessions, refunds or disputes were not compared", err)
}

// endSettledJobs asks the parked jobs of settled sessions to try their stage again, which then
// finds that nothing is left to do.
func (a *Activities) endSettledJobs(ctx context.Context) error {
	jobs, err := paymentsdb.ListSettledJobs(ctx, a.Sync.Store, settledBatch)
	for _, j := range jobs {
		err = errors.Join(err, a.Ask(ctx, contract.JobKind(j.Kind), j.ID, lifecycle.ActionRetryStage, "the payment session is settled", fmt.Sprintf("settled-%s-%d", j.ID, j.Seq)))
	}
	return err
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
