package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
)

// Left is what a look after a compensation found; an empty Note is clean.
type Left struct {
	Note string `json:"note,omitempty"`
}

// CheckBootstrapRevoked proves RevokeBootstrap: no enrolment token of the node
// is good any more, no agent that used one may speak, and neither sealed
// user-data of the job nor a copy of the machine's MAAS token is left.
func (a *Activities) CheckBootstrapRevoked(ctx context.Context, in contract.JobRef) (Left, error) {
	open, err := a.Store.OpenEnrollmentTokens(ctx, in.NodeID)
	if err != nil {
		return Left{}, fault.Internal(ctx, err)
	}
	if open > 0 {
		return Left{Note: fmt.Sprintf("%d enrolment tokens of node %s are not revoked", open, in.NodeID)}, nil
	}
	names := map[string]string{cloudinit.MachineTokenName(in.NodeID): "the machine's MAAS token "}
	for _, name := range cloudinit.SecretNames(in.JobID) {
		names[name] = "the sealed user-data "
	}
	for name, what := range names {
		_, err := a.Secrets.Resolve(ctx, providers.SecretRef(name), providers.OwnUse())
		if err == nil {
			return Left{Note: what + name + " is still stored"}, nil
		}
		if !providers.IsKind(err, providers.KindNotFound) {
			return Left{}, fault.Secret(ctx, err)
		}
	}
	return a.CheckIdentityLocked(ctx, in)
}

// CheckIdentityLocked proves LockAgentIdentity: the node has no agent identity,
// or a locked one.
func (a *Activities) CheckIdentityLocked(ctx context.Context, in contract.JobRef) (Left, error) {
	id, err := a.Store.AgentIdentity(ctx, in.NodeID)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return Left{}, nil
	case err != nil:
		return Left{}, fault.Internal(ctx, err)
	case id.LockedAt == nil:
		return Left{Note: fmt.Sprintf("the agent identity of node %s, generation %d, is not locked", in.NodeID, id.Generation)}, nil
	}
	return Left{}, nil
}
