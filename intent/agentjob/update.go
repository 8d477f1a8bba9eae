package agentjob

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Release is a release of the agent as it was signed.
type Release struct {
	Version             string
	Manifest, Signature []byte
	BinaryURL           string
}

// AddRelease stores a signed release. Nothing of it is fetched: each agent checks the signature
// itself, and the program by what the manifest says.
func AddRelease(ctx context.Context, tx *db.Tx, r Release, actor db.Actor) (db.AgentRelease, error) {
	m, err := spec.CheckAgentRelease(r.Manifest, r.Signature, r.BinaryURL)
	if err != nil {
		return db.AgentRelease{}, err
	}
	if m.Version != r.Version {
		return db.AgentRelease{}, intent.InvalidIf([]intent.Field{{Name: "manifest", Message: fmt.Sprintf("is of version %s, not %s", m.Version, r.Version)}})
	}
	stored, err := tx.AddAgentRelease(ctx, db.AgentRelease{Version: r.Version, Manifest: r.Manifest, Signature: r.Signature, BinaryURL: r.BinaryURL, CreatedBy: actor.ID})
	if err != nil {
		return stored, err
	}
	actor.Metadata = map[string]any{"sha256": m.SHA256, "binary_url": r.BinaryURL}
	return stored, tx.AppendAudit(ctx, db.Entry{ResourceKind: "agent_release", ResourceID: r.Version, Kind: db.EntryAction, Name: "add", Actor: actor})
}

// Update writes the job that installs a stored release on the node. It refuses what the node's
// agent would refuse, as far as that is known here, and an agent that cannot be asked.
func Update(ctx context.Context, tx *db.Tx, nodeID, version, reason string, actor db.Actor) (db.Job, db.Node, error) {
	if err := CheckReason(reason); err != nil {
		return db.Job{}, db.Node{}, err
	}
	release, err := tx.AgentRelease(ctx, version)
	if errors.Is(err, db.ErrNotFound) {
		return db.Job{}, db.Node{}, intent.InvalidIf([]intent.Field{{Name: "version", Message: "there is no such release; add it first", Reason: intent.ReasonReleaseMissing}})
	}
	if err != nil {
		return db.Job{}, db.Node{}, err
	}
	n, err := free(ctx, tx, nodeID, update)
	if err != nil {
		return db.Job{}, n, err
	}
	if err := updatable(ctx, tx, n, release); err != nil {
		return db.Job{}, n, err
	}
	in := contract.AgentUpdateInput{
		Hostname: n.Hostname, Version: release.Version, Manifest: release.Manifest, Signature: release.Signature, BinaryURL: release.BinaryURL, Reason: reason,
	}
	job, err := create(ctx, tx, contract.KindAgentUpdate, n, in, reason, nil, actor)
	return job, n, err
}

func updatable(ctx context.Context, tx *db.Tx, n db.Node, release db.AgentRelease) error {
	refuse := func(advice intent.Reason, format string, args ...any) error {
		return &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{Reason: advice, Hostname: n.Hostname}, Detail: fmt.Sprintf(format, args...)}
	}
	unable, err := tx.AgentUnable(ctx, n.ID)
	if err != nil {
		return err
	}
	if unable != "" {
		return refuse(intent.ReasonIdentityGone, "the agent of node %s cannot be asked: %s", n.Hostname, unable)
	}
	heartbeat, err := tx.LatestHeartbeat(ctx, n.ID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return err
	}
	now, cerr := tx.Clock(ctx)
	switch {
	case cerr != nil:
		return cerr
	case err != nil || now.Sub(heartbeat.ReceivedAt) > db.AgentSilentAfter:
		return refuse("", "the agent of node %s is silent; bring the node back, then update", n.Hostname)
	case heartbeat.AgentVersion == release.Version:
		return refuse("", "the agent of node %s is %s already", n.Hostname, release.Version)
	case n.ProfileID == nil: // its agent alone knows its key
		return nil
	}
	p, err := tx.Profile(ctx, *n.ProfileID)
	if err != nil {
		return err
	}
	key, err := base64.StdEncoding.DecodeString(p.Spec.AgentUpdateKey)
	if err != nil || len(key) == 0 {
		return refuse("", "the profile of node %s has no agent_update_key, so its agent takes no updates", n.Hostname)
	}
	if err := spec.VerifyAgentManifest(key, release.Manifest, release.Signature); err != nil {
		return refuse("", "release %s is not for node %s: %v of its profile", release.Version, n.Hostname, err)
	}
	return nil
}
