// Package billing sets prices, adjusts balances, and does what follows from a balance: it releases
// what a depleted account has, and passes notices on.
package billing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The limits of a price.
const (
	MaxRateMinor  = 1_000_000_000_000
	MaxPriceAhead = 2 * 365 * 24 * time.Hour
	farAhead      = 31 * 24 * time.Hour // a price that begins later needs a confirmation
	maxAffected   = 500
	// A new price outside of these factors of the last one needs a confirmation, as one of zero
	// does.
	leastFactor, mostFactor = 0.5, 2.0
)

// PriceRequest asks for a price of a SKU or of a type of instances in a currency from a moment on.
type PriceRequest struct {
	ledgerdb.Item
	Currency         string
	RateMinorPerHour int64
	ValidFrom        time.Time // zero: at once for the first price, else in an hour and five minutes
	PlanHash         string    // of the plan that was looked at; SetPrice needs it
	Confirm          bool      // that a price which needs a confirmation is meant
	Actor            db.Actor
}

// PricePlan says what a price would change.
type PricePlan struct {
	Before            *ledgerdb.Price // the price that it ends, nil for the first one
	Price             ledgerdb.NewPrice
	Factor            float64 // of the price before; 0 when there is none, or when it was zero
	NeedsConfirmation string  // why, "" when it needs none
	Affected          []ledgerdb.Affected
	Ends              int  // listed instances that the price ends, since their accounts are depleted
	More              bool // there are more than are listed
	Hash              string
}

// defaultLead leaves time between the plan and the price.
const defaultLead = ledgerdb.PriceLead + 5*time.Minute

// PlanPrice says what a price would change. Nothing is written.
func PlanPrice(ctx context.Context, tx *db.Tx, r PriceRequest) (PricePlan, error) {
	p, err := checkPrice(ctx, tx, r)
	if err != nil {
		return PricePlan{}, err
	}
	p.Affected, err = ledgerdb.ListAffected(ctx, tx, r.Item, r.Currency, maxAffected+1)
	if err != nil {
		return p, err
	}
	if len(p.Affected) > maxAffected {
		p.Affected, p.More = p.Affected[:maxAffected], true
	}
	for _, a := range p.Affected {
		if a.Ends {
			p.Ends++
		}
	}
	if p.Ends > 0 && p.NeedsConfirmation == "" { // without their number: it changes while the plan is looked at
		p.NeedsConfirmation = "the price ends instances of accounts that are depleted"
	}
	p.Hash, err = p.hash(r.ValidFrom)
	return p, err
}

