package stage

import (
	"errors"

	"go.temporal.io/sdk/workflow"
)

// Each action, also a refused one, and each observation fills the history of its run. When Temporal
// says that it is long enough, the run ends at a safe point and the next one takes up the projected
// state.

// shouldContinueAsNew reports that the history of this run is long enough.
func (r *runner[S]) shouldContinueAsNew() bool {
	return workflow.GetInfo(r.ctx).GetContinueAsNewSuggested()
}

// interruptForContinueAsNew brings a stage that waits outside to a safe point when the history is
// full: it may wait for hours, and actions may come all the while.
func (r *runner[S]) interruptForContinueAsNew() {
	if r.shouldContinueAsNew() {
		r.interruptStage()
	}
}

// continueAsNew ends the run at a safe point once nobody waits for an answer,
// with the deadline of the stage that was left, which goes on. An action that
// comes meanwhile is done first.
func (r *runner[S]) continueAsNew() error {
	if err := workflow.Await(r.ctx, func() bool { return len(r.inbox) > 0 || r.allAnswered() }); err != nil || len(r.inbox) > 0 {
		return err
	}
	r.continuing = true
	err := r.project(r.ctx, nil)
	r.continuing = false
	if err != nil {
		return err
	}
	if !r.allAnswered() {
		return nil // an action came while that was written
	}
	return errContinueAsNew
}

var errHistoryFull = errors.New("the history of the run is full")

// CheckHistory returns an error when the history of this run is long enough, which a stage's Run
// returns at a point at which it may begin again. The next run begins the stage again, with the
// deadline that it had. A stage that something outside may wake without bound checks at each wake.
func CheckHistory(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return errHistoryFull
	}
	return nil
}
