package allocation

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/plan"
)

// Plan is the workflow that says what a job of an allocation would do, stage by stage, given what
// is observed now. It reads the database and the region, and sends nothing to a BMC or a node.
func Plan(ctx workflow.Context, in contract.AllocationPlanInput) (contract.Plan, error) {
	if in.Job.Kind == contract.KindAllocationRelease {
		p := &releasePredictor{Planner: plan.New[ReleaseState](ctx)}
		return plan.Run(ctx, p.Planner, plan.Predictions[ReleaseState]{
			Job: ReleaseJob, Observe: p.observe, Hostname: func(s *ReleaseState) string { return s.Cleaning.Node.Hostname }, Predict: p.predict,
		}, in.Job, in.Request)
	}
	if in.Job.Kind == contract.KindAllocationKeys {
		p := &keysPredictor{Planner: plan.New[KeysState](ctx)}
		return plan.Run(ctx, p.Planner, plan.Predictions[KeysState]{
			Job: KeysJob, Observe: p.observe, Hostname: func(s *KeysState) string { return s.Node.Hostname }, Predict: p.predict,
		}, in.Job, in.Request)
	}
	p := &provisionPredictor{Planner: plan.New[ProvisionState](ctx)}
	return plan.Run(ctx, p.Planner, plan.Predictions[ProvisionState]{
		Job: ProvisionJob, Observe: p.observe, Hostname: func(s *ProvisionState) string { return s.Node.Hostname }, Unknown: p.unknown, Predict: p.predict,
	}, in.Job, in.Request)
}

// provisionPredictor predicts the stages of a provision.
type provisionPredictor struct {
	*plan.Planner[ProvisionState]
}

// observe reads the allocation, and its node once one is claimed.
func (p *provisionPredictor) observe(ctx workflow.Context) error {
	s := &p.State
	f, err := plan.Read(ctx, p.Planner, "look at the allocation", allocs.PlanAllocation, allocationact.PlanIn{In: s.ref("")})
	if err != nil || f.NodeID == "" {
		return err
	}
	s.Facts, s.Job.NodeID, s.Job.SiteID = f, f.NodeID, f.SiteID
	known, err := plan.Read(ctx, p.Planner, "look at the node", nodeActs.PlanNodeDecommission, nodestateact.DecommissionPlanIn{In: s.Job})
	s.Node = known.Facts
	return err
}

// unknown says why nothing can be told of a stage before a node is claimed.
func (p *provisionPredictor) unknown(name string) string {
	if name == lifecycle.StageClaimNode || p.State.Job.NodeID != "" {
		return ""
	}
	return "no node is claimed yet"
}

func (p *provisionPredictor) predict(_ workflow.Context, st stage.Stage[ProvisionState]) contract.PlanRow {
	s := &p.State
	account := "the account " + s.user()
	switch st.Name {
	case lifecycle.StageClaimNode:
		if s.Job.NodeID == "" {
			return p.Waits(st, "for a free node of the SKU, until the deadline of the request")
		}
		return plan.Done("node " + s.Node.Hostname + " is claimed")
	case lifecycle.StageCheckNode:
		row := plan.Runs()
		row.Why = "proves that the node is the allocation's alone, active, clean and heard from"
		row.Observed = fmt.Sprintf("the node is %s, its agent %s", s.Node.Status, s.Node.Agent)
		return row
	case lifecycle.StageIsolateNode:
		return plan.Runs("switch off the interface between the node's system and its BMC, where the BMC allows it")
	case lifecycle.StageSnapshotFirmware:
		return plan.Runs("keep the settings and firmware versions that the BMC shows")
	case lifecycle.StageRetireCredentials:
		return plan.Runs("end the node's enrolment tokens", "delete what its installation was given")
	case lifecycle.StageProbeNetwork:
		return plan.Runs("have the node try to reach the control plane, MAAS, BMCs and other nodes; what answers ends the provision")
	case lifecycle.StageCreateAccount:
		return plan.Runs("make " + account + " without a password and without keys" + rootText(s.Facts.TenantRoot))
	case lifecycle.StageProveLogin:
		return plan.Runs("log in with a one-time key, remove it, and have it refused")
	case lifecycle.StageInstallKeys:
		return plan.Runs(fmt.Sprintf("put %d keys of the tenant into %s", len(s.Facts.Keys), account))
	case lifecycle.StageProveKeys:
		return plan.Runs("offer each key to the node, and have it accepted")
	}
	return plan.Runs("make the allocation active")
}

func rootText(root bool) string {
	if root {
		return ", who is root by sudo"
	}
	return ""
}

// keysPredictor predicts the stages of a change of keys.
type keysPredictor struct {
	*plan.Planner[KeysState]
}

func (p *keysPredictor) observe(ctx workflow.Context) error {
	s := &p.State
	f, err := plan.Read(ctx, p.Planner, "look at the allocation", allocs.PlanAllocation, allocationact.PlanIn{In: s.ref("")})
	if err != nil || f.NodeID == "" {
		return err
	}
	if s.Read { // the job sends what it has read
		f.Keys, f.Former = s.Facts.Keys, s.Facts.Former
	}
	s.Facts = f
	known, err := plan.Read(ctx, p.Planner, "look at the node", nodeActs.PlanNodeDecommission, nodestateact.DecommissionPlanIn{In: s.Job})
	s.Node = known.Facts
	return err
}

