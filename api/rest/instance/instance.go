// Package instance is the area of instances: servers at cloud providers that projects have. Members
// of a project have the routes below it, operators those below /admin.
package instance

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Config is what the area needs.
type Config struct {
	// Offers are the providers that are configured.
	Offers []instance.Offer
	// CustomerLimit is how many live instances each project may have by requests of its members.
	CustomerLimit int
	// AskJob asks a live job for an action.
	AskJob func(ctx context.Context, jobID string, action lifecycle.Action, reason string) error
}

const (
	base = "/admin/instances"
	one  = base + "/{instance_id}"
)

func access() op.Access {
	return op.Access{
		op.RoleViewer: {
			"GET " + base, "GET " + one, "GET " + one + "/history", "GET " + one + "/action-logs", "GET /admin/instance-types", "GET /admin/instance-orphans",
		},
		op.RoleOperator: {"POST " + base, "POST " + one + "/terminate"},
	}
}

type server struct {
	api *op.API
	cfg Config
}

// Register declares the area's operations.
func Register(api *op.API, cfg Config) {
	api.Grant(access())
	api.RequireStepUp(op.StepUp{Route: "POST " + one + "/terminate"}) // everything on the server is deleted
	s := &server{api, cfg}
	s.registerCustomer()
	route(s, "list-instances", http.MethodGet, base, "List instances, newest first", s.list)
	route(s, "create-instance", http.MethodPost, base, "Make an instance at a cloud provider", s.create)
	route(s, "get-instance", http.MethodGet, one, "Read an instance", s.get)
	route(s, "list-instance-history", http.MethodGet, one+"/history", "List how an instance moved, and why", s.history)
	route(s, "list-instance-action-logs", http.MethodGet, one+"/action-logs", "List the action log of an instance, newest first", s.actions)
	route(s, "terminate-instance", http.MethodPost, one+"/terminate", "End an instance and delete everything that its provider bills", s.terminate)
	route(s, "list-instance-types", http.MethodGet, "/admin/instance-types", "List the types of servers that instances may have", s.types)
	for _, prefix := range []string{"", op.Prefix} {
		api.Shorten(op.Short{Route: "GET " + prefix + "/instances", Own: ownBase, Platform: base})
	}
	route(s, "list-instance-orphans", http.MethodGet, "/admin/instance-orphans", "List what providers bill and no live instance has", s.orphans)
}

// route declares one operation of the area.
func route[I, O any](s *server, id, method, path, summary string, handler func(context.Context, *I) (*O, error)) {
	op.Add(s.api, huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{"instances"}}, handler)
}

// Instance is an instance as operators see it.
type Instance struct {
	ID                string                   `json:"id"`
	ProjectID         string                   `json:"project_id"`
	Name              string                   `json:"name"`
	Provider          string                   `json:"provider"`
	Zone              string                   `json:"zone"`
	Type              string                   `json:"type"`
	Image             string                   `json:"image,omitempty"`
	Model             string                   `json:"model"`
	Status            lifecycle.InstanceStatus `json:"status" doc:"docs/states/instance.md explains each"`
	ProgressPercent   int                      `json:"progress_percent" doc:"100 while it works, 0 at its end and after a failure"`
	ReachedPercent    int                      `json:"reached_percent" doc:"How far it got; it stays after a failure"`
	FailedStage       string                   `json:"failed_stage,omitempty"`
	ErrorCode         string                   `json:"error_code,omitempty"`
	ErrorMessage      string                   `json:"error_message,omitempty"`
	ServerID          string                   `json:"server_id,omitempty" doc:"At the provider"`
	IPAddress         string                   `json:"ip_address,omitempty"`
	HostKey           string                   `json:"host_key,omitempty" doc:"The pinned SSH host key"`
	JobID             string                   `json:"job_id" doc:"Of the job that makes it"`
	HeartbeatAt       *time.Time               `json:"heartbeat_at,omitempty"`
	AgentChecksum     string                   `json:"agent_checksum,omitempty"`
	AgentVerifiedAt   *time.Time               `json:"agent_verified_at,omitempty"`
	LastHealthCheck   *time.Time               `json:"last_health_check,omitempty"`
	DeletedByProvider bool                     `json:"deleted_by_provider"`
	Version           int64                    `json:"version"`
	CreatedAt         time.Time                `json:"created_at"`
	ReadyAt           *time.Time               `json:"ready_at,omitempty"`
	FailedAt          *time.Time               `json:"failed_at,omitempty"`
	TerminatedAt      *time.Time               `json:"terminated_at,omitempty"`
}

