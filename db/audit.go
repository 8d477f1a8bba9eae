package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AuditRow is one row of the audit log with its place in the hash chain.
type AuditRow = gen.AuditLog

// EntryKind is the kind of an audit row.
type EntryKind = record.EntryKind

// The kinds of audit row; transitions are written by the commit point only.
const (
	EntryTransition  = record.EntryTransition
	EntryAction      = record.EntryAction
	EntryCall        = record.EntryCall
	EntryObservation = record.EntryObservation
)

// Entry is one audit row besides the transitions.
type Entry struct {
	ResourceKind string // node, job, bmc, site, ...
	ResourceID   string
	NodeID       *string // the node in whose timeline it stands
	Kind         EntryKind
	Name         string // of the action, the call or what was seen
	// From and To are free: of a refused action, say, the state and "refused".
	From, To string
	Actor    Actor
}

// AppendAudit writes an action, a call or an observation, at the time of the
// transaction. It is not idempotent: write it with what it is about.
func (s statements) AppendAudit(ctx context.Context, e Entry) error {
	if e.Kind == EntryTransition {
		return MapError("audit", ErrInvalid)
	}
	st, err := e.Actor.Stamp(nil)
	if err != nil {
		return err
	}
	_, err = s.q.AppendAudit(ctx, gen.AppendAuditParams{
		ID: st.AuditID, ResourceKind: e.ResourceKind, ResourceID: e.ResourceID, NodeID: e.NodeID, Kind: e.Kind, Name: e.Name, FromState: e.From,
		ToState: e.To, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
		WorkflowID: st.WorkflowID,
	})
	return MapError("audit of "+e.ResourceKind+" "+e.ResourceID, err)
}

// AppendAuditDaily is AppendAudit for what happens again and again: it writes nothing where an
// equal row, whatever its comment, is less than a day old. Of equal calls at the same moment one
// writes.
func (s *Store) AppendAuditDaily(ctx context.Context, e Entry) error {
	if written, err := s.auditedWithinDay(ctx, e); err != nil || written {
		return err
	}
	return s.Tx(ctx, func(tx *Tx) error {
		if err := tx.Lock(ctx, "slipway:audit_daily:"+e.ResourceKind+":"+e.ResourceID); err != nil {
			return err
		}
		if written, err := tx.auditedWithinDay(ctx, e); err != nil || written {
			return err
		}
		return tx.AppendAudit(ctx, e)
	})
}

// auditedWithinDay reports whether a row that equals e, whatever its comment, is less than a day
// old.
func (s statements) auditedWithinDay(ctx context.Context, e Entry) (bool, error) {
	st, err := e.Actor.Stamp(nil)
	if err != nil {
		return false, err
	}
	written, err := s.q.AuditedWithinDay(ctx, gen.AuditedWithinDayParams{
		ResourceKind: e.ResourceKind, ResourceID: e.ResourceID, Kind: e.Kind, Name: e.Name, ToState: e.To, Owner: st.Owner, ActorID: st.ActorID,
		WorkflowID: st.WorkflowID, Metadata: st.Metadata,
	})
	return written, MapError("audit of "+e.ResourceKind+" "+e.ResourceID, err)
}

// StoredAction is what the audit log says of an action with a nonce.
type StoredAction struct {
	RunID  string // of the workflow run that stored it; "" for a release that did not tell
	Effect lifecycle.Effect
}

// ActionOfNonce returns the last action of a job that was audited with a nonce, or nil. Lock the
// job first: then no other transaction can use the nonce before this one ends.
func (s statements) ActionOfNonce(ctx context.Context, jobID, nonce string) (*StoredAction, error) {
	row, err := s.q.ActionOfNonce(ctx, gen.ActionOfNonceParams{JobID: jobID, Nonce: nonce})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // nobody has used it
	}
	return &StoredAction{RunID: row.RunID, Effect: lifecycle.Effect(row.Effect)}, MapError("nonce of an action on job "+jobID, err)
}

