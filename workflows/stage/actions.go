package stage

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The ways in which an action reaches the workflow, as the audit log names them.
const (
	viaUpdate = "update"
	viaSignal = "signal"
	viaCancel = contract.ViaTemporalCancel
)

// listen registers all handlers of actions before the first blocking call.
func (r *runner[S]) listen(root workflow.Context) {
	for _, a := range lifecycle.Actions {
		r.listenUpdate(a)
		r.listenSignal(a)
	}
	workflow.Go(r.ctx, func(c workflow.Context) {
		if root.Done() == nil {
			return
		}
		root.Done().Receive(c, nil)
		_, _ = r.act(c, lifecycle.ActionCancel, contract.ActionRequest{Actor: "temporal", Reason: "workflow cancellation requested"}, viaCancel)
	})
}

// listenUpdate takes an action as an Update. Its validator rejects only malformed requests, because
// a rejected Update leaves no event in the history and so no audit row. The handler refuses, and
// audits, what the matrix does not allow (ADR 8).
func (r *runner[S]) listenUpdate(a lifecycle.Action) {
	handler := func(c workflow.Context, ask contract.ActionRequest) (contract.ActionResult, error) {
		return r.act(c, a, ask, viaUpdate)
	}
	err := workflow.SetUpdateHandlerWithOptions(r.ctx, string(a), handler, workflow.UpdateHandlerOptions{
		Description: a.Doc() + ` Argument: ` + argumentOf(a),
		Validator:   malformed,
	})
	if err != nil {
		workflow.GetLogger(r.ctx).Error("update handler not registered", "action", a, "error", err)
	}
}

// argumentOf shows an argument of an action. Only a payment takes a resolution.
func argumentOf(a lifecycle.Action) string {
	if a == lifecycle.ActionAdopt {
		return `{"actor": "you", "reason": "why"}; of a payment also "resolution": "credit", "suspense" or "write_off".`
	}
	return `{"actor": "you", "reason": "why"}.`
}

func (r *runner[S]) listenSignal(a lifecycle.Action) {
	ch := workflow.GetSignalChannelWithOptions(r.ctx, string(a), workflow.SignalChannelOptions{
		Description: a.Doc() + " A refused signal leaves an audit row only; the update of the same name answers.",
	})
	r.inbox.signals = append(r.inbox.signals, ch)
	workflow.Go(r.ctx, func(c workflow.Context) {
		for {
			// The signal is received undecoded. A signal that is no request is refused with an
			// audit row; the SDK would drop it without an error.
			var raw json.RawMessage
			if more := ch.Receive(c, &raw); !more {
				return
			}
			var ask contract.ActionRequest
			if json.Unmarshal(raw, &ask) != nil {
				ask = contract.ActionRequest{}
			}
			workflow.Go(c, func(c workflow.Context) { _, _ = r.act(c, a, ask, viaSignal) })
		}
	})
}

const maxKey = 200

// malformed returns why a request is invalid in every state of a job.
func malformed(ask contract.ActionRequest) error {
	switch {
	case strings.TrimSpace(ask.Actor) == "":
		return invalid(`actor is missing: pass {"actor": "your name", "reason": "why"}`)
	case len(ask.Actor) > contract.MaxActor || len(ask.Reason) > contract.MaxReason || len(ask.IdempotencyKey) > maxKey:
		return invalid("actor and idempotency_key take 200 bytes and reason 2000; shorten it")
	case ask.AcceptRisk && strings.TrimSpace(ask.Reason) == "":
		return invalid("accept_risk needs a reason")
	case ask.Resolution != "" && !slices.Contains(lifecycle.AdoptResolutions, ask.Resolution):
		return invalid("resolution must be " + lifecycle.OneOf(lifecycle.AdoptResolutions))
	case !ask.Proof.WellFormed():
		return invalid("the proof is malformed; leave it out: only the Slipway API makes proofs")
	}
	return nil
}