func view(i instancedb.Instance) Instance {
	return Instance{
		ID: i.ID, ProjectID: i.ProjectID, Name: i.Name, Provider: i.Provider, Zone: i.Zone, Type: i.Type, Image: i.Image, Model: i.Model, Status: i.Status,
		ProgressPercent: i.ProgressPercent, ReachedPercent: i.ReachedPercent, FailedStage: i.FailedStage, ErrorCode: i.ErrorCode, ErrorMessage: i.ErrorMessage,
		ServerID: i.ServerID, IPAddress: i.IPAddress, HostKey: i.HostKey, JobID: i.JobID, HeartbeatAt: i.HeartbeatAt, AgentChecksum: i.AgentChecksum,
		AgentVerifiedAt: i.AgentVerifiedAt, LastHealthCheck: i.LastHealthCheck, DeletedByProvider: i.DeletedByProvider, Version: i.Version,
		CreatedAt: i.CreatedAt, ReadyAt: i.ReadyAt, FailedAt: i.FailedAt, TerminatedAt: i.TerminatedAt,
	}
}

// InstanceRequest asks for an instance.
type InstanceRequest struct {
	ProjectID    string `json:"project_id" required:"true" maxLength:"200" doc:"Who has it"`
	Name         string `json:"name" required:"true" minLength:"1" maxLength:"63"`
	Provider     string `json:"provider" required:"true" maxLength:"63" doc:"scaleway, or mock where that is configured"`
	Zone         string `json:"zone" required:"true" maxLength:"63"`
	Type         string `json:"type" required:"true" maxLength:"63" doc:"One of the list of types"`
	Image        string `json:"image,omitempty" maxLength:"63" doc:"Label of the image; empty is the configured one"`
	Model        string `json:"model" required:"true" minLength:"1" maxLength:"200" doc:"What vLLM serves, such as meta-llama/Llama-3.1-8B-Instruct"`
	DrainSeconds int    `json:"drain_seconds,omitempty" minimum:"0" maximum:"86400" doc:"How long its end waits for the work that it has"`
}

// TerminateRequest says why an instance ends.
type TerminateRequest struct {
	Reason string `json:"reason" required:"true" minLength:"3" maxLength:"500" doc:"For the audit log"`
}

// InstancePath is the path of an instance.
type InstancePath struct {
	InstanceID string `path:"instance_id" maxLength:"200" doc:"inst_..."`
}

func (s *server) list(ctx context.Context, in *struct {
	op.Page
	ProjectID string `query:"project_id" maxLength:"200" doc:"Only those of this project"`
	Status    string `query:"status" enum:"provisioning,booting,ready,draining,terminating,terminated,archived,provisioning_failed,startup_failed,failed"`
	Archived  bool   `query:"archived" doc:"Archived ones too"`
}) (*op.Listed[Instance], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	f := instancedb.Filter{ProjectID: in.ProjectID, Status: lifecycle.InstanceStatus(in.Status), Archived: in.Archived || in.Status == string(lifecycle.InstanceArchived)}
	rows, err := instancedb.List(ctx, s.api.Store(), f, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r instancedb.Instance) string { return r.ID }, view), nil
}

