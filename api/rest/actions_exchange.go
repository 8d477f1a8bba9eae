package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/subject"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// exchange is one action on its way to the workflow and back.
type exchange struct {
	s      *server
	job    db.Job
	action lifecycle.Action
	ask    ActionRequest
	key    string
	// once has the job take an action once that it gets in two ways. Unlike key it keeps no answer.
	once string
	// started is set when this exchange has had the workflow started again.
	started bool
}

// errMoved: the job is no longer as it was seen; it is looked at again, at most
// so often.
var errMoved = errors.New("the job has moved")

const maxLooks = 3

// run asks the workflow, which decides and writes the audit row, of a refusal
// too (ADR 8). Only of a job that has ended, has not begun, or may not do this
// without its workflow, the database has the last word.
func (x *exchange) run(ctx context.Context) (*decided, error) {
	for look := 1; ; look++ {
		d, err := x.attempt(ctx)
		if !errors.Is(err, errMoved) || look == maxLooks {
			return d, err
		}
		if x.job, err = x.s.store.Job(ctx, x.job.ID); err != nil {
			return nil, err
		}
	}
}

func (x *exchange) attempt(ctx context.Context) (*decided, error) {
	if lifecycle.Job.Terminal(x.job.Status) {
		return x.ended(ctx)
	}
	if err := x.reachable(ctx); err != nil {
		return nil, err
	}
	d, err := x.update(ctx)
	if !gone(err) {
		return d, err
	}
	if x.job, err = x.s.store.Job(ctx, x.job.ID); err != nil {
		return nil, err
	}
	if lifecycle.Job.Terminal(x.job.Status) {
		return x.ended(ctx)
	}
	return x.withoutWorkflow(ctx)
}

// reachable asks before anything is sent: the SDK repeats an Update by itself,
// and one that ran out of time says nothing of whether it was taken.
func (x *exchange) reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	if _, err := x.s.cfg.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		x.s.log.WarnContext(ctx, "temporal does not answer", "job", x.job.ID, "error", err)
		return problem.New(problem.EngineUnavailable, "Temporal does not answer; the action was not taken; repeat it when Temporal is back")
	}
	return nil
}

func gone(err error) bool {
	var none *serviceerror.NotFound
	return errors.As(err, &none)
}

// update sends the action as an Update and waits for the answer, which is kept.
// serviceerror.NotFound comes back as it is: no workflow runs.
func (x *exchange) update(ctx context.Context) (*decided, error) {
	ask, err := x.request(ctx)
	if err != nil {
		return nil, err
	}
	o := client.UpdateWorkflowOptions{
		WorkflowID: x.job.WorkflowID, UpdateName: string(x.action), UpdateID: ask.IdempotencyKey, WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{ask},
	}
	var res contract.ActionResult
	h, err := x.s.cfg.Temporal.UpdateWorkflow(ctx, o)
	if err == nil {
		err = h.Get(ctx, &res)
	}
	if err == nil {
		if x.started && x.action == lifecycle.ActionResume && res.Effect == lifecycle.EffectNoop {
			res.Effect = lifecycle.EffectContinue // the start itself did it
		}
		return x.keep(ctx, x.answers(res.Effect, res.Status, res.Stage)), nil
	}
	if refused, ok := contract.RefusalOf(err); ok {
		return x.keep(ctx, x.refuses(refused)), nil
	}
	return nil, x.trouble(ctx, err)
}

// request returns what the workflow is asked.
func (x *exchange) request(ctx context.Context) (contract.ActionRequest, error) {
	who := op.PrincipalOf(ctx).ID
	customer := op.ActorOf(ctx).Owner == lifecycle.OwnerCustomer
	ask, err := x.signed(ctx, contract.ActionRequest{Actor: who, Customer: customer, Reason: x.ask.Reason, AcceptRisk: x.ask.AcceptRisk, Resolution: lifecycle.Resolution(x.ask.Resolution)}.Fit())
	ask.IdempotencyKey = x.once
	if x.key != "" {
		// One principal's key is not another's.
		sum := sha256.Sum256([]byte(who + "\x1f" + string(x.action) + "\x1f" + x.key))
		ask.IdempotencyKey = "api-" + hex.EncodeToString(sum[:16])
	}
	return ask, err
}

// signed adds the proof of who asks. Without one the job takes the action all the same, for an
// actor that is not proven, unless it accepts a risk: so a key that cannot be read keeps nobody
// from cancelling a job.
func (x *exchange) signed(ctx context.Context, ask contract.ActionRequest) (contract.ActionRequest, error) {
	proof, err := x.s.signer.SignAction(ctx, x.job.ID, ask.Entry(x.action))
	if err != nil && (ask.AcceptRisk || ask.Resolution != "") {
		return ask, fmt.Errorf("sign the action: %w", err)
	}
	if err != nil {
		x.s.log.WarnContext(ctx, "an action is not signed; its audit row will not prove who asked for it", "job", x.job.ID, "action", x.action, "error", err)
	}
	ask.Proof = proof
	return ask, nil
}

