package paymentsdb

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/payments/gen"
)

// EventState is what became of an event.
type EventState string

// The states of an event. An unmatched event is about a session of ours that is in no row: the
// database was restored, or somebody has our key.
const (
	EventPending   EventState = "pending"
	EventProcessed EventState = "processed"
	EventIgnored   EventState = "ignored"
	EventForeign   EventState = "foreign"
	EventUnmatched EventState = "unmatched"
)

// The ways in which an event came.
const (
	FromWebhook = "webhook"
	FromList    = "list"
)

// NewEvent is what the payment provider told, as it came.
type NewEvent struct {
	ID, Type             string
	ObjectKind, ObjectID string
	Live                 bool
	Release              string
	Source               string
	Body                 []byte
	At                   time.Time
	State                EventState
}

// StoreEvent stores an event. It returns false when it was stored before.
func StoreEvent(ctx context.Context, tx *db.Tx, e NewEvent) (bool, error) {
	n, err := queries(tx).InsertEvent(ctx, gen.InsertEventParams{
		ID: e.ID, Type: e.Type, ObjectKind: e.ObjectKind, ObjectID: e.ObjectID, Live: e.Live, Release: e.Release, Source: e.Source, Body: e.Body,
		EventAt: e.At, State: string(e.State),
	})
	return n > 0, db.MapError("event "+e.ID, err)
}

// ClaimEvents returns events that are to be processed, and keeps them from other processes for a
// time: one that dies leaves them to the next.
func ClaimEvents(ctx context.Context, c Conn, limit int, lease time.Duration) ([]DueEvent, error) {
	rows, err := queries(c).ClaimEvents(ctx, gen.ClaimEventsParams{MaxRows: db.PageLimit(limit), LeaseSeconds: lease.Seconds()})
	return rows, db.MapError("events of the payment provider", err)
}

// FinishEvent ends the processing of an event; sessionID is the session that it was about, "" for
// none. It can be repeated.
func FinishEvent(ctx context.Context, c Conn, id string, state EventState, sessionID, note string) error {
	_, err := queries(c).FinishEvent(ctx, gen.FinishEventParams{
		ID: id, State: string(state), SessionID: db.OrNil(sessionID), LastError: db.ClipText(note, db.MaxMessage),
	})
	return db.MapError("event "+id, err)
}

// PostponeEvent stores that an event is processed again after a time.
func PostponeEvent(ctx context.Context, c Conn, id string, wait time.Duration, problem string) error {
	_, err := queries(c).PostponeEvent(ctx, gen.PostponeEventParams{ID: id, WaitSeconds: wait.Seconds(), LastError: db.ClipText(problem, db.MaxMessage)})
	return db.MapError("event "+id, err)
}

// CountEvents counts events by state.
func CountEvents(ctx context.Context, c Conn) (map[EventState]int64, error) {
	rows, err := queries(c).CountEvents(ctx)
	out := map[EventState]int64{}
	for _, r := range rows {
		out[EventState(r.State)] = r.Events
	}
	return out, db.MapError("count events of the payment provider", err)
}

// PruneEvents deletes a batch of events that came before a time.
func PruneEvents(ctx context.Context, c Conn, before time.Time) (int64, error) {
	n, err := queries(c).PruneEvents(ctx, gen.PruneEventsParams{Before: before, MaxRows: db.PruneBatch})
	return n, db.MapError("prune events of the payment provider", err)
}
