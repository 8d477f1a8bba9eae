package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// An action with an Idempotency-Key has its answer kept, whoever decided it:
// the workflow, which knows the key too as long as it lives, or the database
// when there is no workflow. A mere failure on the way is not an answer.

// begin takes the key within tx; the first answer, if there was one, comes back.
func (x *exchange) begin(ctx context.Context, tx *db.Tx) (*decided, error) {
	return kept(op.BeginKey(ctx, tx, x.key, x.ask))
}

func (x *exchange) finish(ctx context.Context, tx *db.Tx, d *decided) error {
	if d.refused != nil {
		return op.FinishKey(ctx, tx, x.key, http.StatusConflict, nil, d.refused)
	}
	return op.FinishKey(ctx, tx, x.key, http.StatusOK, nil, d.answer)
}

// kept reads a stored answer; nil where there is none.
func kept(rec *db.IdempotencyRecord, err error) (*decided, error) {
	if rec == nil || err != nil {
		return nil, err
	}
	d := &decided{}
	into := any(&d.answer)
	if rec.Status != http.StatusOK {
		d.refused = &lifecycle.ActionRefusedError{}
		into = d.refused
	}
	if err := json.Unmarshal(rec.Body, into); err != nil {
		return nil, fmt.Errorf("read the kept answer: %w", err)
	}
	return d, nil
}

// recall is the answer to the first request with this key. It takes the key for
// nobody: two that look at once both go on, and the workflow takes them for one.
func (x *exchange) recall(ctx context.Context) (first *decided, err error) {
	first, err = kept(x.s.api.Recorded(ctx, x.key, x.ask))
	if problem.From(err).Of(problem.KeyInFlight) {
		err = nil
	}
	return first, err
}

// keep stores what the workflow answered. Should it fail, the workflow still
// knows the key, and the answer is given all the same.
func (x *exchange) keep(ctx context.Context, d *decided) *decided {
	if x.key == "" {
		return d
	}
	err := x.s.store.Tx(ctx, func(tx *db.Tx) error {
		if first, err := x.begin(ctx, tx); first != nil || err != nil {
			return err
		}
		return x.finish(ctx, tx, d)
	})
	if err != nil && !problem.From(err).Of(problem.KeyInFlight) {
		x.s.log.WarnContext(ctx, "the answer to an action was not kept", "job", x.job.ID, "action", x.action, "error", err)
	}
	return d
}

// here decides without a workflow: what do changes, the audit row and the kept
// answer are one transaction.
func (x *exchange) here(ctx context.Context, do func(*db.Tx) (*decided, error)) (d *decided, err error) {
	err = x.s.store.Tx(ctx, func(tx *db.Tx) error {
		first, err := x.begin(ctx, tx)
		if first != nil || err != nil {
			d = first
			return err
		}
		if d, err = do(tx); err != nil {
			return err
		}
		if err := x.note(ctx, tx, d); err != nil {
			return err
		}
		return x.finish(ctx, tx, d)
	})
	return d, err
}

// note writes the action's audit row in the shape of those that workflows write.
func (x *exchange) note(ctx context.Context, tx *db.Tx, d *decided) error {
	meta := map[string]any{"via": "api", "effect": string(d.answer.Effect)}
	if d.refused != nil {
		meta["refused"] = d.refused.WithAllowed()
	}
	a := op.ActorOf(ctx)
	a.Comment, a.Metadata, a.WorkflowID = x.ask.Reason, meta, x.job.WorkflowID
	return tx.AppendAudit(ctx, db.Entry{
		ResourceKind: "job", ResourceID: x.job.ID, NodeID: x.job.NodeID, Kind: db.EntryAction, Name: string(x.action), Actor: a,
	})
}
