package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// NodeTask is one piece of work that a node's agent is asked for.
type NodeTask = gen.NodeTask

// TaskWaiter is the activity that waits for a task's end; the zero value is
// nobody.
type TaskWaiter struct{ WorkflowID, RunID, ActivityID string }

// WaiterOf is who waits for a task.
func WaiterOf(t NodeTask) TaskWaiter {
	return TaskWaiter{t.WaiterWorkflowID, t.WaiterRunID, t.WaiterActivityID}
}

// NewTask is a task that is asked for.
type NewTask struct {
	NodeID string
	JobID  string // "" for none
	Kind   lifecycle.TaskKind
	Args   json.RawMessage
	// Key is unique for the node: the same key asks for the same task.
	Key string
	// Deadline is when the result must be there; zero takes the kind's own time.
	Deadline time.Time
	Waiter   TaskWaiter
	// UncertainCount is how often the job that waits was told that nobody knows how this
	// task ended, and was sent on.
	UncertainCount int
	// Undo says that the job asks for the task to undo what it did: AwaitTask then accepts a job
	// that is compensating, and no other.
	Undo bool
	// Pass is the job's when it asked; 0 is not known. AwaitTask refuses another than the job's.
	Pass  int
	Actor Actor
}

const maxTaskKey = 400

// EnqueueTask asks for a task. The same key with the same kind and arguments
// gives the task that is there, and hands the wait for it to the waiter; with
// others it gives *ConflictError. Arguments that the kind does not take give
// *spec.InvalidError. created tells a new task.
func (tx *Tx) EnqueueTask(ctx context.Context, in NewTask) (t NodeTask, created bool, err error) {
	info, args, err := checkTask(in)
	if err != nil {
		return NodeTask{}, false, err
	}
	t = NodeTask{
		ID: NewID("task"), NodeID: in.NodeID, JobID: optional(in.JobID), Kind: in.Kind, Status: lifecycle.NodeTask.Initial[0], CreatedBy: in.Actor.ID,
	}
	st, err := in.Actor.Stamp(nil)
	if err != nil {
		return NodeTask{}, false, err
	}
	payload, err := taskPayload(t, "")
	if err != nil {
		return NodeTask{}, false, err
	}
	row := gen.InsertTaskParams{
		ID: t.ID, NodeID: t.NodeID, JobID: t.JobID, Kind: t.Kind, SchemaVersion: info.Version, Args: args, IdempotencyKey: in.Key, Status: t.Status,
		DeadlineSeconds: info.Deadline.Seconds(), WaiterWorkflowID: in.Waiter.WorkflowID, WaiterRunID: in.Waiter.RunID,
		WaiterActivityID: in.Waiter.ActivityID, UncertainCount: in.UncertainCount, CreatedBy: t.CreatedBy, Payload: payload, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy,
		Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
	}
	if !in.Deadline.IsZero() {
		row.DeadlineAt = &in.Deadline
	}
	_, err = tx.q.InsertTask(ctx, row)
	if errors.Is(err, pgx.ErrNoRows) {
		t, err = tx.sameTask(ctx, in, args)
		return t, false, err
	}
	if err != nil {
		return NodeTask{}, false, MapError("task of node "+in.NodeID, err)
	}
	t, err = tx.Task(ctx, t.ID)
	return t, err == nil, err
}

func checkTask(in NewTask) (lifecycle.TaskKindInfo, json.RawMessage, error) {
	bad := func(field, problem string) error {
		return &spec.InvalidError{Fields: []spec.Invalid{{Field: field, Problem: problem}}}
	}
	info, ok := lifecycle.TaskKindOf(in.Kind)
	if !ok {
		return info, nil, bad("kind", fmt.Sprintf("%q is not the kind of a task", in.Kind))
	}
	if in.Key == "" || len(in.Key) > maxTaskKey {
		return info, nil, bad("idempotency_key", fmt.Sprintf("must have 1 to %d bytes", maxTaskKey))
	}
	args := in.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	args = CleanJSON(args)
	if _, err := in.Kind.CheckArgs(info.Version, args); err != nil {
		return info, nil, bad("args", err.Error())
	}
	return info, args, nil
}

