package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

const actionsDoc = "retry_stage, resume, rerun, restart_clean, cancel, adopt_observed_state or mark_manual_intervention_required (docs/states/actions.md). " +
	"A refused action answers 409 with the actions that are allowed now. An Idempotency-Key makes a repetition give the first answer."

// ActionRequest says why.
type ActionRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"2000"`
	// AcceptRisk lets adopt_observed_state accept what automation may not.
	AcceptRisk bool `json:"accept_risk,omitempty" doc:"Only with adopt_observed_state, and with a reason"`
}

// ActionAnswer is what an accepted action does.
type ActionAnswer struct {
	JobID  string              `json:"job_id"`
	Action lifecycle.Action    `json:"action"`
	Effect lifecycle.Effect    `json:"effect" doc:"noop when there was nothing to do"`
	Status lifecycle.JobStatus `json:"status"`
	Stage  string              `json:"stage,omitempty"`
}

type actionInput struct {
	JobPath
	Action string `path:"action"`
	Key
	Body *ActionRequest
}

// actionLimit bounds the wait for the workflow's answer; it lies below the
// request's own limit. healthLimit bounds asking whether Temporal is there at
// all. restartPoll is how often a workflow that is being started again is asked.
const (
	actionLimit = 20 * time.Second
	healthLimit = 3 * time.Second
	restartPoll = 200 * time.Millisecond
)

func (s *Server) act(ctx context.Context, in *actionInput, kind contract.JobKind) (*struct{ Body ActionAnswer }, error) {
	action := lifecycle.Action(in.Action)
	if !slices.Contains(lifecycle.Actions, action) {
		return nil, problem.New(problem.NotFound, fmt.Sprintf("there is no action %q; the actions are %v", in.Action, lifecycle.Actions))
	}
	var ask ActionRequest
	if in.Body != nil {
		ask = *in.Body
	}
	if ask.AcceptRisk && (action != lifecycle.ActionAdopt || strings.TrimSpace(ask.Reason) == "") {
		return nil, problem.NewInvalid(problem.Field{Location: "body.accept_risk", Message: "is for adopt_observed_state only, and needs a reason"})
	}
	key, err := in.optional()
	if err != nil {
		return nil, err
	}
	job, err := jobOf(ctx, s.cfg.Store, in.ID, kind)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, actionLimit)
	defer cancel()
	x := exchange{s: s, job: job, action: action, ask: ask, key: key}
	res, err := x.run(ctx)
	if err != nil {
		return nil, err
	}
	return &struct{ Body ActionAnswer }{ActionAnswer{JobID: job.ID, Action: action, Effect: res.Effect, Status: res.Status, Stage: res.Stage}}, nil
}

// exchange is one action on its way to the workflow and back.
type exchange struct {
	s      *Server
	job    db.Job
	action lifecycle.Action
	ask    ActionRequest
	key    string
}

// run asks the workflow, which decides; only of a job that has ended or whose
// workflow is gone the database has the last word.
func (x *exchange) run(ctx context.Context) (contract.ActionResult, error) {
	if lifecycle.Job.Terminal(x.job.Status) {
		return x.ended(ctx)
	}
	if err := x.reachable(ctx); err != nil {
		return contract.ActionResult{}, err
	}
	seen, err := x.newestAudit(ctx)
	if err != nil {
		return contract.ActionResult{}, err
	}
	res, err := x.update(ctx)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return x.withoutWorkflow(ctx)
	}
	if err != nil {
		return contract.ActionResult{}, x.failed(ctx, err, seen)
	}
	return res, nil
}

// reachable asks before anything is sent: the SDK repeats an Update by itself,
// and one that ran out of time says nothing of whether it was taken.
func (x *exchange) reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	if _, err := x.s.cfg.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		x.s.log.WarnContext(ctx, "temporal does not answer", "job", x.job.ID, "error", err)
		return problem.FromAction(serviceerror.NewUnavailable("health check failed"))
	}
	return nil
}

// update sends the action as an Update and waits for the answer.
func (x *exchange) update(ctx context.Context) (contract.ActionResult, error) {
	who := principal(ctx).ID
	o := client.UpdateWorkflowOptions{
		WorkflowID: x.job.WorkflowID, UpdateName: string(x.action), WaitForStage: client.WorkflowUpdateStageCompleted,
	}
	ask := contract.ActionRequest{Actor: who, Reason: x.ask.Reason, AcceptRisk: x.ask.AcceptRisk}
	if x.key != "" {
		// One person's key is not another's.
		sum := sha256.Sum256([]byte(who + "\x1f" + string(x.action) + "\x1f" + x.key))
		ask.IdempotencyKey = "api-" + hex.EncodeToString(sum[:16])
		o.UpdateID = ask.IdempotencyKey
	}
	o.Args = []any{ask}
	var res contract.ActionResult
	h, err := x.s.cfg.Temporal.UpdateWorkflow(ctx, o)
	if err != nil {
		return res, err
	}
	return res, h.Get(ctx, &res)
}

// failed turns Temporal's error into a problem, and notes a refusal that the
// workflow itself has not noted: a validator leaves no trace (ADR 0005).
func (x *exchange) failed(ctx context.Context, err error, seen int64) error {
	p := problem.FromAction(err)
	if p.Of(problem.Internal) {
		return err
	}
	if p.Of(problem.EngineUnavailable) {
		x.s.log.WarnContext(ctx, "temporal does not answer", "job", x.job.ID, "error", err)
	}
	if !p.Of(problem.ActionRefused) && !p.Of(problem.Invalid) {
		return p
	}
	noted, aerr := x.notedSince(ctx, seen)
	if aerr == nil && !noted {
		aerr = x.note(ctx, lifecycle.EffectRefuse, p.Detail)
	}
	if aerr != nil {
		return aerr
	}
	return p
}

// ended decides for a job that has ended.
func (x *exchange) ended(ctx context.Context) (contract.ActionResult, error) {
	v := lifecycle.Decide(x.action, x.job.Status, lifecycle.JobFacts{})
	if !v.Allowed {
		return contract.ActionResult{}, x.refuse(ctx, &lifecycle.ActionRefusedError{
			Action: x.action, Status: x.job.Status, Reason: v.Reason, Allowed: lifecycle.AllowedActions(x.job.Status, lifecycle.JobFacts{}),
		})
	}
	return x.result(v.Effect), x.note(ctx, v.Effect, "")
}

func (x *exchange) result(e lifecycle.Effect) contract.ActionResult {
	return contract.ActionResult{Action: x.action, Effect: e, Status: x.job.Status, Stage: x.job.Stage}
}

// withoutWorkflow decides for a job that no workflow runs for: it ended just
// now, was never started, or its workflow was lost.
func (x *exchange) withoutWorkflow(ctx context.Context) (contract.ActionResult, error) {
	job, err := x.s.cfg.Store.Job(ctx, x.job.ID)
	if err != nil {
		return contract.ActionResult{}, err
	}
	x.job = job
	waiting := job.Status == lifecycle.JobPending && job.Seq == 0
	switch {
	case lifecycle.Job.Terminal(job.Status):
		return x.ended(ctx)
	case waiting && x.action == lifecycle.ActionCancel:
		return x.cancelUnstarted(ctx)
	case x.action == lifecycle.ActionResume:
		return x.restart(ctx, waiting)
	case waiting:
		return contract.ActionResult{}, x.refuse(ctx, &lifecycle.ActionRefusedError{
			Action: x.action, Status: job.Status, Reason: "the job has not started yet",
			Allowed: []lifecycle.Action{lifecycle.ActionResume, lifecycle.ActionCancel},
		})
	}
	return contract.ActionResult{}, x.refuse(ctx, problem.FromAction(&serviceerror.NotFound{}))
}

// cancelUnstarted ends a job that waits for its workflow. Should the relay start
// it at this very moment, the workflow finds the job ended and ends too.
func (x *exchange) cancelUnstarted(ctx context.Context) (contract.ActionResult, error) {
	err := x.s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		a := x.s.actor(ctx)
		a.Owner, a.Comment = lifecycle.OwnerSystem, x.ask.Reason
		job, err := tx.TransitionJob(ctx, x.job.ID, lifecycle.JobCancel, nil, a)
		if err != nil {
			return err
		}
		x.job = job
		return x.noteIn(ctx, tx, lifecycle.EffectCancel, "")
	})
	return x.result(lifecycle.EffectCancel), err
}

// restart asks the relay for the workflow, and passes the action on when it
// runs; the workflow then notes it. Of a job that never started that is all
// there is to do.
func (x *exchange) restart(ctx context.Context, waiting bool) (contract.ActionResult, error) {
	err := x.s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		err := tx.EnqueueStart(ctx, x.job.ID)
		if err == nil && waiting {
			err = x.noteIn(ctx, tx, lifecycle.EffectNoop, "")
		}
		return err
	})
	if err != nil || waiting {
		return x.result(lifecycle.EffectNoop), err
	}
	tick := time.NewTicker(restartPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			late := problem.New(problem.OutcomeUnknown,
				"the job's workflow is being started again and has not answered yet; look at the job, and repeat resume when it is still parked")
			return contract.ActionResult{}, errors.Join(x.note(context.WithoutCancel(ctx), lifecycle.EffectContinue, ""), late)
		case <-tick.C:
		}
		res, err := x.update(ctx)
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) {
			continue
		}
		if err != nil {
			return res, x.failed(ctx, err, 0)
		}
		if res.Effect == lifecycle.EffectNoop {
			res.Effect = lifecycle.EffectContinue // the start itself did it
		}
		return res, nil
	}
}

// refuse notes a refusal and returns it.
func (x *exchange) refuse(ctx context.Context, why error) error {
	if err := x.note(ctx, lifecycle.EffectRefuse, why.Error()); err != nil {
		return err
	}
	return why
}

func (x *exchange) note(ctx context.Context, e lifecycle.Effect, refused string) error {
	return x.s.cfg.Store.Tx(ctx, func(tx *db.Tx) error { return x.noteIn(ctx, tx, e, refused) })
}

// noteIn writes the action's audit row in the shape of those that workflows write.
func (x *exchange) noteIn(ctx context.Context, tx *db.Tx, e lifecycle.Effect, refused string) error {
	meta := map[string]any{"via": "api", "effect": string(e)}
	if refused != "" {
		meta["refused"] = refused
	}
	a := x.s.actor(ctx)
	a.Comment, a.Metadata, a.WorkflowID = x.ask.Reason, meta, x.job.WorkflowID
	return tx.AppendAudit(ctx, db.Entry{
		ResourceKind: "job", ResourceID: x.job.ID, NodeID: x.job.NodeID, Kind: db.EntryAction, Name: string(x.action), Actor: a,
	})
}

func (x *exchange) newestAudit(ctx context.Context) (int64, error) {
	rows, err := x.s.cfg.Store.ResourceTimeline(ctx, "job", x.job.ID, 0, 1)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return rows[0].Pos, nil
}

// notedSince looks for the workflow's own row about this action.
func (x *exchange) notedSince(ctx context.Context, pos int64) (bool, error) {
	rows, err := x.s.cfg.Store.ResourceTimeline(ctx, "job", x.job.ID, 0, 20)
	who := principal(ctx).ID
	return slices.ContainsFunc(rows, func(r db.AuditRow) bool {
		return r.Pos > pos && r.Kind == db.EntryAction && r.Name == string(x.action) && text(r.ActorID) == who
	}), err
}
