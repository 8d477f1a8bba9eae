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

// Task is a piece of work that a node's agent is asked for. Arguments and result
// stand in it when it is read alone.
type Task struct {
	ID           string                `json:"id"`
	NodeID       string                `json:"node_id"`
	JobID        string                `json:"job_id,omitempty"`
	Kind         lifecycle.TaskKind    `json:"kind"`
	Version      int                   `json:"schema_version" doc:"Of arguments and result"`
	Status       lifecycle.TaskStatus  `json:"status" enum:"queued,dispatched,succeeded,failed,uncertain,expired"`
	StatusSince  time.Time             `json:"status_since"`
	Message      string                `json:"message,omitempty" doc:"Why it stands where it does"`
	Progress     string                `json:"progress,omitempty" doc:"What the agent said last that it does"`
	Attempt      int                   `json:"attempt" doc:"How often it was handed out"`
	LeaseUntil   *time.Time            `json:"lease_until,omitempty" doc:"While the agent works on it"`
	BootID       string                `json:"boot_id,omitempty" doc:"The boot of the node that it was last handed to"`
	Code         string                `json:"code,omitempty" doc:"The agent's reason of a failure"`
	Simulated    bool                  `json:"simulated,omitempty" doc:"Recorded tools stood in for the real ones"`
	DeadlineAt   time.Time             `json:"deadline_at"`
	CreatedBy    string                `json:"created_by,omitempty"`
	CreatedAt    time.Time             `json:"created_at"`
	DispatchedAt *time.Time            `json:"dispatched_at,omitempty"`
	FinishedAt   *time.Time            `json:"finished_at,omitempty"`
	Args         json.RawMessage       `json:"args,omitempty"`
	Result       *lifecycle.TaskResult `json:"result,omitempty"`
}

// TaskPath names a task.
type TaskPath struct {
	ID string `path:"id" maxLength:"200" doc:"task_..."`
}

// TaskQuery narrows the list.
type TaskQuery struct {
	NodePath
	op.Page
	Kind   lifecycle.TaskKind   `query:"kind" maxLength:"200" doc:"Only of this kind, such as gpu.scrub"`
	Status lifecycle.TaskStatus `query:"status" enum:"queued,dispatched,succeeded,failed,uncertain,expired"`
}

func (s *server) registerTasks() {
	tags := []string{"tasks"}
	op.Add(s.api, huma.Operation{
		OperationID: "list-node-tasks", Method: http.MethodGet, Path: "/nodes/{id}/tasks", Tags: tags, Summary: "What a node's agent was asked to do, newest first",
		Description: "Without arguments and results; reading one task shows them.",
	}, s.listTasks)
	op.Add(s.api, huma.Operation{
		OperationID: "get-task", Method: http.MethodGet, Path: "/tasks/{id}", Tags: tags, Summary: "Read a task with its arguments and its result",
	}, s.getTask)
	op.Add(s.api, huma.Operation{
		OperationID: "requeue-task", Method: http.MethodPost, Path: "/admin/tasks/{id}/requeue", Tags: tags, Summary: "Have a task of unknown outcome done again",
		Description: "Only for a task that is uncertain: the node began it and nobody knows whether it finished. Look at the node first. " +
			"The agent is asked again and has the kind's whole time. Any other state answers 409.",
	}, s.requeueTask)
}

func (s *server) listTasks(ctx context.Context, in *TaskQuery) (*op.Listed[Task], error) {
	if _, err := s.store.Node(ctx, in.ID); err != nil {
		return nil, err
	}
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListTaskLines(ctx, db.TaskFilter{NodeID: in.ID, Kind: in.Kind, Status: in.Status}, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(t db.NodeTask) string { return t.ID }, taskLine), nil
}

func (s *server) getTask(ctx context.Context, in *TaskPath) (*op.Versioned[Task], error) {
	row, err := s.store.Task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, taskView(row)), nil
}

func (s *server) requeueTask(ctx context.Context, in *struct {
	TaskPath
	Body struct {
		Reason string `json:"reason" required:"true" minLength:"1" maxLength:"2000" doc:"What you found on the node; it stands in the audit log"`
	}
}) (*op.Versioned[Task], error) {
	var row db.NodeTask
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		a := op.Actor(ctx)
		a.Comment = in.Body.Reason
		var err error
		row, err = tx.RequeueTask(ctx, in.ID, a)
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, taskView(row)), nil
}

func taskView(t db.NodeTask) Task {
	out := taskLine(t)
	out.Args, out.Result = t.Args, t.Result
	return out
}

// taskLine is a task as a list shows it.
func taskLine(t db.NodeTask) Task {
	out := Task{
		ID: t.ID, NodeID: t.NodeID, JobID: text(t.JobID), Kind: t.Kind, Version: t.SchemaVersion, Status: t.Status, StatusSince: t.StatusAt.UTC(),
		Message: t.Message, Progress: t.Progress, Attempt: t.Attempt, LeaseUntil: utc(t.LeaseUntil), BootID: t.BootID, DeadlineAt: t.DeadlineAt.UTC(),
		CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt.UTC(), DispatchedAt: utc(t.DispatchedAt), FinishedAt: utc(t.FinishedAt),
	}
	if t.Result != nil {
		out.Code, out.Simulated = t.Result.Code, t.Result.Simulated
	}
	return out
}
