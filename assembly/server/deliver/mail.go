package deliver

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/mail"
)

// Mailer sends one message; *mail.Sender is one.
type Mailer interface {
	Send(ctx context.Context, m mail.Message) error
}

const mailBatch = 4 // one after the other, each within mail.Limit: the lease is longer

// sendMails sends what is due, one after the other.
func (d *Deliverer) sendMails(ctx context.Context) {
	for ctx.Err() == nil {
		due, err := webhookdb.ClaimEmails(ctx, d.Store, mailBatch, mailBatch*mail.Limit+finishFor)
		if err != nil {
			d.complain(ctx, "e-mails not claimed", err)
			return
		}
		if len(due) == 0 {
			return
		}
		for _, e := range due {
			if ctx.Err() != nil {
				return // the claim of the others ends by itself
			}
			if err := d.sendMail(ctx, e); err != nil {
				d.complain(ctx, "e-mail of notice "+e.NoticeID+" not stored; it will be repeated", err)
			}
		}
	}
}

func (d *Deliverer) sendMail(ctx context.Context, e webhookdb.Email) error {
	text := e.Message + "\n"
	if e.Node != "" {
		text += "\nNode: " + e.Node
	}
	text += "\nProject: " + e.ProjectID + "\nNotice: " + e.NoticeID + "\nAt: " + e.CreatedAt.UTC().Format(time.RFC3339) + "\n"
	sending, cut := d.outlive(ctx)
	defer cut()
	err := d.Mail.Send(sending, mail.Message{ID: e.MessageID, To: e.Recipient, Subject: "Slipway notice: " + e.Kind, Text: text, At: e.CreatedAt})
	if sending.Err() != nil && err != nil {
		return nil //nolint:nilerr // this process stops; the claim ends by itself
	}
	status, reason, wait := webhookdb.Delivered, "", time.Duration(0)
	if err != nil {
		d.complain(ctx, "e-mail of notice "+e.NoticeID+" not sent", err)
		status, reason, wait = webhookdb.Pending, db.ClipText(err.Error(), 500), d.backoff(e.Attempts)
		if providers.KindOf(err) == providers.KindInvalid || time.Duration(e.AgeSeconds*float64(time.Second))+wait > d.RetryFor {
			status = webhookdb.Dead
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishFor)
	defer cancel()
	return webhookdb.FinishEmail(ctx, d.Store, e, status, reason, wait)
}
