package nodestate

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// HardwareIn is the input of ReplaceHardware.
type HardwareIn struct {
	contract.JobRef
	Poll spec.Duration `json:"poll,omitempty"`
}

// ReplaceHardware waits until an administrator has planned the node's new hardware, and puts the
// node on it in one transaction. A repetition finds that done. With ObserveOnly it changes nothing.
func (a *Activities) ReplaceHardware(ctx context.Context, in HardwareIn) (contract.HardwareFacts, error) {
	out := contract.HardwareFacts{}
	heartbeat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
	switch {
	case err == nil:
		out.BootID = heartbeat.BootID
	case !errors.Is(err, db.ErrNotFound):
		return out, fault.Internal(ctx, err)
	}
	if in.ObserveOnly {
		return out, a.readPlannedHardware(ctx, in.JobRef, &out)
	}
	err = fault.PollStore(ctx, in.Poll.D(), func() (bool, error) {
		p, err := a.Store.PXENode(ctx, in.NodeID)
		if err != nil || p.PlannedHardware == nil {
			return false, a.checkOwned(ctx, in.NodeID, err)
		}
		return true, a.Store.Tx(ctx, func(tx *db.Tx) error {
			h, err := tx.ApplyHardware(ctx, in.NodeID, in.JobID, db.Actor{Owner: lifecycle.OwnerDecommission, ID: in.JobID, WorkflowID: workflowID(ctx)})
			if err == nil {
				describeHardware(&out, h, in.JobID)
			}
			return err
		})
	})
	var conflict *db.ConflictError
	if errors.As(err, &conflict) {
		return out, fault.New(lifecycle.FailStateDisagreement, "the node cannot take the planned hardware: %s", conflict.Message)
	}
	return out, fault.Internal(ctx, err)
}

// checkOwned returns err. Without one it fails when the node is not in a state of a job any more.
func (a *Activities) checkOwned(ctx context.Context, nodeID string, err error) error {
	if err != nil {
		return err
	}
	n, err := a.Store.Node(ctx, nodeID)
	if err != nil {
		return err
	}
	return requireJobState(n)
}

func (a *Activities) readPlannedHardware(ctx context.Context, in contract.JobRef, out *contract.HardwareFacts) error {
	p, err := a.Store.PXENode(ctx, in.NodeID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	if out.Note = "no hardware is planned"; p.PlannedHardware != nil {
		describeHardware(out, *p.PlannedHardware, in.JobID)
	}
	return nil
}

func describeHardware(out *contract.HardwareFacts, h db.PlannedHardware, jobID string) {
	out.MACs, out.Serial, out.Moved = h.MACs, h.SerialNumber, h.Disks == db.DisksMoved
	out.Note = "planned: " + strings.Join(h.MACs, ", ")
	if h.ReplacedBy == jobID {
		out.Done, out.Note = true, "the node is on the hardware "+strings.Join(h.MACs, ", ")
	}
}
