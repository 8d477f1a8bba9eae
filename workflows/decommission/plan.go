package decommission

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
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
	return p.addDrives(out), err
}

// predictor is what was observed for the predictions, besides the state.
type predictor struct {
	*plan.Planner[State]
	hardware *contract.HardwareFacts // that the request names

	node   nodestateact.DecommissionPlan
	region maasact.DecommissionPlan
	bmc    bmcact.PowerOffPlan
	// regionUnread says why the region could not be asked.
	regionUnread string
	// agentUnreachable is set when the agent could not be asked, and off when the machine is off by
	// all that is known.
	agentUnreachable, off bool
}

// observe reads the database, which must answer, and the region, which is shown as unknown when it
// does not.
func (p *predictor) observe(ctx workflow.Context) error {
	s := &p.State
	known, err := plan.Read(ctx, p.Planner, "look at the node", nodeActs.PlanNodeDecommission, nodestateact.DecommissionPlanIn{In: s.Job})
	if err != nil {
		return err
	}
	p.node = known
	if p.hardware != nil && p.node.PXE != nil {
		p.node.PXE.Hardware = *p.hardware
	}
	s.recordNode(known.Facts)
	s.Retired = s.Retired || known.Facts.Status == lifecycle.NodeRetired || known.Facts.Status == lifecycle.NodeRemoving
	if id := s.Node.BMCID; id != "" {
		p.bmc, err = plan.Read(ctx, p.Planner, "look at the BMC's record", bmc.PlanPowerOffByBMC, bmcact.PowerOffPlanIn{BMCID: id})
		if err != nil {
			return err
		}
	}
	at := maasact.DecommissionPlanIn{
		In: s.Job, SystemID: s.Node.SystemID, Hostname: s.Node.Hostname, MACs: s.Node.MACs,
		Keys: !s.mode().Operation || s.pxe(), Install: s.Request.Mode == lifecycle.ModeReimage,
	}
	p.region, err = plan.Read(ctx, p.Planner, "look at the machine in MAAS", maas.PlanMachineDecommission, at)
	if err != nil {
		p.regionUnread = "MAAS could not be looked at in time; ask again"
	}
	s.Config = p.region.Config
	s.recordMachine(p.region.Machine)
	p.off = s.Machine.Power == "off"
	p.agentUnreachable = s.Node.Agent != contract.AgentAlive || s.distrusted() && s.isFullDecommission()
	return nil
}

func (p *predictor) predict(_ workflow.Context, st stage.Stage[State]) contract.PlanRow {
	return predictions()[st.Name](p)
}

// predictions has a function for every stage.
func predictions() map[string]func(*predictor) contract.PlanRow {
	return map[string]func(*predictor) contract.PlanRow{
		lifecycle.StageDisableNode: (*predictor).disable, lifecycle.StageForceRelease: (*predictor).forceRelease, lifecycle.StageDrainNode: (*predictor).drain,
		lifecycle.StageCleanupStorage: (*predictor).cleanStorage, lifecycle.StageScrubGPU: (*predictor).scrub, lifecycle.StageValidateClean: (*predictor).validate,
		lifecycle.StageLoadSite: (*predictor).loadSite, lifecycle.StageReleaseMAAS: (*predictor).release, lifecycle.StagePowerOffMAAS: (*predictor).powerOffMAAS,
		lifecycle.StageRetireNode: (*predictor).retire, lifecycle.StageRemoveNode: (*predictor).removeNode, lifecycle.StageCleanupSecrets: (*predictor).cleanSecrets,
		lifecycle.StageRemoveMAAS: (*predictor).removeRecord, lifecycle.StageBootEraser: (*predictor).bootEraser, lifecycle.StagePowerOff: (*predictor).powerOff,
		lifecycle.StageReplaceHardware: (*predictor).replaceHardware, lifecycle.StageBootHardware: (*predictor).bootHardware,
	}
}

