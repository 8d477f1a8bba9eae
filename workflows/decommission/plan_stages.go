package decommission

import (
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// plans has a row for every stage. What a stage skips by itself it skips here
// too.
func plans() map[string]func(*planner) contract.PlanRow {
	return map[string]func(*planner) contract.PlanRow{
		lifecycle.StageDisableNode: planDisable, lifecycle.StageForceRelease: planForceRelease, lifecycle.StageDrainNode: planDrain,
		lifecycle.StageCleanupStorage: planStorage, lifecycle.StageScrubGPU: planScrub, lifecycle.StageValidateClean: planValidate,
		lifecycle.StageLoadSite: planSite, lifecycle.StageReleaseMAAS: planRelease, lifecycle.StagePowerOffMAAS: planOff,
		lifecycle.StageRetireNode: planRetire, lifecycle.StageRemoveNode: planRemove, lifecycle.StageCleanupSecrets: planSecrets,
		lifecycle.StageRemoveMAAS: planRecord, lifecycle.StageBootEraser: planEraser, lifecycle.StagePowerOff: planSwitchOff,
		lifecycle.StageReplaceHardware: planHardware, lifecycle.StageBootHardware: planBoot,
	}
}

func skips(why string) contract.PlanRow { return contract.PlanRow{Would: contract.WouldSkip, Why: why} }

func runs(steps ...string) contract.PlanRow {
	return contract.PlanRow{Would: contract.WouldRun, Steps: steps}
}

func fails(f contract.Failure) contract.PlanRow {
	return contract.PlanRow{Would: contract.WouldFail, Failure: contract.ForeseenFailure(f)}
}

func planDisable(p *planner) contract.PlanRow {
	seen := fmt.Sprintf("the node is %s, its agent %s", p.s.Node.Status, p.s.Node.Agent)
	row := runs("take the node out of scheduling")
	switch {
	case p.s.tenantMoves() != "":
		row = fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: p.s.tenantMoves()})
	case p.region.ConfigFailure != nil:
		row = fails(*p.region.ConfigFailure)
	case p.unseen != "":
		row = contract.PlanRow{Would: contract.WouldUnknown, Why: p.unseen}
	case p.s.Request.Mode == lifecycle.ModeReimage && p.s.Node.SystemID == "":
		row = fails(contract.Failure{Class: lifecycle.FailConfiguration, Message: "reimage installs by MAAS, and MAAS does not manage this node"})
	case p.s.Retired && p.s.full():
		row = contract.PlanRow{Would: contract.WouldBeDone, Why: "the node is retired"}
	case p.s.Node.Status == p.s.mode().Enters:
		row = contract.PlanRow{Would: contract.WouldBeDone, Why: "the node is " + string(p.s.Node.Status)}
	}
	row.Seen = seen
	return row
}

func planForceRelease(p *planner) contract.PlanRow {
	if why := vacant(&p.s); why != "" {
		return skips(why)
	}
	id := p.s.Node.AllocationID
	if p.dark {
		return p.withoutAgent("free the node of allocation " + id)
	}
	return runs(fmt.Sprintf("end the account %s and remove its home", lifecycle.TenantAccount(id)), "free the node of allocation "+id)
}

// withoutAgent is what a drain would do where no agent can be asked.
func (p *planner) withoutAgent(then ...string) contract.PlanRow {
	switch {
	case p.s.pxe():
		return p.withoutAgentPXE(then...)
	case p.s.full() && p.powerable():
		row := runs(append([]string{"switch the machine off and have it confirmed"}, then...)...)
		row.Why = "the agent cannot be asked: " + p.s.silence()
		return row
	case p.off:
		row := runs(then...)
		row.Would = contract.WouldUnknown
		row.Why = "the agent cannot be asked; the machine is off as MAAS last saw it, which is as good once it is confirmed"
		return row
	}
	return fails(contract.Failure{Class: lifecycle.FailNodeTask, Message: "the node's agent cannot be asked to drain it: " + p.silent()})
}

// silent says why the agent cannot be asked, without the time of its last
// heartbeat, which decides nothing.
func (p *planner) silent() string {
	if p.s.Node.Agent == contract.AgentSilent {
		return "it is silent"
	}
	return "it is not enrolled, or shut out"
}

func (p *planner) powerable() bool {
	return p.s.Node.BMCID != "" && p.bmc.Failure == nil || p.s.Node.SystemID != "" && p.unseen == ""
}

