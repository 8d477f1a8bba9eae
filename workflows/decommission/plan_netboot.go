package decommission

import (
	"fmt"
	"strings"

	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// The plan's rows of what only PXE nodes have.

func (p *planner) netboot() nodestateact.NetbootPlan {
	if p.known.PXE == nil {
		return nodestateact.NetbootPlan{}
	}
	return *p.known.PXE
}

func (p *planner) withoutAgentPXE(then ...string) contract.PlanRow {
	why := "the agent cannot be asked: " + p.silent()
	switch {
	case p.s.Node.BMCID == "":
		row := runs(then...)
		row.Why = why + "; the restart that follows ends what runs on the node"
		return row
	case p.bmc.Failure != nil:
		return fails(*p.bmc.Failure)
	}
	row := runs(append([]string{"switch the machine off and have it confirmed"}, then...)...)
	row.Why = why
	return row
}

// restarts is the step that starts the machine anew; a person's where no BMC is
// known.
func (p *planner) restarts(row contract.PlanRow) contract.PlanRow {
	switch {
	case p.s.Node.BMCID != "" && p.bmc.Failure != nil:
		return fails(*p.bmc.Failure)
	case p.s.Node.BMCID == "":
		row.Would, row.NeedsHuman, row.Why = contract.WouldWait, true, "Slipway knows no BMC of the machine: the job parks until somebody has restarted it by hand and retries the stage"
	default:
		row.Steps = append([]string{"power cycle the machine at its BMC"}, row.Steps...)
	}
	return row
}

func planEraser(p *planner) contract.PlanRow {
	if why := eraserNeedless(&p.s); why != "" {
		return skips(why)
	}
	if f := p.netboot().EraseFails; f != nil {
		return fails(*f)
	}
	return p.restarts(runs("boot install workflow "+p.netboot().Erase+" from the network, into memory", "wait for the agent of that system to enrol"))
}

func planLiveScrub(p *planner) contract.PlanRow {
	if why := spared(&p.s); why != "" {
		return skips(why)
	}
	row := runs("erase every disk that the live system sees, that of the installed system too", "reset the GPUs and check their memory",
		"have the firmware overwrite the memory at the next boot")
	if len(p.known.Disks) > 0 {
		row.Seen = "last listed: " + strings.Join(p.known.Disks, ", ")
	}
	return row
}

func planLiveValidate(p *planner) contract.PlanRow {
	if why := spared(&p.s); why != "" {
		return skips(why)
	}
	return p.restarts(runs("have the agent of the live system prove the disks blank and the hardware as its SKU says", "sign the certificate"))
}

func planSwitchOff(p *planner) contract.PlanRow {
	if why := unswitchable(&p.s); why != "" {
		return skips(why)
	}
	if p.bmc.Failure != nil {
		return fails(*p.bmc.Failure)
	}
	return runs("switch the machine off and have its BMC confirm it")
}

func planHardware(p *planner) contract.PlanRow {
	h := p.netboot().Hardware
	if len(h.MACs) == 0 {
		return contract.PlanRow{Would: contract.WouldWait, NeedsHuman: true, Why: "no hardware is planned: the job waits until somebody names it (slipway node replace-hardware)"}
	}
	row := runs("put the node on the hardware " + strings.Join(h.MACs, ", "))
	if h.Serial != "" {
		row.Steps[0] += ", serial number " + h.Serial
	}
	if !h.Moved {
		row.Steps = append(row.Steps, "shut the agent of the old disks out")
	}
	return row
}

func planBoot(p *planner) contract.PlanRow {
	moved := p.s.Request.Disks == diskMoved
	if h := p.netboot().Hardware; len(h.MACs) > 0 {
		moved = h.Moved
	}
	row := runs("start the machine", "wait for its agent in a fresh boot")
	if !moved {
		if f := p.netboot().InstallFails; f != nil {
			return fails(*f)
		}
		row = runs(fmt.Sprintf("install it by workflow %s", p.netboot().Install), "wait for its agent to enrol")
	}
	row.Steps = append(row.Steps, "compare its report with the SKU", "make the node "+string(lifecycle.NodeActive))
	return row
}

// diskMoved is contract.DecommissionInput.Disks of a migration that keeps the
// disks.
const diskMoved = "moved"
