package tenancy

import (
	"context"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// Budget is what a project may cost in a calendar month until its owners are told.
type Budget struct {
	LimitMinor  int64     `json:"limit_minor"`
	WarnPercent int       `json:"warn_percent" doc:"The part of the limit at which they are told first"`
	Month       string    `json:"month" example:"2026-11" doc:"The month, in UTC, that spent_minor is of"`
	SpentMinor  int64     `json:"spent_minor"`
	Currency    string    `json:"currency"`
	Exponent    int       `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// budgetOf is a budget with the billing account whose currency it is in.
type budgetOf struct {
	ledgerdb.Budget
	account string
}

func readBudget(ctx context.Context, tx *db.ProjectTx, read func() (ledgerdb.Budget, error)) (budgetOf, error) {
	p, err := tenancydb.ReadProject(ctx, tx, tx.Project())
	if err != nil {
		return budgetOf{}, err
	}
	b, err := read()
	return budgetOf{b, p.BillingAccountID}, err
}

// budgetView reads the currency by the id of the account: customers have no right to accounts.
func (s *server) budgetView(ctx context.Context, b budgetOf) (*struct{ Body Budget }, error) {
	balance, err := ledgerdb.ReadBalance(ctx, s.api.Store(), b.account)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Budget }{Budget{b.LimitMinor, b.WarnPercent, b.Month, b.SpentMinor, balance.Currency, int(balance.Exponent), b.UpdatedAt.UTC()}}, nil
}

// BudgetRequest sets a budget.
type BudgetRequest struct {
	LimitMinor  int64 `json:"limit_minor" required:"true" minimum:"1" maximum:"1000000000000000" doc:"In minor units of the currency of the billing account"`
	WarnPercent int   `json:"warn_percent,omitempty" minimum:"1" maximum:"99" default:"80"`
}

func (s *server) registerBudgets() {
	const path = "/projects/{id}/budget"
	billingRoute(s, "get-budget", http.MethodGet, path, "Read the budget of a project, and what it has cost in this month", "", s.getBudget)
	billingRoute(s, "put-budget", http.MethodPut, path, "Set the budget of a project",
		"It stops nothing: the owners and those with role billing get a notice at warn_percent and at the limit, once in a month. Another budget gives them again.", s.putBudget)
	billingRoute(s, "delete-budget", http.MethodDelete, path, "Remove the budget of a project", "", s.deleteBudget)
}

func (s *server) getBudget(ctx context.Context, _ *ProjectPath) (*struct{ Body Budget }, error) {
	b, err := readIn(ctx, s, func(tx *db.ProjectTx) (budgetOf, error) {
		return readBudget(ctx, tx, func() (ledgerdb.Budget, error) { return ledgerdb.ReadBudget(ctx, tx, tx.Project()) })
	}, func(b budgetOf) budgetOf { return b })
	if err != nil {
		return nil, err
	}
	return s.budgetView(ctx, b)
}

func (s *server) putBudget(ctx context.Context, in *struct {
	ProjectPath
	Body BudgetRequest
}) (*struct{ Body Budget }, error) {
	var b budgetOf
	err := s.changeIn(ctx, func(tx *db.ProjectTx) (err error) {
		b, err = readBudget(ctx, tx, func() (ledgerdb.Budget, error) {
			return ledgerdb.PutBudget(ctx, tx, tx.Project(), in.Body.LimitMinor, in.Body.WarnPercent)
		})
		if err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "put_budget", map[string]any{"limit_minor": b.LimitMinor, "warn_percent": b.WarnPercent})
	})
	if err != nil {
		return nil, err
	}
	return s.budgetView(ctx, b)
}

func (s *server) deleteBudget(ctx context.Context, _ *ProjectPath) (*struct{}, error) {
	return nil, op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if err := ledgerdb.DeleteBudget(ctx, tx, tx.Project()); err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "delete_budget", nil)
	})
}
