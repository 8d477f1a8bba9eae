package agentapi

import (
	"context"
	"time"
)

// Queue puts a beat in line as the heartbeat endpoint does.
func (s *Server) Queue(b Beat) error { return s.beats.add(b) }

// ClockOf is how the server tells the time of its store.
func ClockOf(c Clock) func(context.Context) (time.Time, error) { return (&dbClock{source: c}).now }

// StandingsOf is how the server asks a store how a node stands.
func StandingsOf(s Store) func(context.Context, ShownKey) (Standing, error) {
	return (&standings{store: s}).of
}