func invalid(what string) error {
	return temporal.NewNonRetryableApplicationError(what, contract.ErrTypeActionInvalid, nil)
}

func (r *runner[S]) verdict(a lifecycle.Action) lifecycle.Verdict {
	return lifecycle.Decide(a, r.status, r.facts())
}

func (r *runner[S]) facts() lifecycle.JobFacts {
	f := lifecycle.JobFacts{WaitingOutside: r.waitingOutside(), CleanUp: r.purpose != forNothing}
	if r.at < len(r.def.Stages) && r.def.Stages[r.at].Observe == nil {
		f.Unobserved = r.stageName()
	}
	return f
}

func (r *runner[S]) refusal(a lifecycle.Action, reason string) error {
	// The kind of job may refuse more than is known here, for reasons that only an activity reads.
	allowed := slices.DeleteFunc(contract.AllowedActions(r.def.Kind, r.status, r.facts(), contract.SubjectFacts{}), func(b lifecycle.Action) bool { return a == b })
	return contract.Refusal(lifecycle.ActionRefusedError{Action: a, Status: r.status, Reason: reason, Allowed: allowed})
}

// act carries one action to its end and writes one audit row. A repetition, by its key, gets the
// first answer and writes nothing. If no other action is under way, the action is decided at once.
// If the same action is under way, it joins that one. Otherwise it waits for its turn, and is
// decided on the state that the others leave.
func (r *runner[S]) act(c workflow.Context, a lifecycle.Action, ask contract.ActionRequest, via string) (contract.ActionResult, error) {
	c, _ = workflow.NewDisconnectedContext(c) // a Temporal cancel must not cut off an answer or its audit row
	r.inbox.unanswered++
	r.inbox.undecided++
	// Nothing here is deferred. Temporal runs deferred calls also when it removes the workflow from
	// memory, those of all coroutines at once.
	res, err := r.decide(c, a, ask, via)
	r.inbox.unanswered--
	r.interruptForContinueAsNew()
	return res, err
}

// ruling is what becomes of an action. The first field that is set decides.
type ruling struct {
	known   *answer  // it has been answered before
	repeats *request // the same request is under way
	refused error
	joins   *request // the same action of somebody else is under way
	isNoop  bool     // its goal is reached already
	queued  *request // its turn comes
}

// rule decides an action, in a phase that takes actions, by the matrix and by the requests that are
// not answered. It changes nothing.
func (r *runner[S]) rule(a lifecycle.Action, ask contract.ActionRequest, via string) ruling {
	if first, known := r.findAnswer(a, ask); known {
		return ruling{known: &first}
	}
	if first := r.inbox.findRepeated(a, ask); first != nil {
		return ruling{repeats: first}
	}
	if bad := malformed(ask); bad != nil {
		return ruling{refused: bad}
	}
	if same := r.inbox.findSameAction(a, ask); same != nil {
		return ruling{joins: same}
	}
	v := r.verdict(a)
	isFirst := len(r.inbox.underway()) == 0 && r.phase != lifecycle.RunnerEnding
	switch {
	case isFirst && !v.Allowed:
		return ruling{refused: r.refusal(a, v.Reason)}
	case isFirst && v.Effect == lifecycle.EffectNoop:
		return ruling{isNoop: true}
	}
	return ruling{queued: &request{action: a, effect: v.Effect, ask: ask.Fit(), via: via}}
}

