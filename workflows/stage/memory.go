package stage

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// answer is what an action with a key was told. The newest of them travel in
// the checkpoint, so that a repetition is recognised by the run after a restart
// or a continue-as-new too.
type answer struct {
	Key     string                        `json:"key"`
	Result  contract.ActionResult         `json:"result"`
	Refused *lifecycle.ActionRefusedError `json:"refused,omitempty"`
}

func (a answer) err() error {
	if a.Refused == nil {
		return nil
	}
	return contract.Refusal(*a.Refused)
}

// rememberedAnswers bounds them: about 20 kB of checkpoint at the most usual.
const rememberedAnswers = 64

func key(a lifecycle.Action, ask contract.ActionRequest) string {
	return string(a) + "/" + ask.IdempotencyKey
}

// remember keeps an answer under the request's key, in place of the oldest. It
// is called before the projection of what the action did, which stores both.
func (r *runner[S]) remember(ask contract.ActionRequest, a answer) {
	if ask.IdempotencyKey == "" {
		return
	}
	a.Key = key(a.Result.Action, ask)
	r.answered = append(r.answered, a)
	if n := len(r.answered) - rememberedAnswers; n > 0 {
		r.answered = slices.Delete(r.answered, 0, n)
	}
}

func (r *runner[S]) recall(a lifecycle.Action, ask contract.ActionRequest) (answer, bool) {
	if ask.IdempotencyKey == "" {
		return answer{}, false
	}
	i := slices.IndexFunc(r.answered, func(known answer) bool { return known.Key == key(a, ask) })
	if i < 0 {
		return answer{}, false
	}
	return r.answered[i], true
}

// Each action, refused ones too, and each look at the outside fills the history
// of its run. When Temporal says that it is long enough, a safe point ends the
// run and the next one takes up the projected state.

// full reports that this run should end.
func (r *runner[S]) full() bool { return workflow.GetInfo(r.ctx).GetContinueAsNewSuggested() }

// makeRoom brings a stage that waits outside to a safe point when the history is
// full: it may wait for hours, and actions may come all the while.
func (r *runner[S]) makeRoom() {
	if r.full() {
		r.interruptStage()
	}
}

// continueAsNew ends the run at a safe point once nobody waits for an answer,
// with the deadline of the stage that was left, which goes on. An action that
// comes meanwhile is done first.
func (r *runner[S]) continueAsNew() error {
	if err := workflow.Await(r.ctx, func() bool { return len(r.inbox) > 0 || r.quiet() }); err != nil || len(r.inbox) > 0 {
		return err
	}
	r.leaving = true
	err := r.project(r.ctx, nil)
	r.leaving = false
	if err != nil {
		return err
	}
	if !r.quiet() {
		return nil // somebody came while that was written
	}
	return errContinueAsNew
}
