// Package webhook stores the webhooks of projects, the queue of what they receive, and notices. It
// is a package below db. Requests of a customer run in a db.ProjectTx; the queue belongs to the
// platform.
package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/webhook/gen"
)

func queries(c interface{ DBTX() db.DBTX }) *gen.Queries { return gen.New(c.DBTX()) }

// Breaker is how many attempts in a row may fail before a webhook gets one attempt at a time only,
// after a pause.
const Breaker = 5

// Claimed is a webhook whose queue one process has for the lease.
type Claimed = gen.ClaimWebhooksRow

// Due is a delivery of a claimed webhook.
type Due = gen.DueDeliveriesRow

// FanOut queues the next events for every webhook that wants them, and returns how many events it
// has seen. Call it again while it returns limit. When another process is at work it returns 0.
func FanOut(ctx context.Context, s *db.Store, limit int) (int, error) {
	seen := 0
	err := s.Tx(ctx, func(tx *db.Tx) error {
		locked, err := tx.TryLock(ctx, "slipway:webhooks")
		if err != nil || !locked {
			return err
		}
		q := queries(tx)
		r, err := q.FanOut(ctx, db.PageLimit(limit))
		if seen = int(r.Seen); err == nil && len(r.Webhooks) > 0 {
			err = q.WakeQueued(ctx, gen.WakeQueuedParams{Webhooks: r.Webhooks, Breaker: Breaker})
		}
		return db.MapError("queue events for webhooks", err)
	})
	return seen, err
}

// Lane is what is known of the speed of a webhook. Each lane has workers of its own.
type Lane string

// The lanes: a webhook begins in LaneNew. LaneFast is for those that answered quickly the last
// time, and LaneSlow for all others.
const (
	LaneNew  Lane = "new"
	LaneFast Lane = "fast"
	LaneSlow Lane = "slow"
)

// Wanted is what a claimer asks for: webhooks of one lane, as many as Free at most. The last
// Reserve of them are only for billing accounts that have fewer than Share claims under way.
type Wanted struct {
	Lane                 Lane
	Free, Reserve, Share int
}

// Claim gives webhooks that are due to one claimer until the lease ends. Accounts take turns. Each
// call has a name of its own, since an edit of a webhook ends its claim, and the same process may
// claim it again while the attempt from before is under way.
func Claim(ctx context.Context, c db.Conn, claimer string, want Wanted, lease time.Duration) ([]Claimed, error) {
	if want.Free <= 0 {
		return nil, nil
	}
	rows, err := queries(c).ClaimWebhooks(ctx, gen.ClaimWebhooksParams{
		ClaimedBy: claimer + "/" + rand.Text(), LeaseSeconds: lease.Seconds(), Lane: string(want.Lane), MaxRows: db.PageLimit(want.Free),
		Unreserved: int64(want.Free - want.Reserve), Share: int64(want.Share),
	})
	return rows, db.MapError("claim webhooks", err)
}

// ListDue lists the deliveries of a claimed webhook that are due, oldest first.
func ListDue(ctx context.Context, c db.Conn, w Claimed, limit int) ([]Due, error) {
	rows, err := queries(c).DueDeliveries(ctx, gen.DueDeliveriesParams{ProjectID: w.ProjectID, WebhookID: w.ID, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list deliveries", err)
}

// The states of a delivery.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Dead      = "dead"
)

// Outcome is what came of one attempt.
type Outcome struct {
	EventID string
	Status  string // Pending: it is tried again after Wait
	Answer  int    // status of the answer, 0 without one
	Reason  string // why it failed; "" for a success
	Wait    time.Duration
}

// Finished is what came of a claim.
type Finished struct {
	Outcomes   []Outcome
	Failures   int // in a row, until now
	Slow       bool
	Tried      bool // at least one attempt was made
	LastReason string
	Succeeded  bool // at least one delivery
	Gone       bool // the endpoint wants no more: the webhook is disabled
	Pause      time.Duration
}

// Finish stores the outcomes and gives the webhook back. Where the lease has ended and another
// claimer has it, or the webhook was changed, only outcomes are stored and held is false. A webhook
// that is deleted is no error.
func Finish(ctx context.Context, tx *db.Tx, w Claimed, f Finished) (held bool, err error) {
	q := queries(tx)
	held, err = q.LockClaim(ctx, gen.LockClaimParams{ClaimedBy: w.ClaimedBy, ProjectID: w.ProjectID, ID: w.ID})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, db.MapError("lock webhook "+w.ID, err)
	}
	p := gen.FinishDeliveriesParams{ProjectID: w.ProjectID, WebhookID: w.ID}
	for _, o := range f.Outcomes {
		p.EventIds, p.Statuses = append(p.EventIds, o.EventID), append(p.Statuses, o.Status)
		p.Waits, p.Answers = append(p.Waits, o.Wait.Seconds()), append(p.Answers, o.Answer)
		p.Reasons = append(p.Reasons, o.Reason)
	}
	if len(f.Outcomes) > 0 {
		if err := q.FinishDeliveries(ctx, p); err != nil {
			return false, db.MapError("store deliveries", err)
		}
	}
	if !held {
		return false, nil
	}
	return true, db.MapError("release webhook "+w.ID, q.ReleaseWebhook(ctx, gen.ReleaseWebhookParams{
		ProjectID: w.ProjectID, ID: w.ID, Failures: f.Failures, Slow: f.Slow, Tried: f.Tried, Failed: f.LastReason != "", LastReason: f.LastReason, Succeeded: f.Succeeded,
		Gone: f.Gone, PauseSeconds: f.Pause.Seconds(),
	}))
}

// Expire gives up deliveries that are older than retry, a batch at a time, and returns how many.
func Expire(ctx context.Context, c db.Conn, retry time.Duration) (int64, error) {
	n, err := queries(c).ExpireDeliveries(ctx, gen.ExpireDeliveriesParams{RetrySeconds: retry.Seconds(), MaxRows: db.PruneBatch})
	return n, db.MapError("expire deliveries", err)
}

// PruneDeliveries deletes deliveries that ended longer than keep ago by the clock of the database,
// a batch at a time. Those of notices are deleted with them.
func PruneDeliveries(ctx context.Context, c db.Conn, keep time.Duration) (int64, error) {
	n, err := queries(c).PruneDeliveries(ctx, gen.PruneDeliveriesParams{KeepSeconds: keep.Seconds(), MaxRows: db.PruneBatch})
	return n, db.MapError("prune deliveries", err)
}

// CountPending counts the deliveries of a webhook that wait, to limit at most.
func CountPending(ctx context.Context, tx *db.ProjectTx, webhookID string, limit int32) (int64, error) {
	n, err := queries(tx).CountPending(ctx, gen.CountPendingParams{ProjectID: tx.Project(), WebhookID: webhookID, MaxRows: limit})
	return n, db.MapError("count deliveries", err)
}

// Backlog is what waits in the queue.
type Backlog struct {
	Pending int64
	Oldest  time.Duration
}

// MeasureBacklog counts what waits in the queue.
func MeasureBacklog(ctx context.Context, c db.Conn) (Backlog, error) {
	r, err := queries(c).QueueBacklog(ctx)
	return Backlog{r.Pending, time.Duration(r.OldestSeconds * float64(time.Second))}, db.MapError("measure the queue of webhooks", err)
}
