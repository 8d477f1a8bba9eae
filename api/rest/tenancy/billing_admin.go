package tenancy

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/intent/billing"
)

// AccountLedgerLine is a line of the ledger of a billing account, for operators.
type AccountLedgerLine struct {
	LedgerLine
	TransactionID     int64  `json:"transaction_id"`
	BalanceAfterMinor int64  `json:"balance_after_minor"`
	Key               string `json:"key" doc:"The fact that it books; no fact is booked twice"`
	Actor             string `json:"actor,omitempty"`
}

func accountLedgerView(l ledgerdb.Line) AccountLedgerLine {
	return AccountLedgerLine{ledgerView(l), l.TransactionID, l.BalanceAfterMinor, l.Key, l.Actor}
}

// ThresholdsRequest replaces the thresholds of a billing account.
type ThresholdsRequest struct {
	LowMinor      *int64 `json:"low_minor,omitempty" minimum:"-1000000000000" maximum:"1000000000000" doc:"Left out, 10 whole units"`
	DepletedMinor *int64 `json:"depleted_minor,omitempty" minimum:"-1000000000000" maximum:"1000000000000" doc:"Left out, 0; below 0 it is a credit line"`
	RearmMinor    *int64 `json:"rearm_minor,omitempty" minimum:"-1000000000000" maximum:"1000000000000" doc:"Left out, 12 whole units"`
	GraceSeconds  int    `json:"grace_seconds,omitempty" minimum:"0" maximum:"3600" doc:"How long after the balance is depleted until allocations and charged instances are released"`
	Reason        string `json:"reason" required:"true" minLength:"3" maxLength:"500"`
}

