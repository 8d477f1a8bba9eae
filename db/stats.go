package db

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
)

// NodeCount is how many nodes of a site, lifecycle and state there are, and how many of them have
// an agent that was heard within five minutes.
type NodeCount = gen.NodeCountsRow

// NodeCounts counts the nodes that are not deleted.
func (s statements) NodeCounts(ctx context.Context) ([]NodeCount, error) {
	rows, err := s.q.NodeCounts(ctx)
	return rows, MapError("count nodes", err)
}

// NodeStatusCounts counts all nodes by state, deleted ones too.
func (s statements) NodeStatusCounts(ctx context.Context) (map[string]int64, error) {
	rows, err := s.q.NodeStatusCounts(ctx)
	out := make(map[string]int64, len(rows))
	for _, r := range rows {
		out[string(r.Status)] = r.Nodes
	}
	return out, MapError("count nodes", err)
}

// StateChange is by how much the number of nodes in a state changed within one bucket of time.
// Bucket is the number of whole buckets since 1970.
type StateChange = gen.NodeMovesRow

// NodeMoves lists the changes since a moment, oldest first.
func (s statements) NodeMoves(ctx context.Context, since time.Time, bucket time.Duration) ([]StateChange, error) {
	rows, err := s.q.NodeMoves(ctx, gen.NodeMovesParams{Since: since, BucketSeconds: int64(bucket / time.Second)})
	return rows, MapError("history of nodes by state", err)
}

// StageDuration is how long a stage took in jobs of a kind, in seconds.
type StageDuration = gen.StageDurationsRow

// maxStageJobs bounds the jobs of a kind that StageDurations looks at.
const maxStageJobs = 500

// StageDurations measures the stages of the newest jobs of each kind that succeeded since a moment.
func (s statements) StageDurations(ctx context.Context, kinds []string, since time.Time) ([]StageDuration, error) {
	rows, err := s.q.StageDurations(ctx, gen.StageDurationsParams{Kinds: kinds, Since: &since, MaxJobs: maxStageJobs})
	return rows, MapError("durations of stages", err)
}

// AuditFilter narrows a search of the audit log; empty fields leave it as wide as it is.
type AuditFilter struct {
	Since, Until                                          time.Time
	ResourceKind, ResourceID, NodeID, ActorID, Kind, Name string
}

// AuditPlace is where a page of a search ended.
type AuditPlace struct {
	At  time.Time
	Pos int64
}

// SearchAudit lists rows of the audit log, newest first, from the one after the place given. The
// zero place begins with the newest.
func (tx *Tx) SearchAudit(ctx context.Context, f AuditFilter, after AuditPlace, limit int) ([]AuditRow, error) {
	// A plan that is made for every filter would read the whole log for one of them.
	if _, err := tx.dbtx.Exec(ctx, "SET LOCAL plan_cache_mode = force_custom_plan"); err != nil {
		return nil, MapError("search the audit log", err)
	}
	if after.At.IsZero() {
		after = AuditPlace{At: f.Until}
	}
	rows, err := tx.q.SearchAudit(ctx, gen.SearchAuditParams{
		Since: f.Since, Until: f.Until, BeforeAt: after.At, BeforePos: after.Pos, ResourceKind: f.ResourceKind, ResourceID: f.ResourceID,
		NodeID: f.NodeID, ActorID: f.ActorID, Kind: f.Kind, Name: f.Name, MaxRows: PageLimit(limit),
	})
	return rows, MapError("search the audit log", err)
}