func (s *server) create(ctx context.Context, in *struct {
	op.Key
	Body InstanceRequest
}) (*op.Created[Instance], error) {
	b := in.Body
	return op.Create(ctx, s.api, in.Key, b, nil, func(tx *db.Tx) (*op.Created[Instance], error) {
		row, _, err := instance.Make(ctx, tx, instance.Create{ProjectID: b.ProjectID, Offers: s.cfg.Offers, ReadsMoney: true, InstanceSpec: spec.InstanceSpec{
			Name: b.Name, Provider: b.Provider, Zone: b.Zone, Type: b.Type, Image: b.Image, Model: b.Model, DrainSeconds: b.DrainSeconds,
		}}, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		made := op.NewCreated(op.Prefix+base+"/"+row.ID, row.Version, view(row))
		made.Status = http.StatusAccepted
		return made, op.Audit(ctx, tx, instancedb.Resource, row.ID, nil, "create_instance", map[string]any{"project": row.ProjectID, "type": row.Type, "zone": row.Zone})
	})
}

func (s *server) get(ctx context.Context, in *InstancePath) (*op.Versioned[Instance], error) {
	row, err := instancedb.Get(ctx, s.api.Store(), in.InstanceID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, view(row)), nil
}

// InstanceMove is one move of an instance.
type InstanceMove struct {
	From      string    `json:"from_status,omitempty"`
	To        string    `json:"to_status"`
	Name      string    `json:"name"`
	Reason    string    `json:"reason"`
	CreatedAt time.Time `json:"created_at"`
}

func (s *server) history(ctx context.Context, in *InstancePath) (*op.Listed[InstanceMove], error) {
	if _, err := instancedb.Get(ctx, s.api.Store(), in.InstanceID); err != nil {
		return nil, err
	}
	rows, err := instancedb.ListHistory(ctx, s.api.Store(), in.InstanceID)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, len(rows), func(instancedb.Step) string { return "" }, func(r instancedb.Step) InstanceMove {
		return InstanceMove{From: r.FromStatus, To: r.ToStatus, Name: r.Name, Reason: r.Reason, CreatedAt: r.CreatedAt}
	}), nil
}

// InstanceAction is a row of the action log of an instance.
type InstanceAction struct {
	ID           string                   `json:"id"`
	JobID        string                   `json:"job_id"`
	Stage        string                   `json:"stage"`
	ActionType   string                   `json:"action_type"`
	Component    string                   `json:"component"`
	Status       lifecycle.ActionStatus   `json:"status"`
	Attempt      int                      `json:"attempt"`
	StartedAt    time.Time                `json:"started_at"`
	FinishedAt   *time.Time               `json:"finished_at,omitempty"`
	DurationMS   *int64                   `json:"duration_ms,omitempty"`
	FailureClass lifecycle.FailureClass   `json:"failure_class,omitempty"`
	ErrorMessage string                   `json:"error_message,omitempty"`
	Metadata     lifecycle.ActionMetadata `json:"metadata"`
}

func (s *server) actions(ctx context.Context, in *struct {
	InstancePath
	op.Page
}) (*op.Listed[InstanceAction], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	if _, err := instancedb.Get(ctx, s.api.Store(), in.InstanceID); err != nil {
		return nil, err
	}
	rows, err := instancedb.ListActions(ctx, s.api.Store(), in.InstanceID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r instancedb.Action) string { return r.ID }, func(r instancedb.Action) InstanceAction {
		var meta lifecycle.ActionMetadata
		_ = json.Unmarshal(r.Metadata, &meta) // it is written by this program; one that is not readable shows nothing
		return InstanceAction{
			ID: r.ID, JobID: r.JobID, Stage: r.Stage, ActionType: r.ActionType, Component: r.Component, Status: r.Status, Attempt: r.Attempt, StartedAt: r.StartedAt,
			FinishedAt: r.FinishedAt, DurationMS: r.DurationMs, FailureClass: r.FailureClass, ErrorMessage: r.ErrorMessage, Metadata: meta,
		}
	}), nil
}

