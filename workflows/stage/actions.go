package stage

import (
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// request is an accepted action on its way to the runner.
type request struct {
	action lifecycle.Action
	effect lifecycle.Effect
	ask    contract.ActionRequest
	via    string
	done   bool
	result contract.ActionResult
	err    error
}

// ways by which an action reaches the workflow, as the audit shows them.
const (
	viaUpdate = "update"
	viaSignal = "signal"
	viaCancel = "temporal_cancel"
)

// listen registers every way in before the first blocking call.
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
		r.temporalCancel = true
		if err := workflow.Await(c, func() bool { return r.loaded }); err != nil {
			return
		}
		ask := contract.ActionRequest{Actor: "temporal", Reason: "workflow cancellation requested"}
		_, _ = r.act(c, lifecycle.ActionCancel, ask, viaCancel)
	})
}

func (r *runner[S]) listenUpdate(a lifecycle.Action) {
	handler := func(c workflow.Context, ask contract.ActionRequest) (contract.ActionResult, error) {
		return r.act(c, a, ask, viaUpdate)
	}
	err := workflow.SetUpdateHandlerWithOptions(r.ctx, string(a), handler, workflow.UpdateHandlerOptions{
		Description: a.Doc() + ` Argument: {"actor": "you", "reason": "why"}.`,
		Validator:   func(ask contract.ActionRequest) error { return r.validate(a, ask) },
	})
	if err != nil {
		workflow.GetLogger(r.ctx).Error("update handler not registered", "action", a, "error", err)
	}
}

func (r *runner[S]) listenSignal(a lifecycle.Action) {
	ch := workflow.GetSignalChannelWithOptions(r.ctx, string(a), workflow.SignalChannelOptions{
		Description: a.Doc() + " A refused signal leaves an audit row only; the update of the same name answers.",
	})
	r.signals = append(r.signals, ch)
	workflow.Go(r.ctx, func(c workflow.Context) {
		for {
			var ask contract.ActionRequest
			if more := ch.Receive(c, &ask); !more {
				return
			}
			workflow.Go(c, func(c workflow.Context) { _, _ = r.act(c, a, ask, viaSignal) })
		}
	})
}

// validate is the Update's validator: it changes nothing and refuses with the
// reason and what is allowed. What it checks is checked again by act.
func (r *runner[S]) validate(a lifecycle.Action, ask contract.ActionRequest) error {
	if strings.TrimSpace(ask.Actor) == "" {
		return temporal.NewNonRetryableApplicationError(
			`actor is missing: pass {"actor": "your name", "reason": "why"}`, contract.ErrTypeActionInvalid, nil)
	}
	if len(ask.Actor) > 200 || len(ask.Reason) > 2000 {
		return temporal.NewNonRetryableApplicationError("actor takes 200 characters and reason 2000", contract.ErrTypeActionInvalid, nil)
	}
	if ask.AcceptRisk && strings.TrimSpace(ask.Reason) == "" {
		return temporal.NewNonRetryableApplicationError("accept_risk needs a reason", contract.ErrTypeActionInvalid, nil)
	}
	if !r.loaded {
		return nil // act waits for the state and checks then
	}
	if _, known := r.answered[key(a, ask)]; known {
		return nil
	}
	if v := r.verdict(a); !v.Allowed {
		return r.refusal(a, v.Reason)
	}
	return nil
}

func (r *runner[S]) verdict(a lifecycle.Action) lifecycle.Verdict {
	return lifecycle.Decide(a, r.status, r.facts())
}

func (r *runner[S]) facts() lifecycle.JobFacts {
	return lifecycle.JobFacts{WaitingOutside: r.waitingOutside()}
}

func (r *runner[S]) refusal(a lifecycle.Action, reason string) error {
	e := &lifecycle.ActionRefusedError{
		Action: a, Status: r.status, Reason: reason, Allowed: lifecycle.AllowedActions(r.status, r.facts()),
	}
	return temporal.NewNonRetryableApplicationError(e.Error(), contract.ErrTypeActionRefused, nil, e.Allowed)
}

