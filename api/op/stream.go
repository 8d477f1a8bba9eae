package op

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// StreamBatch is how many events a stream lists at a time.
const StreamBatch = 200

const (
	streamHeartbeat = 15 * time.Second // comment lines keep proxies from closing the stream
	streamPoll      = 5 * time.Second  // behind LISTEN
	streamWrite     = 10 * time.Second
)

// StreamEvent is one event of a stream. Data is written as JSON.
type StreamEvent struct {
	Cursor int64
	Type   string
	Data   any
}

// StreamEvents writes server-sent events in order, from the one after the cursor, until the reader
// leaves, ctx ends, or the reader has no access any more, which it finds out within a minute. list
// returns at most StreamBatch events after a cursor. A reader or a project with too many streams is
// answered 429.
func (a *API) StreamEvents(ctx context.Context, c huma.Context, cursor int64, list func(context.Context, int64) ([]StreamEvent, error)) error {
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
	woken, leave := a.events.join()
	defer leave()
	heartbeat, poll := time.NewTicker(streamHeartbeat), time.NewTicker(streamPoll)
	defer heartbeat.Stop()
	defer poll.Stop()
	if err := st.send(": following\n\n"); err != nil {
		return err
	}
	for {
		rows, err := list(ctx, cursor)
		if ctx.Err() == nil && err != nil {
			return err
		}
		for _, e := range rows {
			if err := st.event(e); err != nil {
				return err
			}
			cursor = e.Cursor
		}
		if len(rows) == StreamBatch && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errAccessEnded) {
				return st.send(": ended: sign in again\n\n")
			}
			return nil
		case <-heartbeat.C:
			if err := st.send(": heartbeat\n\n"); err != nil {
				return err
			}
		case <-woken:
		case <-poll.C:
		}
	}
}

type stream struct {
	w       io.Writer
	control *http.ResponseController
}

func (st stream) event(e StreamEvent) error {
	data, err := json.Marshal(e.Data)
	if err != nil {
		return fmt.Errorf("event %d: %w", e.Cursor, err)
	}
	return st.send(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.Cursor, e.Type, data))
}

// send gives up on a reader that does not read.
func (st stream) send(text string) error {
	_ = st.control.SetWriteDeadline(time.Now().Add(streamWrite)) // a writer without deadlines has its own
	if _, err := io.WriteString(st.w, text); err != nil {
		return err
	}
	return st.control.Flush()
}

// EventID reads Last-Event-ID: a cursor; without one only what comes is told.
func EventID(header, query string) (cursor int64, given bool, err error) {
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
