package db

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// sharedReadLimit bounds one query of a sharedReads.
	sharedReadLimit = 15 * time.Second
	// sharedAtOnce is atOnce of the reads of a Store: one connection that hangs does not stop them.
	sharedAtOnce = 3
	// maxSharedKeys bounds the keys of one query. A read that finds it full asks by itself.
	maxSharedKeys = 100
)

// sharedReads answers reads of single rows that arrive at the same time with one query for all of
// them. A read is answered by a query that begins after the read has arrived, so that it never sees
// less than a query of its own would: a token that was revoked before is revoked.
type sharedReads[K comparable, V any] struct {
	// read returns the rows that exist. The keys are distinct.
	read func(ctx context.Context, keys []K) (map[K]V, error)
	// atOnce is how many queries run at a time; reads that arrive while they run wait together.
	atOnce int

	mu      sync.Mutex
	running int
	next    *sharedRead[K, V] // the reads that wait; nil for none
}

// sharedRead is one query and the reads that it answers.
type sharedRead[K comparable, V any] struct {
	keys  map[K]struct{}
	done  chan struct{}
	found map[K]V
	err   error
}

// get returns the row of a key. It returns ErrNotFound when there is none.
func (s *sharedReads[K, V]) get(ctx context.Context, key K) (V, error) {
	var none V
	q, begin := s.join(key)
	if q == nil {
		return s.alone(ctx, key)
	}
	if begin {
		go s.run(context.WithoutCancel(ctx), q)
	}
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case <-q.done:
	}
	if q.err != nil {
		if len(q.keys) > 1 { // another's key may be what the database refuses
			return s.alone(ctx, key)
		}
		return none, q.err
	}
	v, ok := q.found[key]
	if !ok {
		return none, ErrNotFound
	}
	return v, nil
}

// join returns the query that answers the key, and whether the caller has to run it. It returns nil
// when the query that waits is full.
func (s *sharedReads[K, V]) join(key K) (q *sharedRead[K, V], begin bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &sharedRead[K, V]{keys: map[K]struct{}{}, done: make(chan struct{})}
	}
	q = s.next
	if len(q.keys) >= maxSharedKeys {
		return nil, false
	}
	q.keys[key] = struct{}{}
	if s.running >= s.atOnce {
		return q, false
	}
	s.running++
	s.next = nil
	return q, true
}

// run runs the query, and then those that have come together meanwhile.
func (s *sharedReads[K, V]) run(ctx context.Context, q *sharedRead[K, V]) {
	for q != nil {
		s.ask(ctx, q)
		s.mu.Lock()
		q, s.next = s.next, nil
		if q == nil {
			s.running--
		}
		s.mu.Unlock()
	}
}

func (s *sharedReads[K, V]) ask(ctx context.Context, q *sharedRead[K, V]) {
	ctx, cancel := context.WithTimeout(ctx, sharedReadLimit)
	defer cancel()
	defer close(q.done)
	defer func() {
		if cause := recover(); cause != nil { // no request's goroutine would recover it
			q.err = fmt.Errorf("a shared read failed: %v", cause)
		}
	}()
	keys := make([]K, 0, len(q.keys))
	for k := range q.keys {
		keys = append(keys, k)
	}
	q.found, q.err = s.read(ctx, keys)
}

func (s *sharedReads[K, V]) alone(ctx context.Context, key K) (V, error) {
	found, err := s.read(ctx, []K{key})
	v, ok := found[key]
	if err == nil && !ok {
		err = ErrNotFound
	}
	return v, err
}