// sameTask is the task that has the key already.
func (tx *Tx) sameTask(ctx context.Context, in NewTask, args json.RawMessage) (NodeTask, error) {
	row, err := tx.q.LockTaskByKey(ctx, gen.LockTaskByKeyParams{NodeID: in.NodeID, IdempotencyKey: in.Key, Args: args})
	if err != nil {
		return NodeTask{}, MapError("task "+in.Key+" of node "+in.NodeID, err)
	}
	t := row.NodeTask
	if !row.SameArgs || t.Kind != in.Kind {
		return NodeTask{}, &ConflictError{What: "task_key", Existing: t.ID,
			Message: "task " + t.ID + " of this node has the same idempotency key and asks for something else; use another key"}
	}
	if in.Waiter == (TaskWaiter{}) {
		return t, nil
	}
	return t, tx.setWaiter(ctx, t.ID, in.Waiter, false)
}

func (tx *Tx) setWaiter(ctx context.Context, id string, w TaskWaiter, told bool) error {
	return MapError("waiter of task "+id, tx.q.SetTaskWaiter(ctx, gen.SetTaskWaiterParams{
		ID: id, WaiterWorkflowID: w.WorkflowID, WaiterRunID: w.RunID, WaiterActivityID: w.ActivityID, Told: told,
	}))
}

// TellWaiter notes that the waiter learns of the task's end from the caller, in
// this transaction, so that no relay needs to tell it.
func (tx *Tx) TellWaiter(ctx context.Context, id string, w TaskWaiter) error {
	return tx.setWaiter(ctx, id, w, true)
}

// Task reads one task, or ErrNotFound.
func (s statements) Task(ctx context.Context, id string) (NodeTask, error) {
	t, err := s.q.Task(ctx, id)
	return t, MapError("task "+id, err)
}

// TaskByKey reads the task of a node that has the key, or ErrNotFound.
func (s statements) TaskByKey(ctx context.Context, nodeID, key string) (NodeTask, error) {
	t, err := s.q.TaskByKey(ctx, gen.TaskByKeyParams{NodeID: nodeID, IdempotencyKey: key})
	return t, MapError("task "+key+" of node "+nodeID, err)
}

// TaskFilter narrows a list; empty fields match all.
type TaskFilter struct {
	NodeID, JobID string
	Kind          lifecycle.TaskKind
	Status        lifecycle.TaskStatus
}

// ListTasks lists tasks, newest first, from the one after the id given.
func (s statements) ListTasks(ctx context.Context, f TaskFilter, after string, limit int) ([]NodeTask, error) {
	rows, err := s.q.ListTasks(ctx, gen.ListTasksParams{
		After: after, NodeID: f.NodeID, JobID: f.JobID, Kind: string(f.Kind), Status: string(f.Status), MaxRows: PageLimit(limit),
	})
	return rows, MapError("list tasks", err)
}

// ListTaskLines is ListTasks without what may be large: no arguments, and of a
// result only Code and Simulated.
func (s statements) ListTaskLines(ctx context.Context, f TaskFilter, after string, limit int) ([]NodeTask, error) {
	rows, err := s.q.ListTaskLines(ctx, gen.ListTaskLinesParams{
		After: after, NodeID: f.NodeID, JobID: f.JobID, Kind: string(f.Kind), Status: string(f.Status), MaxRows: PageLimit(limit),
	})
	out := make([]NodeTask, 0, len(rows))
	for _, r := range rows {
		t := NodeTask{
			ID: r.ID, NodeID: r.NodeID, JobID: r.JobID, Kind: r.Kind, SchemaVersion: r.SchemaVersion, IdempotencyKey: r.IdempotencyKey, Status: r.Status,
			Attempt: r.Attempt, LeaseID: r.LeaseID, LeaseUntil: r.LeaseUntil, ClaimID: r.ClaimID, BootID: r.BootID, Generation: r.Generation,
			DispatchedAt: r.DispatchedAt, Progress: r.Progress, Message: r.Message, DeadlineAt: r.DeadlineAt, WaiterWorkflowID: r.WaiterWorkflowID,
			WaiterRunID: r.WaiterRunID, WaiterActivityID: r.WaiterActivityID, TellAt: r.TellAt, ToldAt: r.ToldAt, UncertainCount: r.UncertainCount, CreatedBy: r.CreatedBy,
			CreatedAt: r.CreatedAt, StatusAt: r.StatusAt, FinishedAt: r.FinishedAt, UpdatedAt: r.UpdatedAt, Version: r.Version,
		}
		if r.Ended {
			t.Result = &lifecycle.TaskResult{Code: r.Code, Simulated: r.Simulated}
		}
		out = append(out, t)
	}
	return out, MapError("list tasks", err)
}

