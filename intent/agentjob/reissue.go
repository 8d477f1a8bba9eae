// Package agentjob accepts the jobs of a node's agent: a new identity for one node or for a site,
// and a new version.
package agentjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// servedStates are the states in which a node has an installed system with an agent of its own.
func servedStates() []lifecycle.NodeStatus {
	return []lifecycle.NodeStatus{lifecycle.NodeActive, lifecycle.NodeOffline, lifecycle.NodeQuarantined, lifecycle.NodeRetired}
}

// CheckReason refuses a request that does not say why.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return intent.InvalidIf([]intent.Field{{Name: "reason", Message: "say why; it stands in the history and in the audit log"}})
	}
	return nil
}

// Reissue writes the job that gives the node's agent a new identity. It refuses a node that no SSH
// login with a pinned host key reaches, and one that a job holds.
func Reissue(ctx context.Context, tx *db.Tx, nodeID, reason string, batchID *string, actor db.Actor) (db.Job, db.Node, error) {
	if err := CheckReason(reason); err != nil {
		return db.Job{}, db.Node{}, err
	}
	n, err := free(ctx, tx, nodeID, reissue)
	if err != nil {
		return db.Job{}, n, err
	}
	missing, err := unreachable(ctx, tx, n)
	if err != nil {
		return db.Job{}, n, err
	}
	if missing != "" {
		return db.Job{}, n, &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{Reason: intent.ReasonReissueByHand, Hostname: n.Hostname, NodeID: n.ID}, Detail: fmt.Sprintf(
			"Slipway cannot deliver a token to node %s by SSH: %s; an administrator can put a bootstrap bundle on it by hand", n.Hostname, missing)}
	}
	in := contract.AgentReissueInput{Hostname: n.Hostname, Reason: reason}
	if n.MAASSystemID != nil {
		in.SystemID = *n.MAASSystemID
	}
	job, err := create(ctx, tx, contract.KindAgentReissue, n, in, reason, batchID, actor)
	return job, n, err
}

// The names of the requests, in the words of a refusal.
const reissue, update = "reissue-agent", "update-agent"

// free locks the node and refuses one that a job holds or that has no agent of its own.
func free(ctx context.Context, tx *db.Tx, nodeID, asked string) (db.Node, error) {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return n, err
	}
	if asked == reissue && n.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return n, &intent.Refusal{Kind: intent.ActionRefused, Advice: intent.Advice{Reason: intent.ReasonReissuePXE, Hostname: n.Hostname}, Detail: fmt.Sprintf(
			"node %s boots from the network and Slipway has no SSH login to it; its agent enrols again when its system is installed again", n.Hostname)}
	}
	live, err := tx.LiveJobOfNode(ctx, nodeID)
	if err == nil {
		return n, &intent.Refusal{Kind: intent.LiveJob, Existing: live.ID, Detail: fmt.Sprintf("job %s (%s) is %s and holds node %s; wait for it to end, or cancel it, then %s",
			live.ID, intent.JobLabel(live), live.Status, n.Hostname, asked)}
	}
	if !errors.Is(err, db.ErrNotFound) {
		return n, err
	}
	states := append(servedStates(), lifecycle.NodeInstalled)
	if !slices.Contains(states, n.Status) {
		return n, &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf("node %s is %s, and %s is for a node that is %s", n.Hostname, n.Status, asked, lifecycle.OneOf(states))}
	}
	return n, nil
}

// unreachable returns why no SSH login with a pinned host key reaches the node, "" where one does.
func unreachable(ctx context.Context, tx *db.Tx, n db.Node) (string, error) {
	site, err := tx.Site(ctx, n.SiteID)
	switch {
	case err != nil:
		return "", err
	case n.SSHHostKey == "":
		return "no SSH host key is pinned for it", nil
	case site.Spec.SSHKeyRef == "":
		return "its site has no SSH login (ssh_key_ref)", nil
	case n.SSHAddress == "" && n.MAASSystemID == nil:
		return "no address of it is known", nil
	}
	return "", nil
}

