package op

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

const (
	streamHeartbeat = 15 * time.Second // comment lines keep proxies from closing the stream
	streamPoll      = 5 * time.Second  // behind LISTEN
	streamWrite     = 10 * time.Second
)

// StreamStart is where a stream begins: after a cursor. Epoch is a part of the id of each event.
type StreamStart struct {
	Cursor int64
	Epoch  string
	last   int64 // of the events that there were
}

// StreamEvents writes server-sent events in order, from the one after the start, until the reader
// leaves, ctx ends, or the reader has no access any more, which it finds out within a minute. When the
// database was restored since, it ends with an event of the type events-gone and sends no other. view
// returns what is written of an event as JSON; all streams of the source share it. A reader or a project
// with too many streams is answered 429.
func (a *API) StreamEvents(ctx context.Context, c huma.Context, from StreamStart, source Source, view func(*Event) any) error {
	r, w := humachi.Unwrap(c)
	closed, err := a.streams.open(PrincipalOf(ctx).ID, memberProject(ctx))
	if err != nil {
		a.WriteError(w, r, err)
		return nil
	}
	defer closed()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	st := stream{w: w, control: http.NewResponseController(w)}
	ctx, stop := whileAllowed(ctx, a.recheckEvery, recheckLimit)
	defer stop()
	events := a.Follow(from, source)
	defer events.Leave()
	heartbeat := time.NewTicker(streamHeartbeat)
	defer heartbeat.Stop()
	if err := st.send(": following\n\n"); err != nil {
		return err
	}
	for {
		e, changed, err := events.Next(ctx)
		switch {
		case errors.Is(context.Cause(ctx), errAccessEnded):
			return st.send(": ended: sign in again\n\n")
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrRestored):
			return st.gone(whyRestored)
		case err == nil && e != nil:
			err = st.event(e, from.Epoch, view)
		}
		if err != nil {
			return err
		}
		if e != nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-heartbeat.C:
			if err := st.send(": heartbeat\n\n"); err != nil {
				return err
			}
		}
	}
}

type stream struct {
	w       io.Writer
	control *http.ResponseController
}

func (st stream) event(e *Event, epoch string, view func(*Event) any) error {
	text, err := Shared(e, "sse", func() (string, error) {
		data, err := json.Marshal(view(e))
		return fmt.Sprintf("id: %d-%s\nevent: %s\ndata: %s\n\n", e.Cursor, epoch, e.Type, data), err
	})
	if err != nil {
		return fmt.Errorf("event %d: %w", e.Cursor, err)
	}
	return st.send(text)
}

// gone tells the reader to begin again. The event has no id: there is nothing to continue after.
func (st stream) gone(why string) error {
	p := problem.New(problem.EventsGone, why+readAgain)
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("the end of a stream: %w", err)
	}
	return st.send(fmt.Sprintf("event: %s\ndata: %s\n\n", problem.EventsGone, data))
}

// send gives up on a reader that does not read.
func (st stream) send(text string) error {
	_ = st.control.SetWriteDeadline(time.Now().Add(streamWrite)) // a writer without deadlines has its own
	if _, err := io.WriteString(st.w, text); err != nil {
		return err
	}
	if err := st.control.Flush(); err != nil {
		return err
	}
	_ = st.control.SetWriteDeadline(time.Time{}) // HTTP/2 resets a stream at its deadline, also one that is quiet
	return nil
}

// LastEvent is the event after which a reader wants to continue. It is embedded in the input of a
// stream.
type LastEvent struct {
	Header string `header:"Last-Event-ID" maxLength:"200" doc:"The id of an event of the stream; 0 begins with the oldest event that is kept"`
	Query  string `query:"last_event_id" maxLength:"200" doc:"The same as Last-Event-ID"`
}

const (
	whyRestored = "the database was restored or moved to another server"
	readAgain   = "; read again what you follow, and open the stream without Last-Event-ID"
)

// Kept says which events can be read: those after Pruned, to Last.
type Kept struct {
	Last, Pruned int64
	Epoch        string
}

// Start returns where a stream begins. Without an id that is after the last event. It returns a
// problem when the reader would miss events without a sign of it: they were deleted, or the id is not
// of this database, which was restored since. A cursor without an epoch is only compared with Kept.
func (l LastEvent) Start(kept Kept) (StreamStart, error) {
	text := l.Header
	if text == "" {
		text = l.Query
	}
	if text == "" {
		return StreamStart{kept.Last, kept.Epoch, kept.Last}, nil
	}
	number, epoch, _ := strings.Cut(text, "-")
	cursor, err := strconv.ParseInt(number, 10, 64)
	if err != nil || cursor < 0 {
		return StreamStart{}, problem.NewInvalid(problem.Field{Location: "header.Last-Event-ID", Message: "is not the id of an event of this API"})
	}
	why := ""
	switch {
	case epoch != "" && epoch != kept.Epoch:
		why = "the id was given before " + whyRestored
	case cursor > kept.Last:
		why = fmt.Sprintf("the id is ahead of the last event, %d: the database may have been restored", kept.Last)
	case cursor > 0 && cursor < kept.Pruned:
		why = fmt.Sprintf("events after the id were deleted; the oldest that may be kept has the cursor %d", kept.Pruned+1)
	default:
		return StreamStart{cursor, kept.Epoch, kept.Last}, nil
	}
	p := problem.New(problem.EventsGone, why+readAgain)
	p.OldestCursor = kept.Pruned + 1
	return StreamStart{}, p
}

// Hub wakes readers at what a channel of the database tells. It holds one connection to the
// database while anybody reads.
type Hub struct {
	store   *db.Store
	channel string

	mu      sync.Mutex
	readers map[chan struct{}]string // by what they are woken
	stop    context.CancelFunc
}

// NewHub returns the hub of a channel.
func NewHub(store *db.Store, channel string) *Hub {
	return &Hub{store: store, channel: channel, readers: map[chan struct{}]string{}}
}

// Join adds a reader, whom a notification of this text wakes; "" is every one. The last reader that leaves
// ends the listening.
func (h *Hub) Join(payload string) (woken <-chan struct{}, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := make(chan struct{}, 1)
	h.readers[ch] = payload
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go func() { _ = h.store.ListenFor(ctx, h.channel, h.wake) }() // ends with ctx, by itself never
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

// wake wakes the readers of a notification. "" is a new connection: what was notified before it is lost.
func (h *Hub) wake(payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch, wanted := range h.readers {
		if payload != "" && wanted != "" && wanted != payload {
			continue
		}
		select {
		case ch <- struct{}{}:
		default: // it is awake already
		}
	}
}
