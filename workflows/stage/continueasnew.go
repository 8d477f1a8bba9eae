package stage

import (
	"errors"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// Each action, also a refused one, and each observation adds to the history of its run. When
// Temporal suggests it, the run ends at a safe point, and the next run continues from the projected
// state.

// shouldContinueAsNew reports whether the history of this run is long enough.
func (r *runner[S]) shouldContinueAsNew() bool {
	return workflow.GetInfo(r.ctx).GetContinueAsNewSuggested()
}

// interruptForContinueAsNew interrupts a stage that waits for an outside system when the history is
// full. Such a stage may wait for hours, and actions may come all the time.
func (r *runner[S]) interruptForContinueAsNew() {
	if r.shouldContinueAsNew() {
		r.interruptStage()
	}
}

// continueAsNew ends the run at a safe point, when no action waits for an answer. The interrupted
// stage continues in the next run with its old deadline. An action that comes meanwhile is carried
// out first.
func (r *runner[S]) continueAsNew() error {
	if err := workflow.Await(r.ctx, func() bool { return len(r.inbox.queue) > 0 || r.phase.Overtaken() || r.allAnswered() }); err != nil || len(r.inbox.queue) > 0 || r.phase.Overtaken() {
		return err
	}
	r.move(lifecycle.RunnerContinuing)
	err := r.project(r.ctx, nil)
	if err == nil && r.allAnswered() {
		return errContinueAsNew
	}
	r.move(lifecycle.RunnerPhaseOf(r.status)) // an action came while that was written
	return err
}

var errHistoryFull = errors.New("the history of the run is full")

// CheckHistory returns an error when the history of this run is long enough. A stage's Run returns
// that error at a point from which it may be repeated; the next run repeats the stage with the
// deadline that it had. A stage that outside events can wake any number of times calls it at each
// wake.
func CheckHistory(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return errHistoryFull
	}
	return nil
}
