package nodestate

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
)

// RevokeIdentity revokes the node's enrolment tokens and locks its agent's identity, so that no
// certificate of the node is accepted any more. The node gets no new token, because a deleted node
// is given none. Repeatable.
func (a *Activities) RevokeIdentity(ctx context.Context, in contract.JobRef) (contract.DecommissionFacts, error) {
	err := a.Store.Tx(ctx, func(tx *db.Tx) error {
		return tx.EndAgentIdentity(ctx, in.NodeID, "the node was removed by job "+in.JobID)
	})
	if err != nil {
		return contract.DecommissionFacts{}, fault.Internal(ctx, err)
	}
	return a.CheckIdentityRevoked(ctx, in)
}

// CheckIdentityRevoked proves RevokeIdentity. Done is false when something is left, and Note names
// it.
func (a *Activities) CheckIdentityRevoked(ctx context.Context, in contract.JobRef) (contract.DecommissionFacts, error) {
	out := contract.DecommissionFacts{Agent: contract.AgentNone}
	open, err := a.Store.OpenEnrollmentTokens(ctx, in.NodeID)
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	id, err := a.Store.AgentIdentity(ctx, in.NodeID)
	switch {
	case err != nil && !errors.Is(err, db.ErrNotFound):
		return out, fault.Internal(ctx, err)
	case open > 0:
		out.Note = fmt.Sprintf("%d enrolment tokens of the node are not revoked", open)
	case err == nil && id.LockedAt == nil:
		out.Note = fmt.Sprintf("the agent's identity, generation %d, is not locked", id.Generation)
	default:
		out.Done, out.Note = true, "certificates and enrolment tokens of the node are refused from now on"
	}
	return out, nil
}