// act takes one action to its end: decided on the present state, handed to the
// runner, answered when the runner has begun to carry it out. A repetition with
// the same key gets the first answer.
func (r *runner[S]) act(c workflow.Context, a lifecycle.Action, ask contract.ActionRequest, via string) (contract.ActionResult, error) {
	c, _ = workflow.NewDisconnectedContext(c) // a Temporal cancel must not cut off an answer or its audit row
	r.acting++
	defer func() { r.acting-- }()
	if err := workflow.Await(c, func() bool { return r.loaded }); err != nil {
		return contract.ActionResult{}, err
	}
	if res, known := r.answered[key(a, ask)]; known && ask.IdempotencyKey != "" {
		return res, nil
	}
	if err := r.validate(a, ask); err != nil {
		return contract.ActionResult{}, r.refused(c, a, ask, via, err)
	}
	v := r.verdict(a)
	if twin := r.queued(a, ask.AcceptRisk); v.Effect == lifecycle.EffectNoop || twin != nil {
		return r.join(c, a, ask, via, twin)
	}
	req := &request{action: a, effect: v.Effect, ask: ask, via: via}
	r.inbox = append(r.inbox, req)
	if r.interrupt != nil {
		r.interrupted = true
		r.interrupt()
	}
	if err := workflow.Await(c, func() bool { return req.done }); err != nil {
		return contract.ActionResult{}, err
	}
	return req.result, req.err
}

// join answers an action that changes nothing: the goal is reached already, or
// the same action is on its way for somebody else.
func (r *runner[S]) join(c workflow.Context, a lifecycle.Action, ask contract.ActionRequest, via string, twin *request) (contract.ActionResult, error) {
	r.audit(a, ask, via, lifecycle.EffectNoop, "")
	if twin != nil {
		if err := workflow.Await(c, func() bool { return twin.done }); err != nil {
			return contract.ActionResult{}, err
		}
		if twin.err != nil {
			return contract.ActionResult{}, twin.err
		}
	}
	if err := r.project(c, nil); err != nil {
		return contract.ActionResult{}, err
	}
	return r.remember(a, ask, lifecycle.EffectNoop), nil
}

func (r *runner[S]) refused(c workflow.Context, a lifecycle.Action, ask contract.ActionRequest, via string, err error) error {
	r.audit(a, ask, via, lifecycle.EffectRefuse, err.Error())
	if perr := r.project(c, nil); perr != nil {
		return perr
	}
	return err
}

func (r *runner[S]) audit(a lifecycle.Action, ask contract.ActionRequest, via string, e lifecycle.Effect, refused string) {
	r.entries = append(r.entries, contract.ActionEntry{
		Action: a, Actor: ask.Actor, Reason: ask.Reason, Via: via, Effect: e, Refused: refused,
	})
}

func (r *runner[S]) queued(a lifecycle.Action, risk bool) *request {
	if i := slices.IndexFunc(r.inbox, func(q *request) bool { return q.action == a && q.ask.AcceptRisk == risk && !q.done }); i >= 0 {
		return r.inbox[i]
	}
	return nil
}

func (r *runner[S]) takeRequest() *request {
	req := r.inbox[0]
	r.inbox = r.inbox[1:]
	return req
}

const rememberedAnswers = 200

func (r *runner[S]) remember(a lifecycle.Action, ask contract.ActionRequest, e lifecycle.Effect) contract.ActionResult {
	res := contract.ActionResult{Action: a, Effect: e, Status: r.status, Stage: r.stageName()}
	if ask.IdempotencyKey != "" && len(r.answered) < rememberedAnswers {
		r.answered[key(a, ask)] = res
	}
	return res
}

func key(a lifecycle.Action, ask contract.ActionRequest) string {
	return string(a) + "/" + ask.IdempotencyKey
}

// obey carries out one action at a safe point. The state may have moved since
// the action was accepted, so the matrix is asked once more.
func (r *runner[S]) obey(req *request) error {
	v := r.verdict(req.action)
	if !v.Allowed {
		return r.answer(req, r.refused(r.ctx, req.action, req.ask, req.via, r.refusal(req.action, v.Reason)))
	}
	req.effect = v.Effect
	r.by = req.ask.Actor
	r.audit(req.action, req.ask, req.via, req.effect, "")
	switch req.effect {
	case lifecycle.EffectCancel:
		if err := r.answerAs(req, lifecycle.JobCompensating); err != nil {
			return err
		}
		return r.compensateFor(forCancel)
	case lifecycle.EffectRestart:
		if err := r.answerAs(req, lifecycle.JobCompensating); err != nil {
			return err
		}
		return r.compensateFor(forRestart)
	case lifecycle.EffectFreeze:
		err := r.freeze(req)
		return r.answer(req, err)
	case lifecycle.EffectAdopt:
		return r.adopt(req)
	case lifecycle.EffectRetryStage, lifecycle.EffectContinue, lifecycle.EffectFromTop:
		return r.resume(req)
	case lifecycle.EffectRefuse, lifecycle.EffectNoop:
	}
	return r.answer(req, r.project(r.ctx, nil))
}

