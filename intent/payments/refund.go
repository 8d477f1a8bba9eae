package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// pendingLook is when a refund that the payment provider has accepted is looked at again.
const pendingLook = 6 * time.Hour

// RefundRequest asks to return a part of a credited payment to the payer.
type RefundRequest struct {
	SessionID   string
	AmountMinor int64
	Reason      string
	Key         string // tells a repetition from another refund
	Actor       db.Actor
}

// RequestRefund takes the amount from the balance and stores the refund; loops/paymentsync sends
// it. It returns false with the refund that is there when its key was used before. Money that is
// held back for allocations, or was spent, is not refunded, and neither is a payment of the other
// mode.
func RequestRefund(ctx context.Context, tx *db.Tx, p Policy, r RefundRequest) (paymentsdb.Refund, bool, error) {
	var bad []intent.Field
	if r.AmountMinor < 1 {
		bad = append(bad, intent.Field{Name: "amount_minor", Message: "must be at least 1"})
	}
	if n := len([]rune(r.Reason)); n == 0 || n > MaxReason {
		bad = append(bad, intent.Field{Name: "reason", Message: fmt.Sprintf("must say why, in at most %d characters", MaxReason)})
	}
	if r.Key == "" || len(r.Key) > MaxKey {
		bad = append(bad, intent.Field{Name: "idempotency_key", Message: fmt.Sprintf("must be 1 to %d bytes", MaxKey)})
	}
	if err := intent.InvalidIf(bad); err != nil {
		return paymentsdb.Refund{}, false, err
	}
	s, err := paymentsdb.Lock(ctx, tx, r.SessionID)
	if err != nil {
		return paymentsdb.Refund{}, false, err
	}
	stored, err := paymentsdb.FindRefund(ctx, tx, s.ID, r.Key)
	switch {
	case err == nil && (stored.AmountMinor != r.AmountMinor || stored.Reason != r.Reason):
		return stored, false, refuse(intent.Conflict, "another refund was asked for with this key; use a new key for a new refund")
	case err == nil || !errors.Is(err, db.ErrNotFound):
		return stored, false, err
	}
	if err := checkMode(s, p); err != nil {
		return paymentsdb.Refund{}, false, err
	}
	if s.Status != lifecycle.PaymentCredited {
		return paymentsdb.Refund{}, false, refuse(intent.Conflict, "the session is %s; only a credited payment is refunded, one that could not be credited by resolving it", s.Status)
	}
	if _, err := tenancydb.LockAccount(ctx, tx, s.BillingAccountID); err != nil {
		return paymentsdb.Refund{}, false, err
	}
	balance, err := ledgerdb.ReadBalance(ctx, tx, s.BillingAccountID)
	if err != nil {
		return paymentsdb.Refund{}, false, err
	}
	money := func(minor int64) string { return lifecycle.FormatMoney(minor, int(balance.Exponent), balance.Currency) }
	if left := *s.CreditedAmountMinor - s.RefundedMinor; r.AmountMinor > left {
		return paymentsdb.Refund{}, false, refuse(intent.Conflict, "%s of the payment is left to refund; refund at most that", money(left))
	}
	if free := balance.BalanceMinor - balance.HeldMinor; r.AmountMinor > free { // a credit line is not the customer's money
		return paymentsdb.Refund{}, false, refuse(intent.Conflict, "%s of the balance are neither spent nor held back; refund at most that", money(max(free, 0)))
	}
	refund, err := holdRefund(ctx, tx, s, r, ledgerdb.CodePrepaid)
	return refund, err == nil, err
}

// checkMode refuses a refund of a payment that was made in the other mode: the payment provider
// does not know it, so that the amount would be held for ever.
func checkMode(s paymentsdb.Session, p Policy) error {
	mode := map[bool]string{true: "live", false: "test"}
	if s.Live == p.Live {
		return nil
	}
	return refuse(intent.Conflict, "it was paid in %s mode of the payment provider, and this installation is in %s mode; change the balance by an adjustment", mode[s.Live], mode[p.Live])
}

