package grpc

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
	streamHeartbeat = 20 * time.Second // after this time an empty message keeps proxies from closing the stream
	watchBatch      = 200              // active runs that WatchRuns reads at a time
	// logBatch is how many chunks of at most 64 KiB a server reads at a time. A stream that is
	// behind the shared chunks holds so many.
	logBatch = 4
)

// resumeHeader is the trailer with the position after which a reader can open a lost stream again.
const resumeHeader = "Slipway-Resume-After"

// follower sends messages to one reader. It holds only the message that the reader has to take
// next. A reader that takes nothing for limit loses the stream, and can resume it after its last
// position. The reader learns that when it reads again, however late: HTTP/2 sends the status
// behind the message that blocks.
type follower struct {
	conn  connect.StreamingHandlerConn
	limit time.Duration
	at    int64 // the position of the last message that the reader has taken
	// control is nil for a response that cannot be sent before its first message.
	control *http.ResponseController
	opened  bool
}

// openHeader is a header of a stream that is open before its first message. With a header of its
// own, a response of gRPC-Web has its status in the body, where it may come after this header.
const openHeader = "Slipway-Stream"

// openEarly sends the headers of a stream whose first message may be long in coming: some clients
// wait for them when they open it.
func (f *follower) openEarly(header http.Header) error {
	if f.opened || f.control == nil {
		return nil
	}
	f.opened = true
	header.Set(openHeader, "open")
	return f.control.Flush()
}

// newFollower returns a follower for the time until leave is called. A message that the reader has
// not taken when ctx has ended for limit is given up: HTTP/2 resets the stream.
func newFollower(ctx context.Context, s *server, conn connect.StreamingHandlerConn) (f *follower, leave func()) {
	control, _ := ctx.Value(writerKey{}).(*http.ResponseController)
	var mu sync.Mutex
	left := false // a response that has ended must get no deadline
	deadline := func(at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if !left && control != nil {
			_ = control.SetWriteDeadline(at) // a response that supports no deadlines has its own limit
		}
	}
	deadline(time.Time{}) // at a deadline, HTTP/2 resets a stream even if nothing is being written
	f = &follower{conn: conn, limit: s.cfg.WriteLimit, control: control}
	stop := context.AfterFunc(ctx, func() { deadline(time.Now().Add(f.limit)) })
	return f, func() {
		stop()
		deadline(time.Now().Add(f.limit)) // bounds the writing of the status
		mu.Lock()
		defer mu.Unlock()
		left = true
	}
}

// send sends a message, which is a proto.Message or a frame. at is the position of the reader after
// this message.
func (f *follower) send(m any, at int64) error {
	began := time.Now()
	err := f.conn.Send(m)
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

// follow sends a heartbeat first, so that the reader sees that the stream is open. Then it sends
// each event until ctx or the events end. heartbeat may send nothing.
func follow(ctx context.Context, events *op.Follower, heartbeat func() error, send func(*op.Event) error) error {
	if err := heartbeat(); err != nil {
		return err
	}
	alive := time.NewTicker(streamHeartbeat)
	defer alive.Stop()
	for {
		e, changed, err := events.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, op.ErrRestored):
			return problem.New(problem.EventsGone, "the database was restored or moved to another server; read again what you follow, and open the stream without resume_after")
		case e != nil:
			err = send(e)
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
		case <-alive.C:
			if err := heartbeat(); err != nil {
				return err
			}
		}
	}
}

// watch is one stream of WatchRuns.
type watch struct {
	s       *server
	filter  listfilter.Filter
	project string
	out     *follower
	events  *op.Follower
	cursors cursors
	// sent has the version of each run in the first snapshots. Events with the same or a lower
	// version are older than the snapshot.
	sent map[string]int64
}

