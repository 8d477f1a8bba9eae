package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// BootWorkflow is the install workflow that a PXE node boots from the network
// now; false when it boots its disk, or waits.
func BootWorkflow(n Node, p PXENode) (workflowID string, ok bool) {
	if Armed(p) {
		return *p.NetbootWorkflowID, true
	}
	if (n.Status == lifecycle.NodePending || n.Status == lifecycle.NodeInstalling) && p.InstallWorkflowID != nil {
		return *p.InstallWorkflowID, true
	}
	return "", false
}

// Armed reports whether a job boots the node from the network. The live system
// of an erasure is booted at every boot until the job has done with it.
func Armed(p PXENode) bool {
	return p.NetbootWorkflowID != nil && (p.NetbootDoneAt == nil || p.NetbootPurpose == lifecycle.NetbootErase)
}

// ArmNetboot makes the node boot a workflow from the network for a job, as a new round: what was
// handed out before counts no more, enrolment tokens too. Where this job has armed the same already
// nothing changes, unless its installer has failed for good; DisarmNetboot first begins a new
// round. *ConflictError when the node is in no state in which a job boots it.
func (tx *Tx) ArmNetboot(ctx context.Context, nodeID string, purpose lifecycle.Netboot, workflowID, jobID string) (PXENode, error) {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return PXENode{}, err
	}
	if _, owned := lifecycle.PXEModeOf(n.Status); !owned {
		return PXENode{}, &ConflictError{What: "state", Existing: nodeID, Message: "a job boots a node from the network while it is deprovisioning or migrating, and it is " + string(n.Status)}
	}
	p, err := tx.PXENode(ctx, nodeID)
	if err != nil {
		return PXENode{}, err
	}
	if p.NetbootPurpose == purpose && is(p.NetbootJobID, jobID) && is(p.NetbootWorkflowID, workflowID) && !HasInstallerFailed(p) {
		return p, nil
	}
	// The netboot replaces the system that is still to enrol, and the last installer's message is
	// not about the new system.
	if err := tx.RevokeEnrollmentTokens(ctx, nodeID); err != nil {
		return PXENode{}, err
	}
	if _, err := tx.setAttempts(ctx, n, n.InstallAttempts, ""); err != nil {
		return PXENode{}, err
	}
	p, err = tx.q.ArmNetboot(ctx, gen.ArmNetbootParams{NodeID: nodeID, Purpose: string(purpose), WorkflowID: workflowID, JobID: jobID})
	return p, MapError("netboot of node "+nodeID, err)
}

// HasInstallerFailed reports whether the installer that a job boots has reported as many failures
// as count in its round, and never that it is complete.
func HasInstallerFailed(p PXENode) bool {
	return p.NetbootPurpose == lifecycle.NetbootInstall && p.NetbootDoneAt == nil && len(p.Warned) >= lifecycle.MaxWarnings
}

func is(s *string, value string) bool { return s != nil && *s == value }

// DisarmNetboot ends the netboot that a job has armed, and what was handed out
// for it; one of another job stays. Repeatable.
func (tx *Tx) DisarmNetboot(ctx context.Context, nodeID, jobID string) error {
	if _, err := tx.LockNode(ctx, nodeID); err != nil {
		return err
	}
	_, err := tx.q.DisarmNetboot(ctx, gen.DisarmNetbootParams{NodeID: nodeID, JobID: jobID})
	return MapError("netboot of node "+nodeID, err)
}

// EraseWorkflowOf is the workflow of the live system that a node is erased from:
// its own, or that of its device group; ErrNotFound with neither.
func (s statements) EraseWorkflowOf(ctx context.Context, n Node) (InstallWorkflow, error) {
	p, err := s.PXENode(ctx, n.ID)
	if err != nil {
		return InstallWorkflow{}, err
	}
	if p.EraseWorkflowID != nil {
		return s.InstallWorkflow(ctx, *p.EraseWorkflowID)
	}
	if name := n.Labels[lifecycle.LabelDeviceGroup]; name != "" {
		g, err := s.DeviceGroup(ctx, name)
		switch {
		case err == nil && g.EraseWorkflowID != nil:
			return s.InstallWorkflow(ctx, *g.EraseWorkflowID)
		case err != nil && !errors.Is(err, ErrNotFound):
			return InstallWorkflow{}, err
		}
	}
	return InstallWorkflow{}, fmt.Errorf("erase workflow of node %s: %w; assign one to the node, or to its device group", n.ID, ErrNotFound)
}

// AssignEraseWorkflow says from which live system a PXE node is erased, "" takes
// that of its device group; the version is the node's.
func (tx *Tx) AssignEraseWorkflow(ctx context.Context, id string, version int64, workflowID string) (Node, error) {
	if _, err := tx.LockNode(ctx, id); err != nil {
		return Node{}, err
	}
	n, err := tx.q.TouchNode(ctx, gen.TouchNodeParams{ID: id, Version: version})
	if n, err = CheckUpdate("node "+id, n, err, func() error { return nil }); err != nil {
		return Node{}, err
	}
	err = tx.q.AssignEraseWorkflow(ctx, gen.AssignEraseWorkflowParams{NodeID: id, EraseWorkflowID: optional(workflowID)})
	return n, MapError("assign an erase workflow to node "+id, err)
}

// LiveOperation is the live job of a node that leaves service or migrates, or
// ErrNotFound: a job about something else is none.
func (s statements) LiveOperation(ctx context.Context, nodeID string) (Job, error) {
	j, err := s.LiveJobOfNode(ctx, nodeID)
	if err == nil && !lifecycle.OwnsNodeState(j.Kind) {
		err = fmt.Errorf("operation of node %s: %w", nodeID, ErrNotFound)
	}
	return j, err
}

// modeOf is the mode of a job that leaves service; "" for another.
func modeOf(j Job) lifecycle.DecommissionMode {
	var in struct {
		Mode lifecycle.DecommissionMode `json:"mode"`
	}
	if !lifecycle.OwnsNodeState(j.Kind) || json.Unmarshal(j.Input, &in) != nil {
		return ""
	}
	return in.Mode
}

// PlannedHardware is the hardware that is to take a node's place.
type PlannedHardware = record.PlannedHardware

// PlannedBMC is its BMC.
type PlannedBMC = record.PlannedBMC

// The disks of planned hardware.
const (
	DisksNew   = record.DisksNew
	DisksMoved = record.DisksMoved
	DisksSame  = record.DisksSame
)
