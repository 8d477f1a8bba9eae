package onboarding

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// What bounds a plan: the API waits a little longer than planLimit.
const (
	planLimit = 17 * time.Second
	lookLimit = 10 * time.Second
	readLimit = 5 * time.Second
)

// Plan is the workflow that says what an onboarding would do, stage by stage,
// given what is observed now. It runs the stages' own activities where none of
// them can change anything; it writes nothing, and a repetition looks again.
func Plan(ctx workflow.Context, in contract.PlanInput) (contract.Plan, error) {
	p := &planner{in: in, until: workflow.Now(ctx).Add(planLimit), would: map[string]contract.Would{}}
	snap, err := p.load(ctx)
	if err != nil {
		return contract.Plan{}, err
	}
	out := contract.Plan{
		Kind: in.Kind, Status: snap.Status, ObservedAt: workflow.Now(ctx).UTC(),
		Subject: contract.PlanSubject{JobID: in.Job.JobID, NodeID: in.Job.NodeID, SiteID: in.Job.SiteID, Hostname: p.s.Request.Hostname},
	}
	if lifecycle.Job.Terminal(snap.Status) || snap.Status == lifecycle.JobCompensating {
		return contract.EndedPlan(in.Kind, out.Subject, snap.Status, snap.Stages, out.ObservedAt), nil
	}
	past := passed(snap)
	table := plans()
	for i, st := range stages() {
		row, done := past[st.Name]
		if !done {
			row = p.row(ctx, st, table[st.Name])
		}
		row.Ordinal, row.Stage = i+1, st.Name
		p.would[st.Name] = row.Would
		out.Rows = append(out.Rows, row)
	}
	seen := observed(&p.s)
	seen.At = &out.ObservedAt
	out.Observed = &seen
	return out.Concluded(), nil
}

// planner walks the stages once. What it learns from one it uses for the next.
type planner struct {
	in    contract.PlanInput
	s     State
	until time.Time
	would map[string]contract.Would // of the rows so far

	// blind says why MAAS cannot be asked about the machine any more: the region
	// is away, or it is not settled which machine it is.
	blind string
	// absent: MAAS has no such machine. toReady: the machine will come to Ready
	// before the stages that need it there.
	absent, toReady bool
	// recovers: the failed deployment would be tried again.
	recovers bool
}

// load takes up the job's state as a run would, or the request of a dry run.
func (p *planner) load(ctx workflow.Context) (contract.Snapshot, error) {
	if p.in.Job.JobID == "" {
		p.s.Job = contract.JobRef{JobID: contract.PlannedJobID, NodeID: p.in.Job.NodeID, SiteID: p.in.Job.SiteID}
		if p.in.Request == nil {
			return contract.Snapshot{}, temporal.NewNonRetryableApplicationError("a plan needs a job or a request", contract.ErrTypeActionInvalid, nil)
		}
		p.s.Request = *p.in.Request
		return contract.Snapshot{}, nil
	}
	var db *projection.Activities
	lctx := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary: "read the job", StartToCloseTimeout: readLimit, ScheduleToCloseTimeout: readLimit,
	})
	var snap contract.Snapshot
	if err := workflow.ExecuteLocalActivity(lctx, db.LoadJob, p.in.Job).Get(ctx, &snap); err != nil {
		return snap, err
	}
	if err := Job(p.in.Job).Init(&p.s, snap.Input); err != nil {
		return snap, err
	}
	if len(snap.Checkpoint) == 0 {
		return snap, nil
	}
	cp := struct {
		State *State `json:"state"`
	}{&p.s}
	if err := json.Unmarshal(snap.Checkpoint, &cp); err != nil {
		return snap, fmt.Errorf("read the checkpoint of %s: %w", p.in.Job.JobID, err)
	}
	return snap, nil
}

