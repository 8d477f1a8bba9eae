package relay

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
)

// How often the relay makes the audit log's next partitions, and how long that may take. The
// sweeper prunes what nobody needs any more.
const (
	housekeepEvery  = time.Hour
	housekeepWithin = 5 * time.Minute
)

// Housekeep makes the audit log's next partitions, hourly, until ctx ends.
// Several at once do no harm.
func (r *Relay) Housekeep(ctx context.Context) {
	t := time.NewTicker(housekeepEvery)
	defer t.Stop()
	for {
		r.partitions(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (r *Relay) partitions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, housekeepWithin)
	defer cancel()
	if _, err := r.Store.EnsureAuditPartitions(ctx, db.AuditMonthsAhead); err != nil {
		r.complain(ctx, "audit partitions not made", err)
	}
}
