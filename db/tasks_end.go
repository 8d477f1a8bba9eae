package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TasksSettled counts the tasks that SettleTasks moved, by their new state.
type TasksSettled struct{ Requeued, Uncertain, Expired int }

// SettleTasks ends tasks whose lease ended, whose node was started again or
// whose deadline passed, at most limit. A stale delivery is queued again where
// the kind allows it, and otherwise uncertain; a deadline ends what is queued or
// held. An uncertain task waits for the agent's journal, a job or an operator and
// is never ended by the clock. No node's state is touched.
func (s *Store) SettleTasks(ctx context.Context, limit int) (TasksSettled, error) {
	var out TasksSettled
	ids, err := s.q.TasksToSettle(ctx, PageLimit(limit))
	if err != nil {
		return out, MapError("list tasks to settle", err)
	}
	var failed []error // one that cannot be settled holds up no other
	for _, id := range ids {
		var to lifecycle.TaskStatus
		err := s.Tx(ctx, func(tx *Tx) error {
			to = ""
			row, err := tx.lockTask(ctx, id)
			if err != nil {
				return err
			}
			t, err := tx.settleRow(ctx, row)
			if t.Status != row.NodeTask.Status {
				to = t.Status
			}
			return err
		})
		if err != nil {
			failed = append(failed, err)
			continue
		}
		switch to {
		case lifecycle.TaskQueued:
			out.Requeued++
		case lifecycle.TaskUncertain:
			out.Uncertain++
		case lifecycle.TaskExpired:
			out.Expired++
		case lifecycle.TaskDispatched, lifecycle.TaskSucceeded, lifecycle.TaskFailed: // settling leads to none of these
		}
	}
	return out, errors.Join(failed...)
}

func (tx *Tx) settleRow(ctx context.Context, row gen.LockTaskRow) (NodeTask, error) {
	t := row.NodeTask
	held := t.Status == lifecycle.TaskDispatched
	switch {
	case held && row.OtherBoot != "":
		return tx.settle(ctx, t, row.Overdue, "the node was started again while it worked on the task")
	case held && row.LeaseOver:
		return tx.settle(ctx, t, row.Overdue, "its lease ended and the agent did not renew it")
	case held && row.Overdue:
		return tx.moveTask(ctx, t, lifecycle.TaskExpire, taskChange{message: "it was not finished before its deadline"}, systemActor)
	case t.Status == lifecycle.TaskQueued && row.Overdue:
		return tx.moveTask(ctx, t, lifecycle.TaskExpire, taskChange{message: "no agent took it before its deadline"}, systemActor)
	}
	return t, nil
}

// RequeueTask has an uncertain task done again, with its kind's whole time from
// now. Another state gives *lifecycle.IllegalTransitionError.
func (tx *Tx) RequeueTask(ctx context.Context, id string, a Actor) (NodeTask, error) {
	row, err := tx.lockTask(ctx, id)
	if err != nil {
		return NodeTask{}, err
	}
	t := row.NodeTask
	if t.Status != lifecycle.TaskUncertain {
		return NodeTask{}, &lifecycle.IllegalTransitionError{
			Resource: lifecycle.NodeTask.Resource, From: string(t.Status), To: string(lifecycle.TaskQueued),
			Reason: "only a task of unknown outcome is queued again by hand",
		}
	}
	return tx.requeue(ctx, t, a)
}

func (tx *Tx) requeue(ctx context.Context, t NodeTask, a Actor) (NodeTask, error) {
	info, _ := lifecycle.TaskKindOf(t.Kind)
	return tx.moveTask(ctx, t, lifecycle.TaskRequeue, taskChange{message: "asked for again", extend: info.Deadline}, a)
}

// Resumed says what ResumeTask did.
type Resumed string

// The values of Resumed.
const (
	ResumedNothing   Resumed = "under_way" // queued, held under a live lease, or done: nothing to do
	ResumedRequeued  Resumed = "requeued"
	ResumedRecreated Resumed = "recreated"
)

// ResumeTask sees to it that the node's last task of a kind is under way (seed
// 001 section 8): a fresh queued one and one under a live lease stay as they
// are, a stale or uncertain one is queued again, one that expired or failed is
// made again. Repeating it changes nothing. ErrNotFound: there never was one.
func (tx *Tx) ResumeTask(ctx context.Context, nodeID string, kind lifecycle.TaskKind, a Actor) (NodeTask, Resumed, error) {
	last, err := tx.q.LastTaskOfKind(ctx, gen.LastTaskOfKindParams{NodeID: nodeID, Kind: kind})
	if err != nil {
		return NodeTask{}, "", MapError(fmt.Sprintf("%s task of node %s", kind, nodeID), err)
	}
	row, err := tx.lockTask(ctx, last.ID)
	if err != nil {
		return NodeTask{}, "", err
	}
	t := row.NodeTask
	switch t.Status {
	case lifecycle.TaskSucceeded:
		return t, ResumedNothing, nil
	case lifecycle.TaskQueued:
		if !row.Overdue {
			return t, ResumedNothing, nil
		}
		if t, err = tx.moveTask(ctx, t, lifecycle.TaskExpire, taskChange{message: "no agent took it before its deadline"}, systemActor); err != nil {
			return NodeTask{}, "", err
		}
		return tx.recreate(ctx, t, a)
	case lifecycle.TaskDispatched:
		if !row.LeaseOver && !row.Overdue && row.OtherBoot == "" {
			return t, ResumedNothing, nil
		}
		t, err = tx.requeue(ctx, t, a)
		return t, ResumedRequeued, err
	case lifecycle.TaskUncertain:
		t, err = tx.requeue(ctx, t, a)
		return t, ResumedRequeued, err
	case lifecycle.TaskFailed, lifecycle.TaskExpired:
	}
	return tx.recreate(ctx, t, a)
}