func planDrain(p *planner) contract.PlanRow {
	if why := drainedBefore(&p.s); why != "" {
		return skips(why)
	}
	if p.dark {
		return p.withoutAgent()
	}
	row := runs(fmt.Sprintf("ask the agent to end containers, sessions and processes of tenants, with %d s of grace", p.s.Request.GraceSeconds))
	if p.s.Request.Mode == lifecycle.ModeDrain && p.s.Node.AllocationID != "" {
		row.Would = contract.WouldWait
		row.Why = "it waits for allocation " + p.s.Node.AllocationID + " to end first"
	}
	return row
}

// byAgent is a row of a stage that the agent does; done by nobody where the node
// is dark.
func (p *planner) byAgent(steps ...string) contract.PlanRow {
	switch {
	case p.dark && p.s.unreleased():
		return skips("the agent cannot be asked, and no MAAS erases the disks from outside")
	case p.dark && p.s.full():
		return skips("the agent cannot be asked; erasing from outside has to be the proof")
	case p.dark:
		return fails(contract.Failure{Class: lifecycle.FailNodeTask, Message: "the node's agent cannot be asked: " + p.silent()})
	}
	return runs(steps...)
}

func planStorage(p *planner) contract.PlanRow {
	if p.s.Request.Mode != lifecycle.ModeStorageCleanup {
		return p.byAgent("unmount what tenants mounted")
	}
	return p.byAgent(append([]string{"remove containers, processes, accounts, keys, mounts and temporary files of tenants"}, p.erasures()...)...)
}

func (p *planner) erasures() []string {
	var out []string
	for _, d := range p.known.Disks {
		out = append(out, "erase disk "+d)
	}
	return out
}

func planScrub(p *planner) contract.PlanRow {
	if p.s.pxe() {
		return planLiveScrub(p)
	}
	steps := append([]string{"remove containers, processes, accounts, keys, mounts, temporary files and what starts by itself"}, p.erasures()...)
	if p.known.GPUs > 0 {
		steps = append(steps, fmt.Sprintf("reset %d GPUs and check their memory", p.known.GPUs))
	}
	return p.byAgent(append(steps, "have the firmware overwrite the memory at the next boot")...)
}

func planValidate(p *planner) contract.PlanRow {
	if p.s.pxe() {
		return planLiveValidate(p)
	}
	var steps []string
	switch {
	case p.s.Request.Mode == lifecycle.ModeReimage:
	case p.s.Node.BMCID != "" && p.bmc.Failure != nil && !p.dark:
		return fails(*p.bmc.Failure)
	case p.s.Node.BMCID != "":
		steps = append(steps, "power cycle the machine at its BMC")
	case p.s.Node.SystemID != "":
		steps = append(steps, "power cycle the machine by MAAS")
	case !p.dark:
		return fails(contract.Failure{Class: lifecycle.FailPowerNotConfirmed, Message: "the node must boot anew, and Slipway knows neither a BMC nor a MAAS machine of it"})
	}
	steps = append(steps, "have the agent prove the node clean and as its SKU says")
	if p.s.unreleased() {
		return p.unreleased(append(steps, "sign the certificate")...)
	}
	if !p.s.full() {
		steps = append(steps, "sign the certificate")
	}
	return p.byAgent(steps...)
}

// unreleased is the validation of a node that leaves for good and that no MAAS
// erases: what is not proven there, nothing proves later.
func (p *planner) unreleased(steps ...string) contract.PlanRow {
	unerased := "the disk that its system runs from (" + strings.Join(p.known.System, ", ") + ")"
	switch {
	case p.dark:
		unerased, steps = "any of its disks", []string{"sign the certificate, of a node that nobody has looked at"}
	case len(p.known.System) == 0:
		return runs(steps...)
	}
	row := fails(contract.Failure{Class: lifecycle.FailScrubUnverified, Message: "no MAAS manages the node, so nothing erases " + unerased +
		": the job parks with a certificate that says so; erase or destroy what it names, then adopt_observed_state with accept_risk"})
	row.Steps = steps
	return row
}

func planSite(p *planner) contract.PlanRow {
	switch why := notInMAAS(&p.s); {
	case why != "":
		return skips(why)
	case p.unseen != "":
		return contract.PlanRow{Would: contract.WouldUnknown, Why: p.unseen}
	case p.region.SiteFailure != nil:
		return fails(*p.region.SiteFailure)
	case p.region.MachineFails != nil:
		return fails(*p.region.MachineFails)
	}
	return contract.PlanRow{Would: contract.WouldRun, Why: "reads the site and looks at the machine", Seen: p.machine()}
}

