package nodestate

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// WaitForAllocationEnd waits until the node's allocation has ended by itself, or is being released:
// the job that waits has the node, so it is the one that ends the tenant's access then.
func (a *Activities) WaitForAllocationEnd(ctx context.Context, in AllocationIn) (contract.DecommissionFacts, error) {
	err := fault.PollStore(ctx, in.Poll.D(), func() (bool, error) {
		found, err := allocationdb.FindForNode(ctx, a.Store, in.NodeID)
		if errors.Is(err, db.ErrNotFound) {
			n, err := a.Store.Node(ctx, in.NodeID)
			return err == nil && n.AllocationID == nil, err
		}
		return found.Status == lifecycle.AllocationReleasing || found.Status == lifecycle.AllocationReleaseFailed, err
	})
	if err != nil {
		return contract.DecommissionFacts{}, fault.Internal(ctx, err)
	}
	return a.ReadNodeFacts(ctx, in.JobRef)
}

// NewBootIn is the input of WaitForNewBoot.
type NewBootIn struct {
	contract.JobRef
	NotBootID string        `json:"not_boot_id"`
	Poll      spec.Duration `json:"poll,omitempty"`
}

// WaitForNewBoot waits until the agent has sent a heartbeat from a boot other than NotBootID.
func (a *Activities) WaitForNewBoot(ctx context.Context, in NewBootIn) (contract.DecommissionFacts, error) {
	err := fault.PollStore(ctx, in.Poll.D(), func() (bool, error) {
		heartbeat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
		if errors.Is(err, db.ErrNotFound) {
			return false, nil
		}
		if err != nil || heartbeat.BootID == in.NotBootID {
			return false, err
		}
		now, err := a.Store.Clock(ctx)
		return err == nil && now.Sub(heartbeat.ReceivedAt) <= a.silentAfter(), err
	})
	if err != nil {
		return contract.DecommissionFacts{}, fault.Internal(ctx, err)
	}
	out, err := a.ReadNodeFacts(ctx, in.JobRef)
	out.Note = "restarted: " + out.BootID
	return out, err
}
