package stage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// handleNext carries out the oldest request at a safe point. It checks the action matrix now,
// because the state may have changed since the request came.
func (r *runner[S]) handleNext() error {
	req := r.inbox.queue[0]
	r.inbox.current, r.inbox.queue = req, r.inbox.queue[1:]
	err := r.handle(req)
	r.inbox.current = nil
	return err
}

// handle carries out one request.
func (r *runner[S]) handle(req *request) error {
	v := r.verdict(req.action)
	if !v.Allowed {
		return r.refuse(req, v.Reason)
	}
	req.effect = v.Effect
	if v.Effect != lifecycle.EffectNoop {
		if why := r.refusalOfKind(req.action); why != "" {
			return r.refuse(req, why)
		}
	}
	switch req.effect {
	case lifecycle.EffectCancel:
		return r.compensateFor(forCancel, req)
	case lifecycle.EffectRestart:
		return r.compensateFor(forRestart, req)
	case lifecycle.EffectFreeze:
		return r.freeze(req)
	case lifecycle.EffectAdopt:
		return r.adopt(req)
	case lifecycle.EffectRetryStage, lifecycle.EffectContinue, lifecycle.EffectFromTop:
		return r.resume(req)
	case lifecycle.EffectRefuse, lifecycle.EffectNoop:
		r.cancelRestart(req.action) // one that came before the clean-up had begun
	}
	r.recordAction(req)
	return r.finishRequest(req, r.projectAnswer(r.ctx))
}

// refusalOfKind returns why the kind of the job refuses an action, or "".
func (r *runner[S]) refusalOfKind(a lifecycle.Action) string {
	kind, _ := contract.KindOf(r.def.Kind)
	var f contract.SubjectFacts
	if r.def.Subject != nil {
		f = r.def.Subject(r.ctx, r.state, a)
	}
	return kind.Refusal(a, f)
}

// recordAction records an action together with the state to which it leads. The next projection
// stores state, audit row and answer together.
func (r *runner[S]) recordAction(req *request) {
	r.unstored.by = req.ask.Actor
	r.audit(req.action, req.ask, req.via, req.effect, "")
	req.result = contract.ActionResult{Action: req.action, Effect: req.effect, Status: r.status, Stage: r.stageName()}
	r.keepAnswer(req.ask, answer{Result: req.result})
}

// resume lets a parked job continue. If its compensation had failed, any of these actions continues
// the compensation where it stopped, and the answer says so.
func (r *runner[S]) resume(req *request) error {
	switch r.purpose {
	case forNothing:
	case forCancel:
		req.effect = lifecycle.EffectCancel
		return r.compensateFor(forCancel, req)
	case forRestart:
		req.effect = lifecycle.EffectRestart
		return r.compensateFor(forRestart, req)
	}
	switch req.effect {
	case lifecycle.EffectFromTop:
		r.resetFrom(0)
		r.at, r.reached, r.outside.lookFirst = 0, 0, true
	case lifecycle.EffectContinue:
		r.outside.lookFirst = true
	default:
		r.outside.lookFirst = false
	}
	r.failure, r.frozen = nil, false
	r.enter(lifecycle.JobRunning)
	r.recordAction(req)
	move := r.startMove()
	if move == nil {
		move = r.moveOf(r.def.Resumed)
	}
	return r.finishRequest(req, r.project(r.ctx, move))
}

// freeze parks the job until an operator releases it.
func (r *runner[S]) freeze(req *request) error {
	f := contract.Failure{Class: lifecycle.FailFrozen, Stage: r.stageName(), Message: lifecycle.FrozenBy(req.ask.Actor, req.ask.Reason)}
	r.frozen = true
	r.enter(lifecycle.Failure(f.Class).ParkStatus())
	r.recordAction(req)
	return r.finishRequest(req, r.park(f))
}

