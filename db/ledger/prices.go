package ledgerdb

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/ledger/gen"
)

// Item is what has a price: a SKU, by its id, or a type of instances, as provider/type. The other
// one is empty.
type Item struct{ SKUID, InstanceType string }

// String is the item as prices and usage records name it.
func (i Item) String() string { return cmp.Or(i.InstanceType, i.SKUID) }

// InstanceItem is the item of an instance of a type at a provider.
func InstanceItem(provider, typeName string) Item {
	return Item{InstanceType: provider + "/" + typeName}
}

// Price is a price of an item in a currency. It is valid from ValidFrom until ValidUntil, nil while
// no other follows it.
type Price struct {
	Item
	ID, Currency     string
	RateMinorPerHour int64
	ValidFrom        time.Time
	ValidUntil       *time.Time
	SetBy            string
	CreatedAt        time.Time
}

// RateProtection is how long what runs keeps a lower rate after its price was raised.
const RateProtection = 168 * time.Hour

// PriceLead is how far ahead a price starts at least. The first one of an item in a currency may
// start at once.
const PriceLead = time.Hour

// IsCharging reports whether anything is charged: whether any price has begun. Until then the
// installation charges nothing and no claim asks for money. From then on a SKU needs a price in the
// currency of the account that claims it.
func IsCharging(ctx context.Context, c Conn) (bool, error) {
	charging, err := queries(c).AnyPrice(ctx)
	return charging, db.MapError("prices", err)
}

// FindPrice returns the price of an item in a currency at a moment, or db.ErrNotFound.
func FindPrice(ctx context.Context, c Conn, item Item, currency string, at time.Time) (Price, error) {
	row, err := queries(c).PriceAt(ctx, gen.PriceAtParams{Item: item.String(), Currency: currency, At: at})
	return Price{Item: item, ID: row.ID, Currency: currency, RateMinorPerHour: row.RateMinorPerHour, ValidFrom: row.ValidFrom},
		db.MapError(priceOf(item, currency), err)
}

func priceOf(item Item, currency string) string {
	return "price of " + item.String() + " in " + currency
}

// LockLastPrice locks the SKU and returns its last price in a currency, which may still be to come,
// or db.ErrNotFound when it has none. A type of instances has no row: of two first prices at once,
// the second one is a *db.ConflictError when it is set.
func LockLastPrice(ctx context.Context, tx *db.Tx, item Item, currency string) (Price, error) {
	if item.SKUID != "" {
		if _, err := queries(tx).LockSKU(ctx, item.SKUID); err != nil {
			return Price{}, db.MapError("SKU "+item.SKUID, err)
		}
	}
	row, err := queries(tx).LastPrice(ctx, gen.LastPriceParams{Item: item.String(), Currency: currency})
	return Price{Item: item, ID: row.ID, Currency: currency, RateMinorPerHour: row.RateMinorPerHour, ValidFrom: row.ValidFrom},
		db.MapError(priceOf(item, currency), err)
}

// NewPrice is a price that is to be set.
type NewPrice struct {
	Item
	Currency         string
	RateMinorPerHour int64
	ValidFrom        time.Time
	SetBy            string
}

// SetPrice ends the last price of the item and currency where the new one begins. It returns
// db.ErrInvalid when it starts too early. The rules for operators are in intent/billing.
func SetPrice(ctx context.Context, tx *db.Tx, n NewPrice) (Price, error) {
	what := priceOf(n.Item, n.Currency)
	last, err := LockLastPrice(ctx, tx, n.Item, n.Currency)
	switch {
	case err == nil:
		if !n.ValidFrom.After(last.ValidFrom) {
			return Price{}, &db.ConflictError{What: "price", Existing: last.ID, Message: "a price that starts later was set already; start after it"}
		}
		rows, err := queries(tx).ClosePrice(ctx, gen.ClosePriceParams{Until: n.ValidFrom, ID: last.ID})
		if err := db.CheckGuarded(what, rows, err); err != nil {
			return Price{}, err
		}
	case !errors.Is(err, db.ErrNotFound):
		return Price{}, err
	}
	row, err := queries(tx).InsertPrice(ctx, gen.InsertPriceParams{
		ID: db.NewID("prc"), SKUID: n.SKUID, InstanceType: n.InstanceType, Currency: n.Currency, RateMinorPerHour: n.RateMinorPerHour, ValidFrom: n.ValidFrom,
		SetBy: db.ClipText(n.SetBy, maxActor),
	})
	return Price{
		Item: n.Item, ID: row.ID, Currency: n.Currency, RateMinorPerHour: n.RateMinorPerHour, ValidFrom: row.ValidFrom, SetBy: row.SetBy,
		CreatedAt: row.CreatedAt,
	}, db.MapError(what, err)
}

// WithdrawLead is how long before its begin a price can be withdrawn at the latest.
const WithdrawLead = 5 * time.Minute

