package sanitize

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/plan"
)

// Predictor is what was observed for the predictions of the stages that make a node clean.
type Predictor struct {
	State  *State // of the planner, with what was observed
	Node   nodestateact.DecommissionPlan
	Region maasact.DecommissionPlan
	BMC    bmcact.PowerOffPlan
	// RegionUnread says why the region could not be asked.
	RegionUnread string
	// AgentUnreachable is set when the agent could not be asked, and Off when the machine is off by
	// all that is known.
	AgentUnreachable, Off bool
}

// Observe reads the database, which must answer, and the region, which is shown as unknown when it
// does not. s is a part of the planner's state.
func Observe[S any](ctx workflow.Context, planner *plan.Planner[S], s *State) (*Predictor, error) {
	p := &Predictor{State: s}
	var err error
	p.Node, err = plan.Read(ctx, planner, "look at the node", nodeActs.PlanNodeDecommission, nodestateact.DecommissionPlanIn{In: s.Job})
	if err != nil {
		return nil, err
	}
	s.RecordNode(p.Node.Facts)
	s.Retired = s.Retired || p.Node.Facts.Status == lifecycle.NodeRetired || p.Node.Facts.Status == lifecycle.NodeRemoving
	if id := s.Node.BMCID; id != "" {
		p.BMC, err = plan.Read(ctx, planner, "look at the BMC's record", bmc.PlanPowerOffByBMC, bmcact.PowerOffPlanIn{BMCID: id})
		if err != nil {
			return nil, err
		}
	}
	at := maasact.DecommissionPlanIn{
		In: s.Job, SystemID: s.Node.SystemID, Hostname: s.Node.Hostname, MACs: s.Node.MACs,
		Keys: !s.ModeInfo().Operation || s.IsPXE(), Install: s.Mode == lifecycle.ModeReimage,
	}
	p.Region, err = plan.Read(ctx, planner, "look at the machine in MAAS", maas.PlanMachineDecommission, at)
	if err != nil {
		p.RegionUnread = "MAAS could not be looked at in time; ask again"
	}
	s.Config = p.Region.Config
	s.RecordMachine(p.Region.Machine)
	p.Off = s.Machine.Power == "off"
	p.AgentUnreachable = s.Node.Agent != contract.AgentAlive || s.IsDistrusted() && s.IsFullDecommission()
	return p, nil
}

// Predict returns the row of one of the stages of this package, and false for any other stage.
func (p *Predictor) Predict(name string) (contract.PlanRow, bool) {
	switch name {
	case lifecycle.StageCleanupStorage:
		return p.cleanStorage(), true
	case lifecycle.StageScrubGPU:
		return p.scrub(), true
	case lifecycle.StageValidateClean:
		return p.validate(), true
	case lifecycle.StageLoadSite:
		return p.loadSite(), true
	case lifecycle.StageReleaseMAAS:
		return p.release(), true
	case lifecycle.StageBootEraser:
		return p.bootEraser(), true
	}
	return contract.PlanRow{}, false
}

// UnreachableReason says why the agent cannot be asked, without the time of its last
// heartbeat, which decides nothing.
func (p *Predictor) UnreachableReason() string {
	if p.State.Node.Agent == contract.AgentSilent {
		return "it is silent"
	}
	return "it is not enrolled, or shut out"
}

// Powerable reports whether anybody can switch the machine.
func (p *Predictor) Powerable() bool {
	return p.State.Node.BMCID != "" && p.BMC.Failure == nil || p.State.Node.SystemID != "" && p.RegionUnread == ""
}

// byAgent is the row of a stage that the agent does, and that is not done where it is unreachable.
func (p *Predictor) byAgent(steps ...string) contract.PlanRow {
	switch {
	case p.AgentUnreachable && p.State.IsUnmanaged():
		return plan.Skips("the agent cannot be asked, and no MAAS erases the disks from outside")
	case p.AgentUnreachable && p.State.IsFullDecommission():
		return plan.Skips("the agent cannot be asked; erasing from outside has to be the proof")
	case p.AgentUnreachable:
		return plan.Fails(contract.Failure{Class: lifecycle.FailNodeTask, Message: "the node's agent cannot be asked: " + p.UnreachableReason()})
	}
	return plan.Runs(steps...)
}