// Price is what a SKU, or a type of instances, costs from a time on.
type Price struct {
	ID               string     `json:"id"`
	SKUID            string     `json:"sku_id" doc:"Empty for a type of instances"`
	InstanceType     string     `json:"instance_type,omitempty" doc:"As provider/type"`
	Currency         string     `json:"currency"`
	Exponent         int        `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
	RateMinorPerHour int64      `json:"rate_minor_per_hour"`
	ValidFrom        time.Time  `json:"valid_from"`
	ValidUntil       *time.Time `json:"valid_until,omitempty" doc:"Left out while no other price follows"`
	SetBy            string     `json:"set_by,omitempty"`
}

// digits are those of the minor units, by currency.
type digits map[string]int

func readDigits(ctx context.Context, c ledgerdb.Conn) (digits, error) {
	currencies, err := ledgerdb.ListCurrencies(ctx, c)
	out := digits{}
	for _, c := range currencies {
		out[c.Code] = int(c.Exponent)
	}
	return out, err
}

func (d digits) priceView(p ledgerdb.Price) Price {
	return Price{p.ID, p.SKUID, p.InstanceType, p.Currency, d[p.Currency], p.RateMinorPerHour, p.ValidFrom.UTC(), utc(p.ValidUntil), p.SetBy}
}

// PricePlanRequest asks what a price would change.
type PricePlanRequest struct {
	SKUID            string     `json:"sku_id,omitempty" maxLength:"200" doc:"The SKU, or else instance_type"`
	InstanceType     string     `json:"instance_type,omitempty" maxLength:"127" doc:"A type of instances as provider/type, such as scaleway/L4-1-24G"`
	Currency         string     `json:"currency" required:"true" minLength:"3" maxLength:"3" pattern:"^[A-Z]{3}$"`
	RateMinorPerHour int64      `json:"rate_minor_per_hour" required:"true" minimum:"0" maximum:"1000000000000" doc:"Minor units for each hour of one node or instance: 1993 is 19.93 USD"`
	ValidFrom        *time.Time `json:"valid_from,omitempty" doc:"At least an hour ahead; left out, in 65 minutes, or at once for the first price of the SKU or type"`
}

// PriceRequest sets a price.
type PriceRequest struct {
	PricePlanRequest
	PlanHash string `json:"plan_hash,omitempty" maxLength:"64" doc:"plan_hash of POST /admin/prices/plan with the same price"`
	Confirm  bool   `json:"confirm,omitempty" doc:"Required for a price of zero, for one below half or above twice the price before, for one that begins more than 31 days ahead, and for one that ends instances"`
}

func (r PricePlanRequest) request(ctx context.Context) billing.PriceRequest {
	out := billing.PriceRequest{Item: ledgerdb.Item{SKUID: r.SKUID, InstanceType: r.InstanceType}, Currency: r.Currency, RateMinorPerHour: r.RateMinorPerHour, Actor: op.Actor(ctx)}
	if r.ValidFrom != nil {
		out.ValidFrom = *r.ValidFrom
	}
	return out
}

// PricePlan is what a price would change.
type PricePlan struct {
	SKUID             string               `json:"sku_id" doc:"Empty for a type of instances"`
	InstanceType      string               `json:"instance_type,omitempty"`
	Currency          string               `json:"currency"`
	Exponent          int                  `json:"exponent" doc:"Digits of the minor unit"`
	RateMinorPerHour  int64                `json:"rate_minor_per_hour"`
	ValidFrom         time.Time            `json:"valid_from"`
	Before            *Price               `json:"before,omitempty" doc:"The price that it ends"`
	Factor            float64              `json:"factor,omitempty" doc:"Of the price before"`
	NeedsConfirmation string               `json:"needs_confirmation,omitempty" doc:"Why confirm must be true"`
	Affected          []AffectedAllocation `json:"affected" nullable:"false" doc:"Allocations or instances that run or wait; a higher price reaches those that run seven days after it begins"`
	Ends              int                  `json:"ends" doc:"How many of the listed instances the price ends once it begins: their accounts are depleted, and they were free until now"`
	More              bool                 `json:"more" doc:"There are more than are listed"`
	PlanHash          string               `json:"plan_hash"`
}

// AffectedAllocation is an allocation, or an instance, that a price concerns.
type AffectedAllocation struct {
	AllocationID     string     `json:"allocation_id" doc:"Empty for an instance"`
	InstanceID       string     `json:"instance_id,omitempty"`
	ProjectID        string     `json:"project_id"`
	BillingAccountID string     `json:"billing_account_id"`
	StartTime        *time.Time `json:"start_time,omitempty"`
	RateMinorPerHour *int64     `json:"rate_minor_per_hour,omitempty" doc:"Its rate now; left out before it is active or ready"`
	Ends             bool       `json:"ends,omitempty" doc:"An instance whose account is depleted: it is terminated once the price begins"`
}

func (d digits) planView(p billing.PricePlan) PricePlan {
	out := PricePlan{
		SKUID: p.Price.SKUID, InstanceType: p.Price.InstanceType, Currency: p.Price.Currency, Exponent: d[p.Price.Currency], RateMinorPerHour: p.Price.RateMinorPerHour, ValidFrom: p.Price.ValidFrom.UTC(), Factor: p.Factor,
		NeedsConfirmation: p.NeedsConfirmation, Affected: []AffectedAllocation{}, Ends: p.Ends, More: p.More, PlanHash: p.Hash,
	}
	if p.Before != nil {
		before := d.priceView(*p.Before)
		out.Before = &before
	}
	for _, a := range p.Affected {
		out.Affected = append(out.Affected, AffectedAllocation{a.AllocationID, a.InstanceID, a.ProjectID, a.BillingAccountID, utc(a.StartTime), a.RateMinorPerHour, a.Ends})
	}
	return out
}

// AdjustmentRequest gives to a balance or takes from it.
type AdjustmentRequest struct {
	BillingAccountID string `json:"billing_account_id" required:"true" maxLength:"200"`
	ProjectID        string `json:"project_id,omitempty" maxLength:"200" doc:"The project on whose statement it stands"`
	AmountMinor      int64  `json:"amount_minor" required:"true" minimum:"-1000000000000" maximum:"1000000000000" doc:"Above 0 it is a credit, below 0 a charge"`
	Reason           string `json:"reason" required:"true" minLength:"3" maxLength:"500" doc:"Those who pay for the project see it"`
	Confirm          bool   `json:"confirm,omitempty" doc:"Required for an amount above billing.confirm_adjustment_above. It is no part of what the Idempotency-Key names: a repetition may leave it out"`
}

// Adjustment is an adjustment that was booked.
type Adjustment struct {
	TransactionID    int64     `json:"transaction_id"`
	BillingAccountID string    `json:"billing_account_id"`
	ProjectID        string    `json:"project_id,omitempty"`
	AmountMinor      int64     `json:"amount_minor"`
	Currency         string    `json:"currency"`
	Exponent         int       `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
	Reason           string    `json:"reason"`
	PostedAt         time.Time `json:"posted_at"`
}

