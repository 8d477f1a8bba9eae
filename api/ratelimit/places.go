package ratelimit

import (
	"context"
	"sync"
)

// Places are a number of places for each of many names.
type Places struct {
	each int
	mu   sync.Mutex
	of   map[string]*namedPlaces
}

// namedPlaces are the places of one name, with the number of those who use them or wait.
type namedPlaces struct {
	taken chan struct{}
	users int
}

// NewPlaces makes a number of places for each name.
func NewPlaces(each int) *Places {
	return &Places{each: each, of: map[string]*namedPlaces{}}
}

// Enter takes a place of a name, and waits for one until ctx ends. The caller must call leave at
// its end, where there was a place.
func (s *Places) Enter(ctx context.Context, name string) (leave func(), ok bool) {
	s.mu.Lock()
	p := s.of[name]
	if p == nil {
		p = &namedPlaces{taken: make(chan struct{}, s.each)}
		s.of[name] = p
	}
	p.users++
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(s.of, name)
		}
	}
	leave = func() { <-p.taken; forget() }
	select {
	case p.taken <- struct{}{}: // a free place counts, also where nobody waits
		return leave, true
	default:
	}
	select {
	case p.taken <- struct{}{}:
		return leave, true
	case <-ctx.Done():
		forget()
		return nil, false
	}
}

// Len returns how many names have a place or wait for one.
func (s *Places) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of)
}
