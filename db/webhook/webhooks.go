package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/webhook/gen"
)

// Webhook is an address of a project that receives its events.
type Webhook = gen.Webhook

// Delivery is one event for one webhook.
type Delivery = gen.WebhookDelivery

// Event is an event of a project.
type Event = gen.ProjectEventsAfterRow

// The values of a webhook's status and of the reason for which it is disabled.
const (
	Enabled   = "enabled"
	Disabled  = "disabled"
	ByRequest = "by_request"
	Gone      = "gone" // the endpoint answered 410
)

var what = db.Named("webhook")

// LockProject waits for the project's row and returns its status, so that two requests do not both
// take the last place.
func LockProject(ctx context.Context, tx *db.ProjectTx) (string, error) {
	status, err := queries(tx).LockProject(ctx, tx.Project())
	return string(status), db.MapError("project", err)
}

// Count returns how many webhooks the project has.
func Count(ctx context.Context, tx *db.ProjectTx) (int64, error) {
	n, err := queries(tx).CountWebhooks(ctx, tx.Project())
	return n, db.MapError("count webhooks", err)
}

// Add stores a new webhook.
func Add(ctx context.Context, tx *db.ProjectTx, w Webhook) (Webhook, error) {
	row, err := queries(tx).InsertWebhook(ctx, gen.InsertWebhookParams{
		ProjectID: tx.Project(), ID: w.ID, Name: w.Name, URL: w.URL, EventTypes: db.EmptyIfNil(w.EventTypes), SecretRef: w.SecretRef,
	})
	return row, db.MapError(what(w.Name), err)
}

// Find reads one webhook.
func Find(ctx context.Context, tx *db.ProjectTx, id string) (Webhook, error) {
	row, err := queries(tx).Webhook(ctx, gen.WebhookParams{ProjectID: tx.Project(), ID: id})
	return row, db.MapError(what(id), err)
}

