package decommission

import (
	"fmt"
	"strings"

	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/plan"
)

// The plan's rows of what only PXE nodes have.

func (p *predictor) netboot() nodestateact.NetbootPlan {
	if p.node.PXE == nil {
		return nodestateact.NetbootPlan{}
	}
	return *p.node.PXE
}

func (p *predictor) withoutAgentPXE(then ...string) contract.PlanRow {
	why := "the agent cannot be asked: " + p.unreachableReason()
	switch {
	case p.State.Node.BMCID == "":
		row := plan.Runs(then...)
		row.Why = why + "; the restart that follows ends what runs on the node"
		return row
	case p.bmc.Failure != nil:
		return plan.Fails(*p.bmc.Failure)
	}
	row := plan.Runs(append([]string{"switch the machine off and have it confirmed"}, then...)...)
	row.Why = why
	return row
}

// restarts adds the restart of the machine to a row. The row waits for an operator when no BMC is
// known.
func (p *predictor) restarts(row contract.PlanRow) contract.PlanRow {
	switch {
	case p.State.Node.BMCID != "" && p.bmc.Failure != nil:
		return plan.Fails(*p.bmc.Failure)
	case p.State.Node.BMCID == "":
		row.Planned, row.NeedsHuman, row.Why = contract.PlannedWait, true, "Slipway knows no BMC of the machine: the job parks until somebody has restarted it by hand and retries the stage"
	default:
		row.Steps = append([]string{"power cycle the machine at its BMC"}, row.Steps...)
	}
	return row
}

func (p *predictor) bootEraser() contract.PlanRow {
	if f := p.netboot().EraseFails; f != nil {
		return plan.Fails(*f)
	}
	return p.restarts(plan.Runs("boot install workflow "+p.netboot().Erase+" from the network, into memory", "wait for the agent of that system to enrol"))
}

func (p *predictor) scrubLive() contract.PlanRow {
	row := plan.Runs("erase every disk that the live system sees, that of the installed system too", "reset the GPUs and check their memory",
		"have the firmware overwrite the memory at the next boot")
	if len(p.node.Disks) > 0 {
		row.Observed = "last listed: " + strings.Join(p.node.Disks, ", ")
	}
	return row
}

func (p *predictor) validateLive() contract.PlanRow {
	return p.restarts(plan.Runs("have the agent of the live system prove the disks blank and the hardware as its SKU says", "sign the certificate"))
}

func (p *predictor) powerOff() contract.PlanRow {
	if p.bmc.Failure != nil {
		return plan.Fails(*p.bmc.Failure)
	}
	return plan.Runs("switch the machine off and have its BMC confirm it")
}

func (p *predictor) replaceHardware() contract.PlanRow {
	h := p.netboot().Hardware
	if len(h.MACs) == 0 {
		return contract.PlanRow{Planned: contract.PlannedWait, NeedsHuman: true, Why: "no hardware is planned: the job waits until an operator names it"}
	}
	if p.State.Request.Disks == diskSame {
		return plan.Runs("keep the node on its hardware "+strings.Join(h.MACs, ", "), "shut the agent of the erased disks out")
	}
	row := plan.Runs("put the node on the hardware " + strings.Join(h.MACs, ", "))
	if h.Serial != "" {
		row.Steps[0] += ", serial number " + h.Serial
	}
	if !h.Moved {
		row.Steps = append(row.Steps, "shut the agent of the old disks out")
	}
	return row
}

func (p *predictor) bootHardware() contract.PlanRow {
	moved := p.State.Request.Disks == diskMoved
	if h := p.netboot().Hardware; len(h.MACs) > 0 {
		moved = h.Moved
	}
	row := plan.Runs("start the machine", "wait for its agent in a fresh boot")
	if !moved {
		if f := p.netboot().InstallFails; f != nil {
			return plan.Fails(*f)
		}
		row = plan.Runs(fmt.Sprintf("install it by workflow %s", p.netboot().Install), "wait for its agent to enrol")
	}
	row.Steps = append(row.Steps, "compare its report with the SKU", "make the node "+string(lifecycle.NodeActive))
	return row
}

// diskMoved and diskSame are contract.DecommissionInput.Disks of a migration that keeps the disks, and
// of one that keeps the hardware and erases it.
const (
	diskMoved = "moved"
	diskSame  = "same"
)
