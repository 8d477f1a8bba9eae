package grpc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
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

// follower sends messages to one reader, each within a time. It holds what the reader has not taken and
// nothing more: a reader that does not read loses the stream, and resumes it at its last position.
type follower[T any] struct {
	out     *connect.ServerStream[T]
	control *http.ResponseController
	limit   time.Duration
}

func newFollower[T any](ctx context.Context, s *server, out *connect.ServerStream[T]) follower[T] {
	control, _ := ctx.Value(writerKey{}).(*http.ResponseController)
	return follower[T]{out, control, s.cfg.WriteLimit}
}

func (f follower[T]) send(m *T) error {
	if f.control != nil {
		_ = f.control.SetWriteDeadline(time.Now().Add(f.limit)) // a response without deadlines has its own
	}
	if err := f.out.Send(m); err != nil {
		return connect.NewError(connect.CodeAborted, fmt.Errorf("the stream was ended: its reader did not read; open it again after the last position that it has: %w", err))
	}
	if f.control != nil {
		_ = f.control.SetWriteDeadline(time.Time{}) // HTTP/2 resets a stream at its deadline, also one that is quiet
	}
	return nil
}

// follow sends a heartbeat, which opens the stream for the reader. Then it calls next when hub wakes it
// for payload, and now and then, until ctx ends or next says that it is done. next reports whether there is more to
// send at once.
func follow(ctx context.Context, hub *op.Hub, payload string, heartbeat func() error, next func() (more, done bool, err error)) error {
	woken, leave := hub.Join(payload)
	defer leave()
	if err := heartbeat(); err != nil {
		return err
	}
	alive, poll := time.NewTicker(streamHeartbeat), time.NewTicker(streamPoll)
	defer alive.Stop()
	defer poll.Stop()
	for {
		more, done, err := next()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || done {
			return err
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C:
			if err := heartbeat(); err != nil {
				return err
			}
		case <-woken:
		case <-poll.C:
		}
	}
}

// watch is one WatchRuns.
type watch struct {
	s       *server
	filter  listfilter.Filter
	project string
	out     follower[slipwayv1.RunEvent]
	at      int64
	epoch   string // of the database
	// sent has the version of each run that the first snapshots had: events of before are older.
	sent map[string]int64
}

// WatchRuns implements slipwayv1connect.RunServiceHandler.
func (s runService) WatchRuns(ctx context.Context, r *connect.Request[slipwayv1.WatchRunsRequest], out *connect.ServerStream[slipwayv1.RunEvent]) error {
	filter, err := listfilter.Parse(r.Msg.GetFilter(), listfilter.RunFields())
	if err != nil {
		return err
	}
	if r.Msg.GetResumeAfter() < 0 {
		return invalid("resume_after", "must be the cursor of an event")
	}
	last, err := s.store.ReadEventCursor(ctx)
	if err != nil {
		return err
	}
	w := &watch{s: s.server, filter: filter, project: callerOf(ctx).Project, out: newFollower(ctx, s.server, out), epoch: last.Epoch, sent: map[string]int64{}}
	if after := r.Msg.GetResumeAfter(); after > 0 {
		from, err := op.LastEvent{Query: strconv.FormatInt(after, 10)}.Start(op.Kept{Last: last.Last, Pruned: last.Pruned, Epoch: last.Epoch})
		if err != nil {
			return err
		}
		w.at = from.Cursor
	} else {
		w.at = last.Last
		if err := w.sendActive(ctx); err != nil {
			return err
		}
	}
	return follow(ctx, s.api.Events(), "", func() error { return w.out.send(&slipwayv1.RunEvent{Ts: timestamppb.Now(), Cursor: w.at}) },
		func() (bool, bool, error) {
			more, err := w.sendChanges(ctx)
			return more, false, err
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
			if err := w.out.send(&slipwayv1.RunEvent{Ts: timestamppb.Now(), Snapshot: runToProto(v), Message: "present"}); err != nil {
				return err
			}
			w.sent[v.ID], page.After = v.Version, v.ID
		}
		if len(runs) < page.Limit {
			return nil
		}
	}
}

// sendChanges sends a batch of the events that match. It reports whether there may be more.
func (w *watch) sendChanges(ctx context.Context) (more bool, err error) {
	rows, err := w.s.store.EventsAfter(ctx, w.at, db.EventFilter{ResourceKind: machinesdb.RunResource}, watchBatch)
	if err != nil {
		return false, err
	}
	restored, err := w.s.api.IsRestored(ctx, w.epoch)
	if err != nil {
		return false, err
	}
	if restored {
		return false, problem.New(problem.EventsGone, "the database was restored or moved to another server; read again what you follow, and open the stream without resume_after")
	}
	for _, e := range rows {
		var v machinesdb.View
		if e.Type == machinesdb.EventType {
			if err := json.Unmarshal(e.Payload, &v); err != nil {
				return false, fmt.Errorf("event %d of run %s: %w", e.Cursor, e.ResourceID, err)
			}
		}
		if v.ID == "" || v.Version <= w.sent[v.ID] || w.project != "" && v.ProjectID != w.project || !w.filter.Match(v.Value) {
			w.at = e.Cursor
			continue
		}
		if err := w.out.send(&slipwayv1.RunEvent{Ts: timestamppb.New(e.At), Snapshot: runToProto(v), Message: messageOf(v), Cursor: e.Cursor}); err != nil {
			return false, err
		}
		w.at = e.Cursor
	}
	return len(rows) == watchBatch, nil
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
	to := newFollower(ctx, s.server, out)
	ended := false
	return follow(ctx, s.logs, run.ID, func() error { return to.send(&slipwayv1.LogChunk{Ts: timestamppb.Now(), RunId: run.ID, Seq: at}) },
		func() (more, done bool, err error) {
			if !ended { // before the chunks are read: what is stored after the end of a run is not missed
				now, err := machinesdb.GetRun(ctx, s.store, run.ID)
				if err != nil {
					return false, false, err
				}
				ended = lifecycle.Run.Terminal(now.Status)
			}
			chunks, err := machinesdb.LogsAfter(ctx, s.store, run.ID, at, logBatch)
			if err != nil {
				return false, false, err
			}
			pruned, err := machinesdb.PrunedLogs(ctx, s.store, run.ID)
			if err != nil {
				return false, false, err
			}
			if at > 0 && at < pruned {
				return false, false, problem.New(problem.EventsGone, fmt.Sprintf(
					"output after the position was deleted for its age, up to %d; open the stream without resume_after for what is left", pruned))
			}
			for _, c := range chunks {
				if err := to.send(chunkToProto(c)); err != nil {
					return false, false, err
				}
				at = c.Seq
			}
			more = len(chunks) == logBatch
			return more, ended && !more, nil
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
