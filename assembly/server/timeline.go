package server

import (
	"context"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// timeline keeps outside calls in the audit chain of the node, or of a job that
// has none.
type timeline struct{ store *db.Store }

// RecordCall implements temporalx.Recorder.
func (t timeline) RecordCall(ctx context.Context, c temporalx.Call) error {
	meta := map[string]any{
		"activity": c.Activity, "stage": c.Ref.Stage, "attempt": c.Attempt, "took_ms": c.Took.Milliseconds(),
		"outcome": c.Outcome, "job_id": c.Ref.JobID,
	}
	if c.Note != "" {
		meta["note"] = c.Note
	}
	e := db.Entry{
		ResourceKind: "job", ResourceID: c.Ref.JobID, Kind: db.EntryCall, Name: c.Activity,
		Actor: db.Actor{Owner: lifecycle.OwnerJob, Comment: c.Message, WorkflowID: c.WorkflowID, Metadata: meta},
	}
	if nodeID := c.Ref.NodeID; nodeID != "" {
		e.ResourceKind, e.ResourceID, e.NodeID = "node", nodeID, &nodeID
	}
	return t.store.AppendAudit(ctx, e)
}
