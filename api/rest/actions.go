package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const actionsDoc = "retry_stage, resume, rerun, restart_clean, cancel, adopt_observed_state or mark_manual_intervention_required (docs/states/actions.md). " +
	"A refused action answers 409 with the reason and the actions that are allowed now. An Idempotency-Key makes a repetition give the first answer, " +
	"refused or not, and do nothing."

// ActionRequest says why.
type ActionRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"2000"`
	// AcceptRisk lets adopt_observed_state accept what automation may not.
	AcceptRisk bool `json:"accept_risk,omitempty" doc:"Only with adopt_observed_state, and with a reason"`
	// Resolution says what becomes of the money of a payment.
	Resolution string `json:"resolution,omitempty" maxLength:"20" enum:"credit,suspense,write_off" doc:"Only with adopt_observed_state of a payment_reconcile job, and with a reason: what becomes of the money that Stripe has received"`
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
	Action string `path:"action" maxLength:"200"`
	op.Key
	Body *ActionRequest
}

// actionOutput is the answer to an action.
type actionOutput struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true when this is the first answer given again"`
	Body     ActionAnswer
}

// actionLimit is the default of Config.ActionTimeout; it lies below the request's
// own limit. healthLimit bounds asking whether Temporal is there at
// all. restartPoll is how often a workflow that is being started again is asked.
const (
	actionLimit = 20 * time.Second
	healthLimit = 3 * time.Second
	restartPoll = 200 * time.Millisecond
)

func (s *server) act(ctx context.Context, in *actionInput, kind contract.JobKind) (*actionOutput, error) {
	action := lifecycle.Action(in.Action)
	if !slices.Contains(lifecycle.Actions, action) {
		return nil, problem.New(problem.NotFound, fmt.Sprintf("there is no action %q; take %s", in.Action, lifecycle.OneOf(lifecycle.Actions)))
	}
	var ask ActionRequest
	if in.Body != nil {
		ask = *in.Body
	}
	if ask.AcceptRisk && (action != lifecycle.ActionAdopt || strings.TrimSpace(ask.Reason) == "") {
		return nil, problem.NewInvalid(problem.Field{Location: "body.accept_risk", Message: "is for adopt_observed_state (slipway job adopt --accept-risk) only, and needs a reason"})
	}
	if ask.Resolution != "" && (action != lifecycle.ActionAdopt || strings.TrimSpace(ask.Reason) == "") {
		return nil, problem.NewInvalid(problem.Field{Location: "body.resolution", Message: "is for adopt_observed_state (slipway job adopt --resolution) only, and needs a reason"})
	}
	key, err := in.Optional()
	if err != nil {
		return nil, err
	}
	job, err := jobOf(ctx, s.store, in.ID, kind)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ActionTimeout)
	defer cancel()
	x := &exchange{s: s, job: job, action: action, ask: ask, key: key}
	first, err := x.recall(ctx)
	if err != nil {
		return nil, err
	}
	if first != nil {
		return first.output("true")
	}
	out, err := x.run(ctx)
	if err != nil {
		return nil, err
	}
	return out.output("")
}

// decided is the answer to an action: carried out or not needed, or refused.
type decided struct {
	answer  ActionAnswer
	refused *lifecycle.ActionRefusedError
}

func (d *decided) output(replayed string) (*actionOutput, error) {
	if d.refused != nil {
		return nil, d.refused
	}
	return &actionOutput{Replayed: replayed, Body: d.answer}, nil
}

// answers says what the action did, and refuses why not.
func (x *exchange) answers(e lifecycle.Effect, s lifecycle.JobStatus, stage string) *decided {
	return &decided{answer: ActionAnswer{JobID: x.job.ID, Action: x.action, Effect: e, Status: s, Stage: stage}}
}

func (x *exchange) refuses(why *lifecycle.ActionRefusedError) *decided {
	return &decided{answer: ActionAnswer{Effect: lifecycle.EffectRefuse}, refused: why}
}

// facts are what the database knows of a job that no workflow runs for.
func facts(j db.Job) lifecycle.JobFacts {
	return lifecycle.JobFacts{
		WaitingOutside: j.WaitingOutside, WorkflowLost: true, CleanUp: j.FailureClass == lifecycle.FailCompensation,
		Unobserved: lifecycle.UnobservedStage(j.Stage),
	}
}

// allowedActions lists the actions of a job that its workflow would take now.
func allowedActions(j db.Job, subject contract.SubjectFacts) []lifecycle.Action {
	return contract.AllowedActions(contract.JobKind(j.Kind), j.Status, shownFacts(j), subject)
}
