package decommission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/userdata"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// rotatedPrefix begins the name of a BMC login that Slipway made itself
// (activities/bmc, rotation): nobody else has it.
const rotatedPrefix = "bmc/rotated/"

// deployments is one more than the most that a profile may let a job try.
const deployments = 11

// CleanSecrets deletes what only this node needed: the sealed user-data of all
// its jobs, its MAAS token, its BMC login, its host key and addresses; and takes
// the BMC from the node, so that the server can be onboarded as a new one. A
// login that another record refers to stays; so does one that Slipway made and
// nobody else knows, since without it the BMC would be lost. Note says what
// stayed. Repeatable.
func (a *Activities) CleanSecrets(ctx context.Context, in contract.JobRef) (contract.LeavingFacts, error) {
	out := contract.LeavingFacts{}
	if err := a.dropUserData(ctx, in.NodeID); err != nil {
		return out, err
	}
	kept, err := a.dropBMC(ctx, in.NodeID)
	if err != nil {
		return out, err
	}
	if err := a.Store.ForgetNodeAccess(ctx, in.NodeID); err != nil {
		return out, fault.Internal(ctx, err)
	}
	out.Done, out.Note = true, "user-data, host key and BMC login of the node are deleted"
	if len(kept) > 0 {
		out.Note = "user-data and host key of the node are deleted; " + strings.Join(kept, "; ")
	}
	return out, nil
}

// dropUserData deletes the sealed documents of every job that the node had.
func (a *Activities) dropUserData(ctx context.Context, nodeID string) error {
	for after := ""; ; {
		jobs, err := a.Store.ListJobs(ctx, db.JobFilter{NodeID: nodeID}, after, pageSize)
		if err != nil {
			return fault.Internal(ctx, err)
		}
		for _, j := range jobs {
			for attempt := 1; attempt <= deployments; attempt++ {
				if err := a.Secrets.Delete(ctx, userdata.Name(j.ID, attempt)); err != nil {
					return fault.Secret(ctx, err)
				}
			}
			after = j.ID
		}
		if len(jobs) < pageSize {
			return fault.Secret(ctx, a.Secrets.Delete(ctx, userdata.MachineToken(nodeID)))
		}
	}
}

const pageSize = 100

// dropBMC deletes the login of the node's BMC and unties the BMC; it says what
// stays and why.
func (a *Activities) dropBMC(ctx context.Context, nodeID string) (kept []string, err error) {
	bmc, err := a.Store.BMCOfNode(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	gone, kept, err := a.logins(ctx, bmc)
	if err != nil {
		return kept, fault.Internal(ctx, err)
	}
	// The secrets first: after a crash in between the record still names them.
	for _, name := range gone {
		if err := a.Secrets.Delete(ctx, name); err != nil {
			return kept, fault.Secret(ctx, err)
		}
	}
	err = a.Store.Tx(ctx, func(tx *db.Tx) error { return tx.ReleaseBMC(ctx, bmc.ID, nodeID, len(kept) > 0) })
	return kept, fault.Internal(ctx, err)
}

// logins parts the stored logins of a BMC in those that may be deleted, by name,
// and those that stay, with the reason.
func (a *Activities) logins(ctx context.Context, bmc db.BMC) (gone, kept []string, err error) {
	for _, ref := range []string{bmc.CredentialRef, bmc.CandidateRef} {
		name, _, _ := strings.Cut(ref, "@")
		if name == "" || slices.Contains(gone, name) {
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
			gone = append(gone, name)
		}
	}
	return gone, kept, nil
}
