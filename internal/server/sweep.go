package server

import (
	"context"
	"time"

	sweepact "github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/internal/relay"
	"github.com/slipway-cloud/slipway/internal/temporalx"
)

// How often the sweeper looks, and how often a worker makes sure that the
// Schedule which has it look is there.
const (
	sweepEvery    = 15 * time.Second
	scheduleEvery = 10 * time.Minute
	scheduleRetry = 5 * time.Second
)

// Sweeps is the sweeper's Schedule of this installation.
func (a *App) Sweeps() temporalx.Sweeps {
	return temporalx.Sweeps{Client: a.Temporal, TaskQueue: a.Config.Temporal.TaskQueue}
}

// sweepActivities are the sweeper's hands: it sees only this task queue.
func (a *App) sweepActivities() *sweepact.Activities {
	t := a.Config.Temporal
	return &sweepact.Activities{
		Store: a.Store, Log: a.Log, Lease: relay.Lease, OfflineAfter: a.Config.Agent.OfflineAfter, Keep: sweepact.Keep(a.Config.Retention),
		Engine: temporalx.Watch{Client: a.Temporal, Namespace: t.Namespace, TaskQueue: t.TaskQueue},
	}
}

// keepSchedule makes the sweeper's Schedule and makes it again should somebody
// delete it, until ctx ends. A worker does its other work meanwhile.
func (a *App) keepSchedule(ctx context.Context) {
	for {
		wait := scheduleEvery
		if err := a.Sweeps().Ensure(ctx, sweepEvery); err != nil {
			if ctx.Err() != nil {
				return
			}
			a.Log.Warn("the sweeper is not scheduled yet; will try again", "in", scheduleRetry, "error", err)
			wait = scheduleRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
