package pxejob

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// needs refuses a job that could only wait in vain.
func needs(ctx context.Context, tx *db.Tx, n db.Node, in contract.DecommissionInput) error {
	if in.Mode == lifecycle.ModeDeprovision || in.EraseOld {
		if err := needsEraser(ctx, tx, n); err != nil {
			return err
		}
	}
	if in.Mode != lifecycle.ModeMigrate {
		return nil
	}
	if in.Disks == db.DisksMoved {
		if db.HoldsTenant(n) {
			return &intent.Refusal{Kind: intent.Conflict, Detail: lifecycle.TenantWouldMove}
		}
		return needsAgent(ctx, tx, n)
	}
	return needsInstaller(ctx, tx, n)
}

func needsEraser(ctx context.Context, tx *db.Tx, n db.Node) error {
	wf, err := tx.EraseWorkflowOf(ctx, n)
	if errors.Is(err, db.ErrNotFound) {
		r := &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{
			Reason: intent.ReasonNoEraseWorkflow, Hostname: n.Hostname, Group: n.Labels[lifecycle.LabelDeviceGroup],
		}}
		r.Detail = fmt.Sprintf("node %s has no erase workflow, which its machine boots while its disks are erased; assign one to the node or to its device group", n.Hostname)
		if r.Group == "" {
			r.Detail += ", of which it has none"
		}
		return r
	}
	if err != nil {
		return err
	}
	if wf.Spec.Agent == nil {
		return &intent.Refusal{Kind: intent.Conflict, Existing: wf.ID, Detail: fmt.Sprintf(
			"the erase workflow %s of node %s installs no agent, and nobody else erases; give it an agent block and {{ install_agent }} in its user_data, or assign another", wf.Name, n.Hostname)}
	}
	return nil
}

// needsInstaller: new disks are installed, and an agent must say that they were.
func needsInstaller(ctx context.Context, tx *db.Tx, n db.Node) error {
	p, err := tx.PXENode(ctx, n.ID)
	if err != nil {
		return err
	}
	if p.InstallWorkflowID == nil {
		return &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{Reason: intent.ReasonNoInstallWorkflow, Hostname: n.Hostname}, Detail: fmt.Sprintf(
			"node %s has no install workflow, which the new hardware is to be installed by; assign one", n.Hostname)}
	}
	wf, err := tx.InstallWorkflow(ctx, *p.InstallWorkflowID)
	if err != nil {
		return err
	}
	if wf.Spec.Agent == nil {
		return &intent.Refusal{Kind: intent.Conflict, Existing: wf.ID, Detail: fmt.Sprintf(
			"the install workflow %s of node %s installs no agent, so nobody would say that the new hardware is up; give it an agent block and {{ install_agent }} in its user_data, or assign another", wf.Name, n.Hostname)}
	}
	return nil
}

// needsAgent: moved disks hold the system that there is, and its agent must say
// that it booted.
func needsAgent(ctx context.Context, tx *db.Tx, n db.Node) error {
	row, err := tx.NodeOverview(ctx, n.ID)
	if err != nil || row.Heard {
		return err
	}
	return &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf(
		"no agent of node %s was ever heard, so nobody would say that its moved disks boot; put an agent on it, or migrate to new disks", n.Hostname)}
}
