package paymentsdb

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/payments/gen"
)

// The kinds of differences between the payment provider and the ledger.
const (
	DifferenceSession = "session"
	DifferenceTotal   = "total"
	DifferenceRefund  = "refund"
	DifferenceDispute = "dispute"
)

// ReadControl returns who this installation is at the payment provider, and how far both sides were
// compared.
func ReadControl(ctx context.Context, c Conn) (Control, error) {
	row, err := queries(c).Control(ctx)
	return row, db.MapError("the state of payments", err)
}

// Place is how far a list of the payment provider was read: all before From was, and of what lies
// between From and Until all that is newer than Page, when Until is set.
type Place struct {
	From  time.Time
	Until *time.Time
	Page  string
}

// StoreEventsPlace stores how far the list of events was read.
func StoreEventsPlace(ctx context.Context, c Conn, p Place) error {
	return db.MapError("the state of payments", queries(c).StoreEventsPlace(ctx, gen.StoreEventsPlaceParams{EventsFrom: p.From, EventsUntil: p.Until, EventsPage: p.Page}))
}

// StoreSessionsPlace stores how far the list of sessions was read.
func StoreSessionsPlace(ctx context.Context, c Conn, p Place) error {
	return db.MapError("the state of payments",
		queries(c).StoreSessionsPlace(ctx, gen.StoreSessionsPlaceParams{SessionsFrom: p.From, SessionsUntil: p.Until, SessionsPage: p.Page}))
}

// StoreMovementsPlace stores how far the list of movements was read.
func StoreMovementsPlace(ctx context.Context, c Conn, p Place) error {
	return db.MapError("the state of payments",
		queries(c).StoreMovementsPlace(ctx, gen.StoreMovementsPlaceParams{MovementsFrom: p.From, MovementsUntil: p.Until, MovementsPage: p.Page}))
}

// StoreTotalsTime stores that the totals were compared.
func StoreTotalsTime(ctx context.Context, c Conn) error {
	return db.MapError("the state of payments", queries(c).StoreTotalsTime(ctx))
}

// StorePass stores that a pass has ended; problem is why it did not do all of its work, "" for
// nothing.
func StorePass(ctx context.Context, c Conn, problem string) error {
	return db.MapError("the state of payments", queries(c).StorePass(ctx, db.ClipText(problem, db.MaxMessage)))
}

// PutForeign stores a session of the same account at the payment provider that is not ours.
func PutForeign(ctx context.Context, c Conn, f Foreign) error {
	return db.MapError("foreign session "+f.ID, queries(c).PutForeign(ctx, gen.PutForeignParams{
		ID: f.ID, Installation: db.ClipText(f.Installation, 500), Reference: db.ClipText(f.Reference, 500), AmountMinor: f.AmountMinor, Currency: f.Currency,
		Paid: f.Paid, CreatedAt: f.CreatedAt, PaymentIntentID: f.PaymentIntentID,
	}))
}

// IsForeign reports whether a payment of the payment provider is of a session that is not ours.
func IsForeign(ctx context.Context, c Conn, paymentID string) (bool, error) {
	is, err := queries(c).IsForeignIntent(ctx, paymentID)
	return is, db.MapError("foreign payment "+paymentID, err)
}

// ListForeign lists sessions that are not ours, from the one after the id given.
func ListForeign(ctx context.Context, c Conn, after string, limit int) ([]Foreign, error) {
	rows, err := queries(c).ListForeign(ctx, gen.ListForeignParams{After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list foreign sessions", err)
}

// Movement is one movement of the balance at the payment provider.
type Movement = gen.InsertMovementParams

// StoreMovement stores a movement. It can be repeated.
func StoreMovement(ctx context.Context, c Conn, m Movement) error {
	_, err := queries(c).InsertMovement(ctx, m)
	return db.MapError("movement "+m.ID, err)
}

// ReadTotals returns, by currency, what moved at the payment provider and what the ledger says of
// it.
func ReadTotals(ctx context.Context, c Conn) ([]Total, error) {
	rows, err := queries(c).Totals(ctx)
	return rows, db.MapError("totals of payments", err)
}

// TestCredit is what payments of test mode have given to a billing account.
type TestCredit = gen.CreditedInTestModeRow

// ListTestCredits returns, by billing account, what was credited by payments of test mode and not
// refunded.
func ListTestCredits(ctx context.Context, c Conn) ([]TestCredit, error) {
	rows, err := queries(c).CreditedInTestMode(ctx)
	return rows, db.MapError("payments of test mode", err)
}

// PutDifference stores that both sides differ. One with the same amount that was acknowledged stays
// so.
func PutDifference(ctx context.Context, c Conn, kind, subject, message string, amountMinor int64) error {
	return db.MapError("difference of "+subject, queries(c).PutDifference(ctx, gen.PutDifferenceParams{
		Kind: kind, Subject: subject, Message: db.ClipText(message, db.MaxMessage), AmountMinor: amountMinor,
	}))
}

// DropDifference deletes a difference that is no more. It can be repeated.
func DropDifference(ctx context.Context, c Conn, kind, subject string) error {
	_, err := queries(c).DropDifference(ctx, gen.DropDifferenceParams{Kind: kind, Subject: subject})
	return db.MapError("difference of "+subject, err)
}

// ListDifferences lists differences by kind and subject, from the one after the place given.
func ListDifferences(ctx context.Context, c Conn, afterKind, afterSubject string, limit int) ([]Difference, error) {
	rows, err := queries(c).ListDifferences(ctx, gen.ListDifferencesParams{AfterKind: afterKind, AfterSubject: afterSubject, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list differences of payments", err)
}

// AcknowledgeDifference stores that an operator knows of a difference, or returns db.ErrNotFound.
func AcknowledgeDifference(ctx context.Context, tx *db.Tx, kind, subject, reason string, a db.Actor) error {
	n, err := queries(tx).AcknowledgeDifference(ctx, gen.AcknowledgeDifferenceParams{Kind: kind, Subject: subject, Reason: reason, AcknowledgedBy: ActorName(a)})
	return db.CheckRepeatable("difference of "+subject, n, err, func() error { return db.NotFound("difference " + kind + " of " + subject) })
}
