package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// Event is one thing that happened, as a follower reads it.
type Event struct {
	Cursor       int64           `json:"cursor" doc:"The id of the event in the stream begins with it"`
	ResourceKind string          `json:"resource_kind"`
	ResourceID   string          `json:"resource_id"`
	NodeID       string          `json:"node_id,omitempty"`
	Type         string          `json:"type" example:"node.active"`
	Payload      json.RawMessage `json:"payload"`
	At           time.Time       `json:"at"`
}

const eventsPath = "/events"

func (s *server) registerEvents() {
	s.api.Unbounded(func(path string) bool { return path == op.Prefix+eventsPath })
	op.Add(s.api, huma.Operation{
		OperationID: "follow-events", Method: http.MethodGet, Path: eventsPath, Tags: []string{"events"}, Summary: "Follow what happens (server-sent events)",
		Description: "The id of each event begins with its cursor: a reader that has seen one has missed nothing before it. With Last-Event-ID the stream " +
			"continues after that event, without one it begins with what comes next. Where events after it were deleted, or the database was restored since, " +
			"the answer is 410 with the type events-gone, and an open stream ends with an event of that type: read again what you follow. Lines that begin with a colon are heartbeats. " +
			"The stream ends within a minute when the token or session that began it has ended.",
		Responses: map[string]*huma.Response{"200": {
			Description: "A stream whose data lines are events",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: op.Schema[Event](s.api, "Event")}},
		}},
	}, s.followEvents)
}

func (s *server) followEvents(ctx context.Context, in *struct {
	Resource string `query:"resource" maxLength:"200" doc:"kind:id, such as job:job_... or node:node_...; a kind alone follows all of it"`
	Node     string `query:"node" maxLength:"200" doc:"Everything about one node, its jobs included"`
	op.LastEvent
}) (*huma.StreamResponse, error) {
	f := db.EventFilter{NodeID: in.Node}
	if in.Resource != "" {
		f.ResourceKind, f.ResourceID, _ = strings.Cut(in.Resource, ":")
		if f.ResourceKind == "onboarding" {
			f.ResourceKind = "job"
		}
		if f.ResourceKind == "" {
			return nil, problem.NewInvalid(problem.Field{Location: "query.resource", Message: "must be kind:id, such as job:job_..."})
		}
	}
	cursor, err := s.store.ReadEventCursor(ctx)
	if err != nil {
		return nil, err
	}
	from, err := in.Start(op.Kept(cursor))
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		view := func(e *op.Event) any {
			row, _ := e.Row.(db.Event)
			return Event{row.Cursor, row.ResourceKind, row.ResourceID, text(row.NodeID), row.Type, row.Payload, row.At.UTC()}
		}
		if err := s.api.StreamEvents(c.Context(), c, from, s.api.PlatformEvents(f), view); err != nil && c.Context().Err() == nil {
			s.log.WarnContext(c.Context(), "event stream ended", "error", err, "request_id", op.RequestID(c.Context()))
		}
	}}, nil
}
