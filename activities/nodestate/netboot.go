package nodestate

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// NetbootIn is the input of ArmNetboot.
type NetbootIn struct {
	contract.JobRef
	Purpose lifecycle.Netboot `json:"purpose"`
}

// ArmNetboot makes the node boot its erase workflow, or its install workflow, from the network
// until the job disarms it. It also returns what the agent of the installed system reported last.
// Repeating it changes nothing.
func (a *Activities) ArmNetboot(ctx context.Context, in NetbootIn) (contract.NetbootFacts, error) {
	out := contract.NetbootFacts{Purpose: in.Purpose, Armed: true}
	err := a.Store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.LockNode(ctx, in.NodeID)
		if err != nil {
			return err
		}
		w, err := installWorkflowFor(ctx, tx, n, in.Purpose)
		if err != nil {
			return err
		}
		out.Workflow = w.Name
		_, err = tx.ArmNetboot(ctx, n.ID, in.Purpose, w.ID, in.JobID)
		return err
	})
	var conflict *db.ConflictError
	var typed *missingWorkflow
	switch {
	case errors.As(err, &typed):
		return out, fault.New(lifecycle.FailConfiguration, "%s", typed.Error())
	case errors.As(err, &conflict):
		return out, fault.New(lifecycle.FailStateDisagreement, "%s", conflict.Message)
	case err != nil:
		return out, fault.Internal(ctx, err)
	}
	out.Note = fmt.Sprintf("boots %s from the network (%s)", out.Workflow, in.Purpose)
	return out, a.readInstalled(ctx, in.NodeID, &out)
}

// requireJobState fails when an administrator has moved the node out of the states in which a job
// owns it.
func requireJobState(n db.Node) error {
	if _, owned := lifecycle.PXEModeOf(n.Status); owned {
		return nil
	}
	return fault.New(lifecycle.FailStateDisagreement, "the node is %s: somebody took it out of this job's hands; cancel it", n.Status)
}

// readInstalled adds what the node's agent reported last.
func (a *Activities) readInstalled(ctx context.Context, nodeID string, out *contract.NetbootFacts) error {
	heartbeat, err := a.Store.LatestHeartbeat(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fault.Internal(ctx, err)
	}
	if out.BootID = heartbeat.BootID; heartbeat.Report == nil {
		return nil
	}
	out.Installed, out.Disks = true, disksOf(heartbeat.Report)
	return nil
}

// missingWorkflow says which install workflow is missing, or cannot be used.
type missingWorkflow struct{ why string }

func (e *missingWorkflow) Error() string { return e.why }

// installWorkflowFor returns the workflow that a node boots for a purpose. The workflow must
// install an agent, because the job learns from its heartbeats that the system runs.
func installWorkflowFor(ctx context.Context, tx *db.Tx, n db.Node, purpose lifecycle.Netboot) (db.InstallWorkflow, error) {
	var w db.InstallWorkflow
	var err error
	if purpose == lifecycle.NetbootErase {
		w, err = tx.EraseWorkflowOf(ctx, n)
		if errors.Is(err, db.ErrNotFound) {
			return w, &missingWorkflow{"the node has no erase workflow: assign one to it or to its device group"}
		}
	} else {
		p, perr := tx.PXENode(ctx, n.ID)
		if perr != nil {
			return w, perr
		}
		if p.InstallWorkflowID == nil {
			return w, &missingWorkflow{"the node has no install workflow: assign one"}
		}
		w, err = tx.InstallWorkflow(ctx, *p.InstallWorkflowID)
	}
	if err == nil && w.Spec.Agent == nil {
		err = &missingWorkflow{"install workflow " + w.Name + " brings no agent, by which the job would know that it runs: give it an agent block, and {{ install_agent }} in its user-data"}
	}
	return w, err
}

// DisarmNetboot ends the network boot that this job has armed. Repeatable.
func (a *Activities) DisarmNetboot(ctx context.Context, in contract.JobRef) (contract.NetbootFacts, error) {
	err := a.Store.Tx(ctx, func(tx *db.Tx) error { return tx.DisarmNetboot(ctx, in.NodeID, in.JobID) })
	return contract.NetbootFacts{Note: "the node boots by its state again"}, fault.Internal(ctx, err)
}

// CheckNetboot reports whether a network boot of this job is armed. Read-only.
func (a *Activities) CheckNetboot(ctx context.Context, in contract.JobRef) (contract.NetbootFacts, error) {
	p, err := a.Store.PXENode(ctx, in.NodeID)
	if err != nil {
		return contract.NetbootFacts{}, fault.Internal(ctx, err)
	}
	out := contract.NetbootFacts{Purpose: p.NetbootPurpose, Armed: deref(p.NetbootJobID) == in.JobID && in.JobID != ""}
	if out.Armed {
		out.Note = "the node still boots from the network for this job"
	}
	return out, nil
}
