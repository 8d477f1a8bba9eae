package agentapi

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// startManual begins the onboarding of a node that was bootstrapped by hand: its
// agent has enrolled and no job waits for it. The job skips the MAAS stages and
// takes the node to active once it is healthy (03-lifecycles). It is created in
// the transaction that redeems the token, so an enrolment is never without it.
func startManual(ctx context.Context, tx *db.Tx, nodeID string) error {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return err
	}
	if n.Status != lifecycle.NodeBootstrapIssued || n.ProfileID == nil || n.SKUID == nil {
		return nil
	}
	if _, err := tx.LiveJobOfNode(ctx, nodeID); !errors.Is(err, db.ErrNotFound) {
		return err // a live job, or a failure to look
	}
	input, err := json.Marshal(contract.OnboardingInput{
		Manual: true, SiteID: n.SiteID, ProfileID: *n.ProfileID, SKUID: *n.SKUID, Hostname: n.Hostname,
	})
	if err != nil {
		return err
	}
	_, err = tx.CreateJob(ctx, db.NewJob{
		Kind: string(contract.KindOnboarding), NodeID: &nodeID, SiteID: &n.SiteID, ProfileID: n.ProfileID, Input: input,
		Actor: db.Actor{Owner: lifecycle.OwnerSystem, Comment: "the agent of a manually bootstrapped node enrolled"},
	})
	return err
}
