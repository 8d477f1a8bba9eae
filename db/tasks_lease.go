package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The errors that an agent gets.
var (
	// ErrLeaseLost means that the task was delivered again since, or that the agent no longer holds
	// it.
	ErrLeaseLost = errors.New("the lease of this delivery is lost")
	// ErrTaskEnded means that the task has ended, or that the node never had it.
	ErrTaskEnded = errors.New("the task has ended")
	// ErrIdentityMoved means that the identity that claims is no longer the node's.
	ErrIdentityMoved = errors.New("the node's identity moved on or is locked")
)

// TaskClaim is an agent's request for a task.
type TaskClaim struct {
	NodeID, BootID string
	Generation     int64
	// ClaimID is the agent's name for this claim. The agent repeats it until it has the answer, and
	// a repetition gets the same delivery. With "" a repetition is a new claim.
	ClaimID string
	// Unfinished lists tasks that the agent has begun and not finished. The one that the node holds
	// is given again as the same delivery.
	Unfinished []string
	Lease      time.Duration
}

// TaskClaimed is the result of a claim.
type TaskClaimed struct {
	Task *NodeTask // nil for none
	// Dropped lists those of Unfinished that are no longer needed.
	Dropped []string
}

// TaskFence names one delivery of a task.
type TaskFence struct {
	NodeID, TaskID, LeaseID string
	Attempt                 int
}

func agentActor(nodeID string) Actor { return Actor{Owner: lifecycle.OwnerNodeReport, ID: nodeID} }

var systemActor = Actor{Owner: lifecycle.OwnerSystem, ID: "tasks"}

// ClaimTask gives a node's agent its oldest queued task under a lease, unless the agent works on a
// task. Before that it handles a task of an earlier boot like one whose lease has ended. It returns
// ErrIdentityMoved when the generation is no longer the node's.
func (s *Store) ClaimTask(ctx context.Context, c TaskClaim) (TaskClaimed, error) {
	var out TaskClaimed
	err := s.Tx(ctx, func(tx *Tx) error {
		out = TaskClaimed{}
		_, err := tx.q.HoldIdentity(ctx, gen.HoldIdentityParams{NodeID: c.NodeID, Generation: c.Generation})
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrIdentityMoved
		}
		if err != nil {
			return MapError("identity of node "+c.NodeID, err)
		}
		open, err := tx.q.LockOpenTasks(ctx, c.NodeID)
		if err != nil {
			return MapError("tasks of node "+c.NodeID, err)
		}
		if out.Dropped, err = tx.unwanted(ctx, c); err != nil {
			return err
		}
		out.Task, err = tx.claim(ctx, c, open)
		return err
	})
	var conflict *ConflictError
	if errors.As(err, &conflict) { // another claim of the node came first
		return TaskClaimed{}, nil
	}
	return out, err
}

// unwanted returns the unfinished tasks that have ended or do not belong to the node.
func (tx *Tx) unwanted(ctx context.Context, c TaskClaim) ([]string, error) {
	var out []string
	for _, id := range c.Unfinished {
		t, err := tx.Task(ctx, id)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if err != nil || t.NodeID != c.NodeID || lifecycle.NodeTask.Terminal(t.Status) {
			out = append(out, id)
		}
	}
	return out, nil
}

func (tx *Tx) claim(ctx context.Context, c TaskClaim, open []gen.LockOpenTasksRow) (*NodeTask, error) {
	var next *NodeTask
	for _, row := range open {
		t := row.NodeTask
		if t.Status == lifecycle.TaskDispatched {
			given, busy, err := tx.heldTask(ctx, c, row)
			if err != nil || busy {
				return given, err
			}
			if given != nil && next == nil { // queued again: it is the oldest
				next = given
			}
			continue
		}
		if next == nil && !row.Overdue {
			next = &t
		}
	}
	if next == nil {
		return nil, nil
	}
	next.Attempt++
	next.LeaseID, next.BootID, next.Generation, next.ClaimID, next.Progress = NewID("lease"), c.BootID, c.Generation, c.ClaimID, ""
	t, err := tx.moveTask(ctx, *next, lifecycle.TaskDispatch, taskChange{lease: c.Lease}, agentActor(c.NodeID))
	return &t, err
}

