package op

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// newFeedFixture returns an API whose statements are counted, and the store of the test.
func newFeedFixture(t *testing.T) (a *API, store *db.Store, statements func() int64) {
	t.Helper()
	store = dbtest.Store(t)
	served, statements := dbtest.Counted(t, store)
	a, err := New(Config{Store: served})
	require.NoError(t, err)
	return a, store, statements
}

func startNow(t *testing.T, store *db.Store) StreamStart {
	t.Helper()
	c, err := store.ReadEventCursor(t.Context())
	require.NoError(t, err)
	from, err := LastEvent{}.Start(Kept(c))
	require.NoError(t, err)
	return from
}

func emit(t *testing.T, store *db.Store, e db.Event, n int) {
	t.Helper()
	for range n {
		require.NoError(t, store.AppendEvent(t.Context(), e))
	}
	_, err := store.RelayEvents(t.Context(), 1000)
	require.NoError(t, err)
}

// await returns the next event.
func await(t *testing.T, f *Follower) *Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(20*time.Second))
	defer cancel()
	for {
		e, changed, err := f.Next(ctx)
		require.NoError(t, err, runenv.Deadline)
		if e != nil {
			return e
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// TestTail_IsBounded: a tail is bounded by count, bytes and age. A follower of older events is
// behind.
func TestTail_IsBounded(t *testing.T) {
	t.Parallel()
	tail := &tail{changed: make(chan struct{})}
	for i := range int64(2 * platformEvents) {
		tail.add([]*Event{{Cursor: i + 1}}, 1)
	}
	require.Len(t, tail.ring, platformEvents)
	require.True(t, tail.after(platformEvents-1).behind)
	require.EqualValues(t, platformEvents+1, tail.after(platformEvents).event.Cursor)
	require.Nil(t, tail.after(2*platformEvents).event)
	for i := range int64(100) {
		tail.add([]*Event{{Cursor: 3*platformEvents + i, Size: 1 << 20}}, 1)
	}
	require.LessOrEqual(t, tail.bytes, platformBytes)
	require.NotEmpty(t, tail.ring)
	for _, e := range tail.ring {
		e.read = time.Now().Add(-2 * tailAge)
	}
	tail.add(nil, 1)
	require.Empty(t, tail.ring)
	require.Zero(t, tail.bytes)
	require.False(t, tail.after(3*platformEvents+99).behind, "who has seen all is not behind")
}

// TestTail_SharesTheMemoryOfOutput: the runs that have readers share the memory for output. Each
// keeps at least its newest chunk.
func TestTail_SharesTheMemoryOfOutput(t *testing.T) {
	t.Parallel()
	tail := &tail{source: Source{Run: "run_a"}, changed: make(chan struct{})}
	for i := range int64(200) {
		tail.add([]*Event{{Cursor: i + 1, Size: 64 << 10}}, 4)
	}
	require.Greater(t, len(tail.ring), 1)
	require.LessOrEqual(t, tail.bytes, outputBytes/4)
	tail.add(nil, 1_000_000)
	require.Len(t, tail.ring, 1)
	require.EqualValues(t, 200, tail.after(199).event.Cursor)
	require.True(t, tail.after(198).behind)
}

// TestShared_BuildsOnce: fifty streams share what the first of them builds.
func TestShared_BuildsOnce(t *testing.T) {
	t.Parallel()
	var built atomic.Int64
	e := &Event{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			v, err := Shared(e, "text", func() (string, error) { return fmt.Sprint(built.Add(1)), nil })
			if v != "1" || err != nil {
				t.Error(v, err)
			}
		})
	}
	wg.Wait()
	_, err := Shared(e, "other", func() (int, error) { return 0, context.Canceled })
	require.Error(t, err)
	n, err := Shared(e, "other", func() (int, error) { return 2, nil })
	require.NoError(t, err, "an error is not shared")
	require.Equal(t, 2, n)
}

