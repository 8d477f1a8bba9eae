package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// freshBeat is the age up to which a heartbeat proves a living node, where the
// node's profile does not make its agent speak more rarely than every third of
// it.
const freshBeat = 2 * time.Minute

// NodeHealth says what keeps a node from being proven healthy now; an empty list
// is the proof behind lifecycle.NeedEnrolled and lifecycle.NeedHealthy. It is
// the check of an onboarding, and one more: a node that a clean-up left unproven
// is not put to use again until a certificate says that it is clean.
func (tx *Tx) NodeHealth(ctx context.Context, n Node) ([]string, error) {
	missing, err := tx.identityTrouble(ctx, n.ID)
	if err != nil {
		return nil, err
	}
	beat, err := tx.beatTrouble(ctx, n)
	if err != nil {
		return nil, err
	}
	unclean, err := tx.uncleanSince(ctx, n.ID)
	return append(append(missing, beat...), unclean...), err
}

func (tx *Tx) identityTrouble(ctx context.Context, nodeID string) ([]string, error) {
	id, err := tx.AgentIdentity(ctx, nodeID)
	switch {
	case errors.Is(err, ErrNotFound):
		return []string{"no agent has enrolled for the node"}, nil
	case err != nil:
		return nil, err
	case id.LockedAt != nil:
		return []string{"its agent is locked out: " + id.LockedReason}, nil
	}
	return nil, nil
}

func (tx *Tx) beatTrouble(ctx context.Context, n Node) ([]string, error) {
	beat, err := tx.LatestHeartbeat(ctx, n.ID)
	if errors.Is(err, ErrNotFound) {
		return []string{"its agent has never been heard"}, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return nil, err
	}
	patience, err := tx.beatPatience(ctx, n)
	switch {
	case err != nil:
		return nil, err
	case now.Sub(beat.ReceivedAt) > patience:
		return []string{fmt.Sprintf("its agent was last heard %s ago", now.Sub(beat.ReceivedAt).Round(time.Second))}, nil
	case beat.Report == nil:
		return []string{"its agent has not reported what the node has"}, nil
	case beat.ReportBootID != beat.BootID:
		return []string{"the last report is from before the node was started again; wait for the next one"}, nil
	case n.SKUID == nil:
		return nil, nil
	}
	sku, err := tx.SKU(ctx, *n.SKUID)
	if err != nil {
		return nil, err
	}
	return sku.Spec.CheckHealth(*beat.Report), nil
}

// beatPatience is three of the node's own heartbeats, and at least freshBeat.
func (tx *Tx) beatPatience(ctx context.Context, n Node) (time.Duration, error) {
	if n.ProfileID == nil {
		return freshBeat, nil
	}
	p, err := tx.Profile(ctx, *n.ProfileID)
	return max(freshBeat, 3*p.Spec.AgentHeartbeatInterval.D()), err
}

// uncleanSince says what keeps a node from being taken for clean: since it was
// last in service a device was not verified, or an erasure began that nothing
// proved. What lies before it was in service is over.
func (tx *Tx) uncleanSince(ctx context.Context, nodeID string) ([]string, error) {
	what := "certificates of node " + nodeID
	since, err := tx.q.LastServed(ctx, nodeID)
	if err != nil {
		return nil, translate(what, err)
	}
	last, err := tx.q.LastVerdict(ctx, nodeID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return nil, translate(what, err)
	case last.IssuedAt.After(since) && last.Verdict != "clean":
		return []string{"its last certificate, of " + last.IssuedAt.UTC().Format(time.RFC3339) + ", says that a device was not verified clean" + cleanFirst}, nil
	case last.IssuedAt.After(since):
		since = last.IssuedAt
	}
	erased, err := tx.q.ErasedSince(ctx, gen.ErasedSinceParams{NodeID: nodeID, Kind: lifecycle.TaskKindScrub, Since: since})
	if erased {
		return []string{"its agent began to erase it, and no certificate says since then that it is clean" + cleanFirst}, nil
	}
	return nil, translate(what, err)
}

const cleanFirst = "; a decommission proves it"

// IdentityGone says why a node cannot be used again under its identity; "" is
// the proof behind lifecycle.NeedIdentityKept. A node that was half erased is
// none that can.
func (tx *Tx) IdentityGone(ctx context.Context, nodeID string) (string, error) {
	trouble, err := tx.identityTrouble(ctx, nodeID)
	if err != nil || len(trouble) > 0 {
		return firstOf(trouble), err
	}
	gone, err := tx.q.UninstalledSince(ctx, gen.UninstalledSinceParams{NodeID: nodeID, Kind: lifecycle.TaskKindUninstall})
	if gone || err != nil {
		return "its agent was uninstalled", translate("identity of node "+nodeID, err)
	}
	unclean, err := tx.uncleanSince(ctx, nodeID)
	return firstOf(unclean), err
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// CameFrom is the state that a node was in before its present one, or
// ErrNotFound.
func (tx *Tx) CameFrom(ctx context.Context, nodeID string) (lifecycle.NodeStatus, error) {
	row, err := tx.q.LastNodeMove(ctx, nodeID)
	return lifecycle.NodeStatus(row.FromState), translate("history of node "+nodeID, err)
}

// ResumeTaskOfJob is ResumeTask for the last task of a kind that this job asked
// for: a task of an earlier job is no business of this one. A task that failed
// is left to the job, which parks on it and asks again when it is resumed; and
// so is a job that has not asked yet.
func (tx *Tx) ResumeTaskOfJob(ctx context.Context, j Job, kind lifecycle.TaskKind, a Actor) (NodeTask, Resumed, error) {
	last, err := tx.q.LastTaskOfJob(ctx, gen.LastTaskOfJobParams{JobID: j.ID, Kind: kind})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return NodeTask{}, ResumedNothing, nil
	case err != nil:
		return NodeTask{}, "", translate(fmt.Sprintf("%s task of job %s", kind, j.ID), err)
	case last.Status == lifecycle.TaskFailed:
		return last, ResumedNothing, nil
	}
	return tx.ResumeTask(ctx, last.NodeID, kind, a)
}