// trouble turns Temporal's other errors into problems.
func (x *exchange) trouble(ctx context.Context, err error) error {
	if gone(err) {
		return err
	}
	p := problem.FromAction(err)
	if p.Of(problem.Internal) {
		return err
	}
	if p.Of(problem.EngineUnavailable) {
		x.s.log.WarnContext(ctx, "temporal does not answer", "job", x.job.ID, "error", err)
	}
	return p
}

// ended decides for a job that has ended.
func (x *exchange) ended(ctx context.Context) (*decided, error) {
	return x.here(ctx, func(*db.Tx) (*decided, error) {
		e, refused := x.effectOf(contract.SubjectFacts{}) // of a job that has ended no kind refuses more than the matrix
		if refused != nil {
			return x.refuses(refused), nil
		}
		return x.answers(e, x.job.Status, x.job.Stage), nil
	})
}

// effectOf is the word of the matrix and of the kind on a job without a workflow.
func (x *exchange) effectOf(subject contract.SubjectFacts) (lifecycle.Effect, *lifecycle.ActionRefusedError) {
	kind := contract.JobKind(x.job.Kind)
	v := contract.Decide(kind, x.action, x.job.Status, facts(x.job), subject)
	if v.Allowed {
		return v.Effect, nil
	}
	return v.Effect, &lifecycle.ActionRefusedError{
		Action: x.action, Status: x.job.Status, Reason: v.Reason, Allowed: contract.AllowedActions(kind, x.job.Status, facts(x.job), subject),
	}
}

// withoutWorkflow decides for a live job that no workflow runs for: it was not started yet, or its
// workflow was lost. An action that the matrix refuses in its state is refused. Any other is
// carried out here where the job was not started; otherwise it waits for the workflow, which is
// started again.
func (x *exchange) withoutWorkflow(ctx context.Context) (*decided, error) {
	subject, err := subjectOf(ctx, x.s.store, x.job)
	if err != nil {
		return nil, err
	}
	_, refused := x.effectOf(subject)
	unstarted := x.job.Status == lifecycle.JobPending && x.job.Seq == 0
	switch {
	case refused != nil:
		return x.here(ctx, func(*db.Tx) (*decided, error) { return x.refuses(refused), nil })
	case unstarted:
		return x.here(ctx, func(tx *db.Tx) (*decided, error) { return x.unstarted(ctx, tx) })
	}
	return x.deliver(ctx)
}

// unstarted carries out an action on a job that waits for its workflow. The lock
// settles who is first: a run that has taken the job up shows in its sequence
// number, and one that comes later finds the job as it is left here.
func (x *exchange) unstarted(ctx context.Context, tx *db.Tx) (*decided, error) {
	about := subject.Of(contract.JobKind(x.job.Kind))
	if _, err := about.Lock(ctx, tx, subject.Ref{JobID: x.job.ID, ID: x.job.ResourceID}); err != nil {
		return nil, err
	}
	job, err := tx.LockJob(ctx, x.job.ID)
	if err != nil {
		return nil, err
	}
	if job.Status != lifecycle.JobPending || job.Seq != 0 {
		return nil, errMoved
	}
	switch x.action {
	case lifecycle.ActionCancel:
		a := op.Actor(ctx)
		a.Owner, a.Comment = lifecycle.OwnerSystem, x.ask.Reason
		if _, err := tx.TransitionJob(ctx, job.ID, lifecycle.JobCancel, nil, a); err != nil {
			return nil, err
		}
		by := op.ActorOf(ctx)
		by.Comment = x.ask.Reason
		return x.answers(lifecycle.EffectCancel, lifecycle.JobCancelled, ""), about.EndUnstarted(ctx, tx, job, by)
	case lifecycle.ActionMarkManual:
		f := lifecycle.Failure(lifecycle.FailFrozen)
		_, err := tx.ProjectJob(ctx, db.Projection{
			JobID: job.ID, Seq: job.Seq + 1, Status: f.ParkStatus(), Frozen: true, FailureClass: f.Class, Message: lifecycle.FrozenBy(op.PrincipalOf(ctx).ID, x.ask.Reason),
			RecommendedAction: f.Recommended, NextStep: f.Next, Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: op.PrincipalOf(ctx).ID, Comment: x.ask.Reason},
		})
		if err == nil {
			_, err = about.Park(ctx, tx, job, f.Class, db.Actor{ID: op.PrincipalOf(ctx).ID, Comment: x.ask.Reason})
		}
		return x.answers(lifecycle.EffectFreeze, f.ParkStatus(), ""), err
	default: // resume
		return x.answers(lifecycle.EffectNoop, job.Status, ""), tx.EnqueueStart(ctx, job.ID)
	}
}

// deliver has a lost workflow started again and forwards the action when it runs; the workflow
// decides and notes it. A parked job stays parked until then.
func (x *exchange) deliver(ctx context.Context) (*decided, error) {
	if err := x.s.store.EnqueueStart(ctx, x.job.ID); err != nil {
		return nil, err
	}
	x.started = true
	tick := time.NewTicker(restartPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, problem.New(problem.OutcomeUnknown,
				"the job's workflow is being started again and has not answered yet, so the action was not taken; look at the job, and repeat the action, with the same Idempotency-Key if it had one")
		case <-tick.C:
		}
		if d, err := x.update(ctx); !gone(err) {
			return d, err
		}
	}
}
