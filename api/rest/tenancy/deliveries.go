package tenancy

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
)

// Delivery is one event on its way to a webhook.
type Delivery struct {
	EventID    string     `json:"event_id" doc:"The webhook-id of every attempt"`
	Cursor     int64      `json:"cursor,omitempty" doc:"Of the event; absent for a test"`
	Type       string     `json:"type"`
	Subject    string     `json:"subject"`
	Status     string     `json:"status" enum:"pending,delivered,dead"`
	Attempts   int        `json:"attempts"`
	NextAt     *time.Time `json:"next_at,omitempty" doc:"When it is tried again at the earliest"`
	Answer     int        `json:"answer,omitempty" doc:"The status that the endpoint answered last"`
	Error      string     `json:"error,omitempty"`
	OccurredAt time.Time  `json:"occurred_at"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
}

func deliveryView(d webhookdb.Delivery) Delivery {
	out := Delivery{d.EventID, d.EventCursor, d.Type, d.Subject, d.Status, d.Attempts, nil, d.AnswerStatus, d.Reason, d.OccurredAt.UTC(), utc(d.EndedAt)}
	if d.Status == webhookdb.Pending {
		out.NextAt = utc(&d.NextAt)
	}
	return out
}

func (s *eventServer) listDeliveries(ctx context.Context, in *struct {
	WebhookPath
	op.Page
	Status string `query:"status" enum:"pending,delivered,dead"`
}) (*op.Listed[Delivery], error) {
	list := func(ctx context.Context, tx *db.ProjectTx, before string, limit int) ([]webhookdb.Delivery, error) {
		if _, err := webhookdb.Find(ctx, tx, in.WebhookID); err != nil {
			return nil, err
		}
		return webhookdb.ListDeliveries(ctx, tx, in.WebhookID, in.Status, before, limit)
	}
	return listIn(ctx, s.server, in.Page, list, func(d webhookdb.Delivery) string { return d.EventID }, deliveryView)
}

// Queued names what was queued for a webhook.
type Queued struct {
	EventID string `json:"event_id" doc:"Its delivery is in the list of deliveries"`
}

// maxPending is how many deliveries of a webhook may wait before no more can be asked for.
const maxPending = 100_000

// queueOnce runs a change of the queue of a webhook that is there, once for each idempotency key.
// do returns the answer, and what the audit row holds beside the webhook.
func queueOnce[T any](
	ctx context.Context, s *eventServer, in WebhookPath, key op.Key, body any, audit string, do func(*db.ProjectTx) (T, map[string]any, error),
) (*op.Created[T], error) {
	return op.CreateInProject(ctx, s.api, key, body, nil, func(tx *db.ProjectTx) (*op.Created[T], error) {
		if err := lockActive(ctx, tx); err != nil {
			return nil, err
		}
		w, err := webhookdb.Find(ctx, tx, in.WebhookID)
		if err != nil {
			return nil, err
		}
		if w.Status == webhookdb.Disabled {
			return nil, problem.New(problem.Conflict, "the webhook is disabled, so that nothing is sent to it; enable it first")
		}
		n, err := webhookdb.CountPending(ctx, tx, w.ID, maxPending)
		if err != nil {
			return nil, err
		}
		if n >= maxPending {
			return nil, problem.New(problem.Conflict, fmt.Sprintf("%d deliveries of the webhook wait, as many as can be asked for; wait until its endpoint has received them", n))
		}
		out, meta, err := do(tx)
		if err != nil {
			return nil, err
		}
		meta["webhook"], meta["name"] = w.ID, w.Name
		return &op.Created[T]{Status: http.StatusOK, Body: out}, op.AuditProject(ctx, tx, audit, meta)
	})
}

func (s *eventServer) testWebhook(ctx context.Context, in *struct {
	WebhookPath
	op.Key
}) (*op.Created[Queued], error) {
	return queueOnce(ctx, s, in.WebhookPath, in.Key, nil, "test_webhook", func(tx *db.ProjectTx) (Queued, map[string]any, error) {
		id, err := webhookdb.QueueTest(ctx, tx, in.WebhookID)
		return Queued{id}, map[string]any{"event": id}, err
	})
}

func (s *eventServer) redeliver(ctx context.Context, in *struct {
	WebhookPath
	op.Key
	EventID string `path:"event_id" maxLength:"200" doc:"evt_..."`
}) (*op.Created[Queued], error) {
	return queueOnce(ctx, s, in.WebhookPath, in.Key, nil, "redeliver_webhook_event", func(tx *db.ProjectTx) (Queued, map[string]any, error) {
		return Queued{in.EventID}, map[string]any{"event": in.EventID}, webhookdb.Redeliver(ctx, tx, in.WebhookID, in.EventID)
	})
}

// ReplayRequest says where a replay begins.
type ReplayRequest struct {
	AfterCursor int64 `json:"after_cursor" minimum:"0" maximum:"9007199254740991" doc:"Events after this cursor are sent again; 0 begins with the oldest that is kept"`
}

// Replay is what a replay has queued.
type Replay struct {
	Queued     int64 `json:"queued"`
	NextCursor int64 `json:"next_cursor,omitempty" doc:"Where to go on; absent when no event is left"`
}

// maxReplay bounds one replay.
const maxReplay = 1000

func (s *eventServer) replayWebhook(ctx context.Context, in *struct {
	WebhookPath
	op.Key
	Body ReplayRequest
}) (*op.Created[Replay], error) {
	return queueOnce(ctx, s, in.WebhookPath, in.Key, in.Body, "replay_webhook", func(tx *db.ProjectTx) (Replay, map[string]any, error) {
		r, err := webhookdb.Replay(ctx, tx, in.WebhookID, in.Body.AfterCursor, maxReplay)
		out := Replay{Queued: r.Queued}
		if r.Seen == maxReplay {
			out.NextCursor = r.Last
		}
		return out, map[string]any{"after_cursor": in.Body.AfterCursor, "queued": r.Queued}, err
	})
}
