package server

import (
	"context"
	"errors"
	"time"

	billingact "github.com/slipway-cloud/slipway/activities/billing"
	sweepact "github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/internal/temporalx"
)

// How often a worker makes sure that the sweeper's Schedule is there.
const (
	scheduleEvery = 10 * time.Minute
	scheduleRetry = 5 * time.Second
)

// Sweeps is the sweeper's Schedule of this installation.
func (a *App) Sweeps() temporalx.Sweeps {
	return temporalx.Sweeps{Client: a.Maintenance, TaskQueue: a.Config.Temporal.TaskQueue}
}

// sweepActivities are the sweeper's hands: it sees only this task queue.
func (a *App) sweepActivities() *sweepact.Activities {
	t, s, r := a.Config.Temporal, a.Config.Sweep, a.Config.Retention
	return &sweepact.Activities{
		Store: a.Store, Log: a.Log, Lease: a.Config.Relay.Lease, OfflineAfter: a.Config.Agent.OfflineAfter,
		Keep: sweepact.Keep{
			Tasks: r.Tasks, Findings: r.Findings, Outbox: r.Outbox, Events: r.Events, Actions: r.Actions, Jobs: r.Jobs, Invitations: r.Invitations, Allocations: r.Allocations,
			RunLogs: r.RunLogs, PaymentEvents: r.PaymentEvents, BMCLogs: r.BMCLogs,
		},
		Pace:   sweepact.NewPace(s.Every, s.Settle, s.Quiet),
		Engine: temporalx.Watch{Client: a.Temporal, Namespace: t.Namespace, TaskQueue: t.TaskQueue, Payloads: a.Payloads},
	}
}

// Bills is the Schedule that charges what runs in this installation.
func (a *App) Bills() temporalx.Bills {
	return temporalx.Bills{Client: a.Maintenance, TaskQueue: a.Config.Temporal.TaskQueue}
}

// billingActivities charge what runs and enforce balances.
func (a *App) billingActivities() *billingact.Activities {
	return &billingact.Activities{Store: a.Store, Log: a.Log, Domain: a.noticeDomain()}
}

// keepSchedules makes the Schedules of the sweeper, of billing and of payments, and makes them again should
// somebody delete them, until ctx ends. A worker does its other work meanwhile.
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
	err := errors.Join(a.Sweeps().Ensure(ctx, a.Config.Sweep.Every), a.Bills().Ensure(ctx))
	if a.Config.Payment.Enabled() {
		err = errors.Join(err, a.PaymentPasses().Ensure(ctx))
	}
	if a.Config.Instance.Enabled() {
		err = errors.Join(err, a.InstancePasses().Ensure(ctx))
	}
	return err
}