// holdRefund stores a refund and takes its amount from an account of the ledger.
func holdRefund(ctx context.Context, tx *db.Tx, s paymentsdb.Session, r RefundRequest, source string) (paymentsdb.Refund, error) {
	refund, err := paymentsdb.CreateRefund(ctx, tx, paymentsdb.NewRefund{
		ID: db.NewID("rfd"), SessionID: s.ID, Origin: paymentsdb.OriginOperator, Source: source, Key: r.Key, AmountMinor: r.AmountMinor, Currency: s.Currency,
		State: lifecycle.RefundRequested, Reason: r.Reason, RequestedBy: paymentsdb.ActorName(r.Actor),
	})
	if err != nil {
		return refund, err
	}
	_, err = post(ctx, tx, s, r.Actor, "refund:"+refund.ID, ledgerdb.KindRefund, ledgerdb.CodeRefundPending, source, r.AmountMinor, r.Reason)
	if err != nil {
		return refund, err
	}
	if err := paymentsdb.AddRefunded(ctx, tx, s.ID, r.AmountMinor); err != nil {
		return refund, err
	}
	actor := r.Actor
	actor.Comment = r.Reason
	actor.Metadata = map[string]any{"refund_id": refund.ID, "amount_minor": r.AmountMinor, "currency": s.Currency}
	return refund, audit(ctx, tx, s.ID, "request_refund", actor)
}

func audit(ctx context.Context, tx *db.Tx, sessionID, name string, actor db.Actor) error {
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: paymentsdb.Resource, ResourceID: sessionID, Kind: db.EntryAction, Name: name, Actor: actor})
}

// ObservedRefund is a refund as the payment provider has just answered.
type ObservedRefund struct {
	ID          string
	Failed      bool // failed or canceled: the money is at the payment provider again
	Succeeded   bool
	AmountMinor int64
	Currency    string
	Reference   string // the id of our own refund, "" for one of the provider's dashboard
}

// FollowRefund books what became of a refund of a session. A refund that was made in the provider's
// dashboard is booked as it is, also when the balance does not cover it: the money has gone. It can
// be repeated and called in any order. It returns false when the session is not booked yet, so that
// nothing can be taken from it: credit it first.
func FollowRefund(ctx context.Context, tx *db.Tx, sessionID string, o ObservedRefund, actor db.Actor) (bool, error) {
	s, err := paymentsdb.Lock(ctx, tx, sessionID)
	if err != nil {
		return false, err
	}
	refunds, err := paymentsdb.ListRefunds(ctx, tx, s.ID)
	if err != nil {
		return false, err
	}
	for _, known := range refunds {
		if IsRefund(known, o) {
			return true, followKnown(ctx, tx, s, known.ID, o, actor)
		}
	}
	source := sourceOf(s)
	switch {
	case source == "" && isInNoLedger(s):
		return true, nil // nothing came into the ledger, and nothing leaves it
	case source == "":
		return false, nil
	case o.Currency != s.Currency || o.AmountMinor < 1:
		return true, paymentsdb.PutDifference(ctx, tx, paymentsdb.DifferenceRefund, o.ID,
			fmt.Sprintf("refund %s of session %s has %d minor units of %s, which no ledger has", o.ID, s.ID, o.AmountMinor, o.Currency), o.AmountMinor)
	}
	refund, err := paymentsdb.CreateRefund(ctx, tx, paymentsdb.NewRefund{
		ID: db.NewID("rfd"), SessionID: s.ID, Origin: paymentsdb.OriginDashboard, Source: source, Key: "provider:" + o.ID, AmountMinor: o.AmountMinor,
		Currency: s.Currency, State: lifecycle.RefundPending, ProviderID: o.ID, RequestedBy: paymentsdb.ActorName(actor),
		Reason: "made at the payment provider",
	})
	if err != nil {
		return false, err
	}
	if _, err := post(ctx, tx, s, actor, "refund:"+refund.ID, ledgerdb.KindRefund, ledgerdb.CodeClearing, source, o.AmountMinor, refund.Reason); err != nil {
		return false, err
	}
	if err := paymentsdb.AddRefunded(ctx, tx, s.ID, o.AmountMinor); err != nil {
		return false, err
	}
	actor.Metadata = map[string]any{"refund_id": refund.ID, "provider_id": o.ID, "amount_minor": o.AmountMinor, "currency": s.Currency}
	if err := audit(ctx, tx, s.ID, "book_refund", actor); err != nil {
		return false, err
	}
	return true, followKnown(ctx, tx, s, refund.ID, o, actor)
}

