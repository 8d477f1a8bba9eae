package grpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

const (
	streamHeartbeat = 20 * time.Second // an empty message keeps proxies from closing the stream
	streamPoll      = 5 * time.Second  // behind LISTEN
	watchBatch      = 200
	// logBatch chunks of at most 64 KiB are what a stream holds at a time; nothing is queued for a reader.
	logBatch = 4
)

// resumeHeader names the position after which a reader opens the stream again that it has lost.
const resumeHeader = "Slipway-Resume-After"

// follower sends messages to one reader. It holds what the reader has not taken and nothing more: a reader
// that takes nothing for a time loses the stream, and resumes it at its last position. It finds that out
// when it reads again: HTTP/2 has no other way to send it a status than after the message that blocks.
// Reset and Stop of cut may be called by several goroutines.
type follower struct {
	conn         connect.StreamingHandlerConn
	limit, reset time.Duration
	cut          *time.Timer // resets the stream
	at           int64       // the position of the last message
}

// newFollower returns a follower until leave is called. The end of ctx ends the wait for the reader.
func newFollower(ctx context.Context, s *server, conn connect.StreamingHandlerConn) (f *follower, leave func()) {
	control, _ := ctx.Value(writerKey{}).(*http.ResponseController)
	var mu sync.Mutex
	left := false
	deadline := func(at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if !left && control != nil { // a response that has ended has no deadline
			_ = control.SetWriteDeadline(at) // a response without deadlines has its own
		}
	}
	deadline(time.Time{}) // HTTP/2 resets a stream at its deadline, also one that is quiet
	f = &follower{conn: conn, limit: s.cfg.WriteLimit, reset: s.cfg.WriteLimit + s.cfg.ResetLimit}
	f.cut = time.AfterFunc(f.reset, func() { deadline(time.Now()) })
	f.cut.Stop()
	stop := context.AfterFunc(ctx, func() { f.cut.Reset(f.limit) })
	return f, func() {
		stop()
		f.cut.Stop()
		deadline(time.Now().Add(f.limit)) // for the status
		mu.Lock()
		defer mu.Unlock()
		left = true
	}
}

// send sends a message, which is a proto.Message or a frame. at is the position of the reader that has it.
func (f *follower) send(ctx context.Context, m any, at int64) error {
	began := time.Now()
	f.cut.Reset(f.reset)
	if ctx.Err() != nil {
		f.cut.Reset(f.limit)
	}
	err := f.conn.Send(m)
	f.cut.Stop()
	if err == nil {
		f.at = at
	}
	if err == nil && time.Since(began) <= f.limit {
		return nil
	}
	again := "without resume_after"
	if f.at > 0 {
		again = fmt.Sprintf("with resume_after %d", f.at)
	}
	out := connect.NewError(connect.CodeAborted, fmt.Errorf("the stream was ended: its reader took nothing for %s; open it again %s", f.limit, again))
	if f.at > 0 {
		out.Meta().Set(resumeHeader, strconv.FormatInt(f.at, 10))
	}
	return out
}

// follow sends a heartbeat, which opens the stream for the reader. Then it calls next, until ctx ends or
// next says that it is done. next sends what there is and returns what it then waits for; nil means that
// there is more to send at once. follow calls it now and then, too.
func follow(ctx context.Context, heartbeat func() error, next func() (wait <-chan struct{}, done bool, err error)) error {
	if err := heartbeat(); err != nil {
		return err
	}
	alive, poll := time.NewTicker(streamHeartbeat), time.NewTicker(streamPoll)
	defer alive.Stop()
	defer poll.Stop()
	for {
		wait, done, err := next()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || done {
			return err
		}
		if wait == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C:
			if err := heartbeat(); err != nil {
				return err
			}
		case <-wait:
		case <-poll.C:
		}
	}
}

// watch is one WatchRuns.
type watch struct {
	s       *server
	filter  listfilter.Filter
	project string
	out     *follower
	events  *op.Follower
	// sent has the version of each run that the first snapshots had: events of before are older.
	sent map[string]int64
}

// WatchRuns implements slipwayv1connect.RunServiceHandler.
func (s runService) WatchRuns(ctx context.Context, r *connect.Request[slipwayv1.WatchRunsRequest], out *connect.ServerStream[slipwayv1.RunEvent]) error {
	filter, err := listfilter.Parse(r.Msg.GetFilter(), listfilter.RunFields())
	if err != nil {
		return err
	}
	after := r.Msg.GetResumeAfter()
	if after < 0 {
		return invalid("resume_after", "must be the cursor of an event")
	}
	last, err := s.store.ReadEventCursor(ctx)
	if err != nil {
		return err
	}
	var at op.LastEvent
	if after > 0 {
		at.Query = strconv.FormatInt(after, 10)
	}
	from, err := at.Start(op.Kept(last))
	if err != nil {
		return err
	}
	to, leave := newFollower(ctx, s.server, out.Conn())
	defer leave()
	w := &watch{s: s.server, filter: filter, project: callerOf(ctx).Project, out: to, sent: map[string]int64{}}
	w.events = s.api.Follow(from, s.api.PlatformEvents(db.EventFilter{ResourceKind: machinesdb.RunResource}))
	defer w.events.Leave()
	if after == 0 {
		if err := w.sendActive(ctx); err != nil {
			return err
		}
	}
	heartbeat := func() error {
		return to.send(ctx, &slipwayv1.RunEvent{Ts: timestamppb.Now(), Cursor: w.events.At()}, w.events.At())
	}
	return follow(ctx, heartbeat, func() (<-chan struct{}, bool, error) {
		wait, err := w.sendChange(ctx)
		return wait, false, err
	})
}

