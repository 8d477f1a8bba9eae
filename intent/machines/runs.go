package machines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
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
	// LogsIn reports whether a provider logs in to its machines by SSH, at their address. Nil is
	// for providers that never do.
	LogsIn func(provider string) bool
	// CustomersTakeNodes says that a customer may have the node of the machine installed again, or
	// taken out of service.
	CustomersTakeNodes bool
	// Campaign is the campaign that starts the run, "" for none. Its requests have ids that no
	// other may use.
	Campaign string
	// retryOf is the failed run that this one is started for, "" for none.
	retryOf string
}

const maxRequestID = 128

// CampaignPrefix begins the ids of campaigns and of their requests.
const CampaignPrefix = "campaign_"

// StartRun writes a run with its job, and has the machine PROVISIONING. A request that has made a
// run before returns that run, also one that has ended. It refuses in this order: the machine, the
// request, the plan, what the provider can, the phase, an active run, the cluster of the machine,
// its node, the login to it.
func StartRun(ctx context.Context, tx *db.Tx, in Start, actor db.Actor) (machinesdb.Run, error) {
	m, err := machinesdb.Lock(ctx, tx, in.MachineID)
	if err == nil {
		err = machinesdb.CheckRight(ctx, tx, m, in.Project)
	}
	if err != nil {
		return machinesdb.Run{}, err
	}
	if err := checkRequestID(in.RequestID, in.Campaign); err != nil {
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
	run, err := begin(ctx, tx, in, m, plan, actor)
	if err == nil {
		err = storeDefault(ctx, tx, plan.ID, run.ID, actor)
	}
	return run, err
}

func checkRequestID(id, campaign string) error {
	if id == "" || len(id) > maxRequestID {
		return invalid("request_id", fmt.Sprintf("must be 1 to %d bytes; it makes the request safe to repeat", maxRequestID))
	}
	if strings.HasPrefix(id, CampaignPrefix) && (campaign == "" || !strings.HasPrefix(id, campaign+"/")) {
		return invalid("request_id", "begins with "+CampaignPrefix+", which is for the runs of campaigns; send another one")
	}
	return nil
}

// CheckRun returns why StartRun would refuse a run now, nil where it would not. It writes nothing
// and takes no lock. A machine on which something else runs returns a *runplan.StartRefusal or a
// *db.ConflictError, as StartRun does.
func CheckRun(ctx context.Context, tx *db.Tx, in Start) error {
	m, err := machinesdb.Get(ctx, tx, in.MachineID)
	if err == nil {
		err = machinesdb.CheckRight(ctx, tx, m, in.Project)
	}
	if err != nil {
		return err
	}
	plan, err := planFor(ctx, tx, in, m)
	if err == nil {
		_, _, err = check(ctx, tx, in, m, plan)
	}
	if err == nil && m.NodeID != nil {
		err = tx.RequireNoLiveJob(ctx, *m.NodeID)
	}
	return err
}

// begin starts a plan on a machine that is locked, where nothing forbids it.
func begin(ctx context.Context, tx *db.Tx, in Start, m machinesdb.Machine, plan runplan.Plan, actor db.Actor) (machinesdb.Run, error) {
	site, takes, err := check(ctx, tx, in, m, plan)
	if err != nil {
		return machinesdb.Run{}, err
	}
	return write(ctx, tx, in, m, plan, site, takes, actor)
}

// stepOf is the kind of step that a run of a type carries out, where its end says that this was
// done.
var stepOf = map[lifecycle.RunType]runplan.Kind{lifecycle.RunTypeRepave: runplan.KindRepave, lifecycle.RunTypeRMA: runplan.KindRMA}

// check refuses a plan that must not be started on a machine now. It returns the site of the
// machine, and whether the plan takes the node of the machine out of service.
func check(ctx context.Context, tx *db.Tx, in Start, m machinesdb.Machine, plan runplan.Plan) (site *string, takes bool, err error) {
	own := in.Offers(m.Spec.Provider)
	offered, err := addNode(ctx, tx, own, m)
	if err != nil {
		return nil, false, err
	}
	facts := runplan.StartFacts{
		Provider: m.Spec.Provider, Offered: offered, Phase: m.Status, Conditions: m.Conditions, AcceptRisk: in.AcceptRisk && in.Project == "",
	}
	if m.ActiveRunID != nil {
		facts.ActiveRunID = *m.ActiveRunID
	}
	if err := runplan.CheckStart(in.Type, plan, facts); err != nil {
		return nil, false, err
	}
	if err := checkClusters(ctx, tx, m, plan); err != nil {
		return nil, false, err
	}
	if site, err = checkNode(ctx, tx, m, plan, in.Project); err != nil {
		return nil, false, err
	}
	if err := checkLogin(ctx, tx, in, m, plan); err != nil {
		return nil, false, err
	}
	if kind, needed := stepOf[in.Type]; needed && in.Project != "" && !slices.ContainsFunc(plan.Steps, func(s runplan.Step) bool { return s.Kind() == kind }) {
		return nil, false, &intent.Refusal{Kind: intent.ActionRefused, Existing: m.ID, Detail: fmt.Sprintf("a %s run needs a plan with a step %s: it leaves the machine in the phase that this step leads to", in.Type, kind)}
	}
	takes = takesNode(plan, own)
	if takes && in.Project != "" && !in.CustomersTakeNodes {
		return nil, false, &intent.Refusal{Kind: intent.ActionRefused, Existing: m.ID, Detail: "the plan takes the node of the machine out of service; an operator of the platform starts it"}
	}
	return site, takes, nil
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
	plan, err := FindPlanOf(ctx, tx, in.Project, id)
	return plan.For(m.Spec.TargetClusterRef).WithNetplan(m.Spec.Netplan), err
}

// checkClusters refuses a plan for a cluster that is not there, or that is not for machines of this
// project. The two are told in the same words.
func checkClusters(ctx context.Context, tx *db.Tx, m machinesdb.Machine, plan runplan.Plan) error {
	for _, s := range plan.Steps {
		ref := ""
		switch {
		case s.Join != nil:
			ref = s.Join.ClusterRef
		case s.Verify != nil:
			ref = s.Verify.ClusterRef
		default:
			continue
		}
		c, err := clusterdb.Get(ctx, tx, ref)
		if ignoreNotFound(err) != nil {
			return err
		}
		same := (c.ProjectID == nil) == (m.ProjectID == nil) && (c.ProjectID == nil || *c.ProjectID == *m.ProjectID)
		if err != nil || !same {
			return &intent.Refusal{
				Kind: intent.ActionRefused, Existing: m.ID,
				Detail: fmt.Sprintf("step %s is for cluster %s, and the project of the machine has none of that name; an administrator has to create it", s.Name, ref),
			}
		}
	}
	return nil
}

// checkNode refuses what must not be done to the node of a machine, and returns its site. A
// tenant's node is touched by nobody but the tenant, and one that must be sanitized by nobody.
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
	if project != a.ProjectID || !reboots || a.NodeID == nil {
		return nil, refuse("the node of the machine is allocated; its tenant may ask for a reboot, and nothing else runs on it")
	}
	// In a restored database a node may be that of a tenant who has given it back since.
	heldFor, unread, err := allocationdb.HeldForAnother(ctx, tx, a)
	if err == nil && (heldFor != "" || unread) {
		err = refuse("the database was restored from a backup, and nothing has said since that the node of the machine is still that of your allocation; try again in a quarter of an hour, or ask the operator of the platform")
	}
	return node.SiteRef, err
}