// PruneTasks deletes tasks that ended before and that nobody needs any more, a batch at a time, and
// says how many. Open and uncertain tasks, the tasks of a live job, and each node's last task of a
// kind stay.
func (s statements) PruneTasks(ctx context.Context, before time.Time) (int64, error) {
	n, err := s.q.PruneTasks(ctx, gen.PruneTasksParams{Before: before, MaxRows: PruneBatch})
	return n, MapError("prune tasks", err)
}

// TransitionTask moves a task, by the same rules as TransitionNode.
func (tx *Tx) TransitionTask(ctx context.Context, id string, t lifecycle.Transition[lifecycle.TaskStatus], message string, a Actor) (NodeTask, error) {
	row, err := tx.lockTask(ctx, id)
	if err != nil {
		return NodeTask{}, err
	}
	return tx.moveTask(ctx, row.NodeTask, t, taskChange{message: message}, a)
}

func (tx *Tx) lockTask(ctx context.Context, id string) (gen.LockTaskRow, error) {
	row, err := tx.q.LockTask(ctx, id)
	return row, MapError("task "+id, err)
}

// taskChange is what changes with a task's state. The delivery is what the task
// says already, unless the task that is moved was given another.
type taskChange struct {
	message string
	lease   time.Duration // of a delivery
	result  *lifecycle.TaskResult
	// extend gives the task so much time again, from now.
	extend time.Duration
}

// moveTask is the commit point of a task. The caller holds the row's lock and
// has set the fields of the delivery in t where they change.
func (tx *Tx) moveTask(ctx context.Context, t NodeTask, tr lifecycle.Transition[lifecycle.TaskStatus], c taskChange, a Actor) (NodeTask, error) {
	from := t.Status
	c.message = ClipText(c.message, MaxMessage)
	if a.Comment == "" {
		a.Comment = c.message
	}
	err := CommitTransition(lifecycle.NodeTask, tr, from, nil, a, func(st AuditStamp) error {
		t.Status, t.Message = tr.To, c.message
		p := gen.MoveTaskParams{
			ID: t.ID, FromState: string(from), ToState: t.Status, Version: t.Version, Name: tr.Name, Terminal: lifecycle.NodeTask.Terminal(t.Status),
			Attempt: t.Attempt, LeaseID: t.LeaseID, ClaimID: t.ClaimID, BootID: t.BootID, Generation: t.Generation, Progress: t.Progress,
			LeaseSeconds: c.lease.Seconds(), DeadlineSeconds: c.extend.Seconds(), Message: t.Message,
			AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
			WorkflowID: st.WorkflowID,
		}
		if c.result != nil {
			raw, err := json.Marshal(c.result)
			if err != nil {
				return fmt.Errorf("result of task %s: %w", t.ID, err)
			}
			p.Result, t.Result = CleanJSON(raw), c.result
		}
		var err error
		if p.Payload, err = taskPayload(t, from); err != nil {
			return err
		}
		row, err := tx.q.MoveTask(ctx, p)
		t.Version, t.StatusAt, t.UpdatedAt, t.DeadlineAt = row.Version, row.StatusAt, row.UpdatedAt, row.DeadlineAt
		t.LeaseUntil, t.DispatchedAt, t.FinishedAt = row.LeaseUntil, row.DispatchedAt, row.FinishedAt
		return MapError("move task "+t.ID, err)
	})
	if err != nil {
		return NodeTask{}, err
	}
	return t, nil
}

func taskPayload(t NodeTask, from lifecycle.TaskStatus) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"task_id": t.ID, "node_id": t.NodeID, "job_id": t.JobID, "kind": t.Kind, "from": from, "status": t.Status, "attempt": t.Attempt,
	})
}
