package allocation

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// PowerProof is the power of a node as the control plane has read it itself, just now: "off", "on"
// or anything else that says nothing.
type PowerProof struct{ BMC, MAAS string }

// IsOff reports whether both say that the node is off.
func (p PowerProof) IsOff() bool { return p.BMC == powerOff && p.MAAS == powerOff }

const powerOff = "off"

// RemoveAssignment takes the node from an allocation whose release does not succeed, for an
// operator. It requires a node that is off as BMC and MAAS say, or a quarantined one. The node is
// quarantined then and must be sanitized. It returns db.ErrStale when the allocation has another
// version. The job of the allocation, if it has one, is to be cancelled.
func RemoveAssignment(ctx context.Context, tx *db.Tx, id, reason string, version int64, power PowerProof, actor db.Actor) (Released, error) {
	a, err := allocationdb.Lock(ctx, tx, id)
	if err != nil {
		return Released{}, err
	}
	if a.Status == lifecycle.AllocationReleased && a.Outcome == lifecycle.OutcomeAssignmentRemoved {
		return withJob(ctx, tx, a, lifecycle.ActionCancel, nil)
	}
	if a.Version != version {
		return Released{}, fmt.Errorf("allocation %s: %w", id, db.ErrStale)
	}
	if !a.Status.Releasing() {
		return Released{}, &intent.Refusal{Kind: intent.IllegalTransition, Existing: a.ID, Allowed: lifecycle.Allocation.Reachable(a.Status),
			Detail: fmt.Sprintf("the allocation is %s; only the assignment of one that is being released can be removed: release it first", a.Status)}
	}
	n, err := tx.LockNode(ctx, *a.NodeID)
	if err != nil {
		return Released{}, err
	}
	if !power.IsOff() && n.Status != lifecycle.NodeQuarantined {
		return Released{}, &intent.Refusal{Kind: intent.Conflict, Existing: n.ID, Detail: fmt.Sprintf(
			"node %s is %s, and its power is %s by its BMC and %s by MAAS: somebody may still be logged in; switch it off or quarantine it first",
			n.Hostname, n.Status, said(power.BMC), said(power.MAAS))}
	}
	if lifecycle.NodeMAAS.Check(lifecycle.NodeQuarantine, n.Status, lifecycle.OwnerAdmin, nil) == nil {
		why := actor
		why.Owner, why.Comment = lifecycle.OwnerAdmin, "the assignment of allocation "+id+" was removed: "+reason
		if _, err := tx.TransitionNode(ctx, n.ID, lifecycle.NodeQuarantine, nil, why); err != nil {
			return Released{}, err
		}
	}
	actor.Comment = reason
	a, err = finish(ctx, tx, a, lifecycle.AccessUnconfirmed, lifecycle.OutcomeAssignmentRemoved, reason, actor)
	return withJob(ctx, tx, a, lifecycle.ActionCancel, err)
}

func said(power string) string {
	if power == "" {
		return "not known"
	}
	return power
}

// AccessProof is how a job has ended the access of a tenant.
type AccessProof struct {
	ByAgent    bool // the node's agent said so; of a tenant who was root that proves nothing
	PoweredOff bool // everybody who can tell reads the node off
}

// EndForNode ends the allocation that occupies a node, for a job that owns the node and has ended
// the tenant's access itself. The node is marked as one that a tenant left. It changes nothing when
// nobody occupies the node. It can be repeated.
func EndForNode(ctx context.Context, tx *db.Tx, nodeID, reason string, proof AccessProof, actor db.Actor) error {
	found, err := allocationdb.FindForNode(ctx, tx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		return allocationdb.ClearPointer(ctx, tx, nodeID)
	}
	if err != nil {
		return err
	}
	a, err := allocationdb.Lock(ctx, tx, found.ID)
	if err != nil || a.NodeReleasedAt != nil {
		return err
	}
	sku, err := tx.SKU(ctx, a.SKUID)
	if err != nil {
		return err
	}
	access, outcome := lifecycle.AccessRevoked, lifecycle.OutcomeReleased
	if !proof.PoweredOff && (sku.TenantRoot || !proof.ByAgent) && a.Access != lifecycle.AccessRevoked && a.AccessGivenAt != nil {
		access, outcome = lifecycle.AccessUnconfirmed, lifecycle.OutcomeAssignmentRemoved
	}
	if _, err = finish(ctx, tx, a, access, outcome, reason, actor); err != nil {
		return err
	}
	return allocationdb.ClearPointer(ctx, tx, nodeID) // one that named another allocation
}

// finish takes a locked allocation with a node to released, by way of releasing.
func finish(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, access, outcome, reason string, actor db.Actor) (allocationdb.Allocation, error) {
	way := map[lifecycle.AllocationStatus]allocationdb.Transition{
		lifecycle.AllocationProvisioning:  lifecycle.AllocationAbort,
		lifecycle.AllocationActive:        lifecycle.AllocationRelease,
		lifecycle.AllocationReleaseFailed: lifecycle.AllocationRetryRelease,
	}
	if t, needed := way[a.Status]; needed {
		if _, err := allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: t, Reason: reason, Actor: actor}); err != nil {
			return a, err
		}
	}
	if a.AccessGivenAt != nil {
		if err := allocationdb.EndAccess(ctx, tx, a.ID, access); err != nil {
			return a, err
		}
	}
	return allocationdb.Free(ctx, tx, a.ID, outcome, "", actor)
}
