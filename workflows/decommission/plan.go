package decommission

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/plan"
)

// Plan is the workflow that says what a decommission or a node operation would do, stage by stage,
// given what is observed now. It reads the database and the region, by the activities that a run
// uses, and sends nothing to a BMC or a node. Equal facts give an equal hash.
func Plan(ctx workflow.Context, in contract.DecommissionPlanInput) (contract.Plan, error) {
	p := &predictor{Planner: plan.New[State](ctx), hardware: in.Hardware}
	with := plan.Predictions[State]{
		Job: Job, Observe: p.observe, Hostname: func(s *State) string { return s.Node.Hostname }, Predict: p.predict,
	}
	out, err := plan.Run(ctx, p.Planner, with, in.Job, in.Request)
	if err != nil {
		return out, err
	}
	return p.clean.AddDrives(out), nil
}

// predictor is what was observed for the predictions, besides the state.
type predictor struct {
	*plan.Planner[State]
	clean    *sanitize.Predictor
	hardware *contract.HardwareFacts // that the request names
}

func (p *predictor) observe(ctx workflow.Context) (err error) {
	p.clean, err = sanitize.Observe(ctx, p.Planner, &p.State.State)
	if err == nil && p.hardware != nil && p.clean.Node.PXE != nil {
		p.clean.Node.PXE.Hardware = *p.hardware
	}
	return err
}

func (p *predictor) predict(_ workflow.Context, st stage.Stage[State]) contract.PlanRow {
	if row, ok := p.clean.Predict(st.Name); ok {
		return row
	}
	return predictions()[st.Name](p)
}

// predictions has a function for every stage that is none of sanitizing.
func predictions() map[string]func(*predictor) contract.PlanRow {
	return map[string]func(*predictor) contract.PlanRow{
		lifecycle.StageDisableNode: (*predictor).disable, lifecycle.StageForceRelease: (*predictor).forceRelease, lifecycle.StageDrainNode: (*predictor).drain,
		lifecycle.StagePowerOffMAAS: (*predictor).powerOffMAAS, lifecycle.StageRetireNode: (*predictor).retire,
		lifecycle.StageRemoveNode: (*predictor).removeNode, lifecycle.StageCleanupSecrets: (*predictor).cleanSecrets,
		lifecycle.StageRemoveMAAS: (*predictor).removeRecord, lifecycle.StagePowerOff: (*predictor).powerOff,
		lifecycle.StageReplaceHardware: (*predictor).replaceHardware, lifecycle.StageBootHardware: (*predictor).bootHardware,
	}
}

func (p *predictor) disable() contract.PlanRow {
	seen := fmt.Sprintf("the node is %s, its agent %s", p.State.Node.Status, p.State.Node.Agent)
	row := plan.Runs("take the node out of scheduling")
	switch {
	case p.State.tenantMoves() != "":
		row = plan.Fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: p.State.tenantMoves()})
	case p.clean.Region.ConfigFailure != nil:
		row = plan.Fails(*p.clean.Region.ConfigFailure)
	case p.State.ProtectedFromRelease() != "":
		row = plan.Fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: p.State.ProtectedFromRelease()})
	case p.clean.RegionUnread != "":
		row = plan.Unknown(p.clean.RegionUnread)
	case p.State.Request.Mode == lifecycle.ModeReimage && p.State.Node.SystemID == "":
		row = plan.Fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: "reimage installs by MAAS, and MAAS does not manage this node"})
	case p.State.Retired && p.State.IsFullDecommission():
		row = plan.Done("the node is retired")
	case p.State.Node.Status == p.State.ModeInfo().Enters:
		row = plan.Done("the node is " + string(p.State.Node.Status))
	}
	row.Observed = seen
	return row
}

func (p *predictor) forceRelease() contract.PlanRow {
	id := p.State.Node.AllocationID
	if p.clean.AgentUnreachable {
		return p.withoutAgent("free the node of allocation " + id)
	}
	return plan.Runs(fmt.Sprintf("end the account %s and remove its home", lifecycle.TenantAccount(id)), "free the node of allocation "+id)
}