func (p *predictor) disable() contract.PlanRow {
	seen := fmt.Sprintf("the node is %s, its agent %s", p.State.Node.Status, p.State.Node.Agent)
	row := plan.Runs("take the node out of scheduling")
	switch {
	case p.State.tenantMoves() != "":
		row = plan.Fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: p.State.tenantMoves()})
	case p.region.ConfigFailure != nil:
		row = plan.Fails(*p.region.ConfigFailure)
	case p.State.protectedFromRelease() != "":
		row = plan.Fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: p.State.protectedFromRelease()})
	case p.regionUnread != "":
		row = plan.Unknown(p.regionUnread)
	case p.State.Request.Mode == lifecycle.ModeReimage && p.State.Node.SystemID == "":
		row = plan.Fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: "reimage installs by MAAS, and MAAS does not manage this node"})
	case p.State.Retired && p.State.isFullDecommission():
		row = plan.Done("the node is retired")
	case p.State.Node.Status == p.State.mode().Enters:
		row = plan.Done("the node is " + string(p.State.Node.Status))
	}
	row.Observed = seen
	return row
}

func (p *predictor) forceRelease() contract.PlanRow {
	id := p.State.Node.AllocationID
	if p.agentUnreachable {
		return p.withoutAgent("free the node of allocation " + id)
	}
	return plan.Runs(fmt.Sprintf("end the account %s and remove its home", lifecycle.TenantAccount(id)), "free the node of allocation "+id)
}

// withoutAgent is what a drain would do where no agent can be asked.
func (p *predictor) withoutAgent(then ...string) contract.PlanRow {
	switch {
	case p.State.pxe():
		return p.withoutAgentPXE(then...)
	case (p.State.isFullDecommission() || p.State.distrusted()) && p.powerable():
		row := plan.Runs(append([]string{"switch the machine off and have it confirmed"}, then...)...)
		row.Why = "the agent cannot be asked: " + p.State.unreachableReason()
		if p.State.distrusted() {
			row.Why = lifecycle.SystemDistrusted
		}
		return row
	case p.off:
		row := plan.Runs(then...)
		row.Planned = contract.PlannedUnknown
		row.Why = "the agent cannot be asked; the machine is off as MAAS last saw it, which is as good once it is confirmed"
		return row
	}
	return plan.Fails(contract.Failure{Class: lifecycle.FailNodeTask, Message: "the node's agent cannot be asked to drain it: " + p.unreachableReason()})
}

// unreachableReason says why the agent cannot be asked, without the time of its last
// heartbeat, which decides nothing.
func (p *predictor) unreachableReason() string {
	if p.State.Node.Agent == contract.AgentSilent {
		return "it is silent"
	}
	return "it is not enrolled, or shut out"
}

func (p *predictor) powerable() bool {
	return p.State.Node.BMCID != "" && p.bmc.Failure == nil || p.State.Node.SystemID != "" && p.regionUnread == ""
}

func (p *predictor) drain() contract.PlanRow {
	if p.agentUnreachable || p.State.distrusted() {
		return p.withoutAgent()
	}
	row := plan.Runs(fmt.Sprintf("ask the agent to end containers, sessions and processes of tenants, with %d s of grace", p.State.Request.GraceSeconds))
	if p.State.Request.Mode == lifecycle.ModeDrain && p.State.Node.AllocationID != "" {
		row.Planned = contract.PlannedWait
		row.Why = "it waits for allocation " + p.State.Node.AllocationID + " to end first"
	}
	return row
}

// byAgent is the row of a stage that the agent does, and that is not done where it is unreachable.
func (p *predictor) byAgent(steps ...string) contract.PlanRow {
	switch {
	case p.agentUnreachable && p.State.isUnmanaged():
		return plan.Skips("the agent cannot be asked, and no MAAS erases the disks from outside")
	case p.agentUnreachable && p.State.isFullDecommission():
		return plan.Skips("the agent cannot be asked; erasing from outside has to be the proof")
	case p.agentUnreachable:
		return plan.Fails(contract.Failure{Class: lifecycle.FailNodeTask, Message: "the node's agent cannot be asked: " + p.unreachableReason()})
	}
	return plan.Runs(steps...)
}

func (p *predictor) cleanStorage() contract.PlanRow {
	if p.State.Request.Mode != lifecycle.ModeStorageCleanup {
		return p.byAgent("unmount what tenants mounted")
	}
	if row := p.failsWithoutDrives(); row != nil {
		return *row
	}
	return p.byAgent(append([]string{"remove containers, processes, accounts, keys, mounts and temporary files of tenants"}, p.erasures()...)...)
}

