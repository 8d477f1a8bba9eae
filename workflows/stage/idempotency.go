package stage

import (
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// answer is the answer that an action with a key got. The checkpoint holds the newest answers, so
// that the run after a restart or a continue-as-new recognises a repetition too.
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

// rememberedAnswers bounds how many are kept: usually at most about 20 kB of the checkpoint.
const rememberedAnswers = 64

func key(a lifecycle.Action, ask contract.ActionRequest) string {
	return string(a) + "/" + ask.IdempotencyKey
}

// keepAnswer keeps an answer under the request's key, in place of the oldest. It
// is called before the projection of what the action did, which stores both.
func (r *runner[S]) keepAnswer(ask contract.ActionRequest, a answer) {
	if ask.IdempotencyKey == "" {
		return
	}
	a.Key = key(a.Result.Action, ask)
	r.answers = append(r.answers, a)
	if n := len(r.answers) - rememberedAnswers; n > 0 {
		r.answers = slices.Delete(r.answers, 0, n)
	}
}

func (r *runner[S]) findAnswer(a lifecycle.Action, ask contract.ActionRequest) (answer, bool) {
	if ask.IdempotencyKey == "" {
		return answer{}, false
	}
	i := slices.IndexFunc(r.answers, func(known answer) bool { return known.Key == key(a, ask) })
	if i < 0 {
		return answer{}, false
	}
	return r.answers[i], true
}