func (p *Predictor) cleanStorage() contract.PlanRow {
	if p.State.Mode != lifecycle.ModeStorageCleanup {
		return p.byAgent("unmount what tenants mounted")
	}
	if row := p.failsWithoutDrives(); row != nil {
		return *row
	}
	return p.byAgent(append([]string{"remove containers, processes, accounts, keys, mounts and temporary files of tenants"}, p.erasures()...)...)
}

func (p *Predictor) erasures() []string {
	var out []string
	for _, d := range p.Node.Disks {
		do := "erase disk "
		if name, serial, _ := strings.Cut(d, " "); name != "" && isProtected(serial, p.State.Node.ProtectSerials) {
			do = "leave protected disk "
		}
		out = append(out, do+d)
	}
	return out
}

// failsWithoutDrives returns the row of a stage that erases drives of a node of which nothing names
// any, nil where they are known.
func (p *Predictor) failsWithoutDrives() *contract.PlanRow {
	if len(p.State.Node.Drives) > 0 || p.AgentUnreachable && !p.State.IsPXE() {
		return nil
	}
	row := plan.Fails(contract.Failure{Class: lifecycle.FailDriveUnexpected, Message: unknownDrives})
	return &row
}

func (p *Predictor) scrub() contract.PlanRow {
	if row := p.failsWithoutDrives(); row != nil {
		return *row
	}
	if p.State.IsPXE() {
		return p.scrubLive()
	}
	steps := append([]string{"remove containers, processes, accounts, keys, mounts, temporary files and what starts by itself"}, p.erasures()...)
	if p.Node.GPUs > 0 {
		steps = append(steps, fmt.Sprintf("reset %d GPUs and check their memory", p.Node.GPUs))
	}
	return p.byAgent(append(steps, "have the firmware overwrite the memory at the next boot")...)
}

func (p *Predictor) validate() contract.PlanRow {
	if p.State.IsPXE() {
		return p.validateLive()
	}
	var steps []string
	switch {
	case p.State.Mode == lifecycle.ModeReimage:
	case p.State.Node.BMCID != "" && p.BMC.Failure != nil && !p.AgentUnreachable:
		return plan.Fails(*p.BMC.Failure)
	case p.State.Node.BMCID != "":
		steps = append(steps, "power cycle the machine at its BMC")
	case p.State.Node.SystemID != "":
		steps = append(steps, "power cycle the machine by MAAS")
	case !p.AgentUnreachable:
		return plan.Fails(contract.Failure{Class: lifecycle.FailPowerNotConfirmed, Message: "the node must restart, and Slipway knows neither a BMC nor a MAAS machine of it"})
	}
	steps = append(steps, "have the agent prove the node clean and as its SKU says")
	if p.State.IsUnmanaged() {
		return p.validateUnmanaged(append(steps, "sign the certificate")...)
	}
	if p.State.checksTenantBMC() {
		steps = append(steps, "compare the BMC's settings with those of before the tenant, and give it another password")
	}
	if !p.State.IsFullDecommission() {
		steps = append(steps, "sign the certificate")
	}
	if p.State.Mode == lifecycle.ModeReimage && p.State.IsDistrusted() {
		return plan.Runs(append([]string{"have the new system scrub the node"}, steps...)...)
	}
	return p.byAgent(steps...)
}

// validateUnmanaged is the validation of a node that leaves for good and that no MAAS
// erases: what is not proven there, nothing proves later.
func (p *Predictor) validateUnmanaged(steps ...string) contract.PlanRow {
	unerased := "the disk that its system runs from (" + strings.Join(p.Node.System, ", ") + ")"
	switch {
	case p.AgentUnreachable:
		unerased, steps = "any of its disks", []string{"sign the certificate, of a node that nobody has looked at"}
	case len(p.Node.System) == 0:
		return plan.Runs(steps...)
	}
	row := plan.Fails(contract.Failure{Class: lifecycle.FailScrubUnverified, Message: "no MAAS manages the node, so nothing erases " + unerased +
		": the job parks with a certificate that says so; erase or destroy what it names, then adopt_observed_state with accept_risk"})
	row.Steps = steps
	return row
}