// sendActive sends every active run that matches as it is now. The events have no cursor: a reader that
// breaks off between them has not all, and begins again. The heartbeat after them has the first one.
func (w *watch) sendActive(ctx context.Context) error {
	page := machinesdb.Page{Project: w.project, Filter: w.filter, Limit: watchBatch}
	for {
		runs, err := w.s.listRuns(ctx, page, true)
		if err != nil {
			return err
		}
		for _, run := range runs {
			v := machinesdb.ViewOf(run)
			if err := w.out.send(ctx, &slipwayv1.RunEvent{Ts: timestamppb.Now(), Snapshot: runToProto(v), Message: "present"}, 0); err != nil {
				return err
			}
			w.sent[v.ID], page.After = v.Version, v.ID
		}
		if len(runs) < page.Limit {
			return nil
		}
	}
}

// sendChange sends the next event if it matches. Without one it returns what to wait for.
func (w *watch) sendChange(ctx context.Context) (wait <-chan struct{}, err error) {
	e, wait, err := w.events.Next(ctx)
	if errors.Is(err, op.ErrRestored) {
		return nil, problem.New(problem.EventsGone, "the database was restored or moved to another server; read again what you follow, and open the stream without resume_after")
	}
	if err != nil || e == nil {
		return wait, err
	}
	c, err := op.Shared(e, "run", func() (runChange, error) { return readChange(e) })
	v := c.view
	if err != nil || v.ID == "" || v.Version <= w.sent[v.ID] || w.project != "" && v.ProjectID != w.project || !w.filter.Match(v.Value) {
		return nil, err
	}
	return nil, w.out.send(ctx, frame{e, c.message}, e.Cursor)
}

// runChange is an event of a run: the run after it, and the message that its readers get. An event of
// another type has neither.
type runChange struct {
	view    machinesdb.View
	message *slipwayv1.RunEvent
}

func readChange(e *op.Event) (c runChange, err error) {
	row, ok := e.Row.(db.Event)
	if !ok || row.Type != machinesdb.EventType {
		return c, nil
	}
	if err := json.Unmarshal(row.Payload, &c.view); err != nil {
		return c, fmt.Errorf("event %d of run %s: %w", row.Cursor, row.ResourceID, err)
	}
	c.message = &slipwayv1.RunEvent{Ts: timestamppb.New(row.At), Snapshot: runToProto(c.view), Message: messageOf(c.view), Cursor: row.Cursor}
	return c, nil
}

// messageOf says in a few words where a run is.
func messageOf(v machinesdb.View) string {
	switch {
	case v.Message != "":
		return v.Message
	case v.Phase == lifecycle.RunRunning && v.Current != "":
		return "step " + v.Current
	}
	return string(v.Phase)
}

// StreamRunLogs implements slipwayv1connect.RunServiceHandler.
func (s runService) StreamRunLogs(ctx context.Context, r *connect.Request[slipwayv1.StreamRunLogsRequest], out *connect.ServerStream[slipwayv1.LogChunk]) error {
	run, err := s.findRun(ctx, r.Msg.GetRunId())
	if err != nil {
		return err
	}
	at := r.Msg.GetResumeAfter()
	if at < 0 {
		return invalid("resume_after", "must be the seq of a chunk")
	}
	to, leave := newFollower(ctx, s.server, out.Conn())
	defer leave()
	woken, forget := s.logs.Join(run.ID)
	defer forget()
	ended := false
	heartbeat := func() error {
		return to.send(ctx, &slipwayv1.LogChunk{Ts: timestamppb.Now(), RunId: run.ID, Seq: at}, at)
	}
	return follow(ctx, heartbeat, func() (wait <-chan struct{}, done bool, err error) {
		if !ended { // before the chunks are read: what is stored after the end of a run is not missed
			now, err := machinesdb.GetRun(ctx, s.store, run.ID)
			if err != nil {
				return nil, false, err
			}
			ended = lifecycle.Run.Terminal(now.Status)
		}
		chunks, err := machinesdb.LogsAfter(ctx, s.store, run.ID, at, logBatch)
		if err != nil {
			return nil, false, err
		}
		pruned, err := machinesdb.PrunedLogs(ctx, s.store, run.ID)
		if err != nil {
			return nil, false, err
		}
		if at > 0 && at < pruned {
			return nil, false, problem.New(problem.EventsGone, fmt.Sprintf(
				"output after the position was deleted for its age, up to %d; open the stream without resume_after for what is left", pruned))
		}
		for _, c := range chunks {
			if err := to.send(ctx, chunkToProto(c), c.Seq); err != nil {
				return nil, false, err
			}
			at = c.Seq
		}
		if len(chunks) == logBatch {
			return nil, false, nil
		}
		return woken, ended, nil
	})
}

// chunkToProto returns a chunk as an answer. A gap before it is stated in the stream.
func chunkToProto(c machinesdb.Chunk) *slipwayv1.LogChunk {
	data := c.Data
	if c.Gap > 0 {
		data = append(fmt.Appendf(nil, "\n[slipway: %d bytes of this step were dropped here]\n", c.Gap), data...)
	}
	return &slipwayv1.LogChunk{
		Ts: timestamppb.New(c.At), RunId: c.RunID, Stream: c.Stream, Data: data, Seq: c.Seq, Step: c.Step, Attempt: int32(c.Attempt), //nolint:gosec // small
	}
}