func (p *keysPredictor) predict(_ workflow.Context, st stage.Stage[KeysState]) contract.PlanRow {
	s := &p.State
	if s.Facts.Status != lifecycle.AllocationActive {
		return plan.Skips("the allocation is not active, and its release withdraws all keys")
	}
	switch st.Name {
	case lifecycle.StageSetKeys:
		row := plan.Runs(fmt.Sprintf("put %d keys into the account %s, and no other", len(s.Facts.Keys), lifecycle.TenantAccount(s.Request.AllocationID)))
		row.Observed = "the agent is " + string(s.Node.Agent)
		return row
	case lifecycle.StageProveKeys:
		return plan.Runs(fmt.Sprintf("have each of %d former keys refused from outside", len(s.Facts.Former)),
			fmt.Sprintf("have each of %d keys accepted", len(s.Facts.Keys)))
	}
	return plan.Runs("store what the node accepts", "give the node's metadata the keys in force")
}

// releasePredictor predicts the stages of a release. Those that clean the node are predicted by
// sanitize.
type releasePredictor struct {
	*plan.Planner[ReleaseState]
	cleaning *sanitize.Predictor
}

func (p *releasePredictor) observe(ctx workflow.Context) error {
	s := &p.State
	f, err := plan.Read(ctx, p.Planner, "look at the allocation", allocs.PlanAllocation, allocationact.PlanIn{In: s.ref("")})
	if err != nil || f.NodeID == "" {
		return err
	}
	s.Facts, s.Access, s.Job.NodeID, s.Job.SiteID = f, f.Access, f.NodeID, f.SiteID
	if !s.Begun {
		s.Cleaning = sanitize.NewTenantRelease(s.Job, contract.KindAllocationRelease, f.TenantRoot)
	}
	p.cleaning, err = sanitize.Observe(ctx, p.Planner, &s.Cleaning)
	if err == nil && s.Cleaning.Mode == lifecycle.ModeReimage {
		p.cleaning.AgentUnreachable = false // the system that cleans the node does not exist yet
	}
	return err
}

func (p *releasePredictor) predict(_ workflow.Context, st stage.Stage[ReleaseState]) contract.PlanRow {
	s := &p.State
	if p.cleaning == nil {
		return plan.Skips("the allocation has let go of its node")
	}
	switch st.Name {
	case lifecycle.StageCloseTerminals:
		row := plan.Runs("take the node")
		row.Why = "there are no terminals to close yet"
		return row
	case lifecycle.StageRevokeAccess:
		return p.revoke()
	case lifecycle.StageStopUsage:
		return plan.Runs("end what the tenant is charged")
	case lifecycle.StageDetachStorage:
		return plan.Done("the tenant has no storage")
	case lifecycle.StageValidateFirmware:
		return plan.Runs("compare the settings and firmware versions that the BMC shows with the claim")
	case lifecycle.StageRotateBMCLogin:
		return plan.Runs("give the BMC another password, log in with it, and give it to MAAS")
	case lifecycle.StageCertify:
		return plan.Runs("sign the certificate; anything that is not proven keeps the node")
	case lifecycle.StageFreeNode:
		return plan.Runs("free the node for the next tenant")
	}
	if why := s.Cleaning.ReleaseForbidden(); why != "" {
		return plan.Fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: why + "; remove the assignment, and decommission the node"})
	}
	row, ok := p.cleaning.Predict(st.Name)
	if !ok {
		return plan.Unknown("nothing predicts the stage " + st.Name)
	}
	if st.Name == lifecycle.StageReleaseMAAS && row.Why == "" {
		row.Why = "the tenant was root, or only the power proves that the access has ended: nothing on the disks is trusted"
	}
	return row
}

// revoke is the row of the stage that ends the tenant's access.
func (p *releasePredictor) revoke() contract.PlanRow {
	s := &p.State
	if s.Access == lifecycle.AccessRevoked {
		return plan.Done("the tenant's access has ended")
	}
	off := "switch the machine off, and have its BMC or MAAS read it off"
	steps := []string{"have the agent end the tenant's processes and remove the account " + lifecycle.TenantAccount(s.Request.AllocationID)}
	if s.Facts.TenantRoot {
		row := plan.Runs(append(steps, off)...)
		row.Why = "the tenant was root: what the node says of itself proves nothing"
		if s.Cleaning.Node.BMCID == "" && s.Cleaning.Node.SystemID == "" {
			return plan.Fails(contract.Failure{Class: lifecycle.FailAccessUnconfirmed, Message: "Slipway knows neither a BMC nor a MAAS machine that could switch the node off"})
		}
		return row
	}
	row := plan.Runs(append(steps, fmt.Sprintf("have each of the tenant's %d keys refused from outside", len(s.Facts.Keys)+len(s.Facts.Former)))...)
	row.Why = fmt.Sprintf("without that proof within %d s it would %s, and the node would be installed again", s.Facts.RevokeSeconds, off)
	return row
}