func (p *Predictor) loadSite() contract.PlanRow {
	switch {
	case p.RegionUnread != "":
		return plan.Unknown(p.RegionUnread)
	case p.Region.SiteFailure != nil:
		return plan.Fails(*p.Region.SiteFailure)
	case p.Region.MachineFailure != nil:
		return plan.Fails(*p.Region.MachineFailure)
	}
	return contract.PlanRow{Planned: contract.PlannedRun, Why: "reads the site and looks at the machine", Observed: p.machine()}
}

func (p *Predictor) machine() string {
	m := p.Region.Machine
	if m.Status == "" {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("MAAS %s: %s, power %s", m.SystemID, m.Status, m.Power), ", power ")
}

func (p *Predictor) release() contract.PlanRow {
	switch {
	case p.RegionUnread != "" || p.Region.SiteFailure != nil || p.Region.MachineFailure != nil:
		return plan.Unknown("MAAS could not be asked about the machine")
	}
	row := p.releases()
	row.Observed = p.machine()
	return row
}

func (p *Predictor) releases() contract.PlanRow {
	id := p.State.Node.SystemID
	if f := p.Region.Unreleasable(); f != nil {
		return plan.Fails(*f)
	}
	if p.Region.Released() && !p.State.Release.MachineObserved {
		return plan.Fails(contract.Failure{Class: lifecycle.FailScrubUnverified, Message: fmt.Sprintf(
			"machine %s is %s: nothing proves that its disks were erased", id, p.Region.Machine.Status)})
	}
	steps := []string{"release machine " + id + " in MAAS with its disks erased"}
	for _, d := range p.Region.Disks {
		steps = append(steps, "erase disk "+d+" by MAAS")
	}
	if p.State.Mode == lifecycle.ModeReimage {
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

// Netboot is what was observed of a PXE node.
func (p *Predictor) Netboot() nodestateact.NetbootPlan {
	if p.Node.PXE == nil {
		return nodestateact.NetbootPlan{}
	}
	return *p.Node.PXE
}

// restarts adds the restart of the machine to a row. The row waits for an operator when no BMC is
// known.
func (p *Predictor) restarts(row contract.PlanRow) contract.PlanRow {
	switch {
	case p.State.Node.BMCID != "" && p.BMC.Failure != nil:
		return plan.Fails(*p.BMC.Failure)
	case p.State.Node.BMCID == "":
		row.Planned, row.NeedsHuman, row.Why = contract.PlannedWait, true, "Slipway knows no BMC of the machine: the job parks until somebody has restarted it by hand and retries the stage"
	default:
		row.Steps = append([]string{"power cycle the machine at its BMC"}, row.Steps...)
	}
	return row
}

func (p *Predictor) bootEraser() contract.PlanRow {
	if f := p.Netboot().EraseFails; f != nil {
		return plan.Fails(*f)
	}
	return p.restarts(plan.Runs("boot install workflow "+p.Netboot().Erase+" from the network, into memory", "wait for the agent of that system to enrol"))
}

func (p *Predictor) scrubLive() contract.PlanRow {
	row := plan.Runs("erase every disk that the live system sees, that of the installed system too", "reset the GPUs and check their memory",
		"have the firmware overwrite the memory at the next boot")
	if len(p.Node.Disks) > 0 {
		row.Observed = "last listed: " + strings.Join(p.Node.Disks, ", ")
	}
	return row
}

func (p *Predictor) validateLive() contract.PlanRow {
	return p.restarts(plan.Runs("have the agent of the live system prove the disks blank and the hardware as its SKU says", "sign the certificate"))
}