func (p *predictor) erasures() []string {
	var out []string
	for _, d := range p.node.Disks {
		do := "erase disk "
		if name, serial, _ := strings.Cut(d, " "); name != "" && isProtected(serial, p.State.Node.ProtectSerials) {
			do = "leave protected disk "
		}
		out = append(out, do+d)
	}
	return out
}

// failsWithoutDrives returns the row of a stage that erases drives of a node of which nothing names any, nil where
// they are known.
func (p *predictor) failsWithoutDrives() *contract.PlanRow {
	if len(p.State.Node.Drives) > 0 || p.agentUnreachable && !p.State.pxe() {
		return nil
	}
	row := plan.Fails(contract.Failure{Class: lifecycle.FailDriveUnexpected, Message: unknownDrives})
	return &row
}

func (p *predictor) scrub() contract.PlanRow {
	if row := p.failsWithoutDrives(); row != nil {
		return *row
	}
	if p.State.pxe() {
		return p.scrubLive()
	}
	steps := append([]string{"remove containers, processes, accounts, keys, mounts, temporary files and what starts by itself"}, p.erasures()...)
	if p.node.GPUs > 0 {
		steps = append(steps, fmt.Sprintf("reset %d GPUs and check their memory", p.node.GPUs))
	}
	return p.byAgent(append(steps, "have the firmware overwrite the memory at the next boot")...)
}

func (p *predictor) validate() contract.PlanRow {
	if p.State.pxe() {
		return p.validateLive()
	}
	var steps []string
	switch {
	case p.State.Request.Mode == lifecycle.ModeReimage:
	case p.State.Node.BMCID != "" && p.bmc.Failure != nil && !p.agentUnreachable:
		return plan.Fails(*p.bmc.Failure)
	case p.State.Node.BMCID != "":
		steps = append(steps, "power cycle the machine at its BMC")
	case p.State.Node.SystemID != "":
		steps = append(steps, "power cycle the machine by MAAS")
	case !p.agentUnreachable:
		return plan.Fails(contract.Failure{Class: lifecycle.FailPowerNotConfirmed, Message: "the node must restart, and Slipway knows neither a BMC nor a MAAS machine of it"})
	}
	steps = append(steps, "have the agent prove the node clean and as its SKU says")
	if p.State.isUnmanaged() {
		return p.validateUnmanaged(append(steps, "sign the certificate")...)
	}
	if p.State.checksTenantBMC() {
		steps = append(steps, "compare the BMC's settings with those of before the tenant, and give it another password")
	}
	if !p.State.isFullDecommission() {
		steps = append(steps, "sign the certificate")
	}
	if p.State.Request.Mode == lifecycle.ModeReimage && p.State.distrusted() {
		return plan.Runs(append([]string{"have the new system scrub the node"}, steps...)...)
	}
	return p.byAgent(steps...)
}

// validateUnmanaged is the validation of a node that leaves for good and that no MAAS
// erases: what is not proven there, nothing proves later.
func (p *predictor) validateUnmanaged(steps ...string) contract.PlanRow {
	unerased := "the disk that its system runs from (" + strings.Join(p.node.System, ", ") + ")"
	switch {
	case p.agentUnreachable:
		unerased, steps = "any of its disks", []string{"sign the certificate, of a node that nobody has looked at"}
	case len(p.node.System) == 0:
		return plan.Runs(steps...)
	}
	row := plan.Fails(contract.Failure{Class: lifecycle.FailScrubUnverified, Message: "no MAAS manages the node, so nothing erases " + unerased +
		": the job parks with a certificate that says so; erase or destroy what it names, then adopt_observed_state with accept_risk"})
	row.Steps = steps
	return row
}

func (p *predictor) loadSite() contract.PlanRow {
	switch {
	case p.regionUnread != "":
		return plan.Unknown(p.regionUnread)
	case p.region.SiteFailure != nil:
		return plan.Fails(*p.region.SiteFailure)
	case p.region.MachineFailure != nil:
		return plan.Fails(*p.region.MachineFailure)
	}
	return contract.PlanRow{Planned: contract.PlannedRun, Why: "reads the site and looks at the machine", Observed: p.machine()}
}