// IsRefund reports whether a refund at the payment provider is the one that is stored.
func IsRefund(r paymentsdb.Refund, o ObservedRefund) bool {
	return r.ID == o.Reference || r.StripeRefundID != nil && *r.StripeRefundID == o.ID
}

// isInNoLedger reports whether a session ended without anything in the ledger: it was paid in
// another currency than that of the billing account, or with nothing.
func isInNoLedger(s paymentsdb.Session) bool {
	return s.Status == lifecycle.PaymentFailedReconcile && !isOurs(s)
}

// isOurs reports whether the ledger can have what was paid for a session.
func isOurs(s paymentsdb.Session) bool {
	return s.ReceivedMinor != nil && *s.ReceivedMinor > 0 && s.ReceivedCurrency == s.Currency
}

// sourceOf returns the account of the ledger that a session's money is in, "" before it is booked.
func sourceOf(s paymentsdb.Session) string {
	switch {
	case s.LedgerEntryID != nil:
		return ledgerdb.CodePrepaid
	case s.SuspenseEntryID != nil:
		return placeOf(s, ledgerdb.CodeSuspense)
	}
	return ""
}

// placeOf returns the account that now has the money of a session that was taken from source. Money
// that an operator has credited or written off meanwhile is not in suspense any more, and money
// that comes back follows it: nobody would look in suspense.
func placeOf(s paymentsdb.Session, source string) string {
	switch {
	case source != ledgerdb.CodeSuspense:
		return source
	case s.LedgerEntryID != nil:
		return ledgerdb.CodePrepaid
	case s.Resolution == lifecycle.ResolveWriteOff:
		return ledgerdb.CodeWriteOff
	}
	return source
}

// followKnown moves a refund that is stored. Once it is accepted the money has left the account at
// the payment provider; a refund that fails, before or after that, is in its source again. A refund
// that was given back as never made, and was made all the same, is taken again.
func followKnown(ctx context.Context, tx *db.Tx, s paymentsdb.Session, id string, o ObservedRefund, actor db.Actor) error {
	r, err := paymentsdb.LockRefund(ctx, tx, id)
	if err != nil || r.State == lifecycle.RefundFailed && (r.StripeRefundID != nil || o.Failed) {
		return err
	}
	if o.AmountMinor != r.AmountMinor || o.Currency != r.Currency {
		return reportOtherAmount(ctx, tx, s, r, o)
	}
	switch {
	case o.Failed:
		return reverseRefund(ctx, tx, s, r, "refund_reverse:"+r.ID, o.ID, "the payment provider says that it failed", actor)
	case r.State == lifecycle.RefundFailed:
		err = takeAgain(ctx, tx, s, r, o, actor)
	case r.State == lifecycle.RefundRequested:
		_, err = post(ctx, tx, s, actor, "refund_settle:"+r.ID, ledgerdb.KindRefund, ledgerdb.CodeClearing, ledgerdb.CodeRefundPending, r.AmountMinor, "")
	}
	if err != nil {
		return err
	}
	state, next := lifecycle.RefundPending, ptr(time.Now().Add(pendingLook))
	if o.Succeeded || r.State == lifecycle.RefundSucceeded {
		state, next = lifecycle.RefundSucceeded, nil
	}
	return paymentsdb.MoveRefund(ctx, tx, r.ID, state, o.ID, "", next)
}

func ptr[T any](v T) *T { return &v }