// resume puts a parked job back to work. A compensation that had failed is
// taken up where it stopped.
func (r *runner[S]) resume(req *request) error {
	r.frozen = false
	if r.purpose != forNothing {
		if err := r.answerAs(req, lifecycle.JobCompensating); err != nil {
			return err
		}
		return r.compensateFor(r.purpose)
	}
	switch req.effect {
	case lifecycle.EffectFromTop:
		r.pendFrom(0)
		r.at, r.observe = 0, true
	case lifecycle.EffectContinue:
		r.observe = true
	default:
		r.observe = false
	}
	r.failure, r.status = nil, lifecycle.JobRunning
	return r.answer(req, r.project(r.ctx, r.startMove()))
}

// freeze parks the job until a person releases it.
func (r *runner[S]) freeze(req *request) error {
	r.frozen = true
	msg := "frozen by " + req.ask.Actor
	if req.ask.Reason != "" {
		msg += ": " + req.ask.Reason
	}
	return r.park(contract.Failure{Class: lifecycle.FailFrozen, Stage: r.stageName(), Message: msg})
}

// adopt accepts an outside state that got ahead of the job: only for listed
// pairs of stage and observed state, or at a person's declared risk.
func (r *runner[S]) adopt(req *request) error {
	if r.purpose != forNothing {
		return r.refuseAdopt(req, "clean-up has begun and must end first: resume it, cancel or restart clean")
	}
	if r.at >= len(r.def.Stages) {
		return r.answer(req, nil)
	}
	st := r.def.Stages[r.at]
	if st.Observe == nil {
		return r.refuseAdopt(req, fmt.Sprintf("stage %s has no outside state to observe", st.Name))
	}
	at := workflow.Now(r.ctx).Add(r.stageDeadline(st))
	o, err := st.Observe(workflow.WithValue(r.ctx, deadlineKey, at), r.state)
	if err != nil {
		return r.refuseAdopt(req, "the outside could not be observed: "+failureOf(err).Message)
	}
	if !o.Done && !slices.Contains(st.Adoptable, o.State) && !req.ask.AcceptRisk {
		return r.refuseAdopt(req, fmt.Sprintf("(%s, %s) is not a pair that may be adopted; adoptable here: %s",
			st.Name, o.State, strings.Join(st.Adoptable, ", ")))
	}
	row := &r.rows[r.at]
	row.State, row.FinishedAt, row.Message = contract.StageAdopted, r.now(), "adopted: "+o.State
	r.adopted, r.observe, r.frozen = true, true, false
	r.failure, r.status = nil, lifecycle.JobRunning
	r.at++
	return r.answer(req, r.project(r.ctx, nil))
}

func (r *runner[S]) refuseAdopt(req *request, reason string) error {
	if n := len(r.entries); n > 0 {
		r.entries = r.entries[:n-1] // obey noted it as allowed
	}
	return r.answer(req, r.refused(r.ctx, req.action, req.ask, req.via, r.refusal(req.action, reason)))
}

// answerAs answers with the state that is about to be entered.
func (r *runner[S]) answerAs(req *request, s lifecycle.JobStatus) error {
	r.status = s
	return r.answer(req, nil)
}

// answer ends a request. A refusal goes to whoever asked; any other error is
// the runner's own.
func (r *runner[S]) answer(req *request, err error) error {
	req.done = true
	if err == nil {
		req.result = r.remember(req.action, req.ask, req.effect)
		return nil
	}
	req.err = err
	if isRefusal(err) {
		return nil
	}
	return err
}

func isRefusal(err error) bool {
	app, ok := err.(*temporal.ApplicationError) //nolint:errorlint // made here, never wrapped
	return ok && (app.Type() == contract.ErrTypeActionRefused || app.Type() == contract.ErrTypeActionInvalid)
}
