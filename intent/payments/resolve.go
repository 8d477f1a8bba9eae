package payments

import (
	"context"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Decision is what an operator decides about a session that could not be credited.
type Decision struct {
	SessionID  string
	Resolution lifecycle.Resolution
	Reason     string
	Actor      db.Actor
}

// Resolve carries a decision out, once, unless it is a refund that failed. Credit gives what was
// paid to the balance. Refund takes it from suspense and stores a refund that loops/paymentsync
// sends. Write-off books it away. The session stays failed_reconcile after the last two.
func Resolve(ctx context.Context, tx *db.Tx, p Policy, d Decision) (paymentsdb.Session, error) {
	if err := CheckDecision(d); err != nil {
		return paymentsdb.Session{}, err
	}
	s, err := paymentsdb.Lock(ctx, tx, d.SessionID)
	if err != nil {
		return s, err
	}
	isAgain, err := hasFailedRefund(ctx, tx, s)
	if err != nil {
		return s, err
	}
	isDone := s.Resolution != "" && !isAgain
	switch {
	case isDone && s.Resolution == d.Resolution:
		return s, nil
	case isDone:
		return s, refuse(intent.Conflict, "the session was resolved before, by %s", s.Resolution)
	case s.Status != lifecycle.PaymentFailedReconcile:
		return s, refuse(intent.Conflict, "the session is %s; only a payment that could not be credited is resolved; reconcile compares the others with the payment provider", s.Status)
	}
	if err := checkMode(s, p); err != nil && d.Resolution == lifecycle.ResolveRefund {
		return s, err
	}
	if !isOurs(s) && d.Resolution != lifecycle.ResolveWriteOff {
		return s, refuse(intent.Conflict, "the ledger cannot have what was paid; refund it at the payment provider and resolve the session by write_off")
	}
	if s, err = moveToSuspense(ctx, tx, s, d.Actor); err != nil { // the credit itself has failed: what came is booked first
		return s, err
	}
	if d.Resolution == lifecycle.ResolveCredit {
		return resolveByCredit(ctx, tx, s, d)
	}
	return resolveInPlace(ctx, tx, s, d)
}

// hasFailedRefund reports whether a session was resolved by a refund and has money in suspense all
// the same: the refund failed, or a dispute was won after it. It may be resolved once more.
func hasFailedRefund(ctx context.Context, tx *db.Tx, s paymentsdb.Session) (bool, error) {
	if s.Status != lifecycle.PaymentFailedReconcile || s.Resolution != lifecycle.ResolveRefund {
		return false, nil
	}
	left, err := leftInSuspense(ctx, tx, s)
	return left > 0, err
}

// CheckDecision refuses a decision that is none, or has no reason.
func CheckDecision(d Decision) error {
	var bad []intent.Field
	if !slices.Contains(lifecycle.Resolutions, d.Resolution) {
		bad = append(bad, intent.Field{Name: "resolution", Message: "must be credit, refund or write_off"})
	}
	if n := len([]rune(d.Reason)); n == 0 || n > MaxReason {
		bad = append(bad, intent.Field{Name: "reason", Message: fmt.Sprintf("must say why, in at most %d characters", MaxReason)})
	}
	return intent.InvalidIf(bad)
}

func resolveByCredit(ctx context.Context, tx *db.Tx, s paymentsdb.Session, d Decision) (paymentsdb.Session, error) {
	disputes, err := paymentsdb.ListDisputes(ctx, tx, s.ID)
	if err != nil {
		return s, err
	}
	isTaken := slices.ContainsFunc(disputes, func(o paymentsdb.Dispute) bool { return o.State != lifecycle.DisputeWon })
	if s.RefundedMinor > 0 || isTaken {
		return s, refuse(intent.Conflict, "a part of what was paid went back to the payer; resolve it by refund or write_off, and credit the rest by an adjustment")
	}
	entry, err := post(ctx, tx, s, d.Actor, "topup:"+s.ID, ledgerdb.KindTopup, ledgerdb.CodePrepaid, ledgerdb.CodeSuspense, *s.ReceivedMinor, d.Reason)
	if err != nil {
		return s, err
	}
	actor := d.Actor
	actor.Comment = d.Reason
	return paymentsdb.MoveTo(ctx, tx, s, paymentsdb.Move{
		To: lifecycle.PaymentResolve, LedgerEntry: &entry, CreditedMinor: s.ReceivedMinor, Resolution: lifecycle.ResolveCredit, ResolutionReason: d.Reason,
		Actor: actor,
	})
}

// leftInSuspense returns what of a session is in suspense: not what went back to the payer, nor
// what the payer's bank has taken by a dispute.
func leftInSuspense(ctx context.Context, tx *db.Tx, s paymentsdb.Session) (int64, error) {
	if !isOurs(s) {
		return 0, nil
	}
	disputes, err := paymentsdb.ListDisputes(ctx, tx, s.ID)
	left := *s.ReceivedMinor - s.RefundedMinor
	for _, d := range disputes {
		if d.State != lifecycle.DisputeWon {
			left -= d.AmountMinor
		}
	}
	return left, err
}

// resolveInPlace refunds or writes off what is left in suspense.
func resolveInPlace(ctx context.Context, tx *db.Tx, s paymentsdb.Session, d Decision) (paymentsdb.Session, error) {
	left, err := leftInSuspense(ctx, tx, s)
	if err != nil {
		return s, err
	}
	switch {
	case left <= 0 && isOurs(s) && s.RefundedMinor < *s.ReceivedMinor && d.Resolution == lifecycle.ResolveRefund:
		return s, refuse(intent.Conflict, "nothing is left to refund: the payer's bank has taken it by a dispute; wait until that is decided, or resolve it by write_off")
	case left > 0 && d.Resolution == lifecycle.ResolveRefund:
		before, err := paymentsdb.ListRefunds(ctx, tx, s.ID)
		if err != nil {
			return s, err
		}
		r := RefundRequest{SessionID: s.ID, AmountMinor: left, Reason: d.Reason, Key: fmt.Sprintf("resolve:%d", len(before)), Actor: d.Actor}
		if _, err := holdRefund(ctx, tx, s, r, ledgerdb.CodeSuspense); err != nil {
			return s, err
		}
	case left > 0:
		if _, err := post(ctx, tx, s, d.Actor, "write_off:"+s.ID, ledgerdb.KindWriteOff, ledgerdb.CodeWriteOff, ledgerdb.CodeSuspense, left, d.Reason); err != nil {
			return s, err
		}
	}
	if err := paymentsdb.StoreResolution(ctx, tx, s.ID, d.Resolution, d.Reason, d.Actor); err != nil {
		return s, err
	}
	actor := d.Actor
	actor.Comment = d.Reason
	actor.Metadata = map[string]any{"resolution": d.Resolution, "amount_minor": left, "currency": s.Currency}
	if err := audit(ctx, tx, s.ID, "resolve_payment", actor); err != nil {
		return s, err
	}
	return paymentsdb.Get(ctx, tx, s.ID)
}

// Acknowledge stores that an operator knows of a difference between the payment provider and the
// ledger. It is told of again when its amount changes.
func Acknowledge(ctx context.Context, tx *db.Tx, kind, subject, reason string, actor db.Actor) error {
	if n := len([]rune(reason)); n == 0 || n > MaxReason {
		return intent.InvalidIf([]intent.Field{{Name: "reason", Message: fmt.Sprintf("must say why, in at most %d characters", MaxReason)}})
	}
	if err := paymentsdb.AcknowledgeDifference(ctx, tx, kind, subject, reason, actor); err != nil {
		return err
	}
	actor.Comment = reason
	return tx.AppendAudit(ctx, db.Entry{
		ResourceKind: "payment_difference", ResourceID: kind + ":" + subject, Kind: db.EntryAction, Name: "acknowledge_difference", Actor: actor,
	})
}
