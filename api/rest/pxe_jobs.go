package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// startPXEJob sets a state together with the job that owns it. What the job
// needs is there before it begins. The same request once more finds the job at
// work and changes nothing; one for a job that was cancelled begins the next.
func (s *Server) startPXEJob(ctx context.Context, tx *db.Tx, n db.Node, version int64, t StateTransition, plan *hardwarePlan) (db.Node, error) {
	if n.Version != version {
		return n, fmt.Errorf("node %s: %w", n.ID, db.ErrStale)
	}
	in, err := pxeJobInput(ctx, tx, n, t)
	if err != nil {
		return n, err
	}
	live, err := tx.LiveJobOfNode(ctx, n.ID)
	switch {
	case err == nil && underWay(live, in):
		return s.planHardware(ctx, tx, n, n.Version, in, plan)
	case err == nil:
		return n, s.heldBy(ctx, tx, n, live.ID, "then ask again")
	case !errors.Is(err, db.ErrNotFound):
		return n, err
	}
	info, _ := lifecycle.DecommissionModeOf(in.Mode)
	if !slices.Contains(info.From, n.Status) {
		return n, &lifecycle.IllegalTransitionError{
			Resource: lifecycle.NodePXE.Resource, From: string(n.Status), To: string(t.State), Allowed: lifecycle.NodePXE.ReachableBy(n.Status, lifecycle.OwnerAdmin),
			Reason: fmt.Sprintf("it is set on a node that is %s", lifecycle.OneOf(info.From)),
		}
	}
	if err := s.pxeJobNeeds(ctx, tx, n, in); err != nil {
		return n, err
	}
	_, n, err = s.startNodeJob(ctx, tx, n, in)
	if err != nil {
		return n, err
	}
	return s.planHardware(ctx, tx, n, n.Version, in, plan)
}

// pxeJobInput is the request as its job takes it.
func pxeJobInput(ctx context.Context, tx *db.Tx, n db.Node, t StateTransition) (contract.DecommissionInput, error) {
	mode, _ := lifecycle.PXEModeOf(t.State) // who calls has asked hasJob
	in, err := decommissionInput(ctx, tx, n, mode, n.Status)
	in.Reason, in.GraceSeconds = text(t.Comment), t.GraceSeconds
	if t.State == lifecycle.NodeMigrating {
		in.EraseOld, in.Disks = t.EraseOld, t.Disks
		if in.Disks == "" {
			in.Disks = db.DisksNew
		}
	}
	return in, err
}

// underWay says that a live job does what is asked for.
func underWay(live db.Job, ask contract.DecommissionInput) bool {
	var has contract.DecommissionInput
	return live.Kind == string(contract.KindNodeOperation) && json.Unmarshal(live.Input, &has) == nil &&
		has.Mode == ask.Mode && has.Disks == ask.Disks && has.EraseOld == ask.EraseOld && has.GraceSeconds == ask.GraceSeconds
}

// planHardware notes the hardware of the request, if it names one.
func (s *Server) planHardware(ctx context.Context, tx *db.Tx, n db.Node, version int64, in contract.DecommissionInput, plan *hardwarePlan) (db.Node, error) {
	if plan == nil {
		return n, nil
	}
	if err := plan.takable(ctx, tx, n); err != nil {
		return n, err
	}
	h := plan.PlannedHardware
	h.Disks = in.Disks
	return tx.PlanHardware(ctx, n.ID, version, h, s.actor(ctx))
}

// pxeJobNeeds refuses a job that could only wait in vain.
func (s *Server) pxeJobNeeds(ctx context.Context, tx *db.Tx, n db.Node, in contract.DecommissionInput) error {
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
			return problem.New(problem.Conflict, lifecycle.TenantWouldMove)
		}
		return needsAgent(ctx, tx, n)
	}
	return needsInstaller(ctx, tx, n)
}

func needsEraser(ctx context.Context, tx *db.Tx, n db.Node) error {
	wf, err := tx.EraseWorkflowOf(ctx, n)
	if errors.Is(err, db.ErrNotFound) {
		group := "its device group (it has none: slipway node label " + n.Hostname + " device-group=GROUP)"
		if name := n.Labels[lifecycle.LabelDeviceGroup]; name != "" {
			group = "its device group (slipway device-group put " + name + " --erase-workflow WORKFLOW)"
		}
		return problem.New(problem.Conflict, fmt.Sprintf(
			"node %s has no erase workflow, which its machine boots while its disks are erased; assign one to the node (slipway node assign-workflow %s WORKFLOW --erase, or PATCH with erase_workflow_id) or to %s",
			n.Hostname, n.Hostname, group))
	}
	if err != nil {
		return err
	}
	if wf.Spec.Agent == nil {
		return problem.New(problem.Conflict, fmt.Sprintf(
			"the erase workflow %s of node %s installs no agent, and nobody else erases; give it an agent block and {{ install_agent }} in its user_data, or assign another", wf.Name, n.Hostname)).With(wf.ID)
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
		return problem.New(problem.Conflict, fmt.Sprintf(
			"node %s has no install workflow, which the new hardware is to be installed by; assign one (slipway node assign-workflow %s WORKFLOW, or PATCH with install_workflow_id)", n.Hostname, n.Hostname))
	}
	wf, err := tx.InstallWorkflow(ctx, *p.InstallWorkflowID)
	if err != nil {
		return err
	}
	if wf.Spec.Agent == nil {
		return problem.New(problem.Conflict, fmt.Sprintf(
			"the install workflow %s of node %s installs no agent, so nobody would say that the new hardware is up; give it an agent block and {{ install_agent }} in its user_data, or assign another", wf.Name, n.Hostname)).With(wf.ID)
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
	return problem.New(problem.Conflict, fmt.Sprintf(
		"no agent of node %s was ever heard, so nobody would say that its moved disks boot; put an agent on it, or migrate to new disks", n.Hostname))
}