// passed lists the stages that the job has behind it: those before the one it
// is at.
func passed(snap contract.Snapshot) map[string]contract.PlanRow {
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

// planFunc says what one stage would do.
type planFunc func(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow

// plans has one for every stage.
func plans() map[string]planFunc {
	return map[string]planFunc{
		contract.StageLoadSiteConfig: planSite, contract.StageResolvePower: planPower, contract.StageCreateOrFind: planCreateOrFind,
		contract.StageCommission: planCommission, contract.StageWaitReady: planReady, contract.StageConfigureStorage: planStorage,
		contract.StageApplyRoCE: planRoCE, contract.StageEnsurePXE: planPXE, contract.StageRenderCloudInit: planCloudInit,
		contract.StageDeploy: planDeploy, contract.StageWaitDeployed: planDeployed, contract.StageClassifyFailure: planClassify,
		contract.StageRecoverDatasource: planRecover, contract.StageEnsureHWSync: planSyncOn, contract.StageWaitHWSync: planSynced,
		contract.StageWaitAgent: planAgent,
	}
}

// row asks the stage itself whether it is needed, then its planFunc. Without
// site and profile nothing can be told.
func (p *planner) row(ctx workflow.Context, st stage.Stage[State], plan planFunc) contract.PlanRow {
	configured := p.s.Site.Profile.DistroSeries != ""
	if st.Name != contract.StageLoadSiteConfig && !configured && !p.s.Request.Manual {
		return unknown("site and profile could not be read")
	}
	if st.Skip != nil {
		if why := st.Skip(&p.s); why != "" {
			return contract.PlanRow{Would: contract.WouldSkip, Why: why}
		}
	}
	return plan(ctx, p, st)
}

func unknown(why string) contract.PlanRow {
	return contract.PlanRow{Would: contract.WouldUnknown, Why: why}
}

func (p *planner) waits(st stage.Stage[State], what string) contract.PlanRow {
	return contract.PlanRow{Would: contract.WouldWait, Why: fmt.Sprintf("%s, for at most %s", what, deadline(&p.s, st.Name, st.Deadline))}
}

// look runs one Plan activity. What it fails with is shown and ends no plan.
func look[I, O any](ctx workflow.Context, p *planner, summary string, act any, in I) (O, error) {
	var out O
	left := p.until.Sub(workflow.Now(ctx))
	if left <= 0 {
		return out, errTooSlow
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		Summary: summary, StartToCloseTimeout: min(left, lookLimit), ScheduleToCloseTimeout: left,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err := workflow.ExecuteActivity(ctx, act, in).Get(ctx, &out)
	return out, err
}

var errTooSlow = temporal.NewApplicationError("the time of a plan is over", "slow")

// unseen is the row of a look that failed by itself.
func unseen(err error) contract.PlanRow {
	if temporal.IsTimeoutError(err) || err == errTooSlow { //nolint:errorlint // the very value
		return unknown("there was no time left to look; what is outside answers slowly; ask again")
	}
	return unknown("it could not be looked at; the worker's log holds the detail")
}

// machine asks MAAS what a stage would do with the machine.
func machineRow[I any](ctx workflow.Context, p *planner, summary string, act any, in I) (contract.PlanRow, maasact.Foreseen) {
	if p.blind != "" {
		return unknown(p.blind), maasact.Foreseen{}
	}
	l := maasact.Look[I]{In: in, Ready: p.toReady}
	if p.absent {
		l.Absent = p.s.Request.Hostname
	}
	f, err := look[maasact.Look[I], maasact.Foreseen](ctx, p, summary, act, l)
	if err != nil {
		return unseen(err), f
	}
	return p.answered(f), f
}

// answered reads what was foreseen.
func (p *planner) answered(f maasact.Foreseen) contract.PlanRow {
	if f.Known {
		p.s.saw(f.Machine)
	}
	row := contract.PlanRow{Steps: f.Steps, Seen: f.Seen}
	switch {
	case f.Unknown:
		row.Would, row.Why = contract.WouldUnknown, "commissioning has to read the machine's hardware first"
	case f.Failure != nil && f.Assumed && f.Failure.Class != lifecycle.FailMAASUnavailable:
		row.Would = contract.WouldUnknown
		row.Why = "commissioning reads the machine's hardware anew; as MAAS lists it now it would not do: " + f.Failure.Message
	case f.Failure != nil:
		return p.fails(row, *f.Failure)
	case f.Waits:
		row.Would = contract.WouldWait
	case len(f.Steps) > 0:
		row.Would = contract.WouldRun
	default:
		row.Would, row.Why = contract.WouldBeDone, f.Machine.Note
	}
	return row
}

// fails is the row at which the job would park. When MAAS does not answer, or
// the machine is gone, the rest cannot be looked at.
func (p *planner) fails(row contract.PlanRow, f contract.Failure) contract.PlanRow {
	row.Would, row.Failure = contract.WouldFail, contract.ForeseenFailure(f)
	if f.Class == lifecycle.FailMAASUnavailable || f.Class == lifecycle.FailMAASMachineDeleted {
		p.blind = f.Message
	}
	return row
}
