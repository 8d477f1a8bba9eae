package tenancy

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Balance is what a billing account has left. Amounts are whole minor units of the currency.
type Balance struct {
	BillingAccountID string                 `json:"billing_account_id"`
	State            lifecycle.BalanceState `json:"state" doc:"Of the posted balance: holds do not count"`
	Since            time.Time              `json:"since"`
	BalanceMinor     int64                  `json:"balance_minor" doc:"What was posted"`
	HeldMinor        int64                  `json:"held_minor" doc:"Held back for allocations and instances"`
	AvailableMinor   int64                  `json:"available_minor" doc:"What a new allocation or instance may hold back: balance_minor less held_minor, and the credit line, which is depleted_minor where that is negative"`
	Currency         string                 `json:"currency"`
	Exponent         int                    `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
	Thresholds       BalanceThresholds      `json:"thresholds"`
	GraceSeconds     int                    `json:"grace_seconds" doc:"How long after the balance is depleted until allocations and charged instances are released"`
	GraceEndsAt      *time.Time             `json:"grace_ends_at,omitempty" doc:"When the allocations and charged instances of a depleted account are released"`
	Charging         bool                   `json:"charging" doc:"false while this installation has no price in force: nothing is charged then, and the state means nothing"`
	Version          int64                  `json:"version" doc:"Of the thresholds and the state, for If-Match"`
}

// BalanceThresholds are the balances at which the state changes.
type BalanceThresholds struct {
	LowMinor      int64 `json:"low_minor" doc:"low_balance at this balance and below"`
	DepletedMinor int64 `json:"depleted_minor" doc:"depleted at this balance and below"`
	RearmMinor    int64 `json:"rearm_minor" doc:"Above this balance the next low balance is a new episode, with a notice of its own"`
}

func balanceView(b ledgerdb.Balance) Balance {
	return Balance{
		b.BillingAccountID, lifecycle.BalanceState(b.State), b.Since.UTC(), b.BalanceMinor, b.HeldMinor, b.AvailableMinor(), b.Currency, int(b.Exponent),
		BalanceThresholds{b.LowMinor, b.DepletedMinor, b.RearmMinor}, b.GraceSeconds, utc(b.GraceEndsAt()), b.Charging, b.Version,
	}
}

// LedgerLine is one line of the ledger as those who pay for a project see it. The balance after it
// would tell of other projects of the billing account, and the id of its transaction how much all
// customers are charged.
type LedgerLine struct {
	Number       int64     `json:"number" doc:"Of the billing account; grows by one with each of its lines"`
	Kind         string    `json:"kind" doc:"usage, adjustment, topup, refund and others"`
	AmountMinor  int64     `json:"amount_minor" doc:"What the balance gained; a charge is negative"`
	Currency     string    `json:"currency"`
	ProjectID    string    `json:"project_id,omitempty"`
	AllocationID string    `json:"allocation_id,omitempty" doc:"Left out where a charge is for several, or of instances; the statement and the usage tell them apart"`
	EffectiveAt  time.Time `json:"effective_at" doc:"Of a charge: the end of the time that it is for"`
	PostedAt     time.Time `json:"posted_at"`
	Reason       string    `json:"reason,omitempty" doc:"Of an adjustment"`
}

func ledgerView(l ledgerdb.Line) LedgerLine {
	return LedgerLine{
		l.AccountSeq, l.Kind, l.AmountMinor, l.Currency, text(l.OfProject), text(l.OfAllocation), l.EffectiveAt.UTC(), l.PostedAt.UTC(), l.Reason,
	}
}

// UsageSegment is what an allocation or an instance uses at one rate.
type UsageSegment struct {
	UsageID          string     `json:"usage_id"`
	AllocationID     string     `json:"allocation_id" doc:"Empty for an instance"`
	InstanceID       string     `json:"instance_id,omitempty"`
	SKUID            string     `json:"sku_id" doc:"Empty for an instance"`
	InstanceType     string     `json:"instance_type,omitempty" doc:"As provider/type"`
	Segment          int        `json:"segment" doc:"Counts the rates of the allocation or instance, from 0"`
	RateMinorPerHour int64      `json:"rate_minor_per_hour"`
	Currency         string     `json:"currency"`
	StartTime        *time.Time `json:"start_time" doc:"When the segment began; null before the allocation is active or the instance ready"`
	EndTime          *time.Time `json:"end_time" doc:"When the segment ended; null while it runs"`
	LastBilledAt     *time.Time `json:"last_billed_at" doc:"Up to when it is charged"`
	CostMinor        int64      `json:"cost_minor" doc:"What was charged for it"`
	MaxSpendMinor    *int64     `json:"max_spend_minor,omitempty" doc:"The allocation is released when all its segments cost this"`
	Closed           bool       `json:"closed" doc:"Nothing more is charged"`
}

func usageView(u ledgerdb.Usage) UsageSegment {
	return UsageSegment{
		u.ID, u.AllocationID, u.InstanceID, u.SKUID, u.InstanceType, u.Segment, u.RateMinorPerHour, u.Currency, utc(u.SegmentStart), utc(u.SegmentEnd), utc(u.LastBilledAt), u.CostMinor,
		u.MaxSpendMinor, u.ClosedAt != nil,
	}
}

// UsageDay is what an allocation or an instance cost on a day.
type UsageDay struct {
	Day          string `json:"day" example:"2026-11-23" doc:"In UTC"`
	AllocationID string `json:"allocation_id" doc:"Empty for an instance"`
	InstanceID   string `json:"instance_id,omitempty"`
	Seconds      int64  `json:"seconds" doc:"For how long it was charged"`
	CostMinor    int64  `json:"cost_minor"`
	Currency     string `json:"currency"`
}

func usageDayView(d ledgerdb.DayUsage) UsageDay {
	return UsageDay{d.Day.UTC().Format(time.DateOnly), d.AllocationID, d.InstanceID, d.Seconds, d.AmountMinor, d.Currency}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// DayRange names the days of a report.
type DayRange struct {
	From string `query:"from" maxLength:"10" pattern:"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$" doc:"First day in UTC, as 2026-11-01; left out, 30 days before the last"`
	To   string `query:"to" maxLength:"10" pattern:"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$" doc:"Last day; left out, today"`
}

const mostDays = 92

// days returns the beginning of the first day and the end of the last.
func (r DayRange) days(now time.Time) (from, until time.Time, err error) {
	last := now.UTC().Truncate(day)
	if r.To != "" {
		if last, err = time.Parse(time.DateOnly, r.To); err != nil {
			return from, until, invalidQuery("to", "is not a day; write it as 2026-11-30")
		}
	}
	from = last.Add(-30 * day)
	if r.From != "" {
		if from, err = time.Parse(time.DateOnly, r.From); err != nil {
			return from, until, invalidQuery("from", "is not a day; write it as 2026-11-01")
		}
	}
	until = last.Add(day)
	if !until.After(from) || until.Sub(from) > mostDays*day {
		return from, until, invalidQuery("from", fmt.Sprintf("must be a day up to to, and at most %d days are reported at a time", mostDays))
	}
	return from, until, nil
}

func invalidQuery(field, message string) error {
	return problem.NewInvalid(problem.Field{Location: "query." + field, Message: message})
}

func billingAccess() op.Access {
	return op.Access{
		op.RoleProjectBilling: {
			"GET /projects/{id}/balance", "GET /projects/{id}/ledger", "GET /projects/{id}/usage", "GET /projects/{id}/usage/days",
			"GET /projects/{id}/statements/{month}", "GET /projects/{id}/budget", "PUT /projects/{id}/budget", "DELETE /projects/{id}/budget",
		},
		op.RoleViewer: {"GET /admin/prices"},
		op.RoleOperator: {
			"GET /admin/billing-accounts/{id}/balance", "GET /admin/billing-accounts/{id}/ledger", "POST /admin/prices/plan",
		},
		op.RoleAdmin: {
			"PUT /admin/billing-accounts/{id}/thresholds", "POST /admin/prices", "POST /admin/prices/{id}/withdraw", "POST /admin/adjustments", "POST /admin/billing/resume",
		},
	}
}

// BillingConfig is what the settings say of money.
type BillingConfig struct {
	// ConfirmAbove is the amount above which an adjustment has to be confirmed, in whole units
	// of its currency; 0 is the default.
	ConfirmAbove int64
}

type billingServer struct {
	*server
	cfg BillingConfig
}

// RegisterBilling declares the operations of money.
func RegisterBilling(api *op.API, cfg BillingConfig) {
	api.Grant(billingAccess())
	// Money that is given or charged by a browser that was left open is not taken back easily.
	api.RequireStepUp(
		op.StepUp{Route: "POST /admin/prices"}, op.StepUp{Route: "POST /admin/prices/{id}/withdraw"}, op.StepUp{Route: "POST /admin/adjustments"}, op.StepUp{Route: "POST /admin/billing/resume"},
		op.StepUp{Route: "PUT /admin/billing-accounts/{id}/thresholds"},
	)
	s := &server{api}
	const one = "/projects/{id}"
	billingRoute(s, "get-balance", http.MethodGet, one+"/balance", "Read the balance that pays for a project",
		"It is the balance of the project's billing account, from which all its projects are paid.", s.getBalance)
	billingRoute(s, "list-ledger", http.MethodGet, one+"/ledger", "List what a project was charged and credited, newest first",
		"Top-ups and adjustments of the whole billing account belong to no project and are not in it.", s.listLedger)
	billingRoute(s, "list-usage", http.MethodGet, one+"/usage", "List what the allocations and instances of a project use and cost, newest first",
		"One row for each rate of an allocation or instance, and one without times for one that is not active or ready yet.", s.listUsage)
	billingRoute(s, "list-usage-days", http.MethodGet, one+"/usage/days", "List what the allocations and instances of a project cost on each day",
		"Of 31 days without from and to, and of 92 days at most.", s.listUsageDays)
	s.registerBudgets()
	s.registerStatements()
	(&billingServer{s, cfg}).registerBillingAdmin()
}

func billingRoute[I, O any](s *server, id, method, path, summary, description string, handler func(context.Context, *I) (*O, error)) {
	op.Add(s.api, huma.Operation{OperationID: id, Method: method, Path: path, Tags: []string{"billing"}, Summary: summary, Description: description}, handler)
}

// accountOf returns the billing account of the project of the request. The ledger and balances are
// read by its id: customers have no right to them, and the role in the project was checked.
func (s *server) accountOf(ctx context.Context) (string, error) {
	return readIn(ctx, s, func(tx *db.ProjectTx) (tenancydb.Project, error) { return tenancydb.ReadProject(ctx, tx, tx.Project()) },
		func(p tenancydb.Project) string { return p.BillingAccountID })
}

func (s *server) getBalance(ctx context.Context, _ *ProjectPath) (*struct{ Body Balance }, error) {
	account, err := s.accountOf(ctx)
	if err != nil {
		return nil, err
	}
	b, err := ledgerdb.ReadBalance(ctx, s.api.Store(), account)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Balance }{balanceView(b)}, nil
}

func (s *server) listLedger(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (*op.Listed[LedgerLine], error) {
	before, err := in.AfterNumber()
	if err != nil {
		return nil, err
	}
	account, err := s.accountOf(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := ledgerdb.ListLines(ctx, s.api.Store(), account, op.ProjectAccessOf(ctx).Project, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, lineNumber, ledgerView), nil
}

func lineNumber(l ledgerdb.Line) string { return strconv.FormatInt(l.AccountSeq, 10) }

func (s *server) listUsage(ctx context.Context, in *struct {
	ProjectPath
	op.Page
	AllocationID string `query:"allocation_id" maxLength:"200" doc:"Only of this allocation"`
	InstanceID   string `query:"instance_id" maxLength:"200" doc:"Only of this instance"`
}) (*op.Listed[UsageSegment], error) {
	return listIn(ctx, s, in.Page, func(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]ledgerdb.Usage, error) {
		before, err := usagePlace(after)
		if err != nil {
			return nil, err
		}
		return ledgerdb.ListUsage(ctx, tx, tx.Project(), cmp.Or(in.InstanceID, in.AllocationID), before, limit)
	}, func(u ledgerdb.Usage) string { return u.ID + "/" + strconv.Itoa(u.Segment) }, usageView)
}

// usagePlace reads the cursor of a list of usage.
func usagePlace(cursor string) (at ledgerdb.UsagePlace, err error) {
	if cursor == "" {
		return at, nil
	}
	id, number, found := strings.Cut(cursor, "/")
	segment, err := strconv.ParseInt(number, 10, 32)
	if !found || err != nil || segment < 0 {
		return at, invalidQuery("cursor", "is not a cursor of this list; leave it out to begin at the first page")
	}
	return ledgerdb.UsagePlace{RecordID: id, Segment: int(segment)}, nil
}

func (s *server) listUsageDays(ctx context.Context, in *struct {
	ProjectPath
	DayRange
}) (*op.Listed[UsageDay], error) {
	const most = 1000
	now, err := s.api.Store().Clock(ctx)
	if err != nil {
		return nil, err
	}
	from, until, err := in.days(now)
	if err != nil {
		return nil, err
	}
	var rows []ledgerdb.DayUsage
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if _, err := tenancydb.ReadProject(ctx, tx, tx.Project()); err != nil {
			return err
		}
		var err error
		rows, err = ledgerdb.ListDayUsage(ctx, tx, tx.Project(), from, until, most)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(rows) == most {
		return nil, invalidQuery("from", "the days hold too many rows for one answer; ask for fewer days")
	}
	return op.Paged(rows, most, func(ledgerdb.DayUsage) string { return "" }, usageDayView), nil
}
