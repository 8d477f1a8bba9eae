package stage

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// request is an action on its way to the runner.
type request struct {
	action lifecycle.Action
	effect lifecycle.Effect
	ask    contract.ActionRequest
	via    string
	done   bool
	result contract.ActionResult
	err    error
}

// inbox holds the actions that are not answered yet.
type inbox struct {
	queue      []*request // oldest first
	current    *request   // the one that is being carried out
	unanswered int        // actions that wait for an answer
	undecided  int        // those among them that wait until the phase takes actions
	signals    []workflow.ReceiveChannel
}

// signalled reports whether a signal has arrived that was not received yet.
func (b *inbox) signalled() bool {
	return slices.ContainsFunc(b.signals, func(ch workflow.ReceiveChannel) bool { return ch.Len() > 0 })
}

// underway lists the requests that are not answered, oldest first.
func (b *inbox) underway() []*request {
	if b.current != nil && !b.current.done {
		return append([]*request{b.current}, b.queue...)
	}
	return b.queue
}

// findSameAction returns the same action that is under way, whoever requested it. A signed action
// never joins one that is not signed.
func (b *inbox) findSameAction(a lifecycle.Action, ask contract.ActionRequest) *request {
	return findRequest(b.underway(), func(q *request) bool {
		return q.action == a && q.ask.AcceptRisk == ask.AcceptRisk && q.ask.Resolution == ask.Resolution && (q.ask.Proof == nil) == (ask.Proof == nil)
	})
}

// findRepeated returns the request under way that has the same key.
func (b *inbox) findRepeated(a lifecycle.Action, ask contract.ActionRequest) *request {
	return findRequest(b.underway(), func(q *request) bool {
		return ask.IdempotencyKey != "" && q.action == a && q.ask.IdempotencyKey == ask.IdempotencyKey
	})
}

func findRequest(in []*request, is func(*request) bool) *request {
	if i := slices.IndexFunc(in, is); i >= 0 {
		return in[i]
	}
	return nil
}