// WatchRuns implements slipwayv1connect.RunServiceHandler.
func (s runService) WatchRuns(ctx context.Context, r *connect.Request[slipwayv1.WatchRunsRequest], out *connect.ServerStream[slipwayv1.RunEvent]) error {
	filter, err := listfilter.Parse(r.Msg.GetFilter(), listfilter.RunFields())
	if err != nil {
		return err
	}
	after := r.Msg.GetResumeAfter()
	cursors, err := s.cursorsOf(ctx)
	if err != nil {
		return err
	}
	from, err := s.watchStart(ctx, cursors, after)
	if err != nil {
		return err
	}
	to, leave := newFollower(ctx, s.server, out.Conn())
	defer leave()
	w := &watch{s: s.server, filter: filter, project: callerOf(ctx).Project, out: to, cursors: cursors, sent: map[string]int64{}}
	w.events = s.api.Follow(from, s.api.PlatformEvents(db.EventFilter{ResourceKind: machinesdb.RunResource}))
	defer w.events.Leave()
	if after == 0 {
		if err := w.sendActive(ctx); err != nil {
			return err
		}
	}
	heartbeat := func() error {
		if !r.Msg.GetHeartbeats() { // the client expects a snapshot in every event
			return to.openEarly(out.ResponseHeader())
		}
		at := cursors.shownCursor(w.events.At())
		return to.send(&slipwayv1.RunEvent{Ts: timestamppb.Now(), Cursor: at}, at)
	}
	return follow(ctx, w.events, heartbeat, func(e *op.Event) error { return w.sendChange(e) })
}

// watchStart returns where a stream of WatchRuns begins. after is the cursor that the reader has, 0
// for none.
func (s *server) watchStart(ctx context.Context, c cursors, after int64) (op.StreamStart, error) {
	if after < 0 {
		return op.StreamStart{}, invalid("resume_after", "must be the cursor of an event")
	}
	last, err := s.store.ReadEventCursor(ctx)
	if err != nil {
		return op.StreamStart{}, err
	}
	var at op.LastEvent
	if after > 0 {
		at.Query = strconv.FormatInt(c.storedCursor(after), 10)
	}
	from, err := at.Start(op.Kept(last))
	var p *problem.Problem
	if c.key != nil && errors.As(err, &p) && p.Of(problem.EventsGone) { // the text has cursors of the platform
		err = problem.New(problem.EventsGone, "the position is not kept any more, or the database was restored; read again what you follow, and open the stream without resume_after")
	}
	return from, err
}

// sendActive sends the current state of each active run that matches. These messages have no
// cursor: a reader that loses the stream between them has not received all runs, and must begin
// again. The heartbeat after them has the first cursor.
func (w *watch) sendActive(ctx context.Context) error {
	page := machinesdb.Page{Project: w.project, Filter: w.filter, Limit: watchBatch}
	for {
		runs, err := w.s.listRuns(ctx, page, true)
		if err != nil {
			return err
		}
		for _, run := range runs {
			v := machinesdb.ViewOf(run)
			if err := w.out.send(&slipwayv1.RunEvent{Ts: timestamppb.Now(), Snapshot: runToProto(v), Message: "present"}, 0); err != nil {
				return err
			}
			w.sent[v.ID], page.After = v.Version, v.ID
		}
		if len(runs) < page.Limit {
			return nil
		}
	}
}

// sendChange sends an event to the reader if its run matches the filter.
func (w *watch) sendChange(e *op.Event) error {
	c, err := op.Shared(e, "run", func() (runChange, error) { return readChange(e) })
	v := c.view
	if err != nil || v.ID == "" || v.Version <= w.sent[v.ID] || w.project != "" && v.ProjectID != w.project || !w.filter.Match(v.Value) {
		return err
	}
	if w.project == "" {
		return w.out.send(frame{event: e, message: c.message}, e.Cursor)
	}
	// The run belongs to one project, whose readers all see the same cursor.
	own, err := op.Shared(e, "run of its project", func() (*slipwayv1.RunEvent, error) { return c.withCursor(w.cursors.shownCursor(e.Cursor)), nil })
	if err != nil {
		return err
	}
	return w.out.send(frame{e, own, " of its project"}, own.GetCursor())
}

// runChange is a decoded event of a run: the run after the event, and the message to the readers.
// Both are empty for events of other types.
type runChange struct {
	view    machinesdb.View
	message *slipwayv1.RunEvent
}