// write stores the run, its job and the phase of the machine. takes says that the node of the
// machine is taken out of service with it.
func write(ctx context.Context, tx *db.Tx, in Start, m machinesdb.Machine, plan runplan.Plan, site *string, takes bool, actor db.Actor) (machinesdb.Run, error) {
	runID, jobID := db.NewID("run"), db.NewID("job")
	run, err := machinesdb.CreateRun(ctx, tx, machinesdb.NewRun{
		ID: runID, JobID: jobID, Machine: m, RequestID: in.RequestID, Type: in.Type, Plan: plan, AcceptRisk: in.AcceptRisk, RetryOf: in.retryOf, Actor: actor,
	})
	if err != nil {
		return run, err
	}
	request := contract.MachineRunInput{RunID: runID, MachineID: m.ID, Steps: contract.RunSteps(plan.Steps)}
	if err := AuditProject(ctx, tx, "start_run", text(m.ProjectID), map[string]any{"run": runID, "machine": m.ID, "type": in.Type, "plan": plan.ID}, actor); err != nil {
		return run, err
	}
	if takes {
		if request.NodeFrom, err = takenFrom(ctx, tx, *m.NodeID, plan); err != nil {
			return run, err
		}
	}
	input, err := json.Marshal(request)
	if err != nil {
		return run, fmt.Errorf("request of run %s: %w", runID, err)
	}
	// The job is the lock of the machine and of its node.
	if _, err = tx.CreateJob(ctx, db.NewJob{
		ID: jobID, Kind: string(contract.KindMachineRun), NodeID: m.NodeID, SiteID: site, ResourceKind: machinesdb.Resource, ResourceID: m.ID, Input: input, Actor: actor,
	}); err != nil {
		return run, err
	}
	if request.NodeFrom != "" {
		if err := takeNode(ctx, tx, *m.NodeID, runID, actor); err != nil {
			return run, err
		}
	}
	by := db.Actor{Owner: lifecycle.OwnerJob, ID: actor.ID, Comment: "run " + runID}
	_, err = machinesdb.MoveTo(ctx, tx, m, lifecycle.MachineStartRun, nil, runID, by)
	return run, err
}

// EndUnstarted ends the run of a job that was cancelled before it began, and has the cancellation
// in the audit log of its project.
func EndUnstarted(ctx context.Context, tx *db.Tx, job db.Job, actor db.Actor) error {
	m, run, err := machinesdb.LockForJob(ctx, tx, job.ID)
	if err != nil {
		return err
	}
	by := db.Actor{Owner: lifecycle.OwnerJob, ID: actor.ID, Comment: cmp.Or(actor.Comment, "cancelled before it began"), WorkflowID: job.WorkflowID}
	if err := giveNodeBack(ctx, tx, job, by); err != nil {
		return err
	}
	if err := machinesdb.Project(ctx, tx, m, run, machinesdb.Step{Status: lifecycle.JobCancelled, Actor: by}); err != nil {
		return err
	}
	return AuditCancel(ctx, tx, job.ID, actor)
}

// ParkUnattended shows on a run that its job was parked where no workflow says so.
func ParkUnattended(ctx context.Context, tx *db.Tx, job db.Job, class lifecycle.FailureClass, actor db.Actor) error {
	m, run, err := machinesdb.LockForJob(ctx, tx, job.ID)
	if err != nil {
		return err
	}
	by := db.Actor{Owner: lifecycle.OwnerJob, ID: actor.ID, Comment: actor.Comment, WorkflowID: job.WorkflowID}
	status := lifecycle.Failure(class).ParkStatus()
	return machinesdb.Project(ctx, tx, m, run, machinesdb.Step{Status: status, Parked: class, Current: run.CurrentStep, Actor: by})
}
