package db

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ActionLog is one try of a stage of a job. It is in_progress from the projection that begins it to
// the one that ends it.
type ActionLog = gen.ActionLog

// stageParams are the stages of a projection, and the row of the action log that it may begin.
func stageParams(p Projection, rows []lifecycle.StageRow) (gen.ProjectStagesParams, error) {
	stages, err := json.Marshal(rows)
	if err != nil {
		return gen.ProjectStagesParams{}, err
	}
	metadata, err := json.Marshal(p.Metadata)
	if err != nil {
		return gen.ProjectStagesParams{}, err
	}
	did, err := json.Marshal(p.Did)
	if err != nil {
		return gen.ProjectStagesParams{}, err
	}
	at := time.Now()
	if p.At != nil {
		at = *p.At
	}
	action := cmp.Or(p.ActionType, p.Stage)
	return gen.ProjectStagesParams{
		JobID: p.JobID, Stages: stages, Running: p.Status == lifecycle.JobRunning, At: at, ActionID: NewID("act"), Seq: p.Seq,
		ActionType: action, Component: lifecycle.ActionComponent(action), Metadata: CleanJSON(metadata), Did: CleanJSON(did), StageOrdinal: p.StageOrdinal,
	}, nil
}

// ActionLogFilter narrows the action log of a job or of a node; other empty fields match all.
type ActionLogFilter struct {
	JobID, NodeID string // one of them
	Status        lifecycle.ActionStatus
	ActionType    string
	Component     string
}

// ListActionLogs lists the tries of a job or of a node, newest first, from the one after the id
// given.
func (s statements) ListActionLogs(ctx context.Context, f ActionLogFilter, after string, limit int) ([]ActionLog, error) {
	rows, err := s.q.ListActionLogs(ctx, gen.ListActionLogsParams{
		JobID: f.JobID, NodeID: f.NodeID, After: after, Status: string(f.Status), ActionType: f.ActionType, Component: f.Component, MaxRows: PageLimit(limit),
	})
	return rows, MapError("list the action log", err)
}

// PruneActionLogs deletes tries that ended before, a batch at a time, and returns how many.
func (s statements) PruneActionLogs(ctx context.Context, before time.Time) (int64, error) {
	n, err := s.q.PruneActionLogs(ctx, gen.PruneActionLogsParams{Before: before, MaxRows: PruneBatch})
	return n, MapError("prune the action log", err)
}