// withCursor returns the message with another cursor.
func (c runChange) withCursor(cursor int64) *slipwayv1.RunEvent {
	return &slipwayv1.RunEvent{Ts: c.message.GetTs(), Snapshot: c.message.GetSnapshot(), Message: c.message.GetMessage(), Cursor: cursor}
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

// messageOf returns a short text about the progress of a run.
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
	from, err := s.outputStart(ctx, run.ID, at)
	if err != nil {
		return err
	}
	to, leave := newFollower(ctx, s.server, out.Conn())
	defer leave()
	chunks := s.api.Follow(from, s.output(run.ID))
	defer chunks.Leave()
	heartbeat := func() error {
		return to.send(&slipwayv1.LogChunk{Ts: timestamppb.Now(), RunId: run.ID, Stream: "stdout", Seq: chunks.At()}, chunks.At())
	}
	return follow(ctx, chunks, heartbeat, func(e *op.Event) error {
		m, err := op.Shared(e, "chunk", func() (*slipwayv1.LogChunk, error) {
			c, _ := e.Row.(machinesdb.Chunk)
			return chunkToProto(c), nil
		})
		if err != nil {
			return err
		}
		return to.send(frame{event: e, message: m}, e.Cursor)
	})
}

// outputStart returns where a stream of the output of a run begins. It refuses a position that the
// database has not assigned, as a reader has after a restore.
func (s *server) outputStart(ctx context.Context, runID string, after int64) (op.StreamStart, error) {
	now, err := s.store.ReadEventCursor(ctx)
	if err != nil {
		return op.StreamStart{}, err
	}
	head, err := machinesdb.ReadLogHead(ctx, s.store, runID)
	if err == nil && after > head.Last {
		err = problem.New(problem.EventsGone, fmt.Sprintf(
			"the position is ahead of the output, which ends at %d: the database may have been restored; open the stream without resume_after", head.Last))
	}
	return op.StreamStart{Cursor: after, Last: head.Last, Epoch: now.Epoch}, err
}

// output returns the source of the output of a run, which ends with the run. It reads the status of
// the run before the chunks, so that no chunk is stored between the last chunk and the end.
func (s *server) output(runID string) op.Source {
	chunks := func(ctx context.Context, after int64, limit int) ([]*op.Event, error) {
		return s.chunks(ctx, runID, after, limit)
	}
	return op.Source{Run: runID, Batch: logBatch, Wanted: chunks, All: func(ctx context.Context, after int64, limit int) ([]*op.Event, error) {
		run, err := machinesdb.GetRun(ctx, s.store, runID)
		if err != nil {
			return nil, err
		}
		out, err := chunks(ctx, after, limit)
		if err == nil && len(out) < limit && lifecycle.Run.Terminal(run.Status) {
			err = io.EOF
		}
		return out, err
	}}
}

// chunks lists chunks of the output of a run. It reads which chunks were deleted after it has read
// the chunks, so that none is deleted between the two reads.
func (s *server) chunks(ctx context.Context, runID string, after int64, limit int) ([]*op.Event, error) {
	rows, err := machinesdb.LogsAfter(ctx, s.store, runID, after, limit)
	if err != nil {
		return nil, err
	}
	head, err := machinesdb.ReadLogHead(ctx, s.store, runID)
	if err != nil {
		return nil, err
	}
	if after > 0 && after < head.Pruned {
		return nil, problem.New(problem.EventsGone, fmt.Sprintf(
			"output after the position was deleted for its age, up to %d; open the stream without resume_after for what is left", head.Pruned))
	}
	out := make([]*op.Event, 0, len(rows))
	for _, c := range rows {
		out = append(out, &op.Event{Cursor: c.Seq, Row: c, Size: len(c.Data)})
	}
	return out, nil
}

// chunkToProto returns a chunk as a message. A text in the data replaces output that was dropped
// before the chunk.
func chunkToProto(c machinesdb.Chunk) *slipwayv1.LogChunk {
	data := c.Data
	if c.Gap > 0 {
		data = append(fmt.Appendf(nil, "\n[slipway: %d bytes of this step were dropped here]\n", c.Gap), data...)
	}
	return &slipwayv1.LogChunk{
		Ts: timestamppb.New(c.At), RunId: c.RunID, Stream: c.Stream, Data: data, Seq: c.Seq, Step: c.Step, Attempt: int32(c.Attempt), //nolint:gosec // small
	}
}
