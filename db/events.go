package db

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Event is what a follower reads. Its cursor is given when it is relayed: a
// reader that has seen a cursor has missed nothing before it.
type Event = gen.Event

// AppendEvent puts an event into the outbox; Cursor and At are given later.
// Transitions and projections write their own. An event with a ProjectID is shown to the members of
// the project, so its payload holds nothing else; its type is one of lifecycle.ProjectEventTypes.
func (s statements) AppendEvent(ctx context.Context, e Event) error {
	if len(e.Payload) == 0 {
		e.Payload = []byte("{}")
	}
	params := gen.AppendEventParams{
		ResourceKind: e.ResourceKind, ResourceID: e.ResourceID, NodeID: e.NodeID, Type: e.Type, Payload: e.Payload,
	}
	if e.ProjectID != nil {
		if !lifecycle.IsProjectEvent(e.Type) {
			return fmt.Errorf("lifecycle.ProjectEventTypes does not list the type %q: no webhook could ask for it", e.Type)
		}
		params.ProjectID, params.EventID = *e.ProjectID, NewID("evt")
	}
	return MapError("event "+e.Type, s.q.AppendEvent(ctx, params))
}

// RelayEvents gives cursors to the oldest committed events of the outbox, in
// one transaction under one lock, and returns how many. When another relay is
// at work it returns 0 at once. Call it again while it returns limit.
func (s *Store) RelayEvents(ctx context.Context, limit int) (int, error) {
	relayed := 0
	err := s.Tx(ctx, func(tx *Tx) error {
		relayed = 0
		locked, err := tx.q.TryLock(ctx, "slipway:relay")
		if err != nil || !locked {
			return MapError("lock the relay", err)
		}
		if _, err := tx.q.LockEventCursor(ctx); err != nil {
			return MapError("lock the event cursor", err)
		}
		n, err := tx.q.RelayEvents(ctx, PageLimit(limit))
		relayed = int(n)
		return MapError("relay events", err)
	})
	return relayed, err
}

// EventFilter narrows what is followed; empty fields match all.
type EventFilter struct {
	ResourceKind, ResourceID, NodeID string
}

// EventsAfter lists events after a cursor, in order.
func (s statements) EventsAfter(ctx context.Context, cursor int64, f EventFilter, limit int) ([]Event, error) {
	rows, err := s.q.EventsAfter(ctx, gen.EventsAfterParams{
		After: cursor, ResourceKind: f.ResourceKind, ResourceID: f.ResourceID, NodeID: f.NodeID, MaxRows: PageLimit(limit),
	})
	return rows, MapError("list events", err)
}

// EventCursor says which cursors were given: Last is the one given last, 0 before the first, Pruned
// the greatest of an event that was deleted, 0 before any was. Epoch is another text after the
// database was restored.
type EventCursor = gen.EventCursorRow

// ReadEventCursor reads the cursor of all events.
func (s statements) ReadEventCursor(ctx context.Context) (EventCursor, error) {
	c, err := s.q.EventCursor(ctx)
	return c, MapError("read the event cursor", err)
}

// ProjectCursorKey returns the key with which the cursors of all events are hidden from the readers
// of a project. It is another one after a restore.
func (s statements) ProjectCursorKey(ctx context.Context, project string) ([]byte, error) {
	key, err := s.q.ProjectCursorKey(ctx, project)
	return key, MapError("read the key of cursors", err)
}

// PruneEvents deletes events older than before, some thousands at a time, and
// returns how many; call it until that is 0. Cursors are never given twice.
func (s *Store) PruneEvents(ctx context.Context, before time.Time) (int64, error) {
	var n int64
	err := s.Tx(ctx, func(tx *Tx) error {
		if _, err := tx.q.LockEventCursor(ctx); err != nil {
			return MapError("lock the event cursor", err)
		}
		var err error
		n, err = tx.q.PruneEvents(ctx, gen.PruneEventsParams{Before: before, MaxRows: PruneBatch})
		return MapError("prune events", err)
	})
	return n, err
}