// hash covers what decides: the price and the price before. Allocations and instances come and go
// meanwhile.
func (p PricePlan) hash(validFrom time.Time) (string, error) {
	before := ""
	if p.Before != nil {
		before = p.Before.ID
	}
	b, err := json.Marshal([]any{p.Price.Item.String(), p.Price.Currency, p.Price.RateMinorPerHour, validFrom.UTC(), before, p.NeedsConfirmation})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// checkPrice checks a request against the prices that are set, under the lock of the SKU.
func checkPrice(ctx context.Context, tx *db.Tx, r PriceRequest) (PricePlan, error) {
	if err := checkRate(ctx, tx, r); err != nil {
		return PricePlan{}, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return PricePlan{}, err
	}
	p := PricePlan{Price: ledgerdb.NewPrice{Item: r.Item, Currency: r.Currency, RateMinorPerHour: r.RateMinorPerHour, ValidFrom: r.ValidFrom, SetBy: setBy(r.Actor)}}
	last, err := ledgerdb.LockLastPrice(ctx, tx, r.Item, r.Currency)
	switch {
	case errors.Is(err, db.ErrNotFound):
		if p.Price.ValidFrom.IsZero() {
			p.Price.ValidFrom = now
		}
		if p.Price.ValidFrom.Before(now) {
			return p, invalid("valid_from", "must not be in the past")
		}
	case err != nil:
		return p, err
	default:
		p.Before = &last
		if p.Price.ValidFrom.IsZero() {
			p.Price.ValidFrom = now.Add(defaultLead)
		}
		if p.Price.ValidFrom.Before(now.Add(ledgerdb.PriceLead)) {
			return p, invalid("valid_from", "must be at least an hour ahead, so that nobody pays a price that could not be seen before")
		}
		if !p.Price.ValidFrom.After(last.ValidFrom) {
			return p, invalid("valid_from", "must be after "+last.ValidFrom.UTC().Format(time.RFC3339)+", when the last price starts")
		}
	}
	if p.Price.ValidFrom.After(now.Add(MaxPriceAhead)) {
		return p, invalid("valid_from", "must be at most two years ahead")
	}
	p.Factor, p.NeedsConfirmation = compareRates(p.Before, r.RateMinorPerHour)
	if p.NeedsConfirmation == "" && p.Price.ValidFrom.After(now.Add(farAhead)) {
		p.NeedsConfirmation = "the price begins more than 31 days ahead"
	}
	return p, nil
}

// compareRates returns the factor of a new rate, and why it needs a confirmation.
func compareRates(before *ledgerdb.Price, rate int64) (float64, string) {
	if rate == 0 {
		return 0, "the price is zero: what has it is free"
	}
	if before == nil {
		return 0, ""
	}
	if before.RateMinorPerHour == 0 {
		return 0, "the price before is zero"
	}
	factor := float64(rate) / float64(before.RateMinorPerHour)
	if factor < leastFactor || factor > mostFactor {
		return factor, fmt.Sprintf("the price is %.4g times the one before", factor)
	}
	return factor, ""
}

func checkRate(ctx context.Context, tx *db.Tx, r PriceRequest) error {
	var bad []intent.Field
	if r.RateMinorPerHour < 0 || r.RateMinorPerHour > MaxRateMinor {
		bad = append(bad, intent.Field{Name: "rate_minor_per_hour", Message: fmt.Sprintf("must be 0 to %d", int64(MaxRateMinor))})
	}
	currencies, err := ledgerdb.ListCurrencies(ctx, tx)
	if err != nil {
		return err
	}
	known := false
	for _, c := range currencies {
		known = known || c.Code == r.Currency
	}
	if !known {
		bad = append(bad, intent.Field{Name: "currency", Message: "is not one of the currencies of this installation, as USD is"})
	}
	wrong, err := checkItem(ctx, tx, r.Item)
	if err != nil {
		return err
	}
	return intent.InvalidIf(append(bad, wrong...))
}

// checkItem returns what is wrong with what is to have a price.
func checkItem(ctx context.Context, tx *db.Tx, item ledgerdb.Item) ([]intent.Field, error) {
	switch {
	case (item.SKUID == "") == (item.InstanceType == ""):
		return []intent.Field{{Name: "sku_id", Message: "name a SKU, or a type of instances in instance_type"}}, nil
	case item.InstanceType != "":
		if !slices.ContainsFunc(spec.InstanceTypes(), func(t spec.InstanceType) bool { return ledgerdb.InstanceItem(t.Provider, t.Name) == item }) {
			return []intent.Field{{Name: "instance_type", Message: "there is no such type; write it as provider/type"}}, nil
		}
		return nil, nil
	}
	_, err := tx.SKU(ctx, item.SKUID)
	if errors.Is(err, db.ErrNotFound) {
		return []intent.Field{{Name: "sku_id", Message: "there is no such SKU"}}, nil
	}
	return nil, err
}

// SetPrice sets a price that was planned: the plan is made again and must have the same hash.
func SetPrice(ctx context.Context, tx *db.Tx, r PriceRequest) (ledgerdb.Price, error) {
	p, err := PlanPrice(ctx, tx, r)
	switch {
	case err != nil:
		return ledgerdb.Price{}, err
	case r.PlanHash == "":
		return ledgerdb.Price{}, &intent.Refusal{Kind: intent.PlanMissing, PlanHash: p.Hash,
			Detail: fmt.Sprintf("a price is set with the hash of its dry run, which names the %d allocations or instances that it concerns; make one first", len(p.Affected))}
	case r.PlanHash != p.Hash:
		return ledgerdb.Price{}, &intent.Refusal{Kind: intent.PlanStale, PlanHash: p.Hash,
			Detail: "it is another price than that of the dry run, or the prices have changed since; make another dry run and look at it"}
	case p.NeedsConfirmation != "" && !r.Confirm:
		return ledgerdb.Price{}, invalid("confirm", "must be true, since "+p.NeedsConfirmation)
	}
	price, err := ledgerdb.SetPrice(ctx, tx, p.Price)
	if err != nil {
		return price, err
	}
	actor := r.Actor
	actor.Metadata = priceFacts(price)
	actor.Metadata["confirmed"] = r.Confirm
	return price, tx.AppendAudit(ctx, db.Entry{ResourceKind: "price", ResourceID: price.ID, Kind: db.EntryAction, Name: "set_price", Actor: actor})
}

// WithdrawPrice takes back a price that has not begun, for the reason that the actor gives. The
// price before it goes on, so nothing changes for what runs.
func WithdrawPrice(ctx context.Context, tx *db.Tx, id string, actor db.Actor) (ledgerdb.Price, error) {
	price, err := ledgerdb.WithdrawPrice(ctx, tx, id)
	if err != nil {
		return price, err
	}
	actor.Metadata = priceFacts(price)
	return price, tx.AppendAudit(ctx, db.Entry{ResourceKind: "price", ResourceID: price.ID, Kind: db.EntryAction, Name: "withdraw_price", Actor: actor})
}

// priceFacts are what the audit log says of a price.
func priceFacts(p ledgerdb.Price) map[string]any {
	facts := map[string]any{"currency": p.Currency, "rate_minor_per_hour": p.RateMinorPerHour, "valid_from": p.ValidFrom}
	if p.InstanceType != "" {
		facts["instance_type"] = p.InstanceType
	} else {
		facts["sku_id"] = p.SKUID
	}
	return facts
}

func setBy(a db.Actor) string {
	if a.ID == "" {
		return string(a.Owner)
	}
	return a.ID
}

func invalid(field, message string) error {
	return &intent.Refusal{Kind: intent.Invalid, Fields: []intent.Field{{Name: field, Message: message}}}
}
