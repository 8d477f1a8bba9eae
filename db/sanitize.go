package db

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// MarkSanitized clears the mark that the node needs to be sanitized, unless its last tenant left
// after since. The transaction that stores the certificate of a clean node calls it, with the time
// at which the scrub began. It can be repeated.
func (tx *Tx) MarkSanitized(ctx context.Context, nodeID string, since time.Time) error {
	_, err := tx.q.ClearTenantLeft(ctx, gen.ClearTenantLeftParams{ID: nodeID, Before: since})
	return MapError("node "+nodeID, err)
}

// HoldsRootTenant reports whether the tenant who is on the node, or who left it without a proof
// since, was root there. If so, the answers of the node's own system prove nothing.
func (s statements) HoldsRootTenant(ctx context.Context, nodeID string) (bool, error) {
	root, err := s.q.HoldsRootTenant(ctx, nodeID)
	return root, MapError("node "+nodeID, err)
}

// RootByMachine reports whether all that may have been root on the node came through the machine of
// a project, and not by an allocation: nothing was kept of the BMC then.
func (s statements) RootByMachine(ctx context.Context, nodeID string) (bool, error) {
	is, err := s.q.RootByMachine(ctx, nodeID)
	return is, MapError("node "+nodeID, err)
}

// LastTenancy returns the allocation of the tenant who is on the node, or who left it last; ""
// where none is known.
func (s statements) LastTenancy(ctx context.Context, nodeID string) (string, error) {
	id, err := s.q.LastTenancy(ctx, &nodeID)
	return id, MapError("node "+nodeID, err)
}

// FormerTenancy is the tenancy of a deleted node record that is the same hardware, or that may be.
type FormerTenancy struct {
	gen.FormerTenancyRow
	// Same says that it is the same: two keys are equal and none differs. Records are all that are.
	Same    bool
	Records []string
}

// FindFormerTenancy returns the record of the same hardware, other than the node itself, that a
// tenant who was root left last and that nothing has proven clean since, where a snapshot is kept
// of its BMC. Where there is none it returns one with a serial number, UUID or MAC address in
// common. It returns ErrNotFound when there is none of these.
func (s statements) FindFormerTenancy(ctx context.Context, nodeID string, h Hardware) (FormerTenancy, error) {
	macs := make([]string, 0, len(h.MACs))
	for _, m := range h.MACs {
		macs = append(macs, strings.ToLower(m))
	}
	records, same, err := s.formerRecords(ctx, nodeID, spec.MachineKeys{Serial: h.Serial, UUID: h.HardwareUUID, MACs: macs})
	if err != nil {
		return FormerTenancy{}, err
	}
	row, err := s.q.FormerTenancy(ctx, records)
	return FormerTenancy{FormerTenancyRow: row, Same: same, Records: records}, MapError("former record of node "+nodeID, err)
}

// AwaitsDrift reports whether the database says that the node is free and cannot know, since it was
// restored and the node was not seen to agree since. listed says that the reconciler has read the
// machines of its site since.
func (s statements) AwaitsDrift(ctx context.Context, nodeID string) (unknown, listed bool, err error) {
	row, err := s.q.LooksFreeAfterRestore(ctx, nodeID)
	return row.Unknown, row.Listed, MapError("node "+nodeID, err)
}

// clearTenantLeft clears the mark of a node that got other disks.
func (tx *Tx) clearTenantLeft(ctx context.Context, nodeID string) error {
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	return tx.MarkSanitized(ctx, nodeID, now.Add(time.Second))
}

// SanitizeRequired returns why the node must be sanitized: a tenant left it, it has no allocation,
// and no certificate since proves it clean. It returns "" when the node need not be sanitized.
func SanitizeRequired(n Node) string {
	if n.TenantLeftAt == nil || n.AllocationID != nil {
		return ""
	}
	return fmt.Sprintf("a tenant left node %s at %s and no certificate since proves it clean; a decommission in mode reimage does, and full_decommission where its agent cannot be asked",
		n.Hostname, n.TenantLeftAt.UTC().Format(time.RFC3339))
}

// requireSanitized refuses to move a MAAS node that must be sanitized to active. A PXE node becomes
// active only by what its jobs prove, or by an admin.
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
