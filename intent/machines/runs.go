package machines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Start is a run that is asked for.
type Start struct {
	RequestID, MachineID string
	Type                 lifecycle.RunType
	PlanID               string // "" is the default plan of the type
	AcceptRisk           bool   // an operator accepts that work is interrupted
	// Project is that of a customer who asks; "" is an operator.
	Project string
	// Offers returns the capabilities of a provider, nothing of one that does not exist.
	Offers func(provider string) []runplan.Capability
	// retryOf is the failed run that this one is started for, "" for none.
	retryOf string
}

const maxRequestID = 128

// StartRun writes a run with its job, and has the machine PROVISIONING. A request that has made a run
// before returns that run, also one that has ended. It refuses in this order: the machine, the request,
// the plan, what the provider can, the phase, an active run, the cluster of the machine, its node.
func StartRun(ctx context.Context, tx *db.Tx, in Start, actor db.Actor) (machinesdb.Run, error) {
	m, err := machinesdb.Lock(ctx, tx, in.MachineID)
	if err == nil && in.Project != "" && (m.ProjectID == nil || *m.ProjectID != in.Project) {
		err = db.NotFound("machine " + in.MachineID)
	}
	if err != nil {
		return machinesdb.Run{}, err
	}
	if err := checkRequestID(in.RequestID); err != nil {
		return machinesdb.Run{}, err
	}
	first, err := machinesdb.FindRunOfRequest(ctx, tx, m.ID, in.RequestID)
	if !errors.Is(err, db.ErrNotFound) {
		if err == nil && in.Project != "" && (first.ProjectID == nil || *first.ProjectID != in.Project) {
			return machinesdb.Run{}, invalid("request_id", "was used on this machine before it came to your project; send another one")
		}
		if err == nil && (first.Type != in.Type || in.PlanID != "" && first.PlanID != in.PlanID || first.RetryOf != nil) {
			err = invalid("request_id", fmt.Sprintf("was used for run %s of type %s with plan %s; send another one for another run", first.ID, first.Type, first.PlanID))
		}
		return first, err
	}
	plan, err := planFor(ctx, tx, in, m)
	if err != nil {
		return machinesdb.Run{}, err
	}
	return begin(ctx, tx, in, m, plan, actor)
}

func checkRequestID(id string) error {
	if id == "" || len(id) > maxRequestID {
		return invalid("request_id", fmt.Sprintf("must be 1 to %d bytes; it makes the request safe to repeat", maxRequestID))
	}
	return nil
}

// begin starts a plan on a machine that is locked, where nothing forbids it.
func begin(ctx context.Context, tx *db.Tx, in Start, m machinesdb.Machine, plan runplan.Plan, actor db.Actor) (machinesdb.Run, error) {
	offered, err := offersFor(ctx, tx, in, m)
	if err != nil {
		return machinesdb.Run{}, err
	}
	facts := runplan.StartFacts{
		Provider: m.Spec.Provider, Offered: offered, Phase: m.Status, Conditions: m.Conditions, AcceptRisk: in.AcceptRisk && in.Project == "",
	}
	if m.ActiveRunID != nil {
		facts.ActiveRunID = *m.ActiveRunID
	}
	if err := runplan.CheckStart(in.Type, plan, facts); err != nil {
		return machinesdb.Run{}, err
	}
	site, err := checkNode(ctx, tx, m, plan, in.Project)
	if err != nil {
		return machinesdb.Run{}, err
	}
	return write(ctx, tx, in, m, plan, site, actor)
}

// offersFor returns the capabilities that a run on a machine has: those of its provider, and power
// through the BMC of the node that it is linked to.
func offersFor(ctx context.Context, tx *db.Tx, in Start, m machinesdb.Machine) ([]runplan.Capability, error) {
	offered := in.Offers(m.Spec.Provider)
	if m.NodeID == nil || len(offered) == 0 || slices.Contains(offered, runplan.CapPowerControl) {
		return offered, nil
	}
	_, err := tx.BMCOfNode(ctx, *m.NodeID)
	if err == nil {
		offered = append(offered, runplan.CapPowerControl)
	}
	return offered, ignoreNotFound(err)
}

// planFor returns the plan as the machine carries it out.
func planFor(ctx context.Context, tx *db.Tx, in Start, m machinesdb.Machine) (runplan.Plan, error) {
	if !slices.Contains(lifecycle.RunTypes(), in.Type) {
		return runplan.Plan{}, runplan.CheckStart(in.Type, runplan.Plan{}, runplan.StartFacts{})
	}
	id := in.PlanID
	if id == "" {
		defaults, err := runplan.Defaults()
		if err != nil {
			return runplan.Plan{}, err
		}
		id = defaults[in.Type].ID
	}
	plan, err := FindPlan(ctx, tx, id)
	if err == nil && in.Project != "" && plan.StartableBy != runplan.StartableByCustomer {
		err = db.NotFound("plan " + id) // customers see the plans that they may start
	}
	return plan.For(m.Spec.TargetClusterRef), err
}

