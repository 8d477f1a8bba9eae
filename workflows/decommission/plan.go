package decommission

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// What bounds a plan: the API waits a little longer than planLimit.
const (
	planLimit = 17 * time.Second
	lookLimit = 10 * time.Second
	readLimit = 5 * time.Second
)

// Plan is the workflow that says what a decommission or a node operation would
// do, stage by stage, given what is observed now. It reads the database and the
// region, by the activities that a run uses, sends nothing to a BMC or a node,
// and writes nothing. Equal facts give an equal hash.
func Plan(ctx workflow.Context, in contract.DecommissionPlanInput) (contract.Plan, error) {
	p := &planner{in: in, until: workflow.Now(ctx).Add(planLimit)}
	snap, err := p.load(ctx)
	if err != nil {
		return contract.Plan{}, err
	}
	out := contract.Plan{Kind: in.Job.Kind, Status: snap.Status, ObservedAt: workflow.Now(ctx).UTC()}
	if err := p.observe(ctx); err != nil {
		return contract.Plan{}, err
	}
	out.Subject = contract.PlanSubject{JobID: in.Job.JobID, NodeID: in.Job.NodeID, SiteID: in.Job.SiteID, Hostname: p.s.Node.Hostname}
	if lifecycle.Job.Terminal(snap.Status) || snap.Status == lifecycle.JobCompensating {
		return contract.EndedPlan(in.Job.Kind, out.Subject, snap.Status, snap.Stages, out.ObservedAt), nil
	}
	past := passed(snap)
	table := plans()
	for i, name := range p.s.mode().Stages {
		row, done := past[name]
		if !done {
			row = table[name](p)
		}
		row.Ordinal, row.Stage = i+1, name
		out.Rows = append(out.Rows, row)
	}
	seen := observed(&p.s)
	seen.At = &out.ObservedAt
	out.Observed = &seen
	return out.Concluded(), nil
}

// planner holds what was seen while the rows are made.
type planner struct {
	in    contract.DecommissionPlanInput
	s     State
	until time.Time

	known  nodestateact.DecommissionPlan
	region maasact.DecommissionPlan
	bmc    bmcact.PowerOffPlan
	// unseen says why the region could not be asked.
	unseen string
	// dark is set when the agent could not be asked, and off when the machine is
	// off by all that is known.
	dark, off bool
}

// load takes up the job's state as a run would, or the request of a job that
// does not exist yet.
func (p *planner) load(ctx workflow.Context) (contract.Snapshot, error) {
	job := p.in.Job
	if job.JobID == "" {
		if p.in.Request == nil {
			return contract.Snapshot{}, temporal.NewNonRetryableApplicationError("a plan needs a job or a request", contract.ErrTypeActionInvalid, nil)
		}
		raw, err := json.Marshal(p.in.Request)
		if err != nil {
			return contract.Snapshot{}, fmt.Errorf("request of a plan: %w", err)
		}
		job.JobID = contract.PlannedJobID
		if err := initialise(&p.s, job, raw); err != nil {
			return contract.Snapshot{}, temporal.NewNonRetryableApplicationError(err.Error(), contract.ErrTypeActionInvalid, nil)
		}
		return contract.Snapshot{}, nil
	}
	var db *projection.Activities
	lctx := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary: "read the job", StartToCloseTimeout: readLimit, ScheduleToCloseTimeout: readLimit,
	})
	var snap contract.Snapshot
	if err := workflow.ExecuteLocalActivity(lctx, db.LoadJob, job).Get(ctx, &snap); err != nil {
		return snap, err
	}
	if err := initialise(&p.s, job, snap.Input); err != nil {
		return snap, err
	}
	if len(snap.Checkpoint) == 0 {
		return snap, nil
	}
	cp := struct {
		State *State `json:"state"`
	}{&p.s}
	if err := json.Unmarshal(snap.Checkpoint, &cp); err != nil {
		return snap, fmt.Errorf("read the checkpoint of %s: %w", job.JobID, err)
	}
	return snap, nil
}

// observe reads the database, which must answer, and the region and the BMC's
// record, which are shown as unknown when they do not.
func (p *planner) observe(ctx workflow.Context) error {
	known, err := look[nodestateact.DecommissionPlanIn, nodestateact.DecommissionPlan](ctx, p, "look at the node", nodestate.PlanNodeDecommission, nodestateact.DecommissionPlanIn{In: p.s.Job})
	if err != nil {
		return err
	}
	p.known = known
	if p.in.Hardware != nil && p.known.PXE != nil {
		p.known.PXE.Hardware = *p.in.Hardware
	}
	p.s.learn(known.Facts)
	p.s.Retired = p.s.Retired || known.Facts.Status == lifecycle.NodeRetired || known.Facts.Status == lifecycle.NodeRemoving
	at := maasact.DecommissionPlanIn{
		In: p.s.Job, SystemID: p.s.Node.SystemID, Hostname: p.s.Node.Hostname, MACs: p.s.Node.MACs,
		Keys: !p.s.mode().Operation || p.s.pxe(), Install: p.s.Request.Mode == lifecycle.ModeReimage,
	}
	p.region, err = look[maasact.DecommissionPlanIn, maasact.DecommissionPlan](ctx, p, "look at the machine in MAAS", maas.PlanMachineDecommission, at)
	if err != nil {
		p.unseen = "MAAS could not be looked at in time; ask again"
	}
	p.s.Config = p.region.Config
	p.s.saw(p.region.Machine)
	if id := p.s.Node.BMCID; id != "" {
		p.bmc, err = look[bmcact.PowerOffPlanIn, bmcact.PowerOffPlan](ctx, p, "look at the BMC's record", bmc.PlanPowerOffByBMC, bmcact.PowerOffPlanIn{BMCID: id})
		if err != nil {
			return err
		}
	}
	p.off = p.s.Machine.Power == "off"
	p.dark = p.s.Node.Agent != contract.AgentAlive
	return nil
}

// look runs one look within the time that is left.
func look[I, O any](ctx workflow.Context, p *planner, summary string, act any, in I) (O, error) {
	var out O
	left := max(p.until.Sub(workflow.Now(ctx)), time.Second)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		Summary: summary, StartToCloseTimeout: min(left, lookLimit), ScheduleToCloseTimeout: left,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err := workflow.ExecuteActivity(ctx, act, in).Get(ctx, &out)
	return out, err
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
