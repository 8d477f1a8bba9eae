package server

import (
	"context"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// timeline keeps a node's outside calls in its audit chain.
type timeline struct{ store *db.Store }

// RecordCall implements temporalx.Recorder.
func (t timeline) RecordCall(ctx context.Context, c temporalx.Call) error {
	nodeID := c.Ref.NodeID
	meta := map[string]any{
		"activity": c.Activity, "stage": c.Ref.Stage, "attempt": c.Attempt, "took_ms": c.Took.Milliseconds(),
		"outcome": c.Outcome, "job_id": c.Ref.JobID,
	}
	if c.Note != "" {
		meta["note"] = c.Note
	}
	return t.store.AppendAudit(ctx, db.Entry{
		ResourceKind: "node", ResourceID: nodeID, NodeID: &nodeID, Kind: db.EntryCall, Name: c.Activity,
		Actor: db.Actor{Owner: lifecycle.OwnerJob, Comment: c.Message, WorkflowID: c.WorkflowID, Metadata: meta},
	})
}
