package db_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Writers commit out of order while relays compete; a follower that reads as
// it goes sees every event once and never one behind its cursor.
func TestManyRelaysGiveEachEventOnceAndLeaveNoGap(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	const writers, each = 4, 60
	ctx, stop := context.WithCancel(t.Context())
	var relays, writing sync.WaitGroup
	var relayed atomic.Int64
	for range 4 {
		relays.Go(func() {
			for ctx.Err() == nil {
				n, err := s.RelayEvents(t.Context(), 7)
				if err != nil {
					t.Error(err)
					return
				}
				relayed.Add(int64(n))
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				err := s.Tx(t.Context(), func(tx *db.Tx) error {
					return tx.AppendEvent(t.Context(), db.Event{ResourceKind: "test", ResourceID: fmt.Sprint(w), Type: fmt.Sprint(i)})
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	var followed []db.Event
	require.Eventually(t, func() bool {
		after := int64(len(followed)) // without a gap the cursor is the count
		more, err := s.EventsAfter(t.Context(), after, db.EventFilter{}, 50)
		require.NoError(t, err)
		followed = append(followed, more...)
		return len(followed) >= writers*each
	}, runenv.Patience(30*time.Second), time.Millisecond)
	writing.Wait()
	stop()
	relays.Wait()
	require.EqualValues(t, writers*each, relayed.Load())
	seen := map[string]int{}
	for i, e := range followed {
		require.EqualValues(t, i+1, e.Cursor)
		require.Equal(t, fmt.Sprint(seen[e.ResourceID]), e.Type, "one writer's events keep their order")
		seen[e.ResourceID]++
	}
	last, err := s.ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, writers*each, last.Last)
	left, err := s.OutboxBacklog(t.Context(), "event")
	require.NoError(t, err)
	require.Zero(t, left.Open)
}

func TestPrunedCursorsAreNeverGivenAgain(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	emit := func() {
		require.NoError(t, s.AppendEvent(t.Context(), db.Event{ResourceKind: "test", ResourceID: "a", Type: "x"}))
		n, err := s.RelayEvents(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	emit()
	n, err := s.PruneEvents(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	emit()
	cursor, err := s.ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, cursor.Pruned)
	require.EqualValues(t, 2, cursor.Last)
	events, err := s.EventsAfter(t.Context(), 0, db.EventFilter{}, 10)
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.EqualValues(t, 2, events[0].Cursor)
	n, err = s.PruneOutbox(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

// TestPruneEvents_WaitsForTheRelay prunes while a relay gives cursors: it locks no event before it
// has the cursor, so that neither waits for the other in a circle.
func TestPruneEvents_WaitsForTheRelay(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	require.NoError(t, s.AppendEvent(t.Context(), db.Event{ResourceKind: "test", ResourceID: "a", Type: "x"}))
	_, err := s.RelayEvents(t.Context(), 10)
	require.NoError(t, err)
	pruned := make(chan error, 1)
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.DBTX().Exec(t.Context(), "UPDATE event_cursor SET last = last"); err != nil {
			return err
		}
		go func() {
			n, err := s.PruneEvents(t.Context(), time.Now().Add(time.Hour))
			if err == nil && n != 1 {
				err = fmt.Errorf("%d events were deleted", n)
			}
			pruned <- err
		}()
		require.Eventually(t, func() bool {
			var waits bool
			const blocked = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0)"
			return s.DBTX().QueryRow(t.Context(), blocked).Scan(&waits) == nil && waits
		}, runenv.Patience(30*time.Second), time.Millisecond)
		var holds int
		const held = `SELECT count(*) FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND relation = 'events'::regclass AND mode = 'RowExclusiveLock' AND granted`
		err := tx.DBTX().QueryRow(t.Context(), held).Scan(&holds)
		require.Zero(t, holds)
		return err
	}))
	require.NoError(t, <-pruned)
}

func TestEachStartIsClaimedOnce(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	want := map[string]bool{}
	for range 30 {
		want[dbtest.Job(t, s, dbtest.At(site.ID)).ID] = true
	}
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for w := range 5 {
		wg.Go(func() {
			for {
				rows, err := s.ClaimOutbox(t.Context(), fmt.Sprint("relay-", w), 3, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if len(rows) == 0 {
					return
				}
				for _, r := range rows {
					mu.Lock()
					got[r.JobID]++
					mu.Unlock()
					if err := s.CompleteOutbox(t.Context(), r.ID); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, got, len(want))
	for id, n := range got {
		require.True(t, want[id])
		require.Equal(t, 1, n)
	}
}

func TestAStartComesBackWhenItFailedOrItsLeaseRanOut(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s)
	claim := func(lease time.Duration) []db.Start {
		rows, err := s.ClaimOutbox(t.Context(), "r", 10, lease)
		require.NoError(t, err)
		return rows
	}
	first := claim(time.Minute)
	require.Len(t, first, 1)
	require.Equal(t, j.WorkflowID, first[0].WorkflowID)
	require.Equal(t, *j.NodeID, *first[0].NodeID)
	require.Empty(t, claim(time.Minute), "leased")

	require.NoError(t, s.FailOutbox(t.Context(), first[0].ID, errors.New("Temporal does not answer \x00"+strings.Repeat("x", 5000)), time.Hour))
	require.Empty(t, claim(time.Minute), "not due")
	require.NoError(t, s.FailOutbox(t.Context(), first[0].ID, errors.New("again"), -time.Second))
	second := claim(0)
	require.Len(t, second, 1)
	require.Equal(t, 2, second[0].Attempts)
	third := claim(time.Minute)
	require.Len(t, third, 1, "a lease of nothing has run out")

	require.NoError(t, s.CompleteOutbox(t.Context(), third[0].ID))
	require.NoError(t, s.CompleteOutbox(t.Context(), third[0].ID))
	require.NoError(t, s.FailOutbox(t.Context(), third[0].ID, errors.New("late"), 0))
	require.Empty(t, claim(time.Minute), "done stays done")

	require.NoError(t, s.EnqueueStart(t.Context(), j.ID))
	require.NoError(t, s.EnqueueStart(t.Context(), j.ID), "an open start is not doubled")
	require.Len(t, claim(time.Minute), 1)
	require.ErrorIs(t, s.EnqueueStart(t.Context(), "job_none"), db.ErrNotFound)
}

func TestAJobThatEndedIsNotStarted(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobCancelled))
	rows, err := s.ClaimOutbox(t.Context(), "r", 10, time.Minute)
	require.NoError(t, err)
	require.Empty(t, rows)
}

// Five claimers work on a batch of twelve with room for three; at no moment
// are more than three at work, and in the end all were.
func TestABatchNeverRunsMoreThanItMay(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	b, err := s.CreateBatch(t.Context(), db.NewBatch{SiteID: site.ID, Name: "rack 7", MaxParallel: 3, CreatedBy: "ada"})
	require.NoError(t, err)
	const items = 12
	for range items {
		dbtest.Job(t, s, dbtest.At(site.ID), dbtest.In(b.ID))
	}
	alone := dbtest.Job(t, s, dbtest.At(site.ID))
	var busy, most, done atomic.Int32
	var wg sync.WaitGroup
	for w := range 5 {
		wg.Go(func() {
			for done.Load() < items && t.Context().Err() == nil {
				rows, err := s.ClaimOutbox(t.Context(), fmt.Sprint("relay-", w), 10, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range rows {
					if r.JobID == alone.ID {
						continue
					}
					now := busy.Add(1)
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
				}
				for _, r := range rows {
					if r.JobID == alone.ID {
						continue
					}
					if err := runToEnd(t.Context(), s, r, func() { busy.Add(-1) }); err != nil {
						t.Error(err)
						return
					}
					done.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, items, done.Load())
	require.LessOrEqual(t, most.Load(), int32(3))
	require.Positive(t, most.Load())
}

// runToEnd takes a claimed job through its life; free is called before the
// database can know that it ended.
func runToEnd(ctx context.Context, s *db.Store, r db.Start, free func()) error {
	move := func(m lifecycle.Transition[lifecycle.JobStatus]) error {
		return s.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.TransitionJob(ctx, r.JobID, m, nil, db.Actor{Owner: lifecycle.OwnerJob})
			return err
		})
	}
	if err := s.CompleteOutbox(ctx, r.ID); err != nil {
		return err
	}
	if err := move(lifecycle.JobStart); err != nil {
		return err
	}
	free()
	return move(lifecycle.JobComplete)
}

func TestAnItemThatWaitsForAPersonDoesNotBlockItsBatch(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	b, err := s.CreateBatch(t.Context(), db.NewBatch{SiteID: site.ID, MaxParallel: 1})
	require.NoError(t, err)
	first := dbtest.Job(t, s, dbtest.At(site.ID), dbtest.In(b.ID))
	second := dbtest.Job(t, s, dbtest.At(site.ID), dbtest.In(b.ID))
	claim := func() []string {
		rows, err := s.ClaimOutbox(t.Context(), "r", 10, time.Minute)
		require.NoError(t, err)
		ids := []string{}
		for _, r := range rows {
			require.NoError(t, s.CompleteOutbox(t.Context(), r.ID))
			ids = append(ids, r.JobID)
		}
		return ids
	}
	require.Equal(t, []string{first.ID}, claim())
	require.Empty(t, claim(), "started and still pending")
	p := projection(first, 1)
	_, err = project(t, s, p)
	require.NoError(t, err)
	require.Empty(t, claim(), "running")
	p.Seq, p.Status, p.FailureClass = 2, lifecycle.JobFailedManual, lifecycle.FailBootDiskNotFound
	_, err = project(t, s, p)
	require.NoError(t, err)
	require.Equal(t, []string{second.ID}, claim())

	why := "hostname is taken"
	for i, j := range []*string{&first.ID, &second.ID, nil} {
		var rejected *string
		if j == nil {
			rejected = &why
		}
		require.NoError(t, s.AddBatchItem(t.Context(), b.ID, i, fmt.Sprint("host-", i), j, rejected))
	}
	items, err := s.BatchItems(t.Context(), b.ID, 0, 10)
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.Equal(t, "pending", items[0].JobStatus)
	require.Equal(t, why, *items[1].Error)
	counts, err := s.BatchCounts(t.Context(), b.ID)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"failed_manual_intervention": 1, "pending": 1, "rejected": 1}, counts)
	batches, err := s.ListBatches(t.Context(), site.ID, "", 0)
	require.NoError(t, err)
	require.Len(t, batches, 1)
}

func TestListenersAreWokenAndComeBackAfterALostConnection(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	ctx, stop := context.WithCancel(t.Context())
	var outbox, events atomic.Int32
	ended := make(chan error, 2)
	go func() { ended <- s.Listen(ctx, db.ChannelOutbox, func() { outbox.Add(1) }) }()
	go func() { ended <- s.Listen(ctx, db.ChannelEvents, func() { events.Add(1) }) }()
	require.Eventually(t, func() bool { return outbox.Load() == 1 && events.Load() == 1 }, runenv.Patience(10*time.Second), time.Millisecond, "called once connected")

	require.NoError(t, s.AppendEvent(t.Context(), db.Event{ResourceKind: "test", ResourceID: "a", Type: "x"}))
	require.Eventually(t, func() bool { return outbox.Load() == 2 }, runenv.Patience(10*time.Second), time.Millisecond)
	_, err := s.RelayEvents(t.Context(), 10)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return events.Load() == 2 }, runenv.Patience(10*time.Second), time.Millisecond)

	exec(t, conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%LISTEN slipway_outbox%' AND pid <> pg_backend_pid()")
	require.Eventually(t, func() bool { return outbox.Load() >= 3 }, runenv.Patience(10*time.Second), time.Millisecond, "called again once connected again")
	stop()
	for range 2 {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	require.ErrorContains(t, s.Listen(t.Context(), "other", nil), "there is no channel")
}

func TestEventsAreFilteredByWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobRunning))
	dbtest.Node(t, s)
	_, err := s.RelayEvents(t.Context(), 100)
	require.NoError(t, err)
	types := func(f db.EventFilter) []string {
		events, err := s.EventsAfter(t.Context(), 0, f, 0)
		require.NoError(t, err)
		out := []string{}
		for _, e := range events {
			out = append(out, e.Type)
		}
		return out
	}
	require.Equal(t, []string{"node.bootstrap_issued", "job.pending", "job.running"}, types(db.EventFilter{NodeID: *j.NodeID}))
	require.Equal(t, []string{"job.pending", "job.running"}, types(db.EventFilter{ResourceKind: "job", ResourceID: j.ID}))
	require.Len(t, types(db.EventFilter{ResourceKind: "node"}), 2)
	require.True(t, slices.Contains(types(db.EventFilter{}), "job.running"))
}
