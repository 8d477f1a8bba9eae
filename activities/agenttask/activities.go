// Package agenttask holds the activities about tasks of a node's agent. A worker does nothing while
// a task runs: RunTask leaves its activity open, and the relay completes it by its id when the task
// has ended.
package agenttask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Activities is what these activities need.
type Activities struct{ Store *db.Store }

// RunTaskIn is the input of RunTask.
type RunTaskIn struct {
	contract.JobRef
	Kind lifecycle.TaskKind `json:"kind"`
	Args json.RawMessage    `json:"args,omitempty"`
	// Deadline is when the result must be there; zero takes the kind's own time.
	Deadline time.Time `json:"deadline,omitzero"`
	// Key distinguishes tasks of one kind in one stage. It is "" when there is one task.
	Key string `json:"key,omitempty"`
	// Undo is for a task that undoes what the job did; see db.NewTask.
	Undo bool `json:"undo,omitempty"`
	contract.TaskTries
}

// key returns the same key for each repetition of a task of a job. A task that undoes what one of
// its own kind did is another task.
func (in RunTaskIn) key() string {
	key := fmt.Sprintf("%s/%s/%s/%s/%d", in.JobID, in.Stage, in.Kind, in.Key, in.Round)
	if in.Undo {
		key += "/undo"
	}
	return key
}

// RunTask queues a task for the node's agent and ends with its result. It fails with
// node_task_uncertain when it is not known whether the task took effect, or when no agent finished
// it in time. It fails with the class of Class when the agent reported a failure.
//
// A repetition finds the task by its key. It returns the result of a task that has ended, and waits
// for a task that runs. A new uncertain count says that an operator has decided to do the task
// again: an uncertain task is queued again, and an expired one is replaced by a new one. With
// ObserveOnly it queues nothing, and the result is OK only if the task has succeeded.
//
// Run it with stage.KindAgentTask: it has no heartbeats, and Temporal repeats it every few minutes,
// in case a worker died before it could queue the task.
func (a *Activities) RunTask(ctx context.Context, in RunTaskIn) (lifecycle.TaskResult, error) {
	if in.ObserveOnly {
		return a.observe(ctx, in)
	}
	if err := requireDrives(in); err != nil {
		return lifecycle.TaskResult{}, err
	}
	info := activity.GetInfo(ctx)
	t, done, err := a.Store.AwaitTask(ctx, db.NewTask{
		NodeID: in.NodeID, JobID: in.JobID, Kind: in.Kind, Args: in.Args, Key: in.key(), Deadline: in.Deadline, UncertainCount: in.UncertainCount, Undo: in.Undo, Pass: in.Pass,
		Waiter: db.TaskWaiter{WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID, ActivityID: info.ActivityID},
		Actor:  actor(info),
	})
	var conflict *db.ConflictError
	switch {
	case errors.As(err, &conflict):
		return lifecycle.TaskResult{}, fault.New(lifecycle.FailStateDisagreement, "%s", conflict.Message)
	case err != nil:
		return lifecycle.TaskResult{}, fault.Internal(ctx, err)
	case done:
		return Outcome(t)
	}
	return lifecycle.TaskResult{}, activity.ErrResultPending
}

// requireDrives refuses a task that would erase drives without a list of those that the node has:
// every drive of it would be one that nobody expects.
func requireDrives(in RunTaskIn) error {
	var args spec.ScrubArgs
	if in.Kind != lifecycle.TaskKindScrub || json.Unmarshal(in.Args, &args) != nil { // which AwaitTask refuses
		return nil
	}
	if len(args.ExpectedDrives) > 0 || len(args.Steps) > 0 && !slices.Contains(args.Steps, "disks") {
		return nil
	}
	return fault.New(lifecycle.FailDriveUnexpected, "no record and no report names the drives of the node, so that none may be erased; accept the drives that its agent reports, then retry the stage")
}

func (a *Activities) observe(ctx context.Context, in RunTaskIn) (lifecycle.TaskResult, error) {
	t, err := a.Store.TaskByKey(ctx, in.NodeID, in.key())
	switch {
	case errors.Is(err, db.ErrNotFound):
		return lifecycle.TaskResult{Message: "the agent was not asked yet"}, nil
	case err != nil:
		return lifecycle.TaskResult{}, fault.Internal(ctx, err)
	case t.Status == lifecycle.TaskSucceeded:
		return *t.Result, nil
	}
	return lifecycle.TaskResult{Message: fmt.Sprintf("task %s is %s", t.ID, t.Status)}, nil
}

func actor(info activity.Info) db.Actor {
	return db.Actor{Owner: lifecycle.OwnerJob, ID: info.WorkflowExecution.ID, WorkflowID: info.WorkflowExecution.ID}
}

// RevokeTasksIn is the input of RevokeTasks.
type RevokeTasksIn struct{ contract.JobRef }

// OpenTask is a task that was not withdrawn.
type OpenTask struct {
	TaskID string               `json:"task_id"`
	Kind   lifecycle.TaskKind   `json:"kind"`
	Status lifecycle.TaskStatus `json:"status"`
}

// RevokeTasksOut says what became of a job's tasks.
type RevokeTasksOut struct {
	Withdrawn []string   `json:"withdrawn,omitempty"`  // no agent had taken them
	StillOpen []OpenTask `json:"still_open,omitempty"` // an agent has begun them
}

// RevokeTasks withdraws the tasks of the job that no agent has taken, and names
// the others. Repeating it names the others again.
func (a *Activities) RevokeTasks(ctx context.Context, in RevokeTasksIn) (RevokeTasksOut, error) {
	var got db.TasksRevoked
	err := a.Store.Tx(ctx, func(tx *db.Tx) error {
		var err error
		got, err = tx.RevokeTasks(ctx, in.JobID, actor(activity.GetInfo(ctx)))
		return err
	})
	if err != nil {
		return RevokeTasksOut{}, fault.Internal(ctx, err)
	}
	out := RevokeTasksOut{Withdrawn: got.Withdrawn}
	for _, t := range got.Left {
		out.StillOpen = append(out.StillOpen, OpenTask{t.ID, t.Kind, t.Status})
	}
	return out, nil
}
