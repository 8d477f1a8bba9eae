// Package plan says what a staged job would do, stage by stage, given what is observed now. It is
// the one planner of every kind of job: a kind supplies what it predicts for its stages. A plan
// runs activities that change nothing, and writes nothing.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Limit bounds a plan, and ReadLimit one of its activities. The API waits a little longer than
// Limit.
const (
	Limit     = 17 * time.Second
	ReadLimit = 10 * time.Second
	loadLimit = 5 * time.Second
)

// Planner is one plan in the making. A prediction keeps what it learns in State for the next
// prediction.
type Planner[S any] struct {
	State S
	// Planned are the actions of the stages so far.
	Planned map[string]contract.PlannedAction

	job   stage.Job[S]
	until time.Time
}

// New returns a Planner whose time begins now.
func New[S any](ctx workflow.Context) *Planner[S] {
	return &Planner[S]{Planned: map[string]contract.PlannedAction{}, until: workflow.Now(ctx).Add(Limit)}
}

// Predictions are what a kind of job supplies.
type Predictions[S any] struct {
	// Job describes the job of an input.
	Job func(contract.JobInput) stage.Job[S]
	// Observe reads what all predictions need. Its error ends the plan. Nil reads nothing.
	Observe func(ctx workflow.Context) error
	// Hostname names the node.
	Hostname func(*S) string
	// Unknown returns why nothing can be told of a stage, and "" where it can. Nil is always "".
	Unknown func(name string) string
	// Predict returns the row of a stage that the job has not behind it and that it needs.
	Predict func(ctx workflow.Context, st stage.Stage[S]) contract.PlanRow
}

// Run returns the plan of a job that exists, or, where in names no job, of the job that a request
// would start.
func Run[S, R any](ctx workflow.Context, p *Planner[S], with Predictions[S], in contract.JobInput, request *R) (contract.Plan, error) {
	snap, err := load(ctx, p, with, in, request)
	if err != nil {
		return contract.Plan{}, err
	}
	out := contract.Plan{Kind: in.Kind, Status: snap.Status, ObservedAt: workflow.Now(ctx).UTC()}
	if with.Observe != nil {
		if err := with.Observe(ctx); err != nil {
			return contract.Plan{}, err
		}
	}
	out.Subject = contract.PlanSubject{JobID: in.JobID, NodeID: in.NodeID, SiteID: in.SiteID, Hostname: with.Hostname(&p.State)}
	if lifecycle.Job.Terminal(snap.Status) || snap.Status == lifecycle.JobCompensating {
		return contract.EndedPlan(in.Kind, out.Subject, snap.Status, snap.Stages, out.ObservedAt), nil
	}
	stages, err := p.job.Chosen(&p.State)
	if err != nil {
		return contract.Plan{}, err
	}
	past := pastRows(snap)
	for i, st := range stages {
		row, done := past[st.Name]
		if !done {
			row = p.row(ctx, with, st)
		}
		row.Ordinal, row.Stage = i+1, st.Name
		p.Planned[st.Name] = row.Planned
		out.Rows = append(out.Rows, row)
	}
	observed := p.job.Observed(&p.State)
	observed.At = &out.ObservedAt
	out.Observed = &observed
	return out.Concluded(), nil
}

// row asks the stage itself whether it is needed, and then what is predicted of it.
func (p *Planner[S]) row(ctx workflow.Context, with Predictions[S], st stage.Stage[S]) contract.PlanRow {
	if with.Unknown != nil {
		if why := with.Unknown(st.Name); why != "" {
			return Unknown(why)
		}
	}
	if st.Skip != nil {
		if why := st.Skip(&p.State); why != "" {
			return Skips(why)
		}
	}
	return with.Predict(ctx, st)
}

