package tenancy

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// EventsConfig is what webhooks need beside the API.
type EventsConfig struct {
	Secrets providers.Secrets
	// Rule returns the rule for the addresses of webhooks.
	Rule func(context.Context) (spec.AddressRule, error)
	// NewSecret makes the signing secret of a webhook.
	NewSecret func() providers.Secret
}

// ProjectEvent is one thing that happened in a project.
type ProjectEvent struct {
	Cursor       int64           `json:"cursor" doc:"It counts the events of this project; the id of the event in the stream begins with it"`
	ID           string          `json:"id" doc:"The id that webhooks receive too"`
	ResourceKind string          `json:"resource_kind"`
	ResourceID   string          `json:"resource_id"`
	Type         string          `json:"type" example:"member.added"`
	Payload      json.RawMessage `json:"payload"`
	At           time.Time       `json:"at"`
}

func projectEventView(r webhookdb.Event) ProjectEvent {
	return ProjectEvent{*r.ProjectCursor, *r.EventID, r.ResourceKind, r.ResourceID, r.Type, r.Payload, r.At.UTC()}
}

// eventServer serves the events of projects, their webhooks and notices.
type eventServer struct {
	*server
	cfg EventsConfig
}

func eventAccess() op.Access {
	return op.Access{
		op.RoleProjectAny:    {"GET /projects/{id}/notices"},
		op.RoleProjectViewer: {"GET /projects/{id}/events"},
		op.RoleProjectOwner: {
			"GET /projects/{id}/webhooks", "POST /projects/{id}/webhooks", "GET /projects/{id}/webhooks/{webhook_id}",
			"PATCH /projects/{id}/webhooks/{webhook_id}", "DELETE /projects/{id}/webhooks/{webhook_id}",
			"POST /projects/{id}/webhooks/{webhook_id}/rotate-secret", "POST /projects/{id}/webhooks/{webhook_id}/test",
			"POST /projects/{id}/webhooks/{webhook_id}/replay", "GET /projects/{id}/webhooks/{webhook_id}/deliveries",
			"POST /projects/{id}/webhooks/{webhook_id}/deliveries/{event_id}/redeliver",
		},
	}
}

const projectEventsPath = "/projects/{id}/events"

// RegisterEvents declares the operations of events, webhooks and notices.
func RegisterEvents(api *op.API, cfg EventsConfig) {
	api.Grant(eventAccess())
	s := &eventServer{&server{api}, cfg}
	api.Unbounded(func(path string) bool {
		rest, ok := strings.CutPrefix(path, op.Prefix+"/projects/")
		return ok && strings.HasSuffix(rest, "/events") && strings.Count(rest, "/") == 1
	})
	op.Add(api, huma.Operation{
		OperationID: "follow-project-events", Method: http.MethodGet, Path: projectEventsPath, Tags: []string{"projects"}, Summary: "Follow what happens in a project (server-sent events)",
		Description: "The id of each event begins with its cursor, which counts the events of the project. With Last-Event-ID the stream continues after that " +
			"event, without one it begins with what comes next. Where events after it were deleted, or the database was restored since, the answer is 410 " +
			"with the type events-gone, and an open stream ends with an event of that type: read the project again. The stream ends within a minute when the reader loses access.",
		Responses: map[string]*huma.Response{"200": {
			Description: "A stream whose data lines are events",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: op.Schema[ProjectEvent](api, "ProjectEvent")}},
		}},
	}, s.followEvents)
	s.registerWebhooks()
	s.registerNotices()
}

func (s *eventServer) followEvents(ctx context.Context, in *struct {
	ProjectPath
	op.LastEvent
}) (*huma.StreamResponse, error) {
	all, err := s.api.Store().ReadEventCursor(ctx)
	if err != nil {
		return nil, err
	}
	var from op.StreamStart
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if _, err := tenancydb.ReadProject(ctx, tx, tx.Project()); err != nil {
			return err
		}
		c, err := webhookdb.ReadCursor(ctx, tx)
		if err == nil {
			from, err = in.Start(op.Kept{Pruned: c.Pruned, Last: c.Last, Epoch: all.Epoch})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	project := op.ProjectAccessOf(ctx).Project
	return &huma.StreamResponse{Body: func(c huma.Context) {
		source := op.Source{Project: project, All: s.projectEvents(project)}
		if err := s.api.StreamEvents(c.Context(), c, from, source, func(e *op.Event) any { return e.Row }); err != nil && c.Context().Err() == nil {
			s.api.Log().WarnContext(c.Context(), "event stream of a project ended", "error", err, "request_id", op.RequestID(c.Context()))
		}
	}}, nil
}

// projectEvents lists the events of a project. The access was audited when the stream began: a
// stream is one access, however often it lists.
func (s *eventServer) projectEvents(project string) op.Lister {
	return func(ctx context.Context, after int64, limit int) (out []*op.Event, err error) {
		err = s.api.Store().ForProject(ctx, project, func(tx *db.ProjectTx) error {
			rows, err := webhookdb.EventsAfter(ctx, tx, after, limit)
			out = make([]*op.Event, 0, len(rows))
			for _, r := range rows {
				out = append(out, &op.Event{Cursor: *r.ProjectCursor, Type: r.Type, Row: projectEventView(r), Size: len(r.Payload)})
			}
			return err
		})
		return out, err
	}
}
