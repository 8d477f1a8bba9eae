package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// Event is one thing that happened, as a follower reads it.
type Event struct {
	Cursor       int64           `json:"cursor" doc:"Also the id of the event in the stream"`
	ResourceKind string          `json:"resource_kind"`
	ResourceID   string          `json:"resource_id"`
	NodeID       string          `json:"node_id,omitempty"`
	Type         string          `json:"type" example:"node.active"`
	Payload      json.RawMessage `json:"payload"`
	At           time.Time       `json:"at"`
}

const (
	eventBatch     = 200
	eventHeartbeat = 15 * time.Second // comment lines keep proxies from closing the stream
	eventPoll      = 5 * time.Second  // behind LISTEN
	eventWrite     = 10 * time.Second
	eventRecheck   = 30 * time.Second // whether the reader may still read
	recheckLimit   = 10 * time.Second
)

const eventsPath = "/events"

func (s *server) registerEvents() {
	s.api.Unbounded(func(path string) bool { return path == op.Prefix+eventsPath })
	op.Add(s.api, huma.Operation{
		OperationID: "follow-events", Method: http.MethodGet, Path: eventsPath, Tags: []string{"events"}, Summary: "Follow what happens (server-sent events)",
		Description: "Each event has a cursor as its id: a reader that has seen one has missed nothing before it. With Last-Event-ID the stream continues " +
			"after that cursor, without one it begins with what comes next. Lines that begin with a colon are heartbeats. " +
			"The stream ends within a minute when the token or session that began it has ended.",
		Responses: map[string]*huma.Response{"200": {
			Description: "A stream whose data lines are events",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: op.Schema[Event](s.api, "Event")}},
		}},
	}, s.followEvents)
}

func (s *server) followEvents(ctx context.Context, in *struct {
	Resource    string `query:"resource" maxLength:"200" doc:"kind:id, such as job:job_... or node:node_...; a kind alone follows all of it"`
	Node        string `query:"node" maxLength:"200" doc:"Everything about one node, its jobs included"`
	LastEventID string `header:"Last-Event-ID" maxLength:"200"`
	After       string `query:"last_event_id" maxLength:"200" doc:"The same as Last-Event-ID"`
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
	cursor, given, err := eventID(in.LastEventID, in.After)
	if err != nil {
		return nil, err
	}
	if !given {
		if cursor, err = s.store.LastCursor(ctx); err != nil {
			return nil, err
		}
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		_, w := humachi.Unwrap(c)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no")
		st := stream{w: w, control: http.NewResponseController(w)}
		if err := s.stream(c.Context(), st, f, cursor); err != nil && c.Context().Err() == nil {
			s.log.WarnContext(c.Context(), "event stream ended", "error", err, "request_id", op.RequestID(c.Context()))
		}
	}}, nil
}

// stream writes events in order until the reader leaves.
func (s *server) stream(ctx context.Context, st stream, f db.EventFilter, cursor int64) error {
	woken, leave := s.events.join()
	defer leave()
	beat, poll := time.NewTicker(eventHeartbeat), time.NewTicker(eventPoll)
	recheck := time.NewTicker(s.cfg.EventRecheck)
	defer beat.Stop()
	defer poll.Stop()
	defer recheck.Stop()
	if err := st.send(": following\n\n"); err != nil {
		return err
	}
	for {
		rows, err := s.store.EventsAfter(ctx, cursor, f, eventBatch)
		if err != nil {
			return err
		}
		for _, e := range rows {
			if err := st.event(e); err != nil {
				return err
			}
			cursor = e.Cursor
		}
		if len(rows) == eventBatch {
			select {
			case <-recheck.C:
				if recheckReader(ctx) != nil {
					return nil
				}
			default:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			if err := st.send(": heartbeat\n\n"); err != nil {
				return err
			}
		case <-recheck.C:
			if err := recheckReader(ctx); err != nil {
				return st.send(": ended: sign in again\n\n")
			}
		case <-woken:
		case <-poll.C:
		}
	}
}

// recheckReader returns an error when the reader's token or session has ended.
func recheckReader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recheckLimit)
	defer cancel()
	return op.Recheck(ctx)
}

type stream struct {
	w       io.Writer
	control *http.ResponseController
}

func (st stream) event(e db.Event) error {
	data, err := json.Marshal(Event{e.Cursor, e.ResourceKind, e.ResourceID, text(e.NodeID), e.Type, e.Payload, e.At.UTC()})
	if err != nil {
		return fmt.Errorf("event %d: %w", e.Cursor, err)
	}
	return st.send(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.Cursor, e.Type, data))
}

// send gives up on a reader that does not read.
func (st stream) send(text string) error {
	_ = st.control.SetWriteDeadline(time.Now().Add(eventWrite)) // a writer without deadlines has its own
	if _, err := io.WriteString(st.w, text); err != nil {
		return err
	}
	return st.control.Flush()
}

// eventID reads Last-Event-ID: a cursor; without one only what comes is told.
func eventID(header, query string) (cursor int64, given bool, err error) {
	given = header != "" || query != ""
	if header == "" {
		header = query
	}
	if !given {
		return 0, false, nil
	}
	cursor, perr := strconv.ParseInt(header, 10, 64)
	if perr != nil || cursor < 0 {
		return 0, true, problem.NewInvalid(problem.Field{Location: "header.Last-Event-ID", Message: "is not the id of an event of this API"})
	}
	return cursor, true, nil
}

// hub wakes every reader when events were relayed. It holds one connection to
// the database while anybody reads.
type hub struct {
	store *db.Store

	mu      sync.Mutex
	readers map[chan struct{}]bool
	stop    context.CancelFunc
}

func newHub(store *db.Store) *hub { return &hub{store: store, readers: map[chan struct{}]bool{}} }

// join adds a reader; the last one that leaves ends the listening.
func (h *hub) join() (woken <-chan struct{}, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := make(chan struct{}, 1)
	h.readers[ch] = true
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go func() { _ = h.store.Listen(ctx, db.ChannelEvents, h.wake) }() // ends with ctx, by itself never
	}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.readers, ch)
		if len(h.readers) == 0 {
			h.stop()
			h.stop = nil
		}
	}
}

func (h *hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.readers {
		select {
		case ch <- struct{}{}:
		default: // it is awake already
		}
	}
}
