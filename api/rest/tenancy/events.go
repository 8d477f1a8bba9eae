package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
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
	Cursor       int64           `json:"cursor" doc:"Also the id of the event in the stream; it counts the events of this project"`
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
		Description: "Each event has a cursor as its id, which counts the events of the project. With Last-Event-ID the stream continues after that cursor, " +
			"without one it begins with what comes next. It ends within a minute when the reader loses access.",
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
	LastEventID string `header:"Last-Event-ID" maxLength:"200"`
	After       string `query:"last_event_id" maxLength:"200" doc:"The same as Last-Event-ID"`
}) (*huma.StreamResponse, error) {
	cursor, given, err := op.EventID(in.LastEventID, in.After)
	if err != nil {
		return nil, err
	}
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if _, err := tenancydb.ReadProject(ctx, tx, tx.Project()); err != nil {
			return err
		}
		last, err := webhookdb.LastCursor(ctx, tx)
		if err == nil && given && cursor > last {
			return problem.NewInvalid(problem.Field{Location: "header.Last-Event-ID", Message: fmt.Sprintf(
				"is ahead of the last event of the project, %d; leave it out and read the project again: the database may have been restored", last)})
		}
		if !given {
			cursor = last
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	project := op.ProjectAccessOf(ctx).Project
	return &huma.StreamResponse{Body: func(c huma.Context) {
		list := func(ctx context.Context, after int64) (out []op.StreamEvent, err error) {
			// The access was audited above: a stream is one access, however often it lists.
			err = s.api.Store().ForProject(ctx, project, func(tx *db.ProjectTx) error {
				rows, err := webhookdb.EventsAfter(ctx, tx, after, op.StreamBatch)
				out = make([]op.StreamEvent, 0, len(rows))
				for _, r := range rows {
					view := projectEventView(r)
					out = append(out, op.StreamEvent{Cursor: view.Cursor, Type: r.Type, Data: view})
				}
				return err
			})
			return out, err
		}
		if err := s.api.StreamEvents(c.Context(), c, cursor, list); err != nil && c.Context().Err() == nil {
			s.api.Log().WarnContext(c.Context(), "event stream of a project ended", "error", err, "request_id", op.RequestID(c.Context()))
		}
	}}, nil
}
