package agentjob

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/onboarding"
)

// BundleFor is a node that gets a new bootstrap bundle. JobID is the job that waits for its agent;
// "" for a node in service, whose bundle only an administrator may have.
type BundleFor struct {
	Node    db.Node
	Profile db.Profile
	JobID   string
}

// ReissueBundle locks a node and decides that it gets a new bootstrap bundle. It refuses one that
// another job holds, one in service whose agent gets a new identity in another way, and one without
// a profile. It writes nothing.
func ReissueBundle(ctx context.Context, tx *db.Tx, nodeID string) (BundleFor, error) {
	node, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return BundleFor{}, err
	}
	job, err := tx.LiveJobOfNode(ctx, nodeID)
	switch {
	case errors.Is(err, db.ErrNotFound):
		err = ByHand(ctx, tx, nodeID)
	case err == nil && !onboarding.IsManual(job):
		err = &intent.Refusal{Kind: intent.Conflict, Existing: job.ID, Advice: intent.Advice{Reason: intent.ReasonJobHoldsNode, JobID: job.ID},
			Detail: "job " + job.ID + " holds the node and does not wait for a bundle; wait for it to end, or cancel it"}
	}
	if err != nil {
		return BundleFor{}, err
	}
	if node.ProfileID == nil {
		return BundleFor{}, &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{Reason: intent.ReasonNoProfile},
			Detail: "the node has no profile, which says where its agent reports; create the node again"}
	}
	profile, err := tx.Profile(ctx, *node.ProfileID)
	return BundleFor{Node: node, Profile: profile, JobID: job.ID}, err
}
