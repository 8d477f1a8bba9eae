package paymentsdb

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/payments/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Where a refund was made.
const (
	OriginOperator  = "operator"
	OriginDashboard = "dashboard"
)

// NewRefund is money on its way back to a payer. Source is the account of the ledger that pays it.
type NewRefund struct {
	ID, SessionID       string
	Origin, Source, Key string
	AmountMinor         int64
	Currency            string
	State               lifecycle.RefundState
	ProviderID          string // "" before the payment provider has accepted it
	Reason, RequestedBy string
}

// CreateRefund stores a refund.
func CreateRefund(ctx context.Context, tx *db.Tx, in NewRefund) (Refund, error) {
	row, err := queries(tx).InsertRefund(ctx, gen.InsertRefundParams{
		ID: in.ID, SessionID: in.SessionID, Origin: in.Origin, Source: in.Source, IdempotencyKey: in.Key, AmountMinor: in.AmountMinor, Currency: in.Currency,
		State: string(in.State), StripeRefundID: db.OrNil(in.ProviderID), Reason: in.Reason, RequestedBy: in.RequestedBy,
	})
	return row, db.MapError("refund "+in.ID, err)
}

// GetRefund returns one refund, or db.ErrNotFound.
func GetRefund(ctx context.Context, c Conn, id string) (Refund, error) {
	row, err := queries(c).Refund(ctx, id)
	return row, db.MapError("refund "+id, err)
}

// LockRefund returns one refund and keeps others from changing it until the transaction ends.
func LockRefund(ctx context.Context, tx *db.Tx, id string) (Refund, error) {
	row, err := queries(tx).LockRefund(ctx, id)
	return row, db.MapError("refund "+id, err)
}

// FindRefund returns the refund that was asked for with a key, or db.ErrNotFound.
func FindRefund(ctx context.Context, c Conn, sessionID, key string) (Refund, error) {
	row, err := queries(c).RefundByKey(ctx, gen.RefundByKeyParams{SessionID: sessionID, IdempotencyKey: key})
	return row, db.MapError("refund of "+what(sessionID), err)
}

// ListRefunds lists the refunds of a session, oldest first.
func ListRefunds(ctx context.Context, c Conn, sessionID string) ([]Refund, error) {
	rows, err := queries(c).RefundsOf(ctx, sessionID)
	return rows, db.MapError("refunds of "+what(sessionID), err)
}

// MoveRefund stores the state of a locked refund; nextLook nil ends the looks.
func MoveRefund(ctx context.Context, tx *db.Tx, id string, state lifecycle.RefundState, providerID, problem string, nextLook *time.Time) error {
	return db.MapError("refund "+id, queries(tx).MoveRefund(ctx, gen.MoveRefundParams{
		ID: id, State: string(state), StripeRefundID: db.OrNil(providerID), LastError: db.ClipText(problem, db.MaxMessage), NextLookAt: nextLook,
	}))
}

// PostponeRefund stores that a refund is looked at again at a time.
func PostponeRefund(ctx context.Context, c Conn, id, problem string, at time.Time) error {
	return db.MapError("refund "+id, queries(c).PostponeRefund(ctx, gen.PostponeRefundParams{ID: id, LastError: db.ClipText(problem, db.MaxMessage), NextLookAt: at}))
}

// ListRefundsDue lists refunds that are to be looked at.
func ListRefundsDue(ctx context.Context, c Conn, limit int) ([]string, error) {
	ids, err := queries(c).RefundsDue(ctx, db.PageLimit(limit))
	return ids, db.MapError("list refunds that are due", err)
}

// NewDispute is a payment that a payer's bank takes back.
type NewDispute struct {
	ID, SessionID, BillingAccountID, Source string
	AmountMinor                             int64
	Currency                                string
}

// CreateDispute stores an open dispute. It returns false when it is stored.
func CreateDispute(ctx context.Context, tx *db.Tx, in NewDispute) (bool, error) {
	n, err := queries(tx).InsertDispute(ctx, gen.InsertDisputeParams{
		ID: in.ID, SessionID: in.SessionID, BillingAccountID: in.BillingAccountID, Source: in.Source, AmountMinor: in.AmountMinor, Currency: in.Currency,
	})
	return n > 0, db.MapError("dispute "+in.ID, err)
}

// LockDispute returns one dispute and keeps others from changing it until the transaction ends.
func LockDispute(ctx context.Context, tx *db.Tx, id string) (Dispute, error) {
	row, err := queries(tx).LockDispute(ctx, id)
	return row, db.MapError("dispute "+id, err)
}

// ListDisputes lists the disputes of a session.
func ListDisputes(ctx context.Context, c Conn, sessionID string) ([]Dispute, error) {
	rows, err := queries(c).DisputesOf(ctx, sessionID)
	return rows, db.MapError("disputes of "+what(sessionID), err)
}

// CloseDispute stores how a dispute was decided. The loss of a dispute removes its clearance.
func CloseDispute(ctx context.Context, tx *db.Tx, id string, state lifecycle.DisputeState) error {
	return db.MapError("dispute "+id, queries(tx).CloseDispute(ctx, gen.CloseDisputeParams{ID: id, State: string(state)}))
}

// PostponeDispute stores that a dispute was looked at. An open one, and one for which that has
// failed, is looked at again later; one that was decided a while ago no more.
func PostponeDispute(ctx context.Context, c Conn, id string, isFailed bool) error {
	return db.MapError("dispute "+id, queries(c).PostponeDispute(ctx, gen.PostponeDisputeParams{ID: id, IsFailed: isFailed}))
}

// ClearDispute stores that an operator lets the billing account of an open or lost dispute go on.
// It returns db.ErrStale when the dispute was won, or was cleared before.
func ClearDispute(ctx context.Context, tx *db.Tx, id, reason string, a db.Actor) error {
	n, err := queries(tx).ClearDispute(ctx, gen.ClearDisputeParams{ID: id, Reason: reason, ClearedBy: ActorName(a)})
	return db.CheckGuarded("dispute "+id, n, err)
}

// ListDisputesDue lists disputes that are to be looked at.
func ListDisputesDue(ctx context.Context, c Conn, limit int) ([]string, error) {
	ids, err := queries(c).DisputesDue(ctx, db.PageLimit(limit))
	return ids, db.MapError("list disputes that are due", err)
}

// IsFrozen reports whether a billing account gets no new allocation: it has a dispute that is open
// or was lost, and that no operator has cleared.
func IsFrozen(ctx context.Context, c Conn, accountID string) (bool, error) {
	n, err := queries(c).FreezingDisputes(ctx, accountID)
	return n > 0, db.MapError("disputes of billing account "+accountID, err)
}
