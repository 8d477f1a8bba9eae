package tenancy

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
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

// inWebhook runs a change of the queue of a webhook that is there.
func (s *eventServer) inWebhook(ctx context.Context, in WebhookPath, do func(*db.ProjectTx) error) error {
	return s.changeIn(ctx, func(tx *db.ProjectTx) error {
		if _, err := webhookdb.Find(ctx, tx, in.WebhookID); err != nil {
			return err
		}
		return do(tx)
	})
}

func (s *eventServer) testWebhook(ctx context.Context, in *WebhookPath) (*struct{ Body Queued }, error) {
	out := &struct{ Body Queued }{}
	return out, s.inWebhook(ctx, *in, func(tx *db.ProjectTx) (err error) {
		out.Body.EventID, err = webhookdb.QueueTest(ctx, tx, in.WebhookID)
		return err
	})
}

func (s *eventServer) redeliver(ctx context.Context, in *struct {
	WebhookPath
	EventID string `path:"event_id" maxLength:"200" doc:"evt_..."`
}) (*struct{ Body Queued }, error) {
	out := &struct{ Body Queued }{Queued{in.EventID}}
	return out, s.inWebhook(ctx, in.WebhookPath, func(tx *db.ProjectTx) error {
		return webhookdb.Redeliver(ctx, tx, in.WebhookID, in.EventID)
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
	Body ReplayRequest
}) (*struct{ Body Replay }, error) {
	out := &struct{ Body Replay }{}
	return out, s.inWebhook(ctx, in.WebhookPath, func(tx *db.ProjectTx) error {
		r, err := webhookdb.Replay(ctx, tx, in.WebhookID, in.Body.AfterCursor, maxReplay)
		out.Body = Replay{Queued: r.Queued}
		if r.Seen == maxReplay {
			out.Body.NextCursor = r.Last
		}
		return err
	})
}
