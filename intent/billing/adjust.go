package billing

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The limits of an adjustment.
const (
	MaxAdjustMinor  = 1_000_000_000_000
	MaxAdjustReason = 500
	MaxAdjustKey    = 200
)

// DefaultConfirmAbove is the policy amount of adjustments where the settings name no other.
const DefaultConfirmAbove = 1000

// confirmLimit returns the policy amount in minor units of a currency. It counts in units of a
// hundred minor units at least: 1000 is 1000.00 USD, 1000.000 KWD, and 100000 JPY, since a yen has
// no smaller part and is worth about as much as a cent.
func confirmLimit(above int64, exponent int) int64 {
	if above <= 0 {
		above = DefaultConfirmAbove
	}
	for range max(exponent, 2) {
		above *= 10
	}
	return above
}

// Adjustment gives to a balance, or takes from it when the amount is negative. It is a transaction
// of its own with a reason: what was booked before stays as it is. Key tells a repetition from
// another adjustment.
type Adjustment struct {
	BillingAccountID string
	ProjectID        string // on whose statement it stands; "" for none
	AmountMinor      int64
	Reason, Key      string
	// ConfirmAbove is the amount above which Confirm must be set, in whole units as confirmLimit
	// counts them; 0 is DefaultConfirmAbove.
	ConfirmAbove int64
	Confirm      bool
	Actor        db.Actor
}

// Adjust books an adjustment. It returns the transaction and whether it is new: the same adjustment
// again changes nothing, and another one with its key is refused.
func Adjust(ctx context.Context, tx *db.Tx, a Adjustment) (ledgerdb.Transaction, bool, error) {
	if err := checkAdjustment(ctx, tx, a); err != nil {
		return ledgerdb.Transaction{}, false, err
	}
	key := "adjustment:" + a.BillingAccountID + ":" + a.Key
	// An adjustment that was booked with this key is answered without a confirmation: after a
	// refusal its sender would book it twice.
	_, err := ledgerdb.FindTransaction(ctx, tx, key)
	if errors.Is(err, db.ErrNotFound) {
		err = checkConfirmed(ctx, tx, a)
	}
	if err != nil {
		return ledgerdb.Transaction{}, false, err
	}
	t, isNew, err := ledgerdb.Post(ctx, tx, ledgerdb.Posting{
		Key: key, Kind: ledgerdb.KindAdjustment, BillingAccountID: a.BillingAccountID, ProjectID: a.ProjectID,
		Reason: a.Reason, Actor: setBy(a.Actor),
		Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: a.AmountMinor}, {Code: ledgerdb.CodeAdjustments, AmountMinor: -a.AmountMinor}},
	})
	if errors.Is(err, ledgerdb.ErrKeyReused) {
		return t, false, &intent.Refusal{Kind: intent.Conflict, Detail: "another adjustment has this key; use a new key for a new adjustment"}
	}
	if err != nil || !isNew {
		return t, isNew, err
	}
	actor := a.Actor
	actor.Comment = a.Reason
	actor.Metadata = map[string]any{"amount_minor": a.AmountMinor, "currency": t.Currency, "project_id": a.ProjectID, "transaction_id": t.ID, "confirmed": a.Confirm}
	return t, true, tx.AppendAudit(ctx, db.Entry{
		ResourceKind: "billing_account", ResourceID: a.BillingAccountID, Kind: db.EntryAction, Name: "adjust_balance", Actor: actor,
	})
}

// checkConfirmed refuses an adjustment above the policy amount that its sender has not confirmed.
func checkConfirmed(ctx context.Context, tx *db.Tx, a Adjustment) error {
	if a.Confirm {
		return nil
	}
	b, err := ledgerdb.ReadBalance(ctx, tx, a.BillingAccountID)
	if err != nil {
		return err
	}
	limit := confirmLimit(a.ConfirmAbove, int(b.Exponent))
	if max(a.AmountMinor, -a.AmountMinor) <= limit {
		return nil
	}
	money := func(minor int64) string { return lifecycle.FormatMoney(minor, int(b.Exponent), b.Currency) }
	return invalid("confirm", fmt.Sprintf("must be true for %s: an adjustment above %s is booked only when it is confirmed", money(a.AmountMinor), money(limit)))
}

func checkAdjustment(ctx context.Context, tx *db.Tx, a Adjustment) error {
	var bad []intent.Field
	if a.AmountMinor == 0 || a.AmountMinor > MaxAdjustMinor || a.AmountMinor < -MaxAdjustMinor {
		bad = append(bad, intent.Field{Name: "amount_minor", Message: fmt.Sprintf("must be -%d to %d and not 0", int64(MaxAdjustMinor), int64(MaxAdjustMinor))})
	}
	if n := len([]rune(a.Reason)); n == 0 || n > MaxAdjustReason {
		bad = append(bad, intent.Field{Name: "reason", Message: fmt.Sprintf("must say why, in at most %d characters", MaxAdjustReason)})
	}
	if a.Key == "" || len(a.Key) > MaxAdjustKey {
		bad = append(bad, intent.Field{Name: "key", Message: fmt.Sprintf("must be 1 to %d bytes", MaxAdjustKey)})
	}
	if a.ProjectID != "" {
		p, err := tenancydb.ReadProject(ctx, tx, a.ProjectID)
		if errors.Is(err, db.ErrNotFound) || err == nil && p.BillingAccountID != a.BillingAccountID {
			bad = append(bad, intent.Field{Name: "project_id", Message: "is not a project of the billing account"})
		} else if err != nil {
			return err
		}
	}
	return intent.InvalidIf(bad)
}
