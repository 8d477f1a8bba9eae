package tenancy

import (
	"context"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Notice tells the owners of a project what they have to know.
type Notice struct {
	ID         string           `json:"id"`
	Kind       string           `json:"kind" example:"webhook_failing"`
	Node       string           `json:"node,omitempty"`
	Message    string           `json:"message"`
	CreatedAt  time.Time        `json:"created_at"`
	Deliveries []NoticeDelivery `json:"deliveries" nullable:"false"`
}

// NoticeDelivery is a notice on one channel.
type NoticeDelivery struct {
	Channel     string     `json:"channel" enum:"email,webhook"`
	To          string     `json:"to,omitempty" doc:"The address, or the name of the webhook; shown to owners"`
	Status      string     `json:"status" enum:"pending,delivered,dead"`
	DeliveredAt *time.Time `json:"delivered_at,omitempty"`
	Error       string     `json:"error,omitempty" doc:"Why the last attempt failed; shown to owners"`
}

func (s *eventServer) registerNotices() {
	route(s.server, "list-notices", http.MethodGet, "/projects/{id}/notices", "List the notices of a project, newest first; they are kept for 90 days", s.listNotices)
}

func (s *eventServer) listNotices(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (out *op.Listed[Notice], err error) {
	before, err := in.After()
	if err != nil {
		return nil, err
	}
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if _, err := tenancydb.ReadProject(ctx, tx, tx.Project()); err != nil {
			return err
		}
		rows, err := readNotices(ctx, tx, before, in.Limit+1)
		if err != nil {
			return err
		}
		out = op.Paged(rows, in.Limit, noticeID, func(n Notice) Notice { return n })
		return nil
	})
	return out, err
}

func noticeID(n Notice) string { return n.ID }

// readNotices reads notices, newest first, from the one before the id given, with their deliveries.
// Only an owner is shown to whom they went, and only who may read money what they say of it.
func readNotices(ctx context.Context, tx *db.ProjectTx, before string, limit int) ([]Notice, error) {
	rows, err := webhookdb.ListNotices(ctx, tx, before, limit)
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(rows))
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	deliveries, err := webhookdb.ListNoticeDeliveries(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	byNotice := map[string][]NoticeDelivery{}
	owner := op.ProjectAccessOf(ctx).Allows(lifecycle.RoleProjectOwner)
	for _, d := range deliveries {
		if !owner { // whom an owner lets read the project must not learn the addresses of others
			d.To, d.Reason = "", ""
		}
		byNotice[d.NoticeID] = append(byNotice[d.NoticeID], NoticeDelivery{d.Channel, d.To, d.Status, utc(d.DeliveredAt), d.Reason})
	}
	out := make([]Notice, 0, len(rows))
	money := op.ProjectAccessOf(ctx).Allows(lifecycle.RoleProjectBilling)
	for _, r := range rows {
		if !money && webhookdb.TellsMoney(r.Kind) {
			r.Message = webhookdb.MoneyMessage
		}
		out = append(out, Notice{r.ID, r.Kind, r.Node, r.Message, r.CreatedAt.UTC(), db.EmptyIfNil(byNotice[r.ID])})
	}
	return out, nil
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
