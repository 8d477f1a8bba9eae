package rest_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// follower reads a stream into a channel of "id type".
type follower struct {
	events chan string
	leave  context.CancelFunc
}

func (w *world) follow(query, lastID string) follower {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/api/v1/events"+query, nil)
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+w.tokens["viewer"])
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, res.StatusCode)
	require.Equal(w.t, "text/event-stream", res.Header.Get("Content-Type"))
	lines := bufio.NewScanner(res.Body)
	require.True(w.t, lines.Scan())
	require.Equal(w.t, ": following", lines.Text())
	f := follower{make(chan string, 1000), cancel}
	go func() {
		defer res.Body.Close()
		defer close(f.events)
		id := ""
		for lines.Scan() {
			if v, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id, _, _ = strings.Cut(v, "-")
			}
			if v, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				f.events <- id + " " + v
			}
		}
	}()
	return f
}

func (f follower) next(t *testing.T) string {
	t.Helper()
	select {
	case e := <-f.events:
		return e
	case <-time.After(runenv.Patience(20 * time.Second)):
		require.Fail(t, runenv.Deadline+"no event came")
		return ""
	}
}

func (w *world) emit(kind, id string, n int) {
	w.t.Helper()
	for i := range n {
		require.NoError(w.t, w.store.AppendEvent(w.t.Context(), db.Event{ResourceKind: kind, ResourceID: id, Type: fmt.Sprintf("%s.%d", kind, i)}))
	}
	_, err := w.store.RelayEvents(w.t.Context(), 1000)
	require.NoError(w.t, err)
}

// TestOpenStream_EndsAfterARestore restores the database while a reader follows: an event of the
// other epoch is not sent, and the reader is told to begin again.
func TestOpenStream_EndsAfterARestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follow("", "")
	w.emit("job", "a", 1)
	require.Equal(t, "1 job.0", f.next(t))
	plan, err := w.store.PlanEndOfAccess(t.Context())
	require.NoError(t, err)
	_, err = w.store.EndRestoredAccess(t.Context(), plan.Hash)
	require.NoError(t, err)
	w.emit("job", "a", 1)
	require.Equal(t, "1 "+string(problem.EventsGone), f.next(t))
	_, open := <-f.events
	require.False(t, open, "the stream has ended")
}

func TestAStreamResumesWithoutAGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit("job", "old", 1)
	f := w.follow("?resource=job:a", "")
	w.emit("job", "a", 3)
	w.emit("job", "b", 2)
	require.Equal(t, "2 job.0", f.next(t), "without Last-Event-ID the past is not told")
	seen := f.next(t)
	f.leave()
	w.emit("job", "a", 300) // more than one batch, while nobody reads
	g := w.follow("?resource=onboarding:a", strings.Fields(seen)[0])
	require.Equal(t, "4 job.2", g.next(t))
	for i := range 300 {
		require.Equal(t, fmt.Sprintf("%d job.%d", 7+i, i), g.next(t))
	}
	w.emit("job", "a", 1)
	require.Equal(t, "307 job.0", g.next(t))
	all := w.follow("?last_event_id=0", "")
	require.Equal(t, "1 job.0", all.next(t))

	w.do("GET", "/api/v1/events", nil, header{"Last-Event-ID": "x"}).refused(problem.Invalid)
	w.do("GET", "/api/v1/events", nil, header{"Last-Event-ID": "308"}).refused(problem.EventsGone)
	w.do("GET", "/api/v1/events", nil, header{"Last-Event-ID": "307-00000000"}).refused(problem.EventsGone)
	_, err := w.store.PruneEvents(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	w.do("GET", "/api/v1/events", nil, header{"Last-Event-ID": "306"}).refused(problem.EventsGone)
	w.emit("job", "a", 1)
	at := w.follow("", "307")
	require.Equal(t, "308 job.0", at.next(t), "the last one that was deleted is where a reader can continue")
	w.do("GET", "/api/v1/events?resource=:a", nil).refused(problem.Invalid)
}

// TestEvents_AreReadOnceForAllReaders counts the statements of the server while twenty readers
// follow.
func TestEvents_AreReadOnceForAllReaders(t *testing.T) {
	t.Parallel()
	const readers, events = 20, 10
	var statements func() int64
	w := newWorld(t, func(c *httpapi.Config) { c.API.Store, statements = dbtest.Counted(t, c.API.Store) })
	var all []follower
	for i := range readers {
		all = append(all, w.follow(fmt.Sprint("?resource=job:", i%2), ""))
	}
	before := statements()
	for n := range events {
		w.emit("job", fmt.Sprint(n%2), 1)
		require.Equal(t, fmt.Sprint(n+1, " job.0"), all[n%2].next(t))
	}
	for i, f := range all[2:] {
		for n := i % 2; n < events; n += 2 {
			require.Equal(t, fmt.Sprint(n+1, " job.0"), f.next(t), "in order, without a gap, and only what it wants")
		}
	}
	require.Less(t, statements()-before, int64(readers*events/2), "each reader asks the database")
}