// reportOtherAmount tells of a refund that has another amount at the payment provider. It is looked
// at again, and not before the others.
func reportOtherAmount(ctx context.Context, tx *db.Tx, s paymentsdb.Session, r paymentsdb.Refund, o ObservedRefund) error {
	why := fmt.Sprintf("refund %s of session %s is %d %s here and %d %s at the payment provider", r.ID, s.ID, r.AmountMinor, r.Currency, o.AmountMinor, o.Currency)
	if r.State == lifecycle.RefundRequested || r.State == lifecycle.RefundPending {
		if err := paymentsdb.PostponeRefund(ctx, tx, r.ID, why, time.Now().Add(pendingLook)); err != nil {
			return err
		}
	}
	return paymentsdb.PutDifference(ctx, tx, paymentsdb.DifferenceRefund, r.ID, why, o.AmountMinor-r.AmountMinor)
}

// takeAgain takes the amount of a refund that was given back and is at the payment provider.
func takeAgain(ctx context.Context, tx *db.Tx, s paymentsdb.Session, r paymentsdb.Refund, o ObservedRefund, actor db.Actor) error {
	const why = "given back as never made, and found at the payment provider"
	if _, err := post(ctx, tx, s, actor, "refund_found:"+r.ID, ledgerdb.KindRefund, ledgerdb.CodeClearing, placeOf(s, r.Source), r.AmountMinor, why); err != nil {
		return err
	}
	if err := paymentsdb.AddRefunded(ctx, tx, s.ID, r.AmountMinor); err != nil {
		return err
	}
	actor.Metadata = map[string]any{"refund_id": r.ID, "provider_id": o.ID, "amount_minor": r.AmountMinor, "why": why}
	return audit(ctx, tx, s.ID, "book_refund", actor)
}

// reverseRefund gives the amount of a refund back to where it came from.
func reverseRefund(ctx context.Context, tx *db.Tx, s paymentsdb.Session, r paymentsdb.Refund, key, providerID, why string, actor db.Actor) error {
	from := ledgerdb.CodeClearing
	if r.State == lifecycle.RefundRequested {
		from = ledgerdb.CodeRefundPending
	}
	if _, err := post(ctx, tx, s, actor, key, ledgerdb.KindRefundReversal, placeOf(s, r.Source), from, r.AmountMinor, why); err != nil {
		return err
	}
	if err := paymentsdb.AddRefunded(ctx, tx, s.ID, -r.AmountMinor); err != nil {
		return err
	}
	actor.Metadata = map[string]any{"refund_id": r.ID, "amount_minor": r.AmountMinor, "why": why}
	if err := audit(ctx, tx, s.ID, "reverse_refund", actor); err != nil {
		return err
	}
	return paymentsdb.MoveRefund(ctx, tx, r.ID, lifecycle.RefundFailed, providerID, why, nil)
}

// RejectRefund gives the amount of a refund back that was not sent, or that the payment provider
// has refused and never made. It can be repeated; one that was accepted meanwhile stays.
func RejectRefund(ctx context.Context, tx *db.Tx, id, why string, actor db.Actor) error {
	r, err := paymentsdb.GetRefund(ctx, tx, id)
	if err != nil {
		return err
	}
	s, err := paymentsdb.Lock(ctx, tx, r.SessionID)
	if err != nil {
		return err
	}
	if r, err = paymentsdb.LockRefund(ctx, tx, id); err != nil || r.State != lifecycle.RefundRequested {
		return err
	}
	return reverseRefund(ctx, tx, s, r, "refund_reject:"+r.ID, "", why, actor)
}

// ObservedDispute is a dispute as the payment provider has just answered.
type ObservedDispute struct {
	ID          string
	Won, Lost   bool
	Warning     bool // an inquiry, or one that was prevented: the payment provider takes no money for it
	AmountMinor int64
	Currency    string
}

