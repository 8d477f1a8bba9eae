package instance

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	ownBase = "/projects/{id}/instances"
	ownOne  = ownBase + "/{instance_id}"
)

// registerCustomer declares the operations of the members of a project.
func (s *server) registerCustomer() {
	s.api.Grant(op.Access{
		op.RoleSignedIn:      {"GET /instance-types"},
		op.RoleProjectViewer: {"GET " + ownBase, "GET " + ownOne, "GET " + ownOne + "/action-logs"},
		op.RoleProjectMember: {"POST " + ownBase, "POST " + ownOne + "/terminate"},
	})
	s.api.RequireStepUp(op.StepUp{Route: "POST " + ownOne + "/terminate"}) // everything on the server is deleted
	route(s, "list-offered-instance-types", http.MethodGet, "/instance-types", "List the types of servers that instances may be made with now", s.offered)
	route(s, "list-project-instances", http.MethodGet, ownBase, "List the instances of a project, newest first", s.listOwn)
	route(s, "create-project-instance", http.MethodPost, ownBase, "Make an instance for a project, where its members may", s.createOwn)
	route(s, "get-project-instance", http.MethodGet, ownOne, "Read an instance of a project with its progress", s.getOwn)
	route(s, "list-project-instance-action-logs", http.MethodGet, ownOne+"/action-logs", "List what was done for an instance of a project, newest first", s.actionsOwn)
	route(s, "terminate-project-instance", http.MethodPost, ownOne+"/terminate", "End an instance of a project; everything on it is deleted", s.terminateOwn)
}

// ProjectPath is the path of a project.
type ProjectPath struct {
	ID string `path:"id" maxLength:"200" doc:"prj_..."`
}

// OwnInstancePath is the path of an instance below its project.
type OwnInstancePath struct {
	ProjectPath
	InstancePath
}

// ProjectInstance is an instance as the members of its project see it: nothing of the provider's
// account.
type ProjectInstance struct {
	ID              string                   `json:"id"`
	ProjectID       string                   `json:"project_id"`
	Name            string                   `json:"name"`
	Provider        string                   `json:"provider"`
	Zone            string                   `json:"zone"`
	Type            string                   `json:"type"`
	Model           string                   `json:"model"`
	Status          lifecycle.InstanceStatus `json:"status" doc:"docs/states/instance.md explains each"`
	ProgressPercent int                      `json:"progress_percent" doc:"100 while it works, 0 at its end and after a failure"`
	ErrorCode       string                   `json:"error_code,omitempty"`
	Version         int64                    `json:"version"`
	CreatedAt       time.Time                `json:"created_at"`
	ReadyAt         *time.Time               `json:"ready_at,omitempty"`
	TerminatedAt    *time.Time               `json:"terminated_at,omitempty"`
}

func ownView(i instancedb.Own) ProjectInstance {
	return ProjectInstance{
		ID: i.ID, ProjectID: i.ProjectID, Name: i.Name, Provider: i.Provider, Zone: i.Zone, Type: i.Type, Model: i.Model, Status: i.Status,
		ProgressPercent: i.ProgressPercent, ErrorCode: i.ErrorCode, Version: i.Version, CreatedAt: i.CreatedAt, ReadyAt: i.ReadyAt, TerminatedAt: i.TerminatedAt,
	}
}

// ProjectInstanceRequest asks for an instance for the project in the path. Its image is the
// configured one.
type ProjectInstanceRequest struct {
	Name         string `json:"name" required:"true" minLength:"1" maxLength:"63"`
	Provider     string `json:"provider" required:"true" maxLength:"63" doc:"Of the list of offered types"`
	Zone         string `json:"zone" required:"true" maxLength:"63"`
	Type         string `json:"type" required:"true" maxLength:"63"`
	Model        string `json:"model" required:"true" minLength:"1" maxLength:"200" doc:"What vLLM serves, such as meta-llama/Llama-3.1-8B-Instruct"`
	DrainSeconds int    `json:"drain_seconds,omitempty" minimum:"0" maximum:"86400" doc:"How long its end waits for the work that it has"`
}

