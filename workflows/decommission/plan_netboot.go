package decommission

import (
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/plan"
)

// The plan's rows of what only PXE nodes have.

func (p *predictor) withoutAgentPXE(then ...string) contract.PlanRow {
	why := "the agent cannot be asked: " + p.clean.UnreachableReason()
	switch {
	case p.State.Node.BMCID == "":
		row := plan.Runs(then...)
		row.Why = why + "; the restart that follows ends what runs on the node"
		return row
	case p.clean.BMC.Failure != nil:
		return plan.Fails(*p.clean.BMC.Failure)
	}
	row := plan.Runs(append([]string{"switch the machine off and have it confirmed"}, then...)...)
	row.Why = why
	return row
}

func (p *predictor) powerOff() contract.PlanRow {
	if p.clean.BMC.Failure != nil {
		return plan.Fails(*p.clean.BMC.Failure)
	}
	return plan.Runs("switch the machine off and have its BMC confirm it")
}

func (p *predictor) replaceHardware() contract.PlanRow {
	h := p.clean.Netboot().Hardware
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
	if h := p.clean.Netboot().Hardware; len(h.MACs) > 0 {
		moved = h.Moved
	}
	row := plan.Runs("start the machine", "wait for its agent in a fresh boot")
	if !moved {
		if f := p.clean.Netboot().InstallFails; f != nil {
			return plan.Fails(*f)
		}
		row = plan.Runs(fmt.Sprintf("install it by workflow %s", p.clean.Netboot().Install), "wait for its agent to enrol")
	}
	row.Steps = append(row.Steps, "compare its report with the SKU", "make the node "+string(lifecycle.NodeActive))
	return row
}

// diskMoved and diskSame are contract.DecommissionInput.Disks of a migration that keeps the disks,
// and of one that keeps the hardware and erases it.
const (
	diskMoved = "moved"
	diskSame  = "same"
)
