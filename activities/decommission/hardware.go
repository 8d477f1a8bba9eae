package decommission

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// HardwareIn is the input of ReplaceHardware.
type HardwareIn struct {
	contract.JobRef
	Poll spec.Duration `json:"poll,omitempty"`
}

// ReplaceHardware waits until somebody has planned the hardware that takes the
// node's place, and puts the node on it in one transaction. Repeated it finds
// that done. With ObserveOnly it only looks.
func (a *Activities) ReplaceHardware(ctx context.Context, in HardwareIn) (contract.HardwareFacts, error) {
	out := contract.HardwareFacts{}
	beat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
	switch {
	case err == nil:
		out.BootID = beat.BootID
	case !errors.Is(err, db.ErrNotFound):
		return out, fault.Internal(ctx, err)
	}
	if in.ObserveOnly {
		return out, a.planned(ctx, in.JobRef, &out)
	}
	err = poll(ctx, in.Poll, func() (bool, error) {
		p, err := a.Store.PXENode(ctx, in.NodeID)
		if err != nil || p.PlannedHardware == nil {
			return false, a.stillHeld(ctx, in.NodeID, err)
		}
		return true, a.Store.Tx(ctx, func(tx *db.Tx) error {
			h, err := tx.ApplyHardware(ctx, in.NodeID, in.JobID, db.Actor{Owner: lifecycle.OwnerDecommission, ID: in.JobID, WorkflowID: workflowID(ctx)})
			if err == nil {
				describe(&out, h, in.JobID)
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

// stillHeld is err, or why the node is not to be waited for any more.
func (a *Activities) stillHeld(ctx context.Context, nodeID string, err error) error {
	if err != nil {
		return err
	}
	n, err := a.Store.Node(ctx, nodeID)
	if err != nil {
		return err
	}
	return held(n)
}

func (a *Activities) planned(ctx context.Context, in contract.JobRef, out *contract.HardwareFacts) error {
	p, err := a.Store.PXENode(ctx, in.NodeID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	if out.Note = "no hardware is planned"; p.PlannedHardware != nil {
		describe(out, *p.PlannedHardware, in.JobID)
	}
	return nil
}

func describe(out *contract.HardwareFacts, h db.PlannedHardware, jobID string) {
	out.MACs, out.Serial, out.Moved = h.MACs, h.SerialNumber, h.Disks == db.DisksMoved
	out.Note = "planned: " + strings.Join(h.MACs, ", ")
	if h.ReplacedBy == jobID {
		out.Done, out.Note = true, "the node is on the hardware "+strings.Join(h.MACs, ", ")
	}
}
