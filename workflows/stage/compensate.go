package stage

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

const (
	undoAttempts = 4
	undoDeadline = 30 * time.Minute
)

// compensateFor undoes, newest first, every stage that was begun, and then
// does what it was done for: end cancelled, or start from the top.
func (r *runner[S]) compensateFor(p purpose) error {
	r.purpose, r.status = p, lifecycle.JobCompensating
	r.failure, r.deadline = nil, nil
	if err := r.project(r.ctx, nil); err != nil {
		return err
	}
	for i := len(r.def.Stages) - 1; i >= 0; i-- {
		st, row := r.def.Stages[i], &r.rows[i]
		// Attempts tell what was begun, also when a later pass skipped the stage.
		if row.Attempts == 0 || row.State == contract.StageCompensated || st.Undo == nil {
			continue
		}
		if f := r.undo(st); f != nil {
			row.Message = f.Message
			return r.park(*f)
		}
		row.State, row.FinishedAt, row.Message = contract.StageCompensated, r.now(), ""
		if err := r.project(r.ctx, nil); err != nil {
			return err
		}
	}
	r.purpose = forNothing
	if p == forRestart {
		return r.startOver()
	}
	r.status = lifecycle.JobCancelled
	return r.project(r.ctx, r.nodeMove(r.def.Cancelled))
}

// undo takes one compensation through its attempts, each re-reading first.
func (r *runner[S]) undo(st Stage[S]) *contract.Failure {
	var last contract.Failure
	for tried := 1; tried <= undoAttempts; tried++ {
		at := workflow.Now(r.ctx).Add(undoDeadline)
		ctx := workflow.WithValue(r.ctx, deadlineKey, at)
		err := st.Undo(ctx, r.state)
		if err == nil {
			return nil
		}
		last = failureOf(err)
		if tried < undoAttempts {
			if serr := workflow.Sleep(r.ctx, firstBackoff<<(tried-1)); serr != nil {
				break
			}
		}
	}
	return &contract.Failure{
		Class: lifecycle.FailCompensation, Stage: st.Name,
		Message: fmt.Sprintf("undoing %s failed: %s", st.Name, last.Message),
	}
}

// startOver begins again after a clean compensation.
func (r *runner[S]) startOver() error {
	if r.def.Reset != nil {
		r.def.Reset(r.state)
	}
	r.pendFrom(0)
	r.at, r.observe, r.adopted, r.status = 0, false, false, lifecycle.JobRunning
	return r.project(r.ctx, nil)
}
