package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// mostAgain bounds how often a task may be replaced by another one.
const mostAgain = 1000

// AwaitTask creates a task for an activity that waits for its end. It returns true when the task
// has ended or is uncertain. Otherwise the activity is completed later. A repetition continues the
// wait.
//
// When in.UncertainCount is higher than that of the task, the job has learned before that the
// outcome is unknown, and an operator has let it continue. An uncertain task is then queued again,
// and an expired one is replaced. If a task was replaced, also by ResumeTask, the wait is for its
// replacement.
//
// It returns a ConflictError for a job that is not running (with in.Undo: not compensating), and
// for one that was compensated since the pass in.Pass. So a late execution cannot give the node a
// task that nobody would withdraw.
func (s *Store) AwaitTask(ctx context.Context, in NewTask) (t NodeTask, done bool, err error) {
	if in.Waiter == (TaskWaiter{}) {
		return NodeTask{}, false, errors.New("a wait for a task needs a waiter")
	}
	err = s.Tx(ctx, func(tx *Tx) error {
		if err := tx.RequireJobAtWork(ctx, in.JobID, in.Undo, in.Pass); err != nil {
			return err
		}
		ask := in
		for range mostAgain {
			var next string
			t, done, next, err = tx.await(ctx, ask)
			if err != nil || next == "" {
				return err
			}
			ask.Key = next
			if !ask.Deadline.IsZero() && !ask.Deadline.After(time.Now()) {
				ask.Deadline = time.Time{} // that was the deadline of the task before
			}
		}
		return fmt.Errorf("task %s of node %s was made again more than %d times", in.Key, in.NodeID, mostAgain)
	})
	return t, done, err
}

// RequireJobAtWork locks the status of a job until the transaction ends. It returns a ConflictError
// when the job is not running or, with undo, not compensating, and when it was compensated since
// the given pass; pass 0 is not known. It accepts "", which stands for a task without a job.
func (tx *Tx) RequireJobAtWork(ctx context.Context, jobID string, undo bool, pass int) error {
	if jobID == "" {
		return nil
	}
	want := lifecycle.JobRunning
	if undo {
		want = lifecycle.JobCompensating
	}
	job, err := tx.q.HoldJobStatus(ctx, jobID)
	if err != nil {
		return MapError("job "+jobID, err)
	}
	if job.Status != want {
		return &ConflictError{Message: fmt.Sprintf("job %s is %s, and asks for this task only while it is %s", jobID, job.Status, want)}
	}
	if now := PassOf(job.Compensations); pass != 0 && pass != now {
		return &ConflictError{Message: fmt.Sprintf("job %s was taken back since: this task is of its pass %d, and it is at pass %d", jobID, pass, now)}
	}
	return nil
}

// PassOf returns the pass of a job: 1, and one more for each compensation.
func PassOf(compensations int) int { return compensations + 1 }

// await does the work of AwaitTask for one key. next is the key of the task that has replaced, or
// now replaces, it.
func (tx *Tx) await(ctx context.Context, in NewTask) (t NodeTask, done bool, next string, err error) {
	t, created, err := tx.EnqueueTask(ctx, in)
	if err != nil || created {
		return t, false, "", err
	}
	if t, err = tx.LockTask(ctx, t.ID); err != nil {
		return t, false, "", err
	}
	decided := in.UncertainCount > t.UncertainCount
	if decided {
		if err := tx.q.SetTaskUncertainCount(ctx, gen.SetTaskUncertainCountParams{ID: t.ID, UncertainCount: in.UncertainCount}); err != nil {
			return t, false, "", MapError("task "+t.ID, err)
		}
	}
	switch {
	case t.Status == lifecycle.TaskUncertain && decided:
		t, err = tx.requeue(ctx, t, in.Actor)
		return t, false, "", err
	case t.Status != lifecycle.TaskUncertain && !lifecycle.NodeTask.Terminal(t.Status):
		return t, false, "", nil
	}
	// The relay must not complete the activity for this task.
	if err := tx.TellWaiter(ctx, t.ID, in.Waiter); err != nil {
		return t, false, "", err
	}
	if t.Status == lifecycle.TaskSucceeded || t.Status == lifecycle.TaskUncertain {
		return t, true, "", nil
	}
	_, err = tx.TaskByKey(ctx, t.NodeID, keyAfter(t))
	switch {
	case err == nil, errors.Is(err, ErrNotFound) && decided && t.Status == lifecycle.TaskExpired:
		return t, false, keyAfter(t), nil
	case errors.Is(err, ErrNotFound):
		err = nil
	}
	return t, true, "", err
}

// LockTask reads one task and locks it until the transaction ends.
func (tx *Tx) LockTask(ctx context.Context, id string) (NodeTask, error) {
	row, err := tx.lockTask(ctx, id)
	return row.NodeTask, err
}