// ProjectTerminateRequest says why an instance ends.
type ProjectTerminateRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"For the audit log"`
}

func (s *server) offered(context.Context, *struct{}) (*op.Listed[InstanceType], error) {
	return listTypes(slices.DeleteFunc(s.allTypes(), func(t InstanceType) bool { return len(t.Zones) == 0 })), nil
}

func (s *server) listOwn(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (*op.Listed[ProjectInstance], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	var rows []instancedb.Own
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		rows, err = instancedb.ListOwn(ctx, tx, after, in.Limit+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r instancedb.Own) string { return r.ID }, ownView), nil
}

// findOwn reads an instance of the project of the request. To everybody else it does not exist.
func (s *server) findOwn(ctx context.Context, id string) (i instancedb.Own, err error) {
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		i, err = instancedb.GetOwn(ctx, tx, id)
		return err
	})
	return i, err
}

func (s *server) getOwn(ctx context.Context, in *OwnInstancePath) (*op.Versioned[ProjectInstance], error) {
	i, err := s.findOwn(ctx, in.InstanceID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(i.Version, ownView(i)), nil
}

// createOwn makes an instance for the project of the request. A job is the platform's, so that the
// transaction is too, and names the project itself.
func (s *server) createOwn(ctx context.Context, in *struct {
	ProjectPath
	op.Key
	Body ProjectInstanceRequest
}) (*op.Created[ProjectInstance], error) {
	key, err := in.Required()
	if err != nil {
		return nil, err
	}
	b, project := in.Body, op.ProjectAccessOf(ctx).Project
	if err := op.InProject(ctx, s.api, func(*db.ProjectTx) error { return nil }); err != nil { // an operator's access is audited
		return nil, err
	}
	// The key belongs to the project: one user's key in two projects is two requests.
	return op.WithIdempotency(ctx, s.api, project+" "+key, b, nil, func(tx *db.Tx) (*op.Created[ProjectInstance], error) {
		row, _, err := instance.Make(ctx, tx, instance.Create{ProjectID: project, Offers: s.cfg.Offers, Limit: &s.cfg.CustomerLimit, ReadsMoney: op.ReadsMoney(ctx), InstanceSpec: spec.InstanceSpec{
			Name: b.Name, Provider: b.Provider, Zone: b.Zone, Type: b.Type, Model: b.Model, DrainSeconds: b.DrainSeconds,
		}}, op.ProjectActor(ctx))
		if err != nil {
			return nil, err
		}
		made := op.NewCreated(op.Prefix+"/projects/"+project+"/instances/"+row.ID, row.Version, ownView(instancedb.OwnOf(row)))
		made.Status = http.StatusAccepted
		return made, s.auditInstance(ctx, tx, project, "create_instance", map[string]any{"instance": row.ID, "type": row.Type, "zone": row.Zone})
	})
}

// auditInstance writes what a member did, or an operator for the project, into the log of the
// project.
func (s *server) auditInstance(ctx context.Context, tx *db.Tx, project, name string, meta map[string]any) error {
	a := op.ProjectActor(ctx)
	a.Metadata = meta
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: lifecycle.Project.Resource, ResourceID: project, Kind: db.EntryAction, Name: name, Actor: a})
}

func (s *server) terminateOwn(ctx context.Context, in *struct {
	OwnInstancePath
	Body *ProjectTerminateRequest
}) (*op.Versioned[ProjectInstance], error) {
	found, err := s.findOwn(ctx, in.InstanceID)
	if err != nil {
		return nil, err
	}
	reason := "terminated by the customer"
	if in.Body != nil && in.Body.Reason != "" {
		reason = in.Body.Reason
	}
	err = s.end(ctx, found.ID, reason, op.ProjectActor(ctx), func(tx *db.Tx) error {
		return s.auditInstance(ctx, tx, found.ProjectID, "terminate_instance", map[string]any{"instance": found.ID, "reason": reason})
	})
	if err != nil {
		return nil, err
	}
	return s.getOwn(ctx, &in.OwnInstancePath)
}

// ProjectInstanceAction is a row of the action log of an instance as members see it: errors and
// metadata tell of the provider's account.
type ProjectInstanceAction struct {
	ID         string                 `json:"id"`
	ActionType string                 `json:"action_type"`
	Status     lifecycle.ActionStatus `json:"status"`
	Attempt    int                    `json:"attempt"`
	StartedAt  time.Time              `json:"started_at"`
	FinishedAt *time.Time             `json:"finished_at,omitempty"`
	DurationMS *int64                 `json:"duration_ms,omitempty"`
}

func (s *server) actionsOwn(ctx context.Context, in *struct {
	OwnInstancePath
	op.Page
}) (*op.Listed[ProjectInstanceAction], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	found, err := s.findOwn(ctx, in.InstanceID)
	if err != nil {
		return nil, err
	}
	rows, err := instancedb.ListActions(ctx, s.api.Store(), found.ID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r instancedb.Action) string { return r.ID }, func(r instancedb.Action) ProjectInstanceAction {
		return ProjectInstanceAction{
			ID: r.ID, ActionType: r.ActionType, Status: r.Status, Attempt: r.Attempt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, DurationMS: r.DurationMs,
		}
	}), nil
}
