package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/webhook/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Notice tells the owners of a project what they have to know.
type Notice = gen.Notice

// Email is a notice on its way to one recipient.
type Email = gen.ClaimEmailsRow

// AddNotice writes a notice with its event and a row for each recipient of e-mail, unless its
// episode has one already. It reports whether it was written. domain ends the fixed Message-ID.
func AddNotice(ctx context.Context, tx *db.Tx, n Notice, domain string) (bool, error) {
	q := queries(tx)
	n.ID = db.NewID("ntc")
	_, err := q.InsertNotice(ctx, gen.InsertNoticeParams{ProjectID: n.ProjectID, ID: n.ID, Kind: n.Kind, Episode: n.Episode, Node: n.Node, Message: n.Message})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		err = q.InsertNoticeEmails(ctx, gen.InsertNoticeEmailsParams{ProjectID: n.ProjectID, NoticeID: n.ID, MessageID: n.ID, Domain: domain})
	}
	if err != nil {
		return false, db.MapError("notice", err)
	}
	payload, err := json.Marshal(map[string]string{"kind": n.Kind, "node": n.Node, "message": publicMessage(n)})
	if err != nil {
		return false, fmt.Errorf("write the event of a notice: %w", err)
	}
	return true, tx.AppendEvent(ctx, db.Event{ResourceKind: "notice", ResourceID: n.ID, ProjectID: &n.ProjectID, Type: lifecycle.NoticeEventType(n.Kind), Payload: payload})
}

// MoneyMessage stands in the place of a message that tells amounts.
const MoneyMessage = "It is about the money of the project; ask who may read money: an owner, or a member with the role billing."

// TellsMoney reports whether the message of a kind of notice tells amounts.
func TellsMoney(kind string) bool {
	return strings.HasPrefix(kind, "budget_") || slices.Contains([]string{lifecycle.NoticeLowBalance, lifecycle.NoticeDepleted, lifecycle.NoticeBalanceShort}, kind)
}

// publicMessage is what the event of a notice says: viewers read events, and not money.
func publicMessage(n Notice) string {
	if TellsMoney(n.Kind) {
		return MoneyMessage
	}
	return n.Message
}

// ClaimEmails gives e-mails that are due to one sender for the lease.
func ClaimEmails(ctx context.Context, c db.Conn, limit int, lease time.Duration) ([]Email, error) {
	rows, err := queries(c).ClaimEmails(ctx, gen.ClaimEmailsParams{LeaseSeconds: lease.Seconds(), MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("claim e-mails", err)
}

// FinishEmail stores what came of an attempt. reason must hold no secret.
func FinishEmail(ctx context.Context, c db.Conn, e Email, status, reason string, wait time.Duration) error {
	return db.MapError("e-mail", queries(c).FinishEmail(ctx, gen.FinishEmailParams{
		ProjectID: e.ProjectID, NoticeID: e.NoticeID, Recipient: e.Recipient, Status: status, Reason: reason, WaitSeconds: wait.Seconds(),
	}))
}

// ListNotices lists notices, newest first, from the one before the id given.
func ListNotices(ctx context.Context, tx *db.ProjectTx, before string, limit int) ([]Notice, error) {
	rows, err := queries(tx).ListNotices(ctx, gen.ListNoticesParams{ProjectID: tx.Project(), Before: before, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list notices", err)
}

// NoticeDelivery is a notice on one channel.
type NoticeDelivery struct {
	NoticeID, Channel, To, Status, Reason string
	DeliveredAt                           *time.Time
}

// The channels of notices.
const (
	ChannelEmail   = "email"
	ChannelWebhook = "webhook"
)

const noticeSubject = "notices/"

// ListNoticeDeliveries lists how notices were delivered, on every channel.
func ListNoticeDeliveries(ctx context.Context, tx *db.ProjectTx, ids []string) ([]NoticeDelivery, error) {
	q := queries(tx)
	emails, err := q.NoticeEmails(ctx, gen.NoticeEmailsParams{ProjectID: tx.Project(), NoticeIds: ids})
	if err != nil {
		return nil, db.MapError("list e-mails of notices", err)
	}
	var out []NoticeDelivery
	for _, e := range emails {
		out = append(out, NoticeDelivery{e.NoticeID, ChannelEmail, e.Recipient, e.Status, e.Reason, e.DeliveredAt})
	}
	subjects := make([]string, len(ids))
	for i, id := range ids {
		subjects[i] = noticeSubject + id
	}
	hooks, err := q.NoticeWebhooks(ctx, gen.NoticeWebhooksParams{ProjectID: tx.Project(), Subjects: subjects})
	for _, h := range hooks {
		d := NoticeDelivery{h.Subject[len(noticeSubject):], ChannelWebhook, h.Name, h.Status, h.Reason, nil}
		if h.Status == Delivered {
			d.DeliveredAt = h.EndedAt
		}
		out = append(out, d)
	}
	return out, db.MapError("list webhooks of notices", err)
}

// PruneNotices deletes notices older than keep by the clock of the database with their deliveries,
// a batch at a time.
func PruneNotices(ctx context.Context, c db.Conn, keep time.Duration) (int64, error) {
	n, err := queries(c).PruneNotices(ctx, gen.PruneNoticesParams{KeepSeconds: keep.Seconds(), MaxRows: db.PruneBatch})
	return n, db.MapError("prune notices", err)
}