// heldTask handles the task that the node holds when its agent claims again. It returns busy when
// no other task is given now. Without busy, the task was queued again.
func (tx *Tx) heldTask(ctx context.Context, c TaskClaim, row gen.LockOpenTasksRow) (t *NodeTask, busy bool, err error) {
	held := row.NodeTask
	sameBoot := held.BootID == c.BootID
	switch {
	case sameBoot && !row.Overdue && slices.Contains(c.Unfinished, held.ID),
		sameBoot && !row.LeaseOver && c.ClaimID != "" && c.ClaimID == held.ClaimID:
		// The agent was restarted while its work continued, was cut off, or did not get the answer.
		// Nobody else has the task, so the same delivery continues. The agent's journal may only
		// know an older delivery, so this one is given again, under the agent's present identity.
		renewed, err := tx.renew(ctx, fenceOf(held), "", c.Lease)
		if err != nil || !renewed {
			return nil, true, err
		}
		held.Generation = c.Generation
		return &held, true, nil
	case sameBoot && !row.LeaseOver:
		return nil, true, nil
	case held.Generation != c.Generation && !row.LeaseOver:
		// The node was installed again, and the older installation may still run somewhere. It can
		// no longer renew its lease, but it may begin steps until the lease ends.
		return nil, true, nil
	}
	why := "its lease ended and the agent did not renew it"
	if !sameBoot {
		why = "the node was started again while it worked on the task"
	}
	held, err = tx.settle(ctx, held, row.Overdue, why)
	if err != nil || held.Status != lifecycle.TaskQueued {
		return nil, false, err
	}
	return &held, false, nil
}

func fenceOf(t NodeTask) TaskFence { return TaskFence{t.NodeID, t.ID, t.LeaseID, t.Attempt} }

// maxDeliveries is how often a task is delivered before it becomes uncertain. Each delivery writes
// audit rows, and an agent decides how soon it gives one up.
const maxDeliveries = 30

// settle handles a task whose delivery no longer counts. It queues the task again if its kind
// allows that. Otherwise the task becomes uncertain, since it may have been begun.
func (tx *Tx) settle(ctx context.Context, t NodeTask, overdue bool, why string) (NodeTask, error) {
	info, _ := lifecycle.TaskKindOf(t.Kind)
	switch {
	case !info.Redeliver:
		return tx.moveTask(ctx, t, lifecycle.TaskBecomeUncertain, taskChange{message: why}, systemActor)
	case t.Attempt >= maxDeliveries && !overdue:
		why = fmt.Sprintf("it was delivered %d times and never ended; the last time %s", t.Attempt, why)
		return tx.moveTask(ctx, t, lifecycle.TaskBecomeUncertain, taskChange{message: why}, systemActor)
	case overdue:
		return tx.moveTask(ctx, t, lifecycle.TaskExpire, taskChange{message: "it was not finished before its deadline; " + why}, systemActor)
	}
	return tx.moveTask(ctx, t, lifecycle.TaskRequeue, taskChange{message: why}, systemActor)
}

// UnclaimTask takes back a delivery that never left the server.
func (s *Store) UnclaimTask(ctx context.Context, f TaskFence) error {
	return s.Tx(ctx, func(tx *Tx) error {
		row, err := tx.lockTask(ctx, f.TaskID)
		if err != nil || row.NodeTask.Status != lifecycle.TaskDispatched || fenceOf(row.NodeTask) != f {
			return err
		}
		_, err = tx.moveTask(ctx, row.NodeTask, lifecycle.TaskRequeue, taskChange{message: "it could not be handed out"}, systemActor)
		return err
	})
}

const maxProgress = 500

// RenewTask extends the lease of a delivery, also one that has ended without being noticed yet. It
// returns ErrLeaseLost when another delivery counts, or none, and ErrTaskEnded when the task has
// ended or its deadline is over.
func (s *Store) RenewTask(ctx context.Context, f TaskFence, progress string, lease time.Duration) error {
	renewed, err := s.renew(ctx, f, progress, lease)
	if err != nil || renewed {
		return err
	}
	t, err := s.Task(ctx, f.TaskID)
	switch {
	case errors.Is(err, ErrNotFound):
		return ErrTaskEnded
	case err != nil:
		return err
	case t.NodeID != f.NodeID, lifecycle.NodeTask.Terminal(t.Status), t.Status == lifecycle.TaskDispatched && fenceOf(t) == f:
		return ErrTaskEnded
	}
	return ErrLeaseLost
}