// FollowDispute books what became of a dispute of a session. While it is open its amount is held,
// and the billing account gets no new allocation; the balance may become negative. It can be
// repeated and called in any order. A warning holds nothing: it only ends a dispute that is held.
// It returns false when the session is not booked yet: credit it first.
func FollowDispute(ctx context.Context, tx *db.Tx, sessionID string, o ObservedDispute, actor db.Actor) (bool, error) {
	s, err := paymentsdb.Lock(ctx, tx, sessionID)
	if err != nil {
		return false, err
	}
	if o.Warning {
		if _, err := paymentsdb.LockDispute(ctx, tx, o.ID); errors.Is(err, db.ErrNotFound) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	source := sourceOf(s)
	switch {
	case source == "" && !isInNoLedger(s):
		return false, nil
	case source == "" || o.Currency != s.Currency || o.AmountMinor < 1:
		return true, paymentsdb.PutDifference(ctx, tx, paymentsdb.DifferenceDispute, o.ID,
			fmt.Sprintf("dispute %s of session %s has %d minor units of %s, which no ledger has", o.ID, s.ID, o.AmountMinor, o.Currency), o.AmountMinor)
	}
	isNew, err := paymentsdb.CreateDispute(ctx, tx, paymentsdb.NewDispute{
		ID: o.ID, SessionID: s.ID, BillingAccountID: s.BillingAccountID, Source: source, AmountMinor: o.AmountMinor, Currency: s.Currency,
	})
	if err != nil {
		return false, err
	}
	d, err := paymentsdb.LockDispute(ctx, tx, o.ID)
	if err != nil {
		return false, err
	}
	actor.Metadata = map[string]any{"dispute_id": d.ID, "amount_minor": d.AmountMinor, "currency": d.Currency}
	if isNew {
		if _, err := post(ctx, tx, s, actor, "dispute:"+d.ID, ledgerdb.KindDispute, ledgerdb.CodeDisputeHold, d.Source, d.AmountMinor, ""); err != nil {
			return false, err
		}
		if err := audit(ctx, tx, s.ID, "hold_dispute", actor); err != nil {
			return false, err
		}
	}
	isSame := o.Won && d.State == lifecycle.DisputeWon || o.Lost && d.State == lifecycle.DisputeLost
	if isSame || !o.Won && !o.Lost {
		return true, nil
	}
	return true, closeDispute(ctx, tx, s, d, o, actor)
}

// closeDispute books how a dispute was decided. The bank may decide again: then the amount comes
// from where the decision before has left it.
func closeDispute(ctx context.Context, tx *db.Tx, s paymentsdb.Session, d paymentsdb.Dispute, o ObservedDispute, actor db.Actor) error {
	from := map[lifecycle.DisputeState]string{
		lifecycle.DisputeOpen: ledgerdb.CodeDisputeHold, lifecycle.DisputeWon: placeOf(s, d.Source), lifecycle.DisputeLost: ledgerdb.CodeClearing,
	}[d.State]
	state, kind, to := lifecycle.DisputeLost, ledgerdb.KindDispute, ledgerdb.CodeClearing
	if o.Won {
		state, kind, to = lifecycle.DisputeWon, ledgerdb.KindDisputeReversal, placeOf(s, d.Source)
	}
	key := "dispute_close:" + d.ID
	if d.Closings > 0 {
		key = fmt.Sprintf("%s:%d", key, d.Closings+1)
	}
	if _, err := post(ctx, tx, s, actor, key, kind, to, from, d.AmountMinor, ""); err != nil {
		return err
	}
	if err := paymentsdb.CloseDispute(ctx, tx, d.ID, state); err != nil {
		return err
	}
	return audit(ctx, tx, s.ID, "close_dispute_"+string(state), actor)
}

// ClearDispute lets the billing account of a dispute that is open, or was lost, have allocations
// again.
func ClearDispute(ctx context.Context, tx *db.Tx, disputeID, reason string, actor db.Actor) error {
	if n := len([]rune(reason)); n == 0 || n > MaxReason {
		return intent.InvalidIf([]intent.Field{{Name: "reason", Message: fmt.Sprintf("must say why, in at most %d characters", MaxReason)}})
	}
	d, err := paymentsdb.LockDispute(ctx, tx, disputeID)
	if err != nil {
		return err
	}
	if d.State == lifecycle.DisputeWon || d.ClearedAt != nil {
		return refuse(intent.Conflict, "only an open or lost dispute that was not cleared yet is cleared; this one is %s", d.State)
	}
	if err := paymentsdb.ClearDispute(ctx, tx, d.ID, reason, actor); err != nil {
		return err
	}
	actor.Comment = reason
	actor.Metadata = map[string]any{"dispute_id": d.ID}
	return audit(ctx, tx, d.SessionID, "clear_dispute", actor)
}
