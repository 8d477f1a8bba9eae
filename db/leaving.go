package db

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// EndAllocation frees a node of the allocation that is named, and marks it as one
// that a tenant left (Node.TenantLeftAt); another allocation that came meanwhile
// stays. Repeatable: a node that is free already keeps the mark of when it was
// freed.
func (s statements) EndAllocation(ctx context.Context, nodeID, allocationID string) error {
	_, err := s.q.EndAllocation(ctx, gen.EndAllocationParams{ID: nodeID, AllocationID: allocationID})
	return MapError("allocation of node "+nodeID, err)
}

// MarkSanitized takes the mark of a tenant from a node, where the tenant left
// before the moment given; one who left later has left more behind. Call it in
// the transaction that stores the certificate which proves the node clean.
// Repeatable.
func (tx *Tx) MarkSanitized(ctx context.Context, nodeID string, since time.Time) error {
	_, err := tx.q.ClearTenantLeft(ctx, gen.ClearTenantLeftParams{ID: nodeID, Before: since})
	return MapError("node "+nodeID, err)
}

// clearTenantLeft takes the mark from a node that is gone, or whose disks are.
func (tx *Tx) clearTenantLeft(ctx context.Context, nodeID string) error {
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	return tx.MarkSanitized(ctx, nodeID, now.Add(time.Second))
}

// SanitizeRequired says that a tenant left the node, that nobody is on it, and that
// nothing proves it clean since; "" where that is not so.
func SanitizeRequired(n Node) string {
	if n.TenantLeftAt == nil || n.AllocationID != nil {
		return ""
	}
	return fmt.Sprintf("a tenant left node %s at %s and no certificate since proves it clean; slipway node decommission %s --mode soft_reset does, and full_decommission where its agent cannot be asked",
		n.Hostname, n.TenantLeftAt.UTC().Format(time.RFC3339), n.Hostname)
}

// requireSanitized is the one guard of what no node may do: to go back into service with
// what a tenant may have left on it. A PXE node has no way back into service but
// by what its jobs prove, and by an admin.
func requireSanitized(n Node, t lifecycle.Transition[lifecycle.NodeStatus]) error {
	why := SanitizeRequired(n)
	if n.Lifecycle != lifecycle.NodeMAAS.Lifecycle || t.To != lifecycle.NodeActive || why == "" {
		return nil
	}
	allowed := slices.DeleteFunc(lifecycle.NodeMAAS.Reachable(n.Status), func(s string) bool { return s == string(lifecycle.NodeActive) })
	return &lifecycle.IllegalTransitionError{Resource: lifecycle.NodeMAAS.Resource, From: string(n.Status), To: string(t.To), Reason: why, Allowed: allowed}
}

// HoldsTenant says that a tenant is on the node, or that what one left may be.
func HoldsTenant(n Node) bool { return n.AllocationID != nil || n.TenantLeftAt != nil }

// tenantStays refuses to move the disks of a node into other hardware with a
// tenant, or what one left, on them.
func tenantStays(n Node, disks string) error {
	if disks != DisksMoved || !HoldsTenant(n) {
		return nil
	}
	return &ConflictError{What: "tenant", Existing: n.ID, Message: lifecycle.TenantWouldMove}
}

// SecretUses lists who refers to a secret's name, but for one BMC: "site
// site_...", "BMC bmc_...".
func (s statements) SecretUses(ctx context.Context, name, butBMC string) ([]string, error) {
	rows, err := s.q.SecretUses(ctx, gen.SecretUsesParams{Name: name, ButBMC: butBMC})
	return rows, MapError("uses of secret "+name, err)
}

// ReleaseBMC takes a BMC from its node, so that the server can be onboarded as
// another one. A record that neither a job nor a rotation remembers, and that is
// not to be kept, is deleted. Repeatable.
func (tx *Tx) ReleaseBMC(ctx context.Context, id, nodeID string, keep bool) error {
	if !keep {
		n, err := tx.q.DropBMCOfNode(ctx, gen.DropBMCOfNodeParams{ID: id, NodeID: nodeID})
		if err != nil || n > 0 {
			return MapError("BMC "+id, err)
		}
	}
	_, err := tx.q.DetachBMC(ctx, gen.DetachBMCParams{ID: id, NodeID: nodeID})
	return MapError("BMC "+id, err)
}

// DeleteNodeAccess deletes a node's host key and addresses. Repeatable.
func (s statements) DeleteNodeAccess(ctx context.Context, nodeID string) error {
	_, err := s.q.DeleteNodeAccess(ctx, nodeID)
	return MapError("node "+nodeID, err)
}