// adopt accepts an outside state that the job itself has not caused. It accepts listed pairs of
// stage and observed state, and others only when an operator accepts the risk.
func (r *runner[S]) adopt(req *request) error {
	if why, err := r.riskRefusal(req); why != "" || err != nil {
		if err != nil {
			return r.finishRequest(req, err)
		}
		return r.refuse(req, why)
	}
	if r.at < len(r.def.Stages) {
		o, why := r.adoptable(r.def.Stages[r.at], req.ask.AcceptRisk)
		if why == "" {
			why = r.decideAdoption(r.def.Stages[r.at], o, req)
		}
		if why != "" {
			return r.refuse(req, why)
		}
		row := &r.rows[r.at]
		row.State, row.FinishedAt, row.Message, row.FailureClass = lifecycle.StageAdopted, r.now(), "adopted: "+o.State, ""
		r.adopted, r.outside.lookFirst = true, true
		r.at++
	}
	r.failure, r.frozen = nil, false
	r.enter(lifecycle.JobRunning)
	r.recordAction(req)
	return r.finishRequest(req, r.project(r.ctx, r.moveOf(r.def.Resumed)))
}

// decideAdoption has the stage carry out what the operator decided, and returns why it cannot, or
// "". An outcome that is there already needs no decision.
func (r *runner[S]) decideAdoption(st Stage[S], o Observation, req *request) string {
	switch {
	case st.Adopt == nil && req.ask.Resolution != "":
		return fmt.Sprintf("stage %s takes no resolution; leave it out", st.Name)
	case st.Adopt == nil || o.Done && req.ask.Resolution == "":
		return ""
	}
	entry := req.ask.Entry(req.action)
	entry.Seen = r.knows(entry.Proof)
	at := workflow.Now(r.ctx).Add(r.stageDeadline(st))
	if err := st.Adopt(workflow.WithValue(r.ctx, deadlineKey, at), r.state, entry); err != nil {
		return failureOf(err).Message
	}
	return ""
}

// adoptable observes the outside system and returns why its state is not adopted, or "" when it is.
func (r *runner[S]) adoptable(st Stage[S], risk bool) (Observation, string) {
	if st.Observe == nil {
		return Observation{}, fmt.Sprintf("stage %s has no outside state to observe", st.Name)
	}
	at := workflow.Now(r.ctx).Add(r.stageDeadline(st))
	o, err := st.Observe(workflow.WithValue(r.ctx, deadlineKey, at), r.state)
	if err != nil {
		return o, "the outside could not be observed: " + failureOf(err).Message
	}
	if o.Refused != "" {
		return o, o.Refused
	}
	if o.Done || risk || slices.Contains(st.Adoptable, o.State) {
		return o, ""
	}
	listed := "nothing but its own outcome"
	if len(st.Adoptable) > 0 {
		listed = strings.Join(st.Adoptable, ", ")
	}
	return o, fmt.Sprintf("(%s, %s) is not a pair that may be adopted; adoptable here: %s; accept_risk with a reason adopts it all the same", st.Name, o.State, listed)
}

// refuse answers a request that the state it found does not allow.
func (r *runner[S]) refuse(req *request, reason string) error {
	return r.finishRequest(req, r.recordRefusal(r.ctx, req.action, req.ask, req.via, r.refusal(req.action, reason)))
}

// finishRequest ends a request. The caller gets a refusal; any other error is an error of the
// runner.
func (r *runner[S]) finishRequest(req *request, err error) error {
	if errors.Is(err, errEnded) { // decided again, on the job as it has ended
		r.inbox.queue = append([]*request{req}, r.inbox.queue...)
		return err
	}
	req.done, req.err = true, err
	if isRefusal(err) {
		return nil
	}
	return err
}

// drainInbox answers the requests that wait for their turn. A clean-up that begins now may take
// long, and none of them could stop it.
func (r *runner[S]) drainInbox() error {
	for len(r.inbox.queue) > 0 {
		if r.phase == lifecycle.RunnerOvertaken {
			return errEnded
		}
		if err := r.handleNext(); err != nil {
			return err
		}
	}
	return nil
}

func isRefusal(err error) bool {
	app, ok := err.(*temporal.ApplicationError) //nolint:errorlint // made here, never wrapped
	return ok && (app.Type() == contract.ErrTypeActionRefused || app.Type() == contract.ErrTypeActionInvalid)
}
