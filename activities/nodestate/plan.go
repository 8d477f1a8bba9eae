package nodestate

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// DecommissionPlanIn is the input of PlanNodeDecommission. The reference is a field and not
// embedded, so that a plan is no entry on the node's timeline.
type DecommissionPlanIn struct {
	In contract.JobRef `json:"in"`
}

// DecommissionPlan is what a plan of a decommission needs of the database.
type DecommissionPlan struct {
	Facts contract.DecommissionFacts `json:"facts"`
	// Disks and GPUs are those of the agent's last report, without the disks that the system runs
	// from. A disk is written "name serial".
	Disks []string `json:"disks,omitempty"`
	GPUs  int      `json:"gpus,omitempty"`
	// System lists the disks that the system runs from.
	System []string `json:"system,omitempty"`
	// Deletes and Keeps list the BMC logins that cleanup_secrets would delete and leave.
	Deletes []string `json:"deletes,omitempty"`
	Keeps   []string `json:"keeps,omitempty"`
	// PXE is nil for a node of MAAS.
	PXE *NetbootPlan `json:"pxe,omitempty"`
}

// NetbootPlan is what a PXE node would boot from the network, and its planned hardware.
type NetbootPlan struct {
	Erase        string                 `json:"erase,omitempty"` // the workflow's name
	EraseFails   *contract.Failure      `json:"erase_fails,omitempty"`
	Install      string                 `json:"install,omitempty"`
	InstallFails *contract.Failure      `json:"install_fails,omitempty"`
	Hardware     contract.HardwareFacts `json:"hardware,omitzero"`
}

// PlanNodeDecommission reads what a plan of a decommission needs of the database. Read-only.
func (a *Activities) PlanNodeDecommission(ctx context.Context, l DecommissionPlanIn) (DecommissionPlan, error) {
	var out DecommissionPlan
	var err error
	if out.Facts, err = a.ReadNodeFacts(ctx, l.In); err != nil {
		return out, err
	}
	heartbeat, err := a.Store.LatestHeartbeat(ctx, l.In.NodeID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return out, fault.Internal(ctx, err)
	}
	if err == nil && heartbeat.Report != nil {
		out.GPUs = len(heartbeat.Report.GPUs)
		for _, d := range heartbeat.Report.Disks {
			list := &out.Disks
			if d.Boot {
				list = &out.System
			}
			*list = append(*list, strings.TrimSpace(d.Name+" "+d.Serial))
		}
	}
	if out.PXE, err = a.planNetboot(ctx, l.In); err != nil {
		return out, err
	}
	bmc, err := a.Store.BMCOfNode(ctx, l.In.NodeID)
	if errors.Is(err, db.ErrNotFound) {
		return out, nil
	}
	if err == nil {
		out.Deletes, out.Keeps, err = a.partLogins(ctx, bmc)
	}
	return out, fault.Internal(ctx, err)
}

// planNetboot returns nil for a node of another lifecycle.
func (a *Activities) planNetboot(ctx context.Context, in contract.JobRef) (*NetbootPlan, error) {
	var out *NetbootPlan
	err := a.Store.ReadTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Node(ctx, in.NodeID)
		if err != nil || n.Lifecycle != lifecycle.NodePXE.Lifecycle {
			return err
		}
		p, err := tx.PXENode(ctx, in.NodeID)
		if err != nil {
			return err
		}
		out = &NetbootPlan{}
		if p.PlannedHardware != nil {
			describeHardware(&out.Hardware, *p.PlannedHardware, in.JobID)
		}
		if out.Erase, out.EraseFails, err = planWorkflow(ctx, tx, n, lifecycle.NetbootErase); err != nil {
			return err
		}
		out.Install, out.InstallFails, err = planWorkflow(ctx, tx, n, lifecycle.NetbootInstall)
		return err
	})
	return out, fault.Internal(ctx, err)
}

func planWorkflow(ctx context.Context, tx *db.Tx, n db.Node, purpose lifecycle.Netboot) (string, *contract.Failure, error) {
	w, err := installWorkflowFor(ctx, tx, n, purpose)
	var missing *missingWorkflow
	if errors.As(err, &missing) {
		return w.Name, &contract.Failure{Class: lifecycle.FailConfiguration, Message: missing.Error()}, nil
	}
	return w.Name, nil, err
}