func (s *billingServer) registerBillingAdmin() {
	const account = "/admin/billing-accounts/{id}"
	billingRoute(s.server, "get-account-balance", http.MethodGet, account+"/balance", "Read the balance of a billing account", "", s.getAccountBalance)
	billingRoute(s.server, "set-account-thresholds", http.MethodPut, account+"/thresholds", "Replace the thresholds of a billing account",
		"They count at once. If-Match is the ETag of the balance.", s.setThresholds)
	billingRoute(s.server, "list-account-ledger", http.MethodGet, account+"/ledger", "List the ledger of a billing account, newest first", "", s.listAccountLedger)
	billingRoute(s.server, "list-prices", http.MethodGet, "/admin/prices", "List prices, past and future ones too", "", s.listPrices)
	op.Add(s.api, huma.Operation{
		OperationID: "plan-price", Method: http.MethodPost, Path: "/admin/prices/plan", Tags: []string{"billing"}, Summary: "Say what a price would change, without setting it",
		Description: "It names the price that ends and the allocations or instances that are concerned.", DefaultStatus: http.StatusOK,
	}, s.planPrice)
	billingRoute(s.server, "create-price", http.MethodPost, "/admin/prices", "Set a price of a SKU or of a type of instances in a currency from a time on",
		"Started with the plan_hash of a dry run. A price begins at least an hour ahead and is never changed: another one ends it. What runs keeps a lower rate for seven days.", s.createPrice)
	op.Add(s.api, huma.Operation{
		OperationID: "withdraw-price", Method: http.MethodPost, Path: "/admin/prices/{id}/withdraw", Tags: []string{"billing"}, Summary: "Take back a price that has not begun",
		Description: "The price before it goes on. It answers 409 when the price has begun or begins within five minutes, and when another price follows it.", DefaultStatus: http.StatusOK,
	}, s.withdrawPrice)
	billingRoute(s.server, "create-adjustment", http.MethodPost, "/admin/adjustments", "Give to a balance, or take from it",
		"It is a transaction of its own: what was booked before stays. Repeating it with its Idempotency-Key books nothing, at any later time too. "+
			"An amount above the policy amount needs confirm.", s.createAdjustment)
	op.Add(s.api, huma.Operation{
		OperationID: "resume-enforcement", Method: http.MethodPost, Path: "/admin/billing/resume", Tags: []string{"billing"}, Summary: "Let depleted accounts be released again",
		Description: "After an operator has looked at why so many accounts were depleted at once. It answers 412 when nothing is stopped. When a clock that was ahead has charged up to a time " +
			"that lies ahead, the first call makes charging go on from now, and the second one the releases.", DefaultStatus: http.StatusNoContent,
	}, s.resumeEnforcement)
}

func (s *server) getAccountBalance(ctx context.Context, in *AccountPath) (*op.Versioned[Balance], error) {
	b, err := ledgerdb.ReadBalance(ctx, s.api.Store(), in.ID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(b.Version, balanceView(b)), nil
}

func (s *server) setThresholds(ctx context.Context, in *struct {
	AccountPath
	op.Match
	Body ThresholdsRequest
}) (*op.Versioned[Balance], error) {
	r := in.Body
	reason, err := op.CheckReason("body.reason", r.Reason)
	if err != nil {
		return nil, err
	}
	if !isOrdered(r.DepletedMinor, r.LowMinor) || !isOrdered(r.LowMinor, r.RearmMinor) {
		return nil, errThresholds()
	}
	var after ledgerdb.Balance
	err = s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		before, err := ledgerdb.ReadBalance(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return before.Version, nil })
		if err != nil {
			return err
		}
		t := ledgerdb.Thresholds{LowMinor: r.LowMinor, DepletedMinor: r.DepletedMinor, RearmMinor: r.RearmMinor, GraceSeconds: r.GraceSeconds}
		if err := ledgerdb.SetThresholds(ctx, tx, in.ID, v, t); err != nil {
			return err
		}
		if after, err = ledgerdb.ReadBalance(ctx, tx, in.ID); err != nil {
			return err
		}
		if after.DepletedMinor > after.LowMinor || after.LowMinor > after.RearmMinor {
			return errThresholds()
		}
		return op.Audit(ctx, tx, "billing_account", in.ID, nil, "set_thresholds", map[string]any{
			"low_minor": after.LowMinor, "depleted_minor": after.DepletedMinor, "rearm_minor": after.RearmMinor, "grace_seconds": after.GraceSeconds, "reason": reason,
		})
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(after.Version, balanceView(after)), nil
}

// isOrdered reports whether two thresholds are in order. A threshold that is left out is compared
// when the policy's value is known.
func isOrdered(less, more *int64) bool { return less == nil || more == nil || *less <= *more }

func errThresholds() error {
	return invalid("low_minor", "must be at least depleted_minor and at most rearm_minor; what is left out counts with 10, 0 and 12 whole units")
}

func (s *server) listAccountLedger(ctx context.Context, in *struct {
	AccountPath
	op.Page
	ProjectID string `query:"project_id" maxLength:"200" doc:"Only of this project"`
}) (*op.Listed[AccountLedgerLine], error) {
	before, err := in.AfterNumber()
	if err != nil {
		return nil, err
	}
	if _, err := ledgerdb.ReadBalance(ctx, s.api.Store(), in.ID); err != nil {
		return nil, err
	}
	rows, err := ledgerdb.ListLines(ctx, s.api.Store(), in.ID, in.ProjectID, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, lineNumber, accountLedgerView), nil
}

