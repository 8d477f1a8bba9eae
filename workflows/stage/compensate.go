package stage

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	undoAttempts = 4
	undoDeadline = 30 * time.Minute
	undoSlack    = 5 * time.Minute // for its proof, and the pause before the next try
)

// compensateFor undoes every stage that was begun, the newest first, and proves that nothing is
// left of them. Then the job ends cancelled or starts from the top, as the purpose says. req, which
// may be nil, is answered when the clean-up has begun.
func (r *runner[S]) compensateFor(p purpose, req *request) error {
	r.purpose = p
	r.enter(lifecycle.JobCompensating)
	r.failure, r.frozen, r.wait.stage = nil, false, ""
	r.setUndoDeadline()
	if req != nil {
		r.recordAction(req)
	}
	err := r.project(r.ctx, nil)
	if req != nil {
		err = r.finishRequest(req, err)
	}
	if err != nil {
		return err
	}
	if err := r.drainInbox(); err != nil {
		return err
	}
	if r.phase.Overtaken() {
		return errEnded
	}
	for i := len(r.def.Stages) - 1; i >= 0; i-- {
		// Attempts tell what was begun, also when a later pass skipped the stage.
		if row := r.rows[i]; row.Attempts == 0 || row.State == lifecycle.StageCompensated || r.def.Stages[i].Undo == nil {
			continue
		}
		if has := r.def.Stages[i].HasUndo; has != nil && !has(r.state, r.rows[i]) {
			continue
		}
		if f := r.undo(r.def.Stages[i]); f != nil {
			return r.parkCompensation(i, *f)
		}
		row := &r.rows[i]
		row.State, row.FinishedAt, row.Message, row.FailureClass = lifecycle.StageCompensated, r.now(), "", ""
		r.setUndoDeadline()
		if err := r.project(r.ctx, nil); err != nil {
			return err
		}
	}
	if i, f := r.verifyAllUndone(); f != nil {
		return r.parkCompensation(i, *f)
	}
	p, r.purpose, r.deadline = r.purpose, forNothing, nil
	if p == forRestart {
		return r.startOver()
	}
	r.failure = r.gaveUp // the row says why the job ended
	r.enter(lifecycle.JobCancelled)
	return r.project(r.ctx, r.moveOf(r.def.Cancelled))
}

// setUndoDeadline sets the deadline that a clean-up shows. By then the next undo, or the last check
// of all of them, has ended or has parked the job.
func (r *runner[S]) setUndoDeadline() {
	at := workflow.Now(r.ctx).Add(undoAttempts * (undoDeadline + undoSlack))
	r.deadline = &at
}

// parkCompensation parks a clean-up because the undo of a stage failed. The undo is tried again
// when an operator resumes the clean-up.
func (r *runner[S]) parkCompensation(i int, f contract.Failure) error {
	row := &r.rows[i]
	row.State, row.FinishedAt, row.Message, row.FailureClass = lifecycle.StageFailed, r.now(), f.Message, f.Class
	return r.park(f)
}

// undo undoes one stage, in several attempts if needed. Each attempt reads the outside system first
// and proves the result.
func (r *runner[S]) undo(st Stage[S]) *contract.Failure {
	return r.retry(st, "undoing %s failed: %s", func(ctx workflow.Context) error {
		if err := st.Undo(ctx, r.state); err != nil {
			return err
		}
		return r.verifyUndo(ctx, st)
	})
}

// verifyAllUndone checks all undone stages once more after the last undo. Something that one undo
// removed may have come back while another stage was undone.
func (r *runner[S]) verifyAllUndone() (int, *contract.Failure) {
	for i := len(r.def.Stages) - 1; i >= 0; i-- {
		st := r.def.Stages[i]
		if r.rows[i].State != lifecycle.StageCompensated || st.VerifyUndo == nil {
			continue
		}
		if f := r.retry(st, "%s was undone, but %s", func(ctx workflow.Context) error { return r.verifyUndo(ctx, st) }); f != nil {
			return i, f
		}
	}
	return 0, nil
}

// verifyUndo returns an error that names what is left of a stage.
func (r *runner[S]) verifyUndo(ctx workflow.Context, st Stage[S]) error {
	if st.VerifyUndo == nil {
		return nil
	}
	left, err := st.VerifyUndo(ctx, r.state)
	if err == nil && left != "" {
		err = Fail(lifecycle.FailCompensation, "it is not clean: %s", left)
	}
	return err
}

// retry repeats one part of a clean-up until it succeeds or its attempts are used up. says takes
// the stage and the last cause.
func (r *runner[S]) retry(st Stage[S], says string, do func(workflow.Context) error) *contract.Failure {
	var last contract.Failure
	for tried := 1; tried <= undoAttempts && !r.phase.Overtaken(); tried++ {
		ctx := workflow.WithValue(r.ctx, deadlineKey, workflow.Now(r.ctx).Add(undoDeadline))
		err := do(ctx)
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
	return &contract.Failure{Class: lifecycle.FailCompensation, Stage: st.Name, Message: fmt.Sprintf(says, st.Name, last.Message)}
}

// startOver begins again after a clean compensation.
func (r *runner[S]) startOver() error {
	if r.def.Reset != nil {
		r.def.Reset(r.state)
	}
	r.resetFrom(0)
	r.at, r.reached, r.outside.lookFirst, r.adopted, r.gaveUp = 0, 0, false, false, nil
	r.enter(lifecycle.JobRunning)
	return r.project(r.ctx, r.moveOf(r.def.Resumed))
}
