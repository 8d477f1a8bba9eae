package relay

import (
	"context"
	"time"
)

// The verification of the audit log: how many chains one statement verifies, how often verification
// goes on and for how long at a time, and how long after the end of a round the next begins. A
// statement ends after a minute: a chain of more than auditRows is verified in parts.
const (
	auditChains = 20
	auditRows   = 10_000
	auditEvery  = 15 * time.Second
	auditBusy   = 10 * time.Second
	auditRounds = time.Hour
	auditWithin = time.Minute
)

// CheckAudit verifies the chains of the audit log in turn until ctx ends. A broken chain is stored
// and logged each time that it is found, so that deleting the stored row hides nothing for long.
// One worker at a time verifies.
func (r *Relay) CheckAudit(ctx context.Context) {
	t := time.NewTicker(auditEvery)
	defer t.Stop()
	for {
		r.checkChains(ctx, auditRounds, auditBusy)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// checkChains verifies chains until the round ends or for as long as busy says.
func (r *Relay) checkChains(ctx context.Context, every, busy time.Duration) {
	for until := time.Now().Add(busy); ; {
		more, err := r.checkNextChains(ctx, every)
		if err != nil {
			r.complain(ctx, "audit log not verified", err)
		}
		if err != nil || !more || time.Now().After(until) {
			return
		}
	}
}

func (r *Relay) checkNextChains(ctx context.Context, every time.Duration) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, auditWithin)
	defer cancel()
	step, err := r.Store.CheckNextChains(ctx, every, auditChains, auditRows)
	for _, b := range step.Broken {
		r.Log.ErrorContext(ctx, "the audit log was altered", "resource_kind", b.ResourceKind, "resource_id", b.ResourceID, "first_broken_seq", b.BrokenSeq)
	}
	return step.More, err
}
