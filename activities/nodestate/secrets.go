package nodestate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
)

// rotatedPrefix begins the name of a BMC login that a password rotation has made (activities/bmc).
// Slipway alone knows such a login.
const rotatedPrefix = "bmc/rotated/"

// DeleteNodeSecrets deletes what only this node needed: the sealed user-data of all its jobs, its
// MAAS token, its BMC login, its host key and addresses. It detaches the BMC, so that the server
// can be onboarded as a new node. It keeps a login that another record refers to, and one that
// Slipway made, because the BMC would be lost without it. Note lists what was kept. Repeatable.
func (a *Activities) DeleteNodeSecrets(ctx context.Context, in contract.JobRef) (contract.DecommissionFacts, error) {
	out := contract.DecommissionFacts{}
	if err := a.deleteUserData(ctx, in.NodeID); err != nil {
		return out, err
	}
	kept, err := a.detachBMC(ctx, in.NodeID)
	if err != nil {
		return out, err
	}
	if err := a.Store.DeleteNodeAccess(ctx, in.NodeID); err != nil {
		return out, fault.Internal(ctx, err)
	}
	out.Done, out.Note = true, "user-data, host key and BMC login of the node are deleted"
	if len(kept) > 0 {
		out.Note = "user-data and host key of the node are deleted; " + strings.Join(kept, "; ")
	}
	return out, nil
}

// deleteUserData deletes the sealed user-data of every job of the node, and its MAAS token.
func (a *Activities) deleteUserData(ctx context.Context, nodeID string) error {
	for after := ""; ; {
		jobs, err := a.Store.ListJobs(ctx, db.JobFilter{NodeID: nodeID}, after, pageSize)
		if err != nil {
			return fault.Internal(ctx, err)
		}
		for _, j := range jobs {
			if err := cloudinit.DeleteSealed(ctx, a.Secrets, j.ID); err != nil {
				return fault.Secret(ctx, err)
			}
			after = j.ID
		}
		if len(jobs) < pageSize {
			return fault.Secret(ctx, a.Secrets.Delete(ctx, cloudinit.MachineTokenName(nodeID)))
		}
	}
}

const pageSize = 100

// detachBMC deletes the logins of the node's BMC and detaches the BMC from the node. It returns the
// logins that it kept, with the reasons.
func (a *Activities) detachBMC(ctx context.Context, nodeID string) (kept []string, err error) {
	bmc, err := a.Store.BMCOfNode(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	deleted, kept, err := a.partLogins(ctx, bmc)
	if err != nil {
		return kept, fault.Internal(ctx, err)
	}
	// The secrets first: after a crash in between the record still names them.
	for _, name := range deleted {
		if err := a.Secrets.Delete(ctx, name); err != nil {
			return kept, fault.Secret(ctx, err)
		}
	}
	err = a.Store.Tx(ctx, func(tx *db.Tx) error { return tx.ReleaseBMC(ctx, bmc.ID, nodeID, len(kept) > 0) })
	return kept, fault.Internal(ctx, err)
}

// partLogins returns the names of a BMC's stored logins that may be deleted, and those that must be
// kept, with the reasons.
func (a *Activities) partLogins(ctx context.Context, bmc db.BMC) (deletable, kept []string, err error) {
	for _, ref := range []string{bmc.CredentialRef, bmc.CandidateRef} {
		name, _, _ := strings.Cut(ref, "@")
		if name == "" || slices.Contains(deletable, name) {
			continue
		}
		uses, err := a.Store.SecretUses(ctx, name, bmc.ID)
		switch {
		case err != nil:
			return nil, nil, err
		case len(uses) > 0:
			kept = append(kept, fmt.Sprintf("secret %s stays, used by %s", name, strings.Join(uses, ", ")))
		case strings.HasPrefix(name, rotatedPrefix):
			kept = append(kept, fmt.Sprintf("secret %s stays: Slipway made that password of the BMC at %s and nobody else has it; delete it when the BMC has another",
				name, bmc.Address))
		default:
			deletable = append(deletable, name)
		}
	}
	return deletable, kept, nil
}
