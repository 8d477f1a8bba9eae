package relay

import (
	"context"
	"time"
)

// How long what has been carried out is kept, and how far ahead the audit log
// has its partitions.
const (
	keepOutbox      = 7 * 24 * time.Hour
	keepEvents      = 30 * 24 * time.Hour
	monthsAhead     = 3
	housekeepEvery  = time.Hour
	housekeepWithin = 5 * time.Minute
)

// Housekeep prunes what readers no longer need and makes the audit log's next
// partitions, hourly, until ctx ends. Several at once do no harm.
func (r *Relay) Housekeep(ctx context.Context) {
	t := time.NewTicker(housekeepEvery)
	defer t.Stop()
	for {
		r.tidy(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (r *Relay) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, housekeepWithin)
	defer cancel()
	now := time.Now()
	chores := []struct {
		what string
		do   func() (int64, error)
	}{
		{"outbox rows", func() (int64, error) { return r.Store.PruneOutbox(ctx, now.Add(-keepOutbox)) }},
		{"events", func() (int64, error) { return r.Store.PruneEvents(ctx, now.Add(-keepEvents)) }},
		{"idempotency records", func() (int64, error) { return r.Store.PruneIdempotency(ctx) }},
		{"audit partitions", func() (int64, error) {
			n, err := r.Store.EnsureAuditPartitions(ctx, monthsAhead)
			return int64(n), err
		}},
	}
	for _, c := range chores {
		for {
			n, err := c.do()
			if err != nil {
				r.complain(ctx, c.what+" not tidied", err)
				break
			}
			if n == 0 || c.what == "audit partitions" {
				break
			}
		}
	}
}