// TestFollower_CatchesUp: a follower that resumes far behind the tail reads the database until it
// has reached the tail. It gets each wanted event once and in order.
func TestFollower_CatchesUp(t *testing.T) {
	t.Parallel()
	a, store, _ := newFeedFixture(t)
	emit(t, store, db.Event{ResourceKind: "job", ResourceID: "a", Type: "x"}, 3*ownBatch)
	emit(t, store, db.Event{ResourceKind: "job", ResourceID: "b", Type: "x"}, ownBatch)
	from := startNow(t, store)
	ahead := a.Follow(from, a.PlatformEvents(db.EventFilter{}))
	defer ahead.Leave()
	from.Cursor = 0
	behind := a.Follow(from, a.PlatformEvents(db.EventFilter{ResourceKind: "job", ResourceID: "a"}))
	defer behind.Leave()
	for i := range int64(2 * ownBatch) {
		require.Equal(t, i+1, await(t, behind).Cursor)
	}
	emit(t, store, db.Event{ResourceKind: "job", ResourceID: "b", Type: "x"}, 1)
	emit(t, store, db.Event{ResourceKind: "job", ResourceID: "a", Type: "x"}, 1)
	require.EqualValues(t, 4*ownBatch+1, await(t, ahead).Cursor)
	require.EqualValues(t, 4*ownBatch+2, await(t, ahead).Cursor)
	for i := range int64(ownBatch) {
		require.Equal(t, 2*ownBatch+i+1, await(t, behind).Cursor)
	}
	require.EqualValues(t, 4*ownBatch+2, await(t, behind).Cursor)
	emit(t, store, db.Event{ResourceKind: "job", ResourceID: "a", Type: "x"}, 1)
	one, other := await(t, ahead), await(t, behind)
	require.Same(t, one, other, "both have the event of the tail")
}

// TestFeed_ReadsOnlyProjectsWithEvents: followers of many projects cost one more query. Each
// follower gets only the events of its project.
func TestFeed_ReadsOnlyProjectsWithEvents(t *testing.T) {
	t.Parallel()
	const projects, each, events = 12, 3, 10
	a, store, statements := newFeedFixture(t)
	start := startNow(t, store)
	var followers [projects][]*Follower
	var ids [projects]string
	for i := range projects {
		id := dbtest.Project(t, store).ID
		ids[i] = id
		_, err := store.RelayEvents(t.Context(), 1000)
		require.NoError(t, err)
		source := Source{Project: id, All: func(ctx context.Context, after int64, limit int) (out []*Event, err error) {
			err = a.store.ForProject(ctx, id, func(tx *db.ProjectTx) error {
				rows, err := webhookdb.EventsAfter(ctx, tx, after, limit)
				for _, r := range rows {
					out = append(out, &Event{Cursor: *r.ProjectCursor, Row: r})
				}
				return err
			})
			return out, err
		}}
		var c webhookdb.Cursor
		require.NoError(t, store.ForProject(t.Context(), id, func(tx *db.ProjectTx) (err error) {
			c, err = webhookdb.ReadCursor(t.Context(), tx)
			return err
		}))
		from, err := LastEvent{}.Start(Kept{Last: c.Last, Epoch: start.Epoch})
		require.NoError(t, err)
		for range each {
			f := a.Follow(from, source)
			defer f.Leave()
			followers[i] = append(followers[i], f)
		}
	}
	emitIn := func(i, n int) {
		emit(t, store, db.Event{ResourceKind: "project", ResourceID: fmt.Sprint(ids[i], n), Type: "member.added", ProjectID: &ids[i]}, 1)
		for _, f := range followers[i] {
			row, _ := await(t, f).Row.(webhookdb.Event)
			require.Equal(t, fmt.Sprint(ids[i], n), row.ResourceID)
		}
	}
	for i := range projects {
		emitIn(i, -1) // every tail has been read
	}
	before := statements()
	for n := range events {
		emitIn(0, n)
	}
	require.Less(t, statements()-before, int64(projects*events), "each project is read for each event")
}