// load reads the state of the job as a run would, or takes the request of a job that does not
// exist.
func load[S, R any](ctx workflow.Context, p *Planner[S], with Predictions[S], in contract.JobInput, request *R) (contract.Snapshot, error) {
	var snap contract.Snapshot
	if in.JobID == "" {
		if request == nil {
			return snap, invalid("a plan needs a job or a request")
		}
		raw, err := json.Marshal(request)
		if err != nil {
			return snap, fmt.Errorf("request of a plan: %w", err)
		}
		in.JobID = contract.PlannedJobID
		p.job = with.Job(in)
		if err := p.job.Init(&p.State, raw); err != nil {
			return snap, invalid(err.Error())
		}
		return snap, nil
	}
	var db *projection.Activities
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary: "read the job", StartToCloseTimeout: loadLimit, ScheduleToCloseTimeout: loadLimit,
	})
	if err := workflow.ExecuteLocalActivity(ctx, db.LoadJob, in).Get(ctx, &snap); err != nil {
		return snap, err
	}
	p.job = with.Job(in)
	return snap, p.job.Restore(&p.State, snap)
}

func invalid(message string) error {
	return temporal.NewNonRetryableApplicationError(message, contract.ErrTypeActionInvalid, nil)
}

// pastRows lists the stages that the job has behind it: those before the one it is at.
func pastRows(snap contract.Snapshot) map[string]contract.PlanRow {
	out := map[string]contract.PlanRow{}
	for _, r := range snap.Stages {
		if r.Name == snap.Stage {
			break
		}
		if row, ok := contract.PastRow(r); ok {
			out[r.Name] = row
		}
	}
	return out
}

// Read runs one activity that changes nothing, once, within the time that is left. It returns an
// error for which Unreadable makes the row when that time is over.
func Read[S, I, O any](ctx workflow.Context, p *Planner[S], summary string, act func(context.Context, I) (O, error), in I) (O, error) {
	var out O
	left := p.until.Sub(workflow.Now(ctx))
	if left <= 0 {
		return out, errNoTimeLeft
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		Summary: summary, StartToCloseTimeout: min(left, ReadLimit), ScheduleToCloseTimeout: left,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err := workflow.ExecuteActivity(ctx, act, in).Get(ctx, &out)
	return out, err
}

var errNoTimeLeft = temporal.NewNonRetryableApplicationError("the time of a plan is over", contract.ErrTypePlanOutOfTime, nil)

// Unreadable is the row of a stage whose Read failed.
func Unreadable(err error) contract.PlanRow {
	if temporal.IsTimeoutError(err) || err == errNoTimeLeft { //nolint:errorlint // the very value
		return Unknown("there was no time left to look; what is outside answers slowly; ask again")
	}
	return Unknown("it could not be looked at; the worker's log holds the detail")
}

// Unknown is the row of a stage of which nothing can be told.
func Unknown(why string) contract.PlanRow {
	return contract.PlanRow{Planned: contract.PlannedUnknown, Why: why}
}

// Skips is the row of a stage that is not needed.
func Skips(why string) contract.PlanRow {
	return contract.PlanRow{Planned: contract.PlannedSkip, Why: why}
}

// Runs is the row of a stage that would make changes.
func Runs(steps ...string) contract.PlanRow {
	return contract.PlanRow{Planned: contract.PlannedRun, Steps: steps}
}

// Done is the row of a stage whose outcome is there.
func Done(why string) contract.PlanRow {
	return contract.PlanRow{Planned: contract.PlannedDone, Why: why}
}

// Fails is the row of a stage at which the job would park.
func Fails(f contract.Failure) contract.PlanRow {
	return contract.PlanRow{Planned: contract.PlannedFail, Failure: contract.NewPlanFailure(f)}
}

// Waits is the row of a stage that would wait for as long as its deadline allows.
func (p *Planner[S]) Waits(st stage.Stage[S], what string) contract.PlanRow {
	d := st.Deadline
	if p.job.Deadline != nil {
		d = p.job.Deadline(&p.State, st.Name, d)
	}
	return contract.PlanRow{Planned: contract.PlannedWait, Why: fmt.Sprintf("%s, for at most %s", what, d)}
}