// keyAfter is the key of the task that takes the place of one that ended badly.
func keyAfter(t NodeTask) string { return "again/" + t.ID }

// recreate asks for the same again, under a key that the one before gives.
func (tx *Tx) recreate(ctx context.Context, t NodeTask, a Actor) (NodeTask, Resumed, error) {
	in := NewTask{NodeID: t.NodeID, Kind: t.Kind, Args: t.Args, Key: keyAfter(t), Actor: a}
	if t.JobID != nil {
		in.JobID = *t.JobID
	}
	made, _, err := tx.EnqueueTask(ctx, in)
	return made, ResumedRecreated, err
}

// TasksRevoked is what withdrawing a job's tasks came to.
type TasksRevoked struct {
	Withdrawn []string // were not taken yet
	Left      []NodeTask
}

// RevokeTasks withdraws the tasks of a job that no agent has taken. Those that
// one works on, or of which nobody knows the outcome, are left and told: what a
// node began is not called back. Repeating it changes nothing.
func (tx *Tx) RevokeTasks(ctx context.Context, jobID string, a Actor) (TasksRevoked, error) {
	var out TasksRevoked
	rows, err := tx.ListTasks(ctx, TaskFilter{JobID: jobID}, "", maxPage)
	if err != nil {
		return out, err
	}
	for _, r := range rows {
		if lifecycle.NodeTask.Terminal(r.Status) {
			continue
		}
		row, err := tx.lockTask(ctx, r.ID)
		if err != nil {
			return out, err
		}
		switch t := row.NodeTask; {
		case t.Status == lifecycle.TaskQueued && t.Attempt == 0:
			if _, err := tx.moveTask(ctx, t, lifecycle.TaskExpire, taskChange{message: "its job withdrew it"}, a); err != nil {
				return out, err
			}
			out.Withdrawn = append(out.Withdrawn, t.ID)
		case t.Status == lifecycle.TaskQueued:
			if t, err = tx.moveTask(ctx, t, lifecycle.TaskExpire, taskChange{message: "its job withdrew it after it had been begun"}, a); err != nil {
				return out, err
			}
			out.Left = append(out.Left, t)
		case !lifecycle.NodeTask.Terminal(t.Status):
			out.Left = append(out.Left, t)
		}
	}
	return out, nil
}

// HasOpenTasks says whether a claim of the node could find anything.
func (s statements) HasOpenTasks(ctx context.Context, nodeID string) (bool, error) {
	yes, err := s.q.HasOpenTasks(ctx, nodeID)
	return yes, MapError("tasks of node "+nodeID, err)
}

// NodesWithQueuedTasks are those of the given nodes that have a task to take.
func (s statements) NodesWithQueuedTasks(ctx context.Context, nodeIDs []string) ([]string, error) {
	rows, err := s.q.NodesWithQueuedTasks(ctx, nodeIDs)
	return rows, MapError("nodes with queued tasks", err)
}

// ClaimTaskEnds gives ended and uncertain tasks whose waiter was not told to one
// teller, who has so long to tell before another may.
func (s statements) ClaimTaskEnds(ctx context.Context, limit int, lease time.Duration) ([]NodeTask, error) {
	rows, err := s.q.ClaimTaskEnds(ctx, gen.ClaimTaskEndsParams{LeaseSeconds: lease.Seconds(), MaxRows: PageLimit(limit)})
	return rows, MapError("claim task ends", err)
}

// MarkTaskTold notes that the waiter of t was told of the end that t shows. When
// either changed meanwhile, nothing is noted and the new one is told.
func (s statements) MarkTaskTold(ctx context.Context, t NodeTask) error {
	_, err := s.q.MarkTaskTold(ctx, gen.MarkTaskToldParams{
		ID: t.ID, Version: t.Version, WaiterWorkflowID: t.WaiterWorkflowID, WaiterRunID: t.WaiterRunID, WaiterActivityID: t.WaiterActivityID,
	})
	return MapError("task "+t.ID, err)
}

// DeleteTaskWaiter notes that nobody waits for t any more: its activity is over or
// between two tries, and asks by itself when it runs again.
func (s statements) DeleteTaskWaiter(ctx context.Context, t NodeTask) error {
	_, err := s.q.DeleteTaskWaiter(ctx, gen.DeleteTaskWaiterParams{
		ID: t.ID, Version: t.Version, WaiterWorkflowID: t.WaiterWorkflowID, WaiterRunID: t.WaiterRunID, WaiterActivityID: t.WaiterActivityID,
	})
	return MapError("task "+t.ID, err)
}
