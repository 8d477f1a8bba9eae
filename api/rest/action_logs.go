package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ActionLog is one try of a stage of a job.
type ActionLog struct {
	ID           string                 `json:"id"`
	JobID        string                 `json:"job_id"`
	NodeID       string                 `json:"node_id,omitempty"`
	Stage        string                 `json:"stage"`
	Attempt      int                    `json:"attempt" doc:"Number of the try of this stage"`
	ActionType   string                 `json:"action_type" doc:"What the stage declares, or its name"`
	Component    string                 `json:"component" enum:"api,orchestrator"`
	Status       lifecycle.ActionStatus `json:"status" enum:"in_progress,success,failed"`
	StartedAt    time.Time              `json:"started_at"`
	FinishedAt   *time.Time             `json:"finished_at,omitempty"`
	DurationMS   *int64                 `json:"duration_ms,omitempty" doc:"Of a failed try, with the pause before the next"`
	FailureClass lifecycle.FailureClass `json:"failure_class,omitempty"`
	ErrorMessage string                 `json:"error_message,omitempty"`
	Metadata     json.RawMessage        `json:"metadata" doc:"correlation_id is the run id of the workflow; ip_address, server_id, zone, phases, last_phase, ssh_exit_status and agent_info where they are known"`
}

// ActionLogQuery narrows an action log.
type ActionLogQuery struct {
	op.Page
	Status     lifecycle.ActionStatus `query:"status" enum:"in_progress,success,failed"`
	ActionType string                 `query:"action_type" maxLength:"100" doc:"Only of this type, such as deploy_via_maas"`
	Component  string                 `query:"component" enum:"api,orchestrator"`
}

func (s *server) registerActionLogs(tags []string) {
	const doc = "One row for each try of a stage, from its start to its end. Rows are deleted some time after they ended (retention.actions)."
	op.Add(s.api, huma.Operation{
		OperationID: "list-job-action-logs", Method: http.MethodGet, Path: "/admin/jobs/{id}/action-logs", Tags: tags,
		Summary: "List the tries of a job's stages, newest first", Description: doc,
	}, s.jobActionLogs)
	op.Add(s.api, huma.Operation{
		OperationID: "list-node-action-logs", Method: http.MethodGet, Path: "/nodes/{id}/action-logs", Tags: tags,
		Summary: "List the tries of the stages of a node's jobs, newest first", Description: doc,
	}, s.nodeActionLogs)
}

func (s *server) jobActionLogs(ctx context.Context, in *struct {
	JobPath
	ActionLogQuery
}) (*op.Listed[ActionLog], error) {
	if _, err := s.store.Job(ctx, in.ID); err != nil {
		return nil, err
	}
	return s.actionLogs(ctx, in.ActionLogQuery, db.ActionLogFilter{JobID: in.ID})
}

func (s *server) nodeActionLogs(ctx context.Context, in *struct {
	NodePath
	ActionLogQuery
}) (*op.Listed[ActionLog], error) {
	if _, err := s.store.Node(ctx, in.ID); err != nil {
		return nil, err
	}
	return s.actionLogs(ctx, in.ActionLogQuery, db.ActionLogFilter{NodeID: in.ID})
}

func (s *server) actionLogs(ctx context.Context, q ActionLogQuery, f db.ActionLogFilter) (*op.Listed[ActionLog], error) {
	after, err := q.After()
	if err != nil {
		return nil, err
	}
	f.Status, f.ActionType, f.Component = q.Status, q.ActionType, q.Component
	rows, err := s.store.ListActionLogs(ctx, f, after, q.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, q.Limit, func(a db.ActionLog) string { return a.ID }, func(a db.ActionLog) ActionLog {
		return ActionLog{
			ID: a.ID, JobID: a.JobID, NodeID: text(a.NodeID), Stage: a.Stage, Attempt: a.Attempt, ActionType: a.ActionType, Component: a.Component,
			Status: a.Status, StartedAt: a.StartedAt.UTC(), FinishedAt: utc(a.FinishedAt), DurationMS: a.DurationMs, FailureClass: a.FailureClass,
			ErrorMessage: a.ErrorMessage, Metadata: a.Metadata,
		}
	}), nil
}
