package db

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gate is a source of rows whose queries wait until the test lets each go.
type gate struct {
	mu      sync.Mutex
	queries [][]string
	began   chan struct{}
	let     chan struct{}
}

func newGate() *gate { return &gate{began: make(chan struct{}, 100), let: make(chan struct{}, 100)} }

func (g *gate) read(_ context.Context, keys []string) (map[string]int, error) {
	g.mu.Lock()
	g.queries = append(g.queries, slices.Sorted(slices.Values(keys)))
	g.mu.Unlock()
	g.began <- struct{}{}
	<-g.let
	found := map[string]int{}
	for _, k := range keys {
		switch k {
		case "bad":
			return nil, errors.New("the database refuses a key")
		case "panic":
			panic("a row that cannot be read")
		case "none":
		default:
			found[k] = len(k)
		}
	}
	return found, nil
}

// waitFor waits until so many reads stand in the query that has not begun.
func (s *sharedReads[K, V]) waitFor(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.next != nil && len(s.next.keys) == n
	}, sharedReadLimit, time.Millisecond)
}

// TestSharedReads_BeginAfterTheirReads: a read does not join a query that runs, since what was
// written after it began, such as the end of a token, would not be seen.
func TestSharedReads_BeginAfterTheirReads(t *testing.T) {
	t.Parallel()
	g := newGate()
	s := &sharedReads[string, int]{read: g.read, atOnce: 1}
	var all sync.WaitGroup
	get := func(key string, want int, wantErr error) {
		all.Go(func() {
			got, err := s.get(t.Context(), key)
			if got != want || !errors.Is(err, wantErr) {
				t.Errorf("%s: got %d, %v", key, got, err)
			}
		})
	}
	get("a", 1, nil)
	<-g.began
	get("a", 1, nil)
	get("bb", 2, nil)
	get("none", 0, ErrNotFound)
	s.waitFor(t, 3)
	g.let <- struct{}{}
	<-g.began
	g.let <- struct{}{}
	all.Wait()
	require.Equal(t, [][]string{{"a"}, {"a", "bb", "none"}}, g.queries)
}

// TestSharedReads_KeepOthersApart: a key that the database refuses, and a caller who leaves, are no
// fault of the others in the query.
func TestSharedReads_KeepOthersApart(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"bad", "panic"} {
		g := newGate()
		s := &sharedReads[string, int]{read: g.read, atOnce: 1}
		var all sync.WaitGroup
		all.Go(func() { _, _ = s.get(t.Context(), "first") })
		<-g.began
		reader, leave := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := s.get(reader, "left"); !errors.Is(err, context.Canceled) {
				t.Errorf("left: %v", err)
			}
		})
		all.Go(func() {
			defer func() { _ = recover() }() // alone, it is the reader's own
			if _, err := s.get(t.Context(), bad); err == nil {
				t.Error("the refused key has a row")
			}
		})
		all.Go(func() {
			if got, err := s.get(t.Context(), "good"); got != 4 || err != nil {
				t.Errorf("good: %d, %v", got, err)
			}
		})
		s.waitFor(t, 3)
		leave()
		for range 4 { // the first, the shared one, and the two of it alone
			g.let <- struct{}{}
		}
		all.Wait()
	}
}

// TestSharedReads_AreBounded: a query has an end of keys.
func TestSharedReads_AreBounded(t *testing.T) {
	t.Parallel()
	g := newGate()
	s := &sharedReads[string, int]{read: g.read, atOnce: 1}
	var all sync.WaitGroup
	all.Go(func() { _, _ = s.get(t.Context(), "first") })
	<-g.began
	for i := range maxSharedKeys {
		all.Go(func() { _, _ = s.get(t.Context(), string(rune('a'+i))) })
	}
	s.waitFor(t, maxSharedKeys)
	all.Go(func() { _, _ = s.get(t.Context(), "late") })
	<-g.began
	g.mu.Lock()
	require.Equal(t, []string{"late"}, g.queries[1])
	g.mu.Unlock()
	for range 3 {
		g.let <- struct{}{}
	}
	all.Wait()
}