// Transition is one state change in the shape of the node history (docs/pxe.md);
// owner and name are additions.
type Transition struct {
	ID          string          `json:"id"`
	FromState   string          `json:"from_state"` // "" for creation
	ToState     string          `json:"to_state"`
	TriggeredBy string          `json:"triggered_by"`
	UserID      *string         `json:"user_id"` // of an operator; the timeline names jobs and sweepers
	Comment     *string         `json:"comment"`
	Metadata    json.RawMessage `json:"metadata"`
	CreatedAt   time.Time       `json:"created_at"`
	Owner       string          `json:"owner"`
	Name        string          `json:"name"`
}

// NodeHistory lists a node's transitions, newest first, and says how many
// there are in all. An unknown node has none.
func (s statements) NodeHistory(ctx context.Context, nodeID string, limit, offset int) ([]Transition, int64, error) {
	total, err := s.q.CountNodeHistory(ctx, nodeID)
	if err != nil {
		return nil, 0, MapError("history of node "+nodeID, err)
	}
	rows, err := s.q.NodeHistory(ctx, gen.NodeHistoryParams{NodeID: nodeID, MaxRows: PageLimit(limit), SkipRows: int32(min(max(offset, 0), 1<<30))})
	if err != nil {
		return nil, 0, MapError("history of node "+nodeID, err)
	}
	out := make([]Transition, 0, len(rows))
	for _, r := range rows {
		out = append(out, Transition{
			ID: r.ID, FromState: r.FromState, ToState: r.ToState, TriggeredBy: r.TriggeredBy, UserID: userOf(r.Owner, r.ActorID), Comment: r.Comment,
			Metadata: r.Metadata, CreatedAt: r.At, Owner: r.Owner, Name: r.Name,
		})
	}
	return out, total, nil
}

// userOf returns who did it where that is a user: an admin, an operator or a customer. An action of
// a job, a sweeper or a node has no user.
func userOf(owner string, actorID *string) *string {
	switch lifecycle.Owner(owner) {
	case lifecycle.OwnerAdmin, lifecycle.OwnerCustomer:
		return actorID
	default:
		return nil
	}
}

// NodeTimeline lists every audit row of a node and of its jobs, newest first.
// after is the Pos of the last row seen, 0 at first.
func (s statements) NodeTimeline(ctx context.Context, nodeID string, after int64, limit int) ([]AuditRow, error) {
	rows, err := s.q.NodeTimeline(ctx, gen.NodeTimelineParams{NodeID: nodeID, Before: after, MaxRows: PageLimit(limit)})
	return rows, MapError("timeline of node "+nodeID, err)
}

// ResourceTimeline is NodeTimeline for one resource of any kind.
func (s statements) ResourceTimeline(ctx context.Context, kind, id string, after int64, limit int) ([]AuditRow, error) {
	rows, err := s.q.ResourceTimeline(ctx, gen.ResourceTimelineParams{ResourceKind: kind, ResourceID: id, Before: after, MaxRows: PageLimit(limit)})
	return rows, MapError("timeline of "+kind+" "+id, err)
}

// VerifyAudit walks the hash chain of one resource and returns the first
// sequence number that is missing or was altered, 0 when the chain is whole.
func (s statements) VerifyAudit(ctx context.Context, kind, id string) (firstBroken int64, err error) {
	firstBroken, err = s.q.AuditVerify(ctx, gen.AuditVerifyParams{ResourceKind: kind, ResourceID: id})
	return firstBroken, MapError("verify the audit of "+kind+" "+id, err)
}

// Chain names one hash chain.
type Chain = gen.AuditChain

// AuditChains lists every chain in order, from the one after the one given.
func (s statements) AuditChains(ctx context.Context, after Chain, limit int) ([]Chain, error) {
	rows, err := s.q.AuditChains(ctx, gen.AuditChainsParams{AfterKind: after.ResourceKind, AfterID: after.ResourceID, MaxRows: PageLimit(limit)})
	return rows, MapError("list audit chains", err)
}

// EnsureAuditPartitions makes the audit partitions of this month and the
// coming ones, and says how many it made. Repeatable; Migrate calls it too.
func (s statements) EnsureAuditPartitions(ctx context.Context, months int) (int, error) {
	n, err := s.q.EnsureAuditPartitions(ctx, months)
	return n, MapError("make audit partitions", err)
}