// WithdrawPrice deletes a price that has not begun. The price before it is valid without end again.
// It returns the price, db.ErrNotFound, or a db.ConflictError when it begins too soon or another
// price follows it.
func WithdrawPrice(ctx context.Context, tx *db.Tx, id string) (Price, error) {
	what := "price " + id
	found, err := queries(tx).PriceByID(ctx, id)
	if err != nil {
		return Price{}, db.MapError(what, err)
	}
	item := Item{SKUID: found.SKUID, InstanceType: found.InstanceType}
	last, err := LockLastPrice(ctx, tx, item, found.Currency)
	if err != nil {
		return Price{}, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return Price{}, err
	}
	switch {
	case found.ValidFrom.Before(now.Add(WithdrawLead)):
		return Price{}, &db.ConflictError{What: "price", Existing: id,
			Message: "a price that has begun, or begins within five minutes, is not withdrawn; set another price, which ends it"}
	case last.ID != id && last.ValidFrom.After(found.ValidFrom):
		return Price{}, &db.ConflictError{What: "price", Existing: last.ID, Message: "another price follows it; withdraw that one first"}
	}
	rows, err := queries(tx).DeletePrice(ctx, id)
	if err == nil && rows == 0 {
		return Price{}, db.NotFound(what) // another transaction was faster
	}
	return Price{
		Item: item, ID: id, Currency: found.Currency, RateMinorPerHour: found.RateMinorPerHour, ValidFrom: found.ValidFrom, SetBy: found.SetBy,
		CreatedAt: found.CreatedAt,
	}, db.MapError(what, err)
}

// PriceFilter narrows a list; empty fields match all.
type PriceFilter struct {
	Item
	Currency string
}

// ListPrices lists prices by id, from the one after the id given.
func ListPrices(ctx context.Context, c Conn, f PriceFilter, after string, limit int) ([]Price, error) {
	rows, err := queries(c).ListPrices(ctx, gen.ListPricesParams{Item: f.String(), Currency: f.Currency, After: after, MaxRows: db.PageLimit(limit)})
	out := make([]Price, 0, len(rows))
	for _, r := range rows {
		p := Price{
			Item: Item{SKUID: r.SKUID, InstanceType: r.InstanceType}, ID: r.ID, Currency: r.Currency, RateMinorPerHour: r.RateMinorPerHour, ValidFrom: r.ValidFrom, SetBy: r.SetBy, CreatedAt: r.CreatedAt,
		}
		if !r.Open {
			p.ValidUntil = &r.ValidUntil
		}
		out = append(out, p)
	}
	return out, db.MapError("list prices", err)
}

// Affected is an allocation or an instance that runs or waits and that a new price concerns.
// RateMinorPerHour is its rate now, nil while it has not begun. Ends: it is an instance of an
// account that is depleted, and is terminated once its type has a price that has begun. Those come
// first in lists.
type Affected = gen.AffectedByItemRow

// ListAffected lists the allocations, or the instances, that a price of an item in a currency
// concerns.
func ListAffected(ctx context.Context, c Conn, item Item, currency string, limit int) ([]Affected, error) {
	rows, err := queries(c).AffectedByItem(ctx, gen.AffectedByItemParams{Item: item.String(), Currency: currency, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("what has the "+priceOf(item, currency), err)
}

// Rate is what an item costs an hour now in a currency.
type Rate = gen.RatesNowRow

// ListRates lists what items cost now in the currencies given, in all of them where none is given.
// An item without a price in a currency has no row.
func ListRates(ctx context.Context, c Conn, items, currencies []string) ([]Rate, error) {
	rows, err := queries(c).RatesNow(ctx, gen.RatesNowParams{Items: db.EmptyIfNil(items), Currencies: db.EmptyIfNil(currencies)})
	return rows, db.MapError("list rates", err)
}

// LeastTime is the time that an allocation is charged for at least. It is that of least_end in the
// database.
const LeastTime = 10 * time.Minute

// MinimumCharge returns what an allocation with a rate costs at least, once it is charged at all.
func MinimumCharge(rateMinorPerHour int64) int64 {
	return rateMinorPerHour * int64(LeastTime/time.Minute) / minutesPerHour
}

// HoldOf returns what a claim at a rate holds back of the balance.
func HoldOf(rateMinorPerHour int64) int64 {
	return (rateMinorPerHour*HoldMinutes + minutesPerHour - 1) / minutesPerHour
}

const minutesPerHour = 60

// Quote is what a claim of one node or instance costs and holds back.
type Quote struct {
	Charging         bool // false: the installation charges nothing
	Priced           bool // the item has a price in the currency of the account
	RateMinorPerHour int64
	HoldMinor        int64
	Balance          Balance
}

// MissingMinor returns what has to be added to the balance, or given back of what it holds, before
// the claim is covered: 0 when it is.
func (q Quote) MissingMinor() int64 {
	missing := max(q.HoldMinor-q.Balance.AvailableMinor(), 0)
	if q.Balance.IsDepleted() && (q.RateMinorPerHour > 0 || q.Balance.IsUsedUp()) {
		missing = max(missing, q.Balance.DepletedMinor-q.Balance.BalanceMinor+1)
	}
	return missing
}

// HoldMinutes is for how long an allocation or an instance holds back its rate.
const HoldMinutes = 60

// QuoteClaim returns what one node of a SKU, or one instance of a type, costs a billing account
// now. Whoever claims locks the account first, so that two claims do not both see the same balance.
func QuoteClaim(ctx context.Context, tx *db.Tx, accountID string, item Item) (Quote, error) {
	b, err := ReadBalance(ctx, tx, accountID)
	if err != nil || !b.Charging {
		return Quote{Balance: b}, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return Quote{}, err
	}
	p, err := FindPrice(ctx, tx, item, b.Currency, now)
	if errors.Is(err, db.ErrNotFound) || errors.Is(err, pgx.ErrNoRows) {
		return Quote{Charging: true, Balance: b}, nil
	}
	return Quote{Charging: true, Priced: true, RateMinorPerHour: p.RateMinorPerHour, HoldMinor: HoldOf(p.RateMinorPerHour), Balance: b}, err
}
