package agentapi

import (
	"context"
	"time"
)

// Queue queues a heartbeat as the heartbeat endpoint does.
func (s *Server) Queue(b Heartbeat) error { return s.heartbeats.add(b) }

// ClockOf is how the server tells the time of its store.
func ClockOf(c Clock) func(context.Context) (time.Time, error) { return (&dbClock{source: c}).now }

// NewStandingReader is how the server asks a store how a node stands.
func NewStandingReader(s Store) func(context.Context, string) (Standing, error) {
	return (&identityBatcher{store: s}).standing
}

// HashOf is how tokens and keys of workers are stored.
var HashOf = hashOf
