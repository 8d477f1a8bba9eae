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

// AdmitMoney decides in the transaction of a claim whether an account may have one more item, a
// node of a SKU or an instance of a type. It refuses one that the balance, or the limit of the
// request, does not cover for an hour, and a SKU without a price. An account that is depleted gets
// none that is free either: all that it has is ended. It returns what is to be held back of the
// balance, nil for nothing: where nothing is charged, and for a type without a price. Lock the
// account first, so that claims decide one after the other.
func AdmitMoney(ctx context.Context, tx *db.Tx, accountID string, item ledgerdb.Item, maxSpendMinor *int64) (*int64, error) {
	q, err := ledgerdb.QuoteClaim(ctx, tx, accountID, item)
	if err != nil || !q.Charging {
		return nil, err
	}
	noun, end := "node", "release"
	if item.SKUID == "" {
		noun, end = "instance", "terminate"
	}
	switch {
	case !q.Priced && item.SKUID == "":
		return nil, nil
	case !q.Priced:
		return nil, &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf(
			"SKU %s has no price in %s, the currency of the billing account; choose another SKU or ask the operators for a price", item.SKUID, q.Balance.Currency)}
	case q.RateMinorPerHour == 0 && !q.Balance.IsUsedUp():
		return &q.HoldMinor, nil
	}
	money := func(minor int64) string {
		return lifecycle.FormatMinor(minor, int(q.Balance.Exponent)) + " " + q.Balance.Currency
	}
	if maxSpendMinor != nil && *maxSpendMinor < q.HoldMinor {
		return nil, intent.InvalidIf([]intent.Field{{Name: "max_spend_minor", Message: "must be at least what an hour costs: " + money(q.HoldMinor)}})
	}
	if q.Balance.IsDepleted() || q.Balance.AvailableMinor() < q.HoldMinor {
		return nil, &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf(
			"the %s costs %s an hour, which is held back, and the available balance does not cover it; add to the balance or %s something first",
			noun, money(q.RateMinorPerHour), end)} // not what is available: members may claim, and do not read money
	}
	return &q.HoldMinor, nil
}
