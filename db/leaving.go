package db

import (
	"context"

	"github.com/slipway-cloud/slipway/db/gen"
)

// EndAllocation frees a node of the allocation that is named; another one that
// came meanwhile stays. Repeatable.
func (s statements) EndAllocation(ctx context.Context, nodeID, allocationID string) error {
	_, err := s.q.EndAllocation(ctx, gen.EndAllocationParams{ID: nodeID, AllocationID: allocationID})
	return translate("allocation of node "+nodeID, err)
}

// SecretUses lists who refers to a secret's name, but for one BMC: "site
// site_...", "BMC bmc_...".
func (s statements) SecretUses(ctx context.Context, name, butBMC string) ([]string, error) {
	rows, err := s.q.SecretUses(ctx, gen.SecretUsesParams{Name: name, ButBMC: butBMC})
	return rows, translate("uses of secret "+name, err)
}

// ReleaseBMC takes a BMC from its node, so that the server can be onboarded as
// another one. A record that neither a job nor a rotation remembers, and that is
// not to be kept, is deleted. Repeatable.
func (tx *Tx) ReleaseBMC(ctx context.Context, id, nodeID string, keep bool) error {
	if !keep {
		n, err := tx.q.DropBMCOfNode(ctx, gen.DropBMCOfNodeParams{ID: id, NodeID: nodeID})
		if err != nil || n > 0 {
			return translate("BMC "+id, err)
		}
	}
	_, err := tx.q.UntieBMC(ctx, gen.UntieBMCParams{ID: id, NodeID: nodeID})
	return translate("BMC "+id, err)
}

// ForgetNodeAccess deletes a node's host key and addresses. Repeatable.
func (s statements) ForgetNodeAccess(ctx context.Context, nodeID string) error {
	_, err := s.q.ForgetNodeAccess(ctx, nodeID)
	return translate("node "+nodeID, err)
}
