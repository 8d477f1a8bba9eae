package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// timeline keeps outside calls in the audit chain of the node, or of a job that
// has none.
type timeline struct {
	store *db.Store
	keep  int64 // bytes of output of one step of a run
}

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
	return errors.Join(t.store.AppendAudit(ctx, e), t.noteInRun(ctx, c))
}

// noteInRun adds what was done for a step of a run to the output of the step, so that its reader
// sees what a netboot, a repave, a reboot and an RMA do.
func (t timeline) noteInRun(ctx context.Context, c temporalx.Call) error {
	said := cmp.Or(c.Note, c.Message)
	if said == "" || c.WorkflowID != contract.JobWorkflowID(contract.KindMachineRun, c.Ref.JobID) {
		return nil
	}
	return machinesdb.NoteCall(ctx, t.store, c.Ref.JobID, fmt.Sprintf("[slipway] %s, %s: %s", c.Activity, c.Outcome, said), t.keep)
}