// List lists webhooks by id, from the one after the id given.
func List(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]Webhook, error) {
	rows, err := queries(tx).ListWebhooks(ctx, gen.ListWebhooksParams{ProjectID: tx.Project(), After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list webhooks", err)
}

// Update stores name, URL, event types and status of the version that w has. The queue is tried
// again at once.
func Update(ctx context.Context, tx *db.ProjectTx, w Webhook) (Webhook, error) {
	row, err := queries(tx).UpdateWebhook(ctx, gen.UpdateWebhookParams{
		ProjectID: tx.Project(), ID: w.ID, Name: w.Name, URL: w.URL, EventTypes: db.EmptyIfNil(w.EventTypes), Status: w.Status,
		DisabledReason: w.DisabledReason, Version: w.Version,
	})
	return db.CheckUpdate(what(w.ID), row, err, func() error {
		_, err := Find(ctx, tx, w.ID)
		return err
	})
}

// RotateSecret makes ref the secret; the one before signs too until the overlap is over.
func RotateSecret(ctx context.Context, tx *db.ProjectTx, id string, version int64, ref string, overlap time.Duration) (Webhook, error) {
	row, err := queries(tx).RotateSecret(ctx, gen.RotateSecretParams{
		ProjectID: tx.Project(), ID: id, Version: version, SecretRef: ref, OverlapSeconds: overlap.Seconds(),
	})
	return db.CheckUpdate(what(id), row, err, func() error {
		_, err := Find(ctx, tx, id)
		return err
	})
}

// Delete deletes a webhook of this version with its deliveries.
func Delete(ctx context.Context, tx *db.ProjectTx, id string, version int64) error {
	n, err := queries(tx).DeleteWebhook(ctx, gen.DeleteWebhookParams{ProjectID: tx.Project(), ID: id, Version: version})
	if err == nil && n == 0 {
		if _, err = Find(ctx, tx, id); err == nil {
			err = fmt.Errorf("%s: %w", what(id), db.ErrStale)
		}
		return err
	}
	return db.MapError(what(id), err)
}

// QueueTest queues a test event for a webhook and returns its id.
func QueueTest(ctx context.Context, tx *db.ProjectTx, webhookID string) (string, error) {
	id := db.NewID("evt")
	q := queries(tx)
	err := q.QueueDelivery(ctx, gen.QueueDeliveryParams{
		ProjectID: tx.Project(), WebhookID: webhookID, EventID: id, Type: "webhook.test", Subject: "webhooks/" + webhookID, Data: json.RawMessage(`{"test":true}`),
	})
	if err == nil {
		err = q.WakeWebhook(ctx, gen.WakeWebhookParams{ProjectID: tx.Project(), ID: webhookID})
	}
	return id, db.MapError("test of "+what(webhookID), err)
}

// ListDeliveries lists deliveries of a webhook, newest first, from the one before the event given.
func ListDeliveries(ctx context.Context, tx *db.ProjectTx, webhookID, status, before string, limit int) ([]Delivery, error) {
	rows, err := queries(tx).ListDeliveries(ctx, gen.ListDeliveriesParams{
		ProjectID: tx.Project(), WebhookID: webhookID, Before: before, Status: status, MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("list deliveries", err)
}

// Redeliver queues an ended delivery again. A delivery that is pending already stays as it is.
func Redeliver(ctx context.Context, tx *db.ProjectTx, webhookID, eventID string) error {
	q := queries(tx)
	n, err := q.Redeliver(ctx, gen.RedeliverParams{ProjectID: tx.Project(), WebhookID: webhookID, EventID: eventID})
	if err == nil && n == 0 {
		rows, err := q.ListDeliveries(ctx, gen.ListDeliveriesParams{ProjectID: tx.Project(), WebhookID: webhookID, Before: eventID + "\x7f", MaxRows: 1})
		if err == nil && (len(rows) == 0 || rows[0].EventID != eventID) {
			err = pgx.ErrNoRows
		}
		return db.MapError("delivery of "+eventID, err)
	}
	if err == nil {
		err = q.WakeWebhook(ctx, gen.WakeWebhookParams{ProjectID: tx.Project(), ID: webhookID})
	}
	return db.MapError("delivery of "+eventID, err)
}

// Replayed is what a replay has queued: the deliveries, the cursor of the last event that it looked
// at, and how many events that were.
type Replayed = gen.ReplayRow

// Replay queues the next events after a cursor for a webhook again, sent or not.
func Replay(ctx context.Context, tx *db.ProjectTx, webhookID string, after int64, limit int) (Replayed, error) {
	project := tx.Project()
	q := queries(tx)
	r, err := q.Replay(ctx, gen.ReplayParams{ProjectID: &project, After: after, WebhookID: webhookID, MaxRows: db.PageLimit(limit)})
	if err == nil {
		err = q.WakeWebhook(ctx, gen.WakeWebhookParams{ProjectID: project, ID: webhookID})
	}
	return r, db.MapError("replay for "+what(webhookID), err)
}

// EventsAfter lists events of the project after its cursor, in order.
func EventsAfter(ctx context.Context, tx *db.ProjectTx, after int64, limit int) ([]Event, error) {
	project := tx.Project()
	rows, err := queries(tx).ProjectEventsAfter(ctx, gen.ProjectEventsAfterParams{ProjectID: &project, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list events", err)
}

// Cursor says which cursors the project's events have: Last is that of the last event, 0 before the
// first, Pruned the greatest of an event that was deleted.
type Cursor = gen.ProjectCursorRow

// ReadCursor reads the cursor of the project's events.
func ReadCursor(ctx context.Context, tx *db.ProjectTx) (Cursor, error) {
	c, err := queries(tx).ProjectCursor(ctx, tx.Project())
	if err = db.MapError("event cursor", err); errors.Is(err, db.ErrNotFound) {
		return Cursor{}, nil
	}
	return c, err
}

// LastCursors returns the cursor of the last event of each of the projects that has events.
func LastCursors(ctx context.Context, c db.Conn, projects []string) (map[string]int64, error) {
	rows, err := queries(c).LastCursors(ctx, projects)
	last := make(map[string]int64, len(rows))
	for _, r := range rows {
		last[r.ProjectID] = r.Last
	}
	return last, db.MapError("event cursors", err)
}