// checkNode refuses what must not be done to the node of a machine, and returns its site. A tenant's node
// is touched by nobody but the tenant, and one that must be sanitized by nobody.
func checkNode(ctx context.Context, tx *db.Tx, m machinesdb.Machine, plan runplan.Plan, project string) (*string, error) {
	if m.NodeID == nil {
		return m.SiteID, nil
	}
	node, err := tx.Node(ctx, *m.NodeID)
	if err != nil {
		return nil, err
	}
	refuse := func(detail string) error {
		return &intent.Refusal{Kind: intent.ActionRefused, Existing: node.ID, Detail: detail}
	}
	if node.AllocationID == nil {
		if node.TenantLeftAt != nil {
			return nil, refuse("a tenant has left the node of the machine and nothing proves that it is clean; decommission it first")
		}
		return node.SiteRef, nil
	}
	a, err := allocationdb.Get(ctx, tx, *node.AllocationID)
	if err != nil {
		return nil, err
	}
	reboots := !slices.ContainsFunc(plan.Steps, func(s runplan.Step) bool { return s.Kind() != runplan.KindReboot })
	if project != a.ProjectID || !reboots {
		return nil, refuse("the node of the machine is allocated; its tenant may ask for a reboot, and nothing else runs on it")
	}
	return node.SiteRef, nil
}

// write stores the run, its job and the phase of the machine.
func write(ctx context.Context, tx *db.Tx, in Start, m machinesdb.Machine, plan runplan.Plan, site *string, actor db.Actor) (machinesdb.Run, error) {
	runID, jobID := db.NewID("run"), db.NewID("job")
	run, err := machinesdb.CreateRun(ctx, tx, machinesdb.NewRun{
		ID: runID, JobID: jobID, Machine: m, RequestID: in.RequestID, Type: in.Type, Plan: plan, AcceptRisk: in.AcceptRisk, RetryOf: in.retryOf, Actor: actor,
	})
	if err != nil {
		return run, err
	}
	input, err := json.Marshal(contract.MachineRunInput{RunID: runID, MachineID: m.ID, Steps: contract.RunSteps(plan.Steps)})
	if err != nil {
		return run, fmt.Errorf("request of run %s: %w", runID, err)
	}
	// The job is the lock of the machine and of its node.
	if _, err = tx.CreateJob(ctx, db.NewJob{
		ID: jobID, Kind: string(contract.KindMachineRun), NodeID: m.NodeID, SiteID: site, ResourceKind: machinesdb.Resource, ResourceID: m.ID, Input: input, Actor: actor,
	}); err != nil {
		return run, err
	}
	by := db.Actor{Owner: lifecycle.OwnerJob, ID: actor.ID, Comment: "run " + runID}
	_, err = machinesdb.MoveTo(ctx, tx, m, lifecycle.MachineStartRun, nil, runID, by)
	return run, err
}

// EndUnstarted ends the run of a job that was cancelled before it began.
func EndUnstarted(ctx context.Context, tx *db.Tx, job db.Job, actor db.Actor) error {
	m, run, err := machinesdb.LockForJob(ctx, tx, job.ID)
	if err != nil {
		return err
	}
	by := db.Actor{Owner: lifecycle.OwnerJob, ID: actor.ID, Comment: cmp.Or(actor.Comment, "cancelled before it began"), WorkflowID: job.WorkflowID}
	return machinesdb.Project(ctx, tx, m, run, machinesdb.Step{Status: lifecycle.JobCancelled, Actor: by})
}

// LockForJob locks the machine and the run of a job, which have to be locked before the job is.
func LockForJob(ctx context.Context, tx *db.Tx, jobID string) error {
	_, _, err := machinesdb.LockForJob(ctx, tx, jobID)
	return err
}

// ParkUnattended shows on a run that its job was parked where no workflow says so. LockForJob has locked it.
func ParkUnattended(ctx context.Context, tx *db.Tx, job db.Job, class lifecycle.FailureClass, actor db.Actor) error {
	m, run, err := machinesdb.LockForJob(ctx, tx, job.ID)
	if err != nil {
		return err
	}
	by := db.Actor{Owner: lifecycle.OwnerJob, ID: actor.ID, Comment: actor.Comment, WorkflowID: job.WorkflowID}
	status := lifecycle.Failure(class).ParkStatus()
	return machinesdb.Project(ctx, tx, m, run, machinesdb.Step{Status: status, Parked: class, Current: run.CurrentStep, Actor: by})
}