// decide waits until the phase takes actions, and answers the action as rule says.
func (r *runner[S]) decide(c workflow.Context, a lifecycle.Action, ask contract.ActionRequest, via string) (contract.ActionResult, error) {
	err := workflow.Await(c, func() bool { return r.phase.TakesActions() })
	r.inbox.undecided-- // nothing below yields before the action is queued or answered
	if err != nil {
		return contract.ActionResult{}, err
	}
	is := r.rule(a, ask, via)
	switch {
	case is.known != nil:
		r.remember(ask.Proof)
		return is.known.Result, is.known.err()
	case is.repeats != nil:
		err := workflow.Await(c, func() bool { return is.repeats.done })
		return is.repeats.result, cmp.Or(err, is.repeats.err)
	case is.refused != nil:
		if malformed(ask) != nil {
			ask.Proof = nil
		}
		return contract.ActionResult{}, r.recordRefusal(c, a, ask.Fit(), via, is.refused)
	case is.joins != nil || is.isNoop:
		return r.join(c, a, ask.Fit(), via, is.joins)
	}
	return r.enqueue(c, is.queued)
}

// enqueue hands a request to the runner and waits until it is answered.
func (r *runner[S]) enqueue(c workflow.Context, req *request) (contract.ActionResult, error) {
	r.inbox.queue = append(r.inbox.queue, req)
	r.interruptStage()
	if err := workflow.Await(c, func() bool { return req.done }); err != nil {
		return contract.ActionResult{}, err
	}
	return req.result, req.err
}

// interruptStage ends the wait of a stage that waits for an outside system, if there is one.
func (r *runner[S]) interruptStage() {
	if r.wait.cancel != nil {
		r.wait.interrupted = true
		r.wait.cancel()
	}
}

// join answers an action that changes nothing, because its goal is reached already, or because the
// same action of somebody else is under way, whose answer it then gets.
func (r *runner[S]) join(c workflow.Context, a lifecycle.Action, ask contract.ActionRequest, via string, same *request) (contract.ActionResult, error) {
	res := contract.ActionResult{Action: a, Effect: lifecycle.EffectNoop, Status: r.status, Stage: r.stageName()}
	if same != nil {
		if err := workflow.Await(c, func() bool { return same.done }); err != nil {
			return contract.ActionResult{}, err
		}
		if same.err != nil {
			return contract.ActionResult{}, r.recordRefusal(c, a, ask, via, same.err)
		}
		res.Status, res.Stage = same.result.Status, same.result.Stage
	}
	r.cancelRestart(a)
	r.audit(a, ask, via, lifecycle.EffectNoop, "")
	r.keepAnswer(ask, answer{Result: res})
	return res, r.projectAnswer(c)
}

// cancelRestart handles a cancel that comes during the clean-up of a restart. The clean-up
// continues, and nothing is started after it.
func (r *runner[S]) cancelRestart(a lifecycle.Action) {
	if a == lifecycle.ActionCancel && r.purpose == forRestart {
		r.purpose = forCancel
	}
}

// recordRefusal writes the audit row of a refusal and returns it.
func (r *runner[S]) recordRefusal(c workflow.Context, a lifecycle.Action, ask contract.ActionRequest, via string, why error) error {
	text := why.Error()
	if e, ok := contract.RefusalOf(why); ok {
		text = e.WithAllowed()
		r.keepAnswer(ask, answer{Result: contract.ActionResult{Action: a}, Refused: e})
	}
	r.audit(a, ask, via, lifecycle.EffectRefuse, text)
	return cmp.Or(r.projectAnswer(c), why)
}

// projectAnswer writes the audit row of an action that has no effect. If the job has ended
// meanwhile, the row is written when the run leaves. If the node cannot make the move that the
// runner waits to store, the runner parks the job, and the row is written with that.
func (r *runner[S]) projectAnswer(c workflow.Context) error {
	err := r.project(c, nil)
	if errors.Is(err, errEnded) || r.unstored.move != nil && err != nil && isPermanent(err) {
		return nil
	}
	return err
}

func (r *runner[S]) audit(a lifecycle.Action, ask contract.ActionRequest, via string, e lifecycle.Effect, refused string) {
	entry := ask.Entry(a)
	entry.Via, entry.Effect, entry.Refused = via, e, refused
	r.unstored.entries = append(r.unstored.entries, entry)
}
