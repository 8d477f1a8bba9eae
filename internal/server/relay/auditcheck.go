package relay

import (
	"context"
	"time"
)

// The verification of the audit log: how many chains are verified at a time, how often, and how long
// after the end of a round the next begins.
const (
	auditChains = 500
	auditEvery  = 15 * time.Second
	auditRounds = time.Hour
	auditWithin = 5 * time.Minute
)

// CheckAudit verifies the chains of the audit log in turn until ctx ends. A broken chain is stored
// and logged each time that it is found, so that deleting the stored row hides nothing for long.
// One worker at a time verifies.
func (r *Relay) CheckAudit(ctx context.Context) {
	t := time.NewTicker(auditEvery)
	defer t.Stop()
	for {
		r.checkChains(ctx, auditRounds, auditChains)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (r *Relay) checkChains(ctx context.Context, every time.Duration, limit int) {
	ctx, cancel := context.WithTimeout(ctx, auditWithin)
	defer cancel()
	_, broken, err := r.Store.CheckNextChains(ctx, every, limit)
	if err != nil {
		r.complain(ctx, "audit log not verified", err)
	}
	for _, b := range broken {
		r.Log.ErrorContext(ctx, "the audit log was altered", "resource_kind", b.ResourceKind, "resource_id", b.ResourceID, "first_broken_seq", b.BrokenSeq)
	}
}
