package server

import (
	"context"
	"errors"
	"time"

	billingact "github.com/slipway-cloud/slipway/activities/billing"
	sweepact "github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/internal/temporalx"
)

// How often a worker makes sure that the sweeper's Schedule is there.
const (
	scheduleEvery = 10 * time.Minute
	scheduleRetry = 5 * time.Second
)

// Schedule returns the Schedule of a pass in this installation.
func (a *App) Schedule(p contract.Pass) temporalx.Schedule {
	every := map[string]time.Duration{
		contract.SweepPass.Workflow: a.Config.Sweep.Every, contract.ReconcilePass.Workflow: a.Config.Reconcile.Every,
	}
	return temporalx.Schedule{Client: a.Maintenance, TaskQueue: a.Config.Temporal.TaskQueue, Pass: p, Every: every[p.Workflow]}
}

// RemoveSchedules deletes the Schedules of this installation: what a dev stack does when it ends.
func (a *App) RemoveSchedules(ctx context.Context) error {
	failed := a.eachSite(ctx, func(id string) error { return a.unschedule(ctx, id) })
	for _, p := range contract.Passes {
		if p.Workflow != contract.ReconcilePass.Workflow {
			failed = errors.Join(failed, a.Schedule(p).Remove(ctx))
		}
	}
	return failed
}

// sweepActivities are the sweeper's hands: it sees only this task queue.
func (a *App) sweepActivities() *sweepact.Activities {
	t, s, r := a.Config.Temporal, a.Config.Sweep, a.Config.Retention
	return &sweepact.Activities{
		Store: a.Store, Log: a.Log, Lease: a.Config.Relay.Lease, OfflineAfter: a.Config.Agent.OfflineAfter,
		Keep: sweepact.Keep{
			Tasks: r.Tasks, Findings: r.Findings, Outbox: r.Outbox, Events: r.Events, Actions: r.Actions, Jobs: r.Jobs, Invitations: r.Invitations, Allocations: r.Allocations,
			RunLogs: r.RunLogs, Runs: r.Runs, PaymentEvents: r.PaymentEvents, BMCLogs: r.BMCLogs,
		},
		Pace:   sweepact.NewPace(s.Every, s.Settle, s.Quiet),
		Engine: temporalx.Watch{Client: a.Temporal, Namespace: t.Namespace, TaskQueue: t.TaskQueue, Payloads: a.Payloads},
	}
}

// billingActivities charge what runs and enforce balances.
func (a *App) billingActivities() *billingact.Activities {
	return &billingact.Activities{Store: a.Store, Log: a.Log, Domain: a.noticeDomain()}
}

// keepSchedules makes the Schedules of the sweeper, of billing and of payments, and makes them
// again should somebody delete them, until ctx ends. A worker does its other work meanwhile.
func (a *App) keepSchedules(ctx context.Context) {
	for {
		wait := scheduleEvery
		if err := a.ensureSchedules(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			a.Log.Warn("not every Schedule is there yet; will try again", "in", scheduleRetry, "error", err)
			wait = scheduleRetry
		}
		if poll.Sleep(ctx, wait) != nil {
			return
		}
	}
}

func (a *App) ensureSchedules(ctx context.Context) error {
	passes := []contract.Pass{contract.SweepPass, contract.BillPass}
	if a.Config.Payment.Enabled() {
		passes = append(passes, contract.PaymentsPass)
	}
	if a.Config.Instance.Enabled() {
		passes = append(passes, contract.InstancesPass)
	}
	var failed error
	for _, p := range passes {
		failed = errors.Join(failed, a.Schedule(p).Ensure(ctx))
	}
	return failed
}