func (s statements) renew(ctx context.Context, f TaskFence, progress string, lease time.Duration) (bool, error) {
	n, err := s.q.RenewTask(ctx, gen.RenewTaskParams{
		ID: f.TaskID, NodeID: f.NodeID, LeaseID: f.LeaseID, Attempt: f.Attempt, Progress: ClipText(progress, maxProgress), LeaseSeconds: lease.Seconds(),
	})
	return n > 0, MapError("renew task "+f.TaskID, err)
}

// FinishTask ends a task with its agent's result and returns the task's new state. Only the result
// of the last delivery counts, also after its lease as long as nobody else holds the task.
// Repeating the same result succeeds. It returns ErrLeaseLost when a newer delivery counts, and
// ErrTaskEnded when the task has ended with another result.
func (s *Store) FinishTask(ctx context.Context, f TaskFence, r lifecycle.TaskResult) (lifecycle.TaskStatus, error) {
	var status lifecycle.TaskStatus
	var refused error
	err := s.Tx(ctx, func(tx *Tx) error {
		refused = nil
		row, err := tx.lockTask(ctx, f.TaskID)
		t := row.NodeTask
		switch {
		case errors.Is(err, ErrNotFound):
			refused = ErrTaskEnded
			return nil
		case err != nil:
			return err
		}
		status = t.Status
		switch {
		case t.NodeID != f.NodeID:
			refused = ErrTaskEnded
		case fenceOf(t) != f:
			refused = ErrLeaseLost
		case t.Status == lifecycle.TaskExpired:
			refused = ErrTaskEnded
			return tx.noteLateResult(ctx, t, r)
		case lifecycle.NodeTask.Terminal(t.Status):
			if !sameResult(*t.Result, r) {
				refused = ErrTaskEnded
			}
		default:
			t, err = tx.finish(ctx, t, row.Overdue, r)
			status = t.Status
			return err
		}
		return nil
	})
	return status, errors.Join(err, refused)
}

// finish changes the state of a task by its result.
func (tx *Tx) finish(ctx context.Context, t NodeTask, overdue bool, r lifecycle.TaskResult) (NodeTask, error) {
	held := t.Status == lifecycle.TaskDispatched
	who, c := agentActor(t.NodeID), taskChange{message: r.Message, result: &r}
	switch {
	case r.OK:
		return tx.moveTask(ctx, t, lifecycle.TaskSucceed, c, who)
	case r.Code != lifecycle.TaskCodeUncertain && r.Code != lifecycle.TaskCodeLeaseLost:
		return tx.moveTask(ctx, t, lifecycle.TaskFail, c, who)
	case held && r.Code == lifecycle.TaskCodeUncertain:
		return tx.moveTask(ctx, t, lifecycle.TaskBecomeUncertain, c, who)
	case held:
		return tx.settle(ctx, t, overdue, "the agent gave it up half way: "+r.Message)
	}
	return t, tx.noteLateResult(ctx, t, r) // the task was given up before; the result is recorded only
}

// noteLateResult records an agent's result of a task for which nobody waits any more. It writes the
// audit log and leaves the row unchanged. It writes one row of a task a day, whatever the results:
// a root tenant has the agent's key, and the audit log is never pruned.
func (tx *Tx) noteLateResult(ctx context.Context, t NodeTask, r lifecycle.TaskResult) error {
	e := Entry{ResourceKind: lifecycle.NodeTask.Resource, ResourceID: t.ID, NodeID: &t.NodeID, Kind: EntryObservation, Name: "late_result", Actor: agentActor(t.NodeID)}
	if noted, err := tx.auditedWithinDay(ctx, e); err != nil || noted {
		return err
	}
	e.Actor.Comment = r.Message
	e.Actor.Metadata = map[string]any{"ok": r.OK, "code": ClipText(r.Code, 100), "attempt": t.Attempt}
	return tx.AppendAudit(ctx, e)
}

// sameResult compares two results by their JSON.
func sameResult(a, b lifecycle.TaskResult) bool {
	plain := func(r lifecycle.TaskResult) any {
		var v any
		raw, err := json.Marshal(r)
		if err == nil {
			err = json.Unmarshal(CleanJSON(raw), &v)
		}
		if err != nil {
			return fmt.Sprint(err)
		}
		return v
	}
	return reflect.DeepEqual(plain(a), plain(b))
}