func (p *planner) machine() string {
	m := p.region.Machine
	if m.Status == "" {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("MAAS %s: %s, power %s", m.SystemID, m.Status, m.Power), ", power ")
}

func planRelease(p *planner) contract.PlanRow {
	switch why := notInMAAS(&p.s); {
	case why != "":
		return skips(why)
	case p.unseen != "" || p.region.SiteFailure != nil || p.region.MachineFails != nil:
		return contract.PlanRow{Would: contract.WouldUnknown, Why: "MAAS could not be asked about the machine"}
	}
	row := p.releases()
	row.Seen = p.machine()
	return row
}

func (p *planner) releases() contract.PlanRow {
	id := p.s.Node.SystemID
	if f := p.region.Unreleasable(); f != nil {
		return fails(*f)
	}
	if p.region.Released() && !p.s.Release.Seen {
		return fails(contract.Failure{Class: lifecycle.FailScrubUnverified, Message: fmt.Sprintf(
			"machine %s is %s: nothing proves that its disks were erased", id, p.region.Machine.Status)})
	}
	steps := []string{"release machine " + id + " in MAAS with its disks erased"}
	for _, d := range p.region.Disks {
		steps = append(steps, "erase disk "+d+" by MAAS")
	}
	if p.s.Request.Mode == lifecycle.ModeReimage {
		steps = append(steps, "issue a one-time enrolment token, make a host key, seal the user-data",
			"deploy "+p.s.Config.Profile.DistroSeries+" anew and wait for the new agent")
	} else {
		steps = append(steps, "sign the certificate")
	}
	row := runs(steps...)
	if p.s.Config.Profile.ReleaseFallbackNoErase {
		row.Steps = append(row.Steps, "should erasing fail: release without it, and say so in the certificate")
	}
	return row
}

func planOff(p *planner) contract.PlanRow {
	if why := powerless(&p.s); why != "" {
		return skips(why)
	}
	if p.s.Node.BMCID != "" && p.bmc.Failure != nil {
		return fails(*p.bmc.Failure)
	}
	return runs("switch the machine off and have MAAS and its BMC confirm it")
}

func planRetire(p *planner) contract.PlanRow {
	if why := retiredBefore(&p.s); why != "" {
		return skips(why)
	}
	if p.s.pxe() {
		return runs("shut the agent's certificates and enrolment tokens out for good", "retire the node, which gives its MAC addresses back")
	}
	return runs("retire the node")
}

func planRemove(p *planner) contract.PlanRow {
	steps := []string{"shut the agent's certificates and enrolment tokens out for good"}
	switch {
	case p.s.full() && powerless(&p.s) == "":
	case p.dark:
		row := runs(steps...)
		row.Why = "the agent cannot be asked to uninstall itself (" + p.silent() + "); what is on the disk stays there"
		return row
	default:
		steps = append([]string{"uninstall the agent"}, steps...)
	}
	return runs(steps...)
}

func planSecrets(p *planner) contract.PlanRow {
	steps := []string{"delete the node's user-data, host key and addresses"}
	for _, name := range p.known.Deletes {
		steps = append(steps, "delete secret "+name)
	}
	if p.s.Node.BMCID != "" {
		steps = append(steps, "take the BMC from the node")
	}
	row := runs(steps...)
	row.Why = strings.Join(p.known.Keeps, "; ")
	return row
}

func planRecord(p *planner) contract.PlanRow {
	switch why := notInMAAS(&p.s); {
	case why != "":
		return skips(why)
	case p.unseen != "":
		return contract.PlanRow{Would: contract.WouldUnknown, Why: p.unseen}
	case p.region.RecordFailure != nil:
		return fails(*p.region.RecordFailure)
	case len(p.region.Records) == 0 && p.region.MachineFails == nil && p.region.SiteFailure == nil:
		return contract.PlanRow{Would: contract.WouldBeDone, Why: "MAAS has no record of the machine"}
	}
	var steps []string
	for _, id := range p.region.Records {
		steps = append(steps, "delete machine "+id+" in MAAS")
	}
	if len(steps) == 0 {
		steps = append(steps, "delete machine "+p.s.Node.SystemID+" in MAAS")
	}
	return runs(steps...)
}
