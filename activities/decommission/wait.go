package decommission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

func workflowID(ctx context.Context) string {
	if !activity.IsActivity(ctx) {
		return ""
	}
	return activity.GetInfo(ctx).WorkflowExecution.ID
}

const pollEvery = 10 * time.Second

// poll looks until done, ctx ends or the look fails, for good or with a failure
// of its own. A database that is away is borne: the stage's deadline bounds it.
func poll(ctx context.Context, every spec.Duration, look func() (done bool, err error)) error {
	pause := every.D()
	if pause <= 0 {
		pause = pollEvery
	}
	for {
		done, err := look()
		_, typed := fault.Failure(err)
		if done || typed || err != nil && (db.Permanent(err) || errors.Is(err, db.ErrNotFound)) {
			return err
		}
		activity.RecordHeartbeat(ctx)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

// WaitForVacancy waits until the node's allocation has ended by itself.
func (a *Activities) WaitForVacancy(ctx context.Context, in AllocationIn) (contract.LeavingFacts, error) {
	err := poll(ctx, in.Poll, func() (bool, error) {
		n, err := a.Store.Node(ctx, in.NodeID)
		return err == nil && deref(n.AllocationID) == "", err
	})
	if err != nil {
		return contract.LeavingFacts{}, fault.Internal(ctx, err)
	}
	return a.LookAtLeaving(ctx, in.JobRef)
}

// FreshBootIn is the input of WaitForFreshBoot.
type FreshBootIn struct {
	contract.JobRef
	NotBootID string        `json:"not_boot_id"`
	Poll      spec.Duration `json:"poll,omitempty"`
}

// WaitForFreshBoot waits until the agent has sent a heartbeat from another boot.
func (a *Activities) WaitForFreshBoot(ctx context.Context, in FreshBootIn) (contract.LeavingFacts, error) {
	err := poll(ctx, in.Poll, func() (bool, error) {
		beat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
		if errors.Is(err, db.ErrNotFound) {
			return false, nil
		}
		if err != nil || beat.BootID == in.NotBootID {
			return false, err
		}
		now, err := a.Store.Clock(ctx)
		return err == nil && now.Sub(beat.ReceivedAt) <= a.silentAfter(), err
	})
	if err != nil {
		return contract.LeavingFacts{}, fault.Internal(ctx, err)
	}
	out, err := a.LookAtLeaving(ctx, in.JobRef)
	out.Note = "booted anew: " + out.BootID
	return out, err
}

// SettleIn is the input of SettleTasks.
type SettleIn struct {
	contract.JobRef
	Until time.Time     `json:"until"`
	Poll  spec.Duration `json:"poll,omitempty"`
}

// SettleTasks waits, until a moment, for the end of the tasks that the node's
// agent has begun for the job; Note names what is still open then. Erasing and
// uninstalling are not waited for. With ObserveOnly it only looks.
func (a *Activities) SettleTasks(ctx context.Context, in SettleIn) (contract.LeavingFacts, error) {
	out := contract.LeavingFacts{}
	err := poll(ctx, in.Poll, func() (bool, error) {
		tasks, err := a.Store.ListTasks(ctx, db.TaskFilter{NodeID: in.NodeID, JobID: in.JobID}, "", pageSize)
		if err != nil {
			return false, err
		}
		out.Done, out.Note = true, ""
		for _, t := range tasks {
			began := t.Kind == lifecycle.TaskKindScrub || t.Kind == lifecycle.TaskKindUninstall
			if t.Status == lifecycle.TaskQueued || t.Status == lifecycle.TaskDispatched && !began {
				out.Done, out.Note = false, fmt.Sprintf("task %s (%s) is %s on the node", t.ID, t.Kind, t.Status)
			}
		}
		return out.Done || in.ObserveOnly || time.Now().After(in.Until), nil
	})
	return out, fault.Internal(ctx, err)
}

// ErasureBegun tells whether any erasure of the job ever reached the node's
// agent: Done is that none did. What was only queued has changed nothing.
func (a *Activities) ErasureBegun(ctx context.Context, in contract.JobRef) (contract.LeavingFacts, error) {
	tasks, err := a.Store.ListTasks(ctx, db.TaskFilter{NodeID: in.NodeID, JobID: in.JobID, Kind: lifecycle.TaskKindScrub}, "", pageSize)
	if err != nil {
		return contract.LeavingFacts{}, fault.Internal(ctx, err)
	}
	out := contract.LeavingFacts{Done: true}
	for _, t := range tasks {
		if t.Attempt > 0 {
			out.Done, out.Note = false, fmt.Sprintf("task %s (%s) was begun on the node and is %s", t.ID, t.Kind, t.Status)
		}
	}
	return out, nil
}