// withoutAgent is what a drain would do where no agent can be asked.
func (p *predictor) withoutAgent(then ...string) contract.PlanRow {
	switch {
	case p.State.IsPXE():
		return p.withoutAgentPXE(then...)
	case (p.State.IsFullDecommission() || p.State.IsDistrusted()) && p.clean.Powerable():
		row := plan.Runs(append([]string{"switch the machine off and have it confirmed"}, then...)...)
		row.Why = "the agent cannot be asked: " + p.State.UnreachableReason()
		if p.State.IsDistrusted() {
			row.Why = lifecycle.SystemDistrusted
		}
		return row
	case p.clean.Off:
		row := plan.Runs(then...)
		row.Planned = contract.PlannedUnknown
		row.Why = "the agent cannot be asked; the machine is off as MAAS last saw it, which is as good once it is confirmed"
		return row
	}
	return plan.Fails(contract.Failure{Class: lifecycle.FailNodeTask, Message: "the node's agent cannot be asked to drain it: " + p.clean.UnreachableReason()})
}

func (p *predictor) drain() contract.PlanRow {
	if p.clean.AgentUnreachable || p.State.IsDistrusted() {
		return p.withoutAgent()
	}
	row := plan.Runs(fmt.Sprintf("ask the agent to end containers, sessions and processes of tenants, with %d s of grace", p.State.Request.GraceSeconds))
	if p.State.Request.Mode == lifecycle.ModeDrain && p.State.Node.AllocationID != "" {
		row.Planned = contract.PlannedWait
		row.Why = "it waits for allocation " + p.State.Node.AllocationID + " to end first"
	}
	return row
}

func (p *predictor) powerOffMAAS() contract.PlanRow {
	if p.State.Node.BMCID != "" && p.clean.BMC.Failure != nil {
		return plan.Fails(*p.clean.BMC.Failure)
	}
	return plan.Runs("switch the machine off and have MAAS and its BMC confirm it")
}

func (p *predictor) retire() contract.PlanRow {
	if p.State.IsPXE() {
		return plan.Runs("shut the agent's certificates and enrolment tokens out for good", "retire the node, which gives its MAC addresses back")
	}
	return plan.Runs("retire the node")
}

func (p *predictor) removeNode() contract.PlanRow {
	steps := []string{"shut the agent's certificates and enrolment tokens out for good"}
	switch {
	case p.State.IsFullDecommission() && skipPowerOffMAAS(&p.State) == "":
	case p.clean.AgentUnreachable:
		row := plan.Runs(steps...)
		row.Why = "the agent cannot be asked to uninstall itself (" + p.clean.UnreachableReason() + "); what is on the disk stays there"
		return row
	default:
		steps = append([]string{"uninstall the agent"}, steps...)
	}
	return plan.Runs(steps...)
}

func (p *predictor) cleanSecrets() contract.PlanRow {
	steps := []string{"delete the node's user-data, host key and addresses"}
	for _, name := range p.clean.Node.Deletes {
		steps = append(steps, "delete secret "+name)
	}
	if p.State.Node.BMCID != "" {
		steps = append(steps, "take the BMC from the node")
	}
	row := plan.Runs(steps...)
	row.Why = strings.Join(p.clean.Node.Keeps, "; ")
	return row
}

func (p *predictor) removeRecord() contract.PlanRow {
	switch {
	case p.clean.RegionUnread != "":
		return plan.Unknown(p.clean.RegionUnread)
	case p.clean.Region.RecordFailure != nil:
		return plan.Fails(*p.clean.Region.RecordFailure)
	case len(p.clean.Region.Records) == 0 && p.clean.Region.MachineFailure == nil && p.clean.Region.SiteFailure == nil:
		return plan.Done("MAAS has no record of the machine")
	}
	var steps []string
	for _, id := range p.clean.Region.Records {
		steps = append(steps, "delete machine "+id+" in MAAS")
	}
	if len(steps) == 0 {
		steps = append(steps, "delete machine "+p.State.Node.SystemID+" in MAAS")
	}
	return plan.Runs(steps...)
}
