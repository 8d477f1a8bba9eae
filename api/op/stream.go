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
	streamPoll      = 5 * time.Second  // interval of reads that do not depend on notifications
	streamWrite     = 10 * time.Second
)

// StreamStart is the position of a new stream. The stream begins with the first event after Cursor.
// Epoch is the epoch of the database, which is part of the id of each event. Last is the last event
// of the source.
type StreamStart struct {
	Cursor int64
	Epoch  string
	Last   int64
}

// StreamEvents writes server-sent events in order. The stream ends when the reader disconnects,
// when ctx ends, or within a minute after the reader has lost the access. If the database is
// restored meanwhile, the stream ends with an event of the type events-gone and without events of
// the restored database. view returns the JSON value of an event, which all streams of the source
// share. A reader or a project with too many streams gets the status 429.
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
	ctx, stop := whileAllowed(ctx, a.recheckEvery, recheckDeadline, recheckLimit)
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

// gone sends an event that tells the reader to begin again. The event has no id, since a reader
// cannot resume after it.
func (st stream) gone(why string) error {
	p := problem.New(problem.EventsGone, why+readAgain)
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("the end of a stream: %w", err)
	}
	return st.send(fmt.Sprintf("event: %s\ndata: %s\n\n", problem.EventsGone, data))
}

// send sends a text. It fails when the reader does not read it within streamWrite.
func (st stream) send(text string) error {
	_ = st.control.SetWriteDeadline(time.Now().Add(streamWrite)) // a writer that supports none has its own limit
	if _, err := io.WriteString(st.w, text); err != nil {
		return err
	}
	if err := st.control.Flush(); err != nil {
		return err
	}
	_ = st.control.SetWriteDeadline(time.Time{}) // at a deadline, HTTP/2 resets a stream even if nothing is being written
	return nil
}

// LastEvent is the input of a stream with the id of the last event that the reader has. The stream
// resumes after this event.
type LastEvent struct {
	Header string `header:"Last-Event-ID" maxLength:"200" doc:"The id of an event of the stream; 0 begins with the oldest event that is kept"`
	Query  string `query:"last_event_id" maxLength:"200" doc:"The same as Last-Event-ID"`
}

const (
	whyRestored = "the database was restored or moved to another server"
	readAgain   = "; read again what you follow, and open the stream without Last-Event-ID"
)

// Kept is the range of the stored events. It begins after Pruned and ends with Last.
type Kept struct {
	Last, Pruned int64
	Epoch        string
}

// Start returns the start of a stream. Without an id the stream begins after the last event. Start
// returns a problem when the reader would miss events without noticing it. This is the case when
// events after the id were deleted, or when the database was restored after it had issued the id.
// If the id has no epoch, Start can only compare the cursor with Kept.
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

// Hub wakes readers at the notifications of a channel of the database. While it has readers, it
// holds one connection to the database.
type Hub struct {
	store   *db.Store
	channel string

	mu      sync.Mutex
	readers map[chan struct{}]string // the payload that wakes each reader; "" is every payload
	stop    context.CancelFunc
}

// NewHub returns the hub of a channel.
func NewHub(store *db.Store, channel string) *Hub {
	return &Hub{store: store, channel: channel, readers: map[chan struct{}]string{}}
}

// Join adds a reader that notifications with this payload wake. With "" every notification wakes
// the reader. The hub stops listening when the last reader calls leave.
func (h *Hub) Join(payload string) (woken <-chan struct{}, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := make(chan struct{}, 1)
	h.readers[ch] = payload
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go func() { _ = h.store.ListenFor(ctx, h.channel, h.wake) }() // it ends only with ctx
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

// wake wakes the readers of a notification. The payload "" means that the connection is new. It
// wakes all readers, since earlier notifications were lost.
func (h *Hub) wake(payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch, wanted := range h.readers {
		if payload != "" && wanted != "" && wanted != payload {
			continue
		}
		select {
		case ch <- struct{}{}:
		default: // the reader has not yet handled the previous wake-up
		}
	}
}