func (s *server) listPrices(ctx context.Context, in *struct {
	op.Page
	SKUID        string `query:"sku_id" maxLength:"200" doc:"Only of this SKU"`
	InstanceType string `query:"instance_type" maxLength:"127" doc:"Only of this type of instances, as provider/type"`
	Currency     string `query:"currency" maxLength:"3" doc:"Only in this currency"`
}) (*op.Listed[Price], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	known, err := readDigits(ctx, s.api.Store())
	if err != nil {
		return nil, err
	}
	rows, err := ledgerdb.ListPrices(ctx, s.api.Store(), ledgerdb.PriceFilter{Item: ledgerdb.Item{SKUID: in.SKUID, InstanceType: in.InstanceType}, Currency: in.Currency}, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(p ledgerdb.Price) string { return p.ID }, known.priceView), nil
}

func (s *server) planPrice(ctx context.Context, in *struct{ Body PricePlanRequest }) (*struct{ Body PricePlan }, error) {
	out := &struct{ Body PricePlan }{}
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		p, err := billing.PlanPrice(ctx, tx, in.Body.request(ctx))
		if err != nil {
			return err
		}
		known, err := readDigits(ctx, tx)
		out.Body = known.planView(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *server) createPrice(ctx context.Context, in *struct {
	op.Key
	Body PriceRequest
}) (*op.Created[Price], error) {
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Price], error) {
		r := in.Body.request(ctx)
		r.PlanHash, r.Confirm = in.Body.PlanHash, in.Body.Confirm
		p, err := billing.SetPrice(ctx, tx, r)
		if err != nil {
			return nil, err
		}
		known, err := readDigits(ctx, tx)
		return op.NewCreated(op.Prefix+"/admin/prices?"+priceQuery(p.Item), 1, known.priceView(p)), err
	})
}

// priceQuery is the query that lists the prices of an item.
func priceQuery(item ledgerdb.Item) string {
	if item.InstanceType != "" {
		return "instance_type=" + url.QueryEscape(item.InstanceType)
	}
	return "sku_id=" + item.SKUID
}

func (s *server) withdrawPrice(ctx context.Context, in *struct {
	ID   string `path:"id" maxLength:"200" doc:"Id of the price"`
	Body ReasonRequest
}) (*struct{ Body Price }, error) {
	actor, err := operator(ctx, "body.reason", in.Body.Reason)
	if err != nil {
		return nil, err
	}
	out := &struct{ Body Price }{}
	err = s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		p, err := billing.WithdrawPrice(ctx, tx, in.ID, actor)
		if err != nil {
			return err
		}
		known, err := readDigits(ctx, tx)
		out.Body = known.priceView(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *billingServer) createAdjustment(ctx context.Context, in *struct {
	op.Key
	Body AdjustmentRequest
}) (*op.Created[Adjustment], error) {
	key, err := in.Required()
	if err != nil {
		return nil, err
	}
	reason, err := op.CheckReason("body.reason", strings.TrimSpace(in.Body.Reason))
	if err != nil {
		return nil, err
	}
	asked := in.Body
	asked.Confirm = false // the same adjustment, also when a repetition leaves it out
	return op.Create(ctx, s.api, in.Key, asked, nil, func(tx *db.Tx) (*op.Created[Adjustment], error) {
		t, _, err := billing.Adjust(ctx, tx, billing.Adjustment{
			BillingAccountID: in.Body.BillingAccountID, ProjectID: in.Body.ProjectID, AmountMinor: in.Body.AmountMinor, Reason: reason, Key: key, Actor: op.Actor(ctx),
			Confirm: in.Body.Confirm, ConfirmAbove: s.cfg.ConfirmAbove,
		})
		if err != nil {
			return nil, err
		}
		known, err := readDigits(ctx, tx)
		if err != nil {
			return nil, err
		}
		view := Adjustment{t.ID, t.BillingAccountID, text(t.OfProject), in.Body.AmountMinor, t.Currency, known[t.Currency], t.Reason, t.PostedAt.UTC()}
		return op.NewCreated(op.Prefix+"/admin/billing-accounts/"+t.BillingAccountID+"/ledger", 1, view), nil
	})
}

func (s *server) resumeEnforcement(ctx context.Context, in *struct{ Body ReasonRequest }) (*struct{}, error) {
	actor, err := operator(ctx, "body.reason", in.Body.Reason)
	if err != nil {
		return nil, err
	}
	return nil, s.api.Store().Tx(ctx, func(tx *db.Tx) error { return ledgerdb.ResumeEnforcement(ctx, tx, actor) })
}
