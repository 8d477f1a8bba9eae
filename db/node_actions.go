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

// freshHeartbeat is the age up to which a heartbeat proves that the node runs. It is longer when
// the heartbeat interval of the node's profile is more than a third of it.
const freshHeartbeat = 2 * time.Minute

// NodeHealth returns what keeps a node from being proven healthy now. An empty list is the proof
// for lifecycle.NeedEnrolled and lifecycle.NeedHealthy. Beside the checks of an onboarding it
// requires a clean certificate after a clean-up or a tenant.
func (tx *Tx) NodeHealth(ctx context.Context, n Node) ([]string, error) {
	missing, err := tx.identityTrouble(ctx, n.ID)
	if err != nil {
		return nil, err
	}
	heartbeat, err := tx.heartbeatProblems(ctx, n)
	if err != nil {
		return nil, err
	}
	unclean, err := tx.unproven(ctx, n.ID)
	missing = append(append(missing, heartbeat...), unclean...)
	if dirty := SanitizeRequired(n); dirty != "" {
		missing = append(missing, dirty)
	}
	return missing, err
}

func (tx *Tx) identityTrouble(ctx context.Context, nodeID string) ([]string, error) {
	unable, err := tx.AgentUnable(ctx, nodeID)
	if err != nil || unable == "" {
		return nil, err
	}
	return []string{unable}, nil
}

func (tx *Tx) heartbeatProblems(ctx context.Context, n Node) ([]string, error) {
	heartbeat, err := tx.LatestHeartbeat(ctx, n.ID)
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
	patience, err := tx.heartbeatPatience(ctx, n)
	switch {
	case err != nil:
		return nil, err
	case now.Sub(heartbeat.ReceivedAt) > patience:
		return []string{fmt.Sprintf("its agent was last heard %s ago", now.Sub(heartbeat.ReceivedAt).Round(time.Second))}, nil
	case heartbeat.Report == nil:
		return []string{"its agent has not reported what the node has"}, nil
	case heartbeat.ReportBootID != heartbeat.BootID:
		return []string{"the last report is from before the node was started again; wait for the next one"}, nil
	case n.SKUID == nil:
		return nil, nil
	}
	sku, err := tx.SKU(ctx, *n.SKUID)
	if err != nil {
		return nil, err
	}
	return sku.Spec.CheckHealth(*heartbeat.Report), nil
}

// heartbeatPatience returns three heartbeat intervals of the node, and at least freshHeartbeat.
func (tx *Tx) heartbeatPatience(ctx context.Context, n Node) (time.Duration, error) {
	if n.ProfileID == nil {
		return freshHeartbeat, nil
	}
	p, err := tx.Profile(ctx, *n.ProfileID)
	return max(freshHeartbeat, 3*p.Spec.AgentHeartbeatInterval.D()), err
}

// unproven says what keeps a node from being taken for clean: the last job that
// began to erase it did not come to its good end, and since then the node was
// neither in service nor certified clean.
func (tx *Tx) unproven(ctx context.Context, nodeID string) ([]string, error) {
	what := "evidence of node " + nodeID
	since, err := tx.q.KnownClean(ctx, nodeID)
	if err != nil {
		return nil, MapError(what, err)
	}
	t, err := tx.q.UnprovenErasure(ctx, gen.UnprovenErasureParams{NodeID: nodeID, Kind: lifecycle.TaskKindScrub, Since: since})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, MapError(what, err)
	}
	return []string{fmt.Sprintf("job %s began to erase it at %s and did not prove it clean; a decommission does", t.JobID, t.DispatchedAt.UTC().Format(time.RFC3339))}, nil
}

// IdentityGone says why a node cannot be used again under its identity; "" is
// the proof behind lifecycle.NeedIdentityKept. A node that was half erased is
// none that can; one that a tenant left can, and stays offline.
func (tx *Tx) IdentityGone(ctx context.Context, nodeID string) (string, error) {
	trouble, err := tx.identityTrouble(ctx, nodeID)
	if err != nil || len(trouble) > 0 {
		return firstOf(trouble), err
	}
	gone, err := tx.q.UninstalledSince(ctx, gen.UninstalledSinceParams{NodeID: nodeID, Kind: lifecycle.TaskKindUninstall})
	if gone || err != nil {
		return "its agent was uninstalled", MapError("identity of node "+nodeID, err)
	}
	unclean, err := tx.unproven(ctx, nodeID)
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
	return lifecycle.NodeStatus(row.FromState), MapError("history of node "+nodeID, err)
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
		return NodeTask{}, "", MapError(fmt.Sprintf("%s task of job %s", kind, j.ID), err)
	case last.Status == lifecycle.TaskFailed:
		return last, ResumedNothing, nil
	}
	return tx.ResumeTask(ctx, last.NodeID, kind, a)
}