func (p *predictor) machine() string {
	m := p.region.Machine
	if m.Status == "" {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("MAAS %s: %s, power %s", m.SystemID, m.Status, m.Power), ", power ")
}

func (p *predictor) release() contract.PlanRow {
	switch {
	case p.regionUnread != "" || p.region.SiteFailure != nil || p.region.MachineFailure != nil:
		return plan.Unknown("MAAS could not be asked about the machine")
	}
	row := p.releases()
	row.Observed = p.machine()
	return row
}

func (p *predictor) releases() contract.PlanRow {
	id := p.State.Node.SystemID
	if f := p.region.Unreleasable(); f != nil {
		return plan.Fails(*f)
	}
	if p.region.Released() && !p.State.Release.MachineObserved {
		return plan.Fails(contract.Failure{Class: lifecycle.FailScrubUnverified, Message: fmt.Sprintf(
			"machine %s is %s: nothing proves that its disks were erased", id, p.region.Machine.Status)})
	}
	steps := []string{"release machine " + id + " in MAAS with its disks erased"}
	for _, d := range p.region.Disks {
		steps = append(steps, "erase disk "+d+" by MAAS")
	}
	if p.State.Request.Mode == lifecycle.ModeReimage {
		steps = append(steps, "issue a one-time enrolment token, make a host key, seal the user-data",
			"deploy "+p.State.Config.Profile.DistroSeries+" again and wait for the new agent")
	} else {
		steps = append(steps, "sign the certificate")
	}
	row := plan.Runs(steps...)
	if p.State.Config.Profile.ReleaseFallbackNoErase {
		row.Steps = append(row.Steps, "should erasing fail: release without it, and say so in the certificate")
	}
	return row
}

func (p *predictor) powerOffMAAS() contract.PlanRow {
	if p.State.Node.BMCID != "" && p.bmc.Failure != nil {
		return plan.Fails(*p.bmc.Failure)
	}
	return plan.Runs("switch the machine off and have MAAS and its BMC confirm it")
}

func (p *predictor) retire() contract.PlanRow {
	if p.State.pxe() {
		return plan.Runs("shut the agent's certificates and enrolment tokens out for good", "retire the node, which gives its MAC addresses back")
	}
	return plan.Runs("retire the node")
}

func (p *predictor) removeNode() contract.PlanRow {
	steps := []string{"shut the agent's certificates and enrolment tokens out for good"}
	switch {
	case p.State.isFullDecommission() && skipPowerOffMAAS(&p.State) == "":
	case p.agentUnreachable:
		row := plan.Runs(steps...)
		row.Why = "the agent cannot be asked to uninstall itself (" + p.unreachableReason() + "); what is on the disk stays there"
		return row
	default:
		steps = append([]string{"uninstall the agent"}, steps...)
	}
	return plan.Runs(steps...)
}

func (p *predictor) cleanSecrets() contract.PlanRow {
	steps := []string{"delete the node's user-data, host key and addresses"}
	for _, name := range p.node.Deletes {
		steps = append(steps, "delete secret "+name)
	}
	if p.State.Node.BMCID != "" {
		steps = append(steps, "take the BMC from the node")
	}
	row := plan.Runs(steps...)
	row.Why = strings.Join(p.node.Keeps, "; ")
	return row
}

func (p *predictor) removeRecord() contract.PlanRow {
	switch {
	case p.regionUnread != "":
		return plan.Unknown(p.regionUnread)
	case p.region.RecordFailure != nil:
		return plan.Fails(*p.region.RecordFailure)
	case len(p.region.Records) == 0 && p.region.MachineFailure == nil && p.region.SiteFailure == nil:
		return plan.Done("MAAS has no record of the machine")
	}
	var steps []string
	for _, id := range p.region.Records {
		steps = append(steps, "delete machine "+id+" in MAAS")
	}
	if len(steps) == 0 {
		steps = append(steps, "delete machine "+p.State.Node.SystemID+" in MAAS")
	}
	return plan.Runs(steps...)
}
