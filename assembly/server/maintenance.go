package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/workflows/billing"
	"github.com/slipway-cloud/slipway/workflows/instancepass"
	"github.com/slipway-cloud/slipway/workflows/payments"
	"github.com/slipway-cloud/slipway/workflows/reconcile"
	"github.com/slipway-cloud/slipway/workflows/sweep"
)

// promoteRetry is the time between two tries to make this build the current one for the passes.
const promoteRetry = time.Minute

// registerPasses registers the workflows of all passes.
func registerPasses(r worker.WorkflowRegistry) {
	run := map[string]any{
		contract.SweepPass.Workflow: sweep.Sweep, contract.BillPass.Workflow: billing.Bill, contract.PaymentsPass.Workflow: payments.Pass,
		contract.InstancesPass.Workflow: instancepass.Pass, contract.ReconcilePass.Workflow: reconcile.Pass,
	}
	for _, p := range contract.Passes {
		versioning := workflow.VersioningBehaviorAutoUpgrade
		if p.Pinned {
			versioning = workflow.VersioningBehaviorPinned
		}
		r.RegisterWorkflowWithOptions(run[p.Workflow], workflow.RegisterOptions{Name: p.Workflow, VersioningBehavior: versioning})
	}
}

// separatesMaintenance tells whether passes have a namespace of their own.
func (a *App) separatesMaintenance() bool { return a.Maintenance != a.Temporal }

// maintain serves the passes and keeps their Schedules until ctx ends. Jobs do not wait for it:
// where the namespace of the passes is missing and may not be registered, jobs run, and the list of
// what requires operator action says that the sweeper does not look.
func (a *App) maintain(ctx context.Context, opts worker.Options) {
	if !a.separatesMaintenance() {
		a.keepPasses(ctx)
		return
	}
	temporalx.KeepWorker(ctx, promoteRetry, func(ended func(error)) worker.Worker {
		opts := opts
		opts.OnFatalError = ended // not that of the jobs' worker, which ends the process
		w := worker.New(a.Maintenance, a.Config.Temporal.TaskQueue, opts)
		registerPasses(w)
		a.registerPassActivities(w)
		return w
	}, func(err error) { a.reportMaintenance(ctx, err) }, func(ctx context.Context) {
		if a.promotePasses(ctx) == nil {
			a.keepPasses(ctx)
		}
	})
}

// keepPasses keeps the Schedules of the passes until ctx ends.
func (a *App) keepPasses(ctx context.Context) {
	var keepers sync.WaitGroup
	keepers.Go(func() { a.keepSchedules(ctx) })
	keepers.Go(func() { a.keepReconciles(ctx) })
	keepers.Wait()
}

// reportMaintenance logs why the passes cannot be served yet, and registers their namespace where
// that is missing.
func (a *App) reportMaintenance(ctx context.Context, err error) {
	name := a.Config.Temporal.PassNamespace()
	if temporalx.IsNamespaceMissing(err) {
		if err = temporalx.RegisterNamespace(ctx, a.Maintenance, name); err == nil {
			a.Log.Info("registered the namespace of the passes", "namespace", name)
			return
		}
		err = fmt.Errorf("%w: register it by deploy/temporal/namespace.sh, or set temporal.maintenance_namespace to a namespace that exists", err)
	}
	a.Log.Warn("passes cannot be served yet; will try again", "namespace", name, "error", err)
}

// promotePasses makes this build the current one for the passes. It returns an error only when ctx
// ends.
func (a *App) promotePasses(ctx context.Context) error {
	for {
		err := a.promote(ctx, a.Maintenance)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		a.Log.Warn("this build serves no passes yet; will try again", "error", err)
		if err := poll.Sleep(ctx, promoteRetry); err != nil {
			return err
		}
	}
}