// terminate answers with the instance when its end is accepted.
func (s *server) terminate(ctx context.Context, in *struct {
	InstancePath
	Body TerminateRequest
}) (*op.Versioned[Instance], error) {
	err := s.end(ctx, in.InstanceID, in.Body.Reason, op.Actor(ctx), func(tx *db.Tx) error {
		return op.Audit(ctx, tx, instancedb.Resource, in.InstanceID, nil, "terminate_instance", map[string]any{"reason": in.Body.Reason})
	})
	if err != nil {
		return nil, err
	}
	return s.get(ctx, &in.InstancePath)
}

// end terminates an instance. The job that makes it, or that ends it, is asked after the commit:
// one that is not reached is asked again by the next pass.
func (s *server) end(ctx context.Context, id, reason string, actor db.Actor, audit func(*db.Tx) error) error {
	var out instance.Terminated
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		var err error
		if out, err = instance.Terminate(ctx, tx, id, reason, actor); err != nil {
			return err
		}
		return audit(tx)
	})
	if err != nil || out.Job == nil || out.Action == "" {
		return err
	}
	if err := s.cfg.AskJob(ctx, out.Job.ID, out.Action, reason); err != nil {
		s.api.Log().WarnContext(ctx, "the job of an instance was not reached", "instance", id, "error", err)
	}
	return nil
}

// InstanceType is a type of servers that instances may have.
type InstanceType struct {
	Name           string   `json:"name"`
	Provider       string   `json:"provider"`
	GPU            string   `json:"gpu"`
	Zones          []string `json:"zones" nullable:"false" doc:"Where it may be made; none while the provider is not configured"`
	StartupSeconds int      `json:"startup_seconds" doc:"How long its worker may take to become ready"`
}

func (s *server) types(context.Context, *struct{}) (*op.Listed[InstanceType], error) {
	return listTypes(s.allTypes()), nil
}

func listTypes(all []InstanceType) *op.Listed[InstanceType] {
	return op.Paged(all, len(all), func(t InstanceType) string { return t.Name }, func(t InstanceType) InstanceType { return t })
}

func (s *server) allTypes() []InstanceType {
	var all []InstanceType
	for _, t := range spec.InstanceTypes() {
		out := InstanceType{Name: t.Name, Provider: t.Provider, GPU: t.GPU, Zones: []string{}, StartupSeconds: int(t.StartupTimeout.Seconds())}
		for _, o := range s.cfg.Offers {
			if o.Provider == t.Provider {
				out.Zones = o.Zones
			}
		}
		all = append(all, out)
	}
	return all
}

// InstanceOrphan is one thing at a provider that is billed and belongs to no live instance.
type InstanceOrphan struct {
	Provider    string    `json:"provider"`
	Zone        string    `json:"zone"`
	Kind        string    `json:"kind"`
	ResourceID  string    `json:"resource_id"`
	Name        string    `json:"name,omitempty"`
	InstanceID  string    `json:"instance_id,omitempty" doc:"That of its tag"`
	HourlyMicro int64     `json:"hourly_micro" doc:"What it costs an hour, in millionths of the currency; 0 is not known"`
	Currency    string    `json:"currency,omitempty"`
	FoundAt     time.Time `json:"found_at"`
	SeenAt      time.Time `json:"seen_at"`
}

const maxOrphans = 1000

func (s *server) orphans(ctx context.Context, _ *struct{}) (*op.Listed[InstanceOrphan], error) {
	rows, err := instancedb.ListOrphans(ctx, s.api.Store(), maxOrphans)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, len(rows), func(o instancedb.Orphan) string { return o.ResourceID }, func(o instancedb.Orphan) InstanceOrphan {
		return InstanceOrphan{
			Provider: o.Provider, Zone: o.Zone, Kind: o.Kind, ResourceID: o.ResourceID, Name: o.Name, InstanceID: o.InstanceID, HourlyMicro: o.HourlyMicro,
			Currency: o.Currency, FoundAt: o.FoundAt, SeenAt: o.SeenAt,
		}
	}), nil
}
