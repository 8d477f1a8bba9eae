package server

import (
	"context"
	"time"

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
	return temporalx.Sweeps{Client: a.Temporal, TaskQueue: a.Config.Temporal.TaskQueue}
}

// sweepActivities are the sweeper's hands: it sees only this task queue.
func (a *App) sweepActivities() *sweepact.Activities {
	t, s, r := a.Config.Temporal, a.Config.Sweep, a.Config.Retention
	return &sweepact.Activities{
		Store: a.Store, Log: a.Log, Lease: a.Config.Relay.Lease, OfflineAfter: a.Config.Agent.OfflineAfter,
		Keep: sweepact.Keep{
			Tasks: r.Tasks, Findings: r.Findings, Outbox: r.Outbox, Events: r.Events, Actions: r.Actions, Jobs: r.Jobs, Invitations: r.Invitations,
		},
		Pace:   sweepact.NewPace(s.Every, s.Settle, s.Quiet),
		Engine: temporalx.Watch{Client: a.Temporal, Namespace: t.Namespace, TaskQueue: t.TaskQueue, Payloads: a.Payloads},
	}
}

// keepSchedule makes the sweeper's Schedule and makes it again should somebody
// delete it, until ctx ends. A worker does its other work meanwhile.
func (a *App) keepSchedule(ctx context.Context) {
	for {
		wait := scheduleEvery
		if err := a.Sweeps().Ensure(ctx, a.Config.Sweep.Every); err != nil {
			if ctx.Err() != nil {
				return
			}
			a.Log.Warn("the sweeper is not scheduled yet; will try again", "in", scheduleRetry, "error", err)
			wait = scheduleRetry
		}
		if poll.Sleep(ctx, wait) != nil {
			return
		}
	}
}