// ByHand refuses a bootstrap bundle for a node that is in service, unless no SSH login reaches the
// node or its last reissue did not succeed, for example because the node shows another host key: a
// bundle is then the only way to a new identity.
func ByHand(ctx context.Context, tx *db.Tx, nodeID string) error {
	n, err := free(ctx, tx, nodeID, reissue)
	if err != nil {
		return err
	}
	missing, err := unreachable(ctx, tx, n)
	if err != nil || missing != "" {
		return err
	}
	last, err := tx.ListJobs(ctx, db.JobFilter{Kind: string(contract.KindAgentReissue), NodeID: n.ID}, "", 1)
	if err != nil || len(last) > 0 && last[0].Status != lifecycle.JobCompleted {
		return err
	}
	return &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{Reason: intent.ReasonIdentityGone, Hostname: n.Hostname}, Detail: fmt.Sprintf(
		"no job waits for a bundle on node %s, and its agent can be reached by SSH; the bundle is for a node whose reissue did not succeed", n.Hostname)}
}

func create(ctx context.Context, tx *db.Tx, kind contract.JobKind, n db.Node, in any, reason string, batchID *string, actor db.Actor) (db.Job, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return db.Job{}, fmt.Errorf("input of %s: %w", kind, err)
	}
	actor.Comment = reason
	row := db.NewJob{Kind: string(kind), NodeID: &n.ID, BatchID: batchID, Input: raw, Actor: actor}
	if n.SiteID != "" { // a PXE node belongs to none
		row.SiteID = &n.SiteID
	}
	return tx.CreateJob(ctx, row)
}

// MaxSiteNodes is how many nodes one request for a site accepts.
const MaxSiteNodes = 500

// SiteRequest asks for new identities of the agents of a site.
type SiteRequest struct {
	SiteID, Reason string
	MaxParallel    int
	// All takes every agent; otherwise those that are locked, silent or have a certificate that
	// ended.
	All bool
}

// ReissueSite writes a batch with a job for each node; describe renders why one was rejected.
func ReissueSite(ctx context.Context, tx *db.Tx, r SiteRequest, describe func(error) string, actor db.Actor) (db.Batch, error) {
	if err := CheckReason(r.Reason); err != nil {
		return db.Batch{}, err
	}
	if _, err := tx.Site(ctx, r.SiteID); errors.Is(err, db.ErrNotFound) {
		return db.Batch{}, intent.InvalidIf([]intent.Field{{Name: "site_id", Message: "there is no such site"}})
	} else if err != nil {
		return db.Batch{}, err
	}
	nodes, err := tx.AgentsOfSite(ctx, r.SiteID, servedStates(), r.All, MaxSiteNodes)
	if err != nil {
		return db.Batch{}, err
	}
	if len(nodes) == 0 {
		return db.Batch{}, &intent.Refusal{Kind: intent.Conflict, Detail: "no node of the site has an agent that is locked, silent or has a certificate that ended; ask for all to reissue the others too"}
	}
	b, err := tx.CreateBatch(ctx, db.NewBatch{SiteID: r.SiteID, Name: "reissue-agent", MaxParallel: r.MaxParallel, CreatedBy: actor.ID})
	for i, n := range nodes {
		if err != nil {
			return b, err
		}
		err = addToBatch(ctx, tx, b.ID, i, n, r.Reason, describe, actor)
	}
	return b, err
}

func addToBatch(ctx context.Context, tx *db.Tx, batchID string, ordinal int, n db.SiteAgent, reason string, describe func(error) string, actor db.Actor) error {
	job, _, err := Reissue(ctx, tx, n.ID, reason, &batchID, actor)
	if err == nil {
		return tx.AddBatchItem(ctx, batchID, ordinal, n.Hostname, &job.ID, nil)
	}
	if intent.AsRefusal(err) == nil {
		return fmt.Errorf("node %s: %w", n.Hostname, err)
	}
	why := describe(err)
	return tx.AddBatchItem(ctx, batchID, ordinal, n.Hostname, nil, &why)
}
