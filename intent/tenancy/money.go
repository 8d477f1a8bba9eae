package tenancy

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// RequireUndisputed refuses an account of which a payment is disputed. noun is what it would get.
func RequireUndisputed(ctx context.Context, tx *db.Tx, accountID, noun string) error {
	frozen, err := paymentsdb.IsFrozen(ctx, tx, accountID)
	if err != nil || !frozen {
		return err
	}
	return &intent.Refusal{Kind: intent.Conflict, Detail: "a payment of the billing account is disputed by the payer's bank; it gets no new " + noun +
		" until that is settled: ask the operators"}
}

// Claim is one more item that an account would have: a node of a SKU, or an instance of a type.
type Claim struct {
	ledgerdb.Item
	// MaxSpendMinor is the limit of the request, nil without one.
	MaxSpendMinor *int64
	// ReadsMoney says that whoever asks may read the balance. Only then does a refusal say how much
	// is missing: members may claim, and do not read money.
	ReadsMoney bool
}

// AdmitMoney decides in the transaction of a claim whether an account may have one more item. It
// returns what is to be held back of the balance, nil for nothing: where nothing is charged, and
// for a type without a price. Lock the account first, so that claims decide one after the other.
func AdmitMoney(ctx context.Context, tx *db.Tx, accountID string, c Claim) (*int64, error) {
	q, err := ledgerdb.QuoteClaim(ctx, tx, accountID, c.Item)
	if err != nil {
		return nil, err
	}
	return CheckQuote(q, c)
}

// CheckQuote is AdmitMoney for a quote. It refuses a claim that the balance, or the limit of the
// request, does not cover for an hour, and a SKU without a price. An account that is depleted gets
// none that is free either: all that it has is ended.
func CheckQuote(q ledgerdb.Quote, c Claim) (*int64, error) {
	noun, end := "node", "release"
	if c.SKUID == "" {
		noun, end = "instance", "terminate"
	}
	switch {
	case !q.Charging:
		return nil, nil
	case !q.Priced && c.SKUID == "":
		return nil, nil
	case !q.Priced:
		return nil, &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf(
			"SKU %s has no price in %s, the currency of the billing account; choose another SKU or ask the operators for a price", c.SKUID, q.Balance.Currency)}
	}
	money := func(minor int64) string {
		return lifecycle.FormatMoney(minor, int(q.Balance.Exponent), q.Balance.Currency)
	}
	if q.RateMinorPerHour > 0 && c.MaxSpendMinor != nil && *c.MaxSpendMinor < q.HoldMinor {
		return nil, intent.InvalidIf([]intent.Field{{Name: "max_spend_minor", Message: "must be at least what an hour costs: " + money(q.HoldMinor)}})
	}
	missing := q.MissingMinor()
	if missing == 0 {
		return &q.HoldMinor, nil
	}
	refusal := &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf(
		"the %s costs %s an hour, which is held back, and the available balance does not cover it; ", noun, money(q.RateMinorPerHour))}
	if !c.ReadsMoney {
		refusal.Detail += fmt.Sprintf("add to the balance or %s something first; an owner of the project, or a member with role billing, sees how much is missing", end)
		return nil, refusal
	}
	refusal.Detail += fmt.Sprintf("%s is missing: add at least that to the balance, or %s something first", money(missing), end)
	refusal.Shortfall = &intent.Shortfall{
		MissingMinor: missing, RateMinorPerHour: q.RateMinorPerHour, HoldMinor: q.HoldMinor, Currency: q.Balance.Currency, Exponent: int(q.Balance.Exponent),
	}
	return nil, refusal
}
