package tenancy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// BillingAccount is who pays for projects.
type BillingAccount struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	MaxProjects int       `json:"max_projects"`
	Currency    string    `json:"currency"`
	Version     int64     `json:"version"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

func accountView(r tenancydb.Account) BillingAccount {
	return BillingAccount{r.ID, r.Name, r.MaxProjects, r.Currency, r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC()}
}

// ProjectAccount is the billing account as those who pay for one of its projects see it. The other
// fields of the account would tell of other projects.
type ProjectAccount struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

func projectAccountView(r tenancydb.Account) ProjectAccount {
	return ProjectAccount{r.ID, r.Name, r.CreatedAt.UTC()}
}

func (s *server) getProjectAccount(ctx context.Context, _ *ProjectPath) (*struct{ Body ProjectAccount }, error) {
	p, err := readIn(ctx, s, func(tx *db.ProjectTx) (tenancydb.Project, error) { return tenancydb.ReadProject(ctx, tx, tx.Project()) }, projectView)
	if err != nil {
		return nil, err
	}
	// Customers have no right to billing accounts. The id is that of the project's own row.
	row, err := tenancydb.ReadAccount(ctx, s.api.Store(), p.BillingAccountID)
	if err != nil {
		return nil, err
	}
	return &struct{ Body ProjectAccount }{projectAccountView(row)}, nil
}

// BillingAccountRequest is a billing account as an operator writes it.
type BillingAccountRequest struct {
	Name        string `json:"name" required:"true" maxLength:"100"`
	MaxProjects int    `json:"max_projects,omitempty" minimum:"0" maximum:"10000" default:"20" doc:"Projects that are not closed, at most"`
}

// NewBillingAccountRequest asks for a billing account.
type NewBillingAccountRequest struct {
	BillingAccountRequest
	Currency string `json:"currency,omitempty" maxLength:"3" pattern:"^[A-Z]{3}$" default:"USD" doc:"Of its balance, prices and statements; it is never changed"`
}

// AccountPath is the path of a billing account.
type AccountPath struct {
	ID string `path:"id" maxLength:"200" doc:"acc_..."`
}

func (s *server) registerAccounts() {
	const base = "/admin/billing-accounts"
	route(s, "list-billing-accounts", http.MethodGet, base, "List billing accounts", s.listAccounts)
	route(s, "create-billing-account", http.MethodPost, base, "Create a billing account", s.createAccount)
	route(s, "get-billing-account", http.MethodGet, base+"/{id}", "Read a billing account", s.getAccount)
	route(s, "update-billing-account", http.MethodPut, base+"/{id}", "Replace a billing account's name and limit", s.updateAccount)
	route(s, "delete-billing-account", http.MethodDelete, base+"/{id}", "Delete a billing account without projects", s.deleteAccount)
}

func (s *server) listAccounts(ctx context.Context, in *struct {
	op.Page
	Name string `query:"name" maxLength:"200" doc:"Only the account of this name"`
}) (*op.Listed[BillingAccount], error) {
	if in.Name != "" {
		return op.OneNamed(accountView)(tenancydb.AccountByName(ctx, s.api.Store(), in.Name))
	}
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := tenancydb.ListAccounts(ctx, s.api.Store(), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r tenancydb.Account) string { return r.ID }, accountView), nil
}

func (s *server) createAccount(ctx context.Context, in *struct {
	op.Key
	Body NewBillingAccountRequest
}) (*op.Created[BillingAccount], error) {
	if err := op.CheckName(in.Body.Name); err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[BillingAccount], error) {
		row, err := tenancydb.CreateAccountIn(ctx, tx, in.Body.Name, in.Body.Currency, in.Body.MaxProjects)
		if errors.Is(err, db.ErrNotFound) {
			return nil, invalid("currency", "is not one of the currencies of this installation, as USD is")
		}
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+"/admin/billing-accounts/"+row.ID, row.Version, accountView(row)),
			op.Audit(ctx, tx, "billing_account", row.ID, nil, "create", map[string]any{"name": row.Name})
	})
}

func (s *server) getAccount(ctx context.Context, in *AccountPath) (*op.Versioned[BillingAccount], error) {
	row, err := tenancydb.ReadAccount(ctx, s.api.Store(), in.ID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, accountView(row)), nil
}

func (s *server) accountVersion(ctx context.Context, tx *db.Tx, id string) func() (int64, error) {
	return func() (int64, error) { r, err := tenancydb.ReadAccount(ctx, tx, id); return r.Version, err }
}

func (s *server) updateAccount(ctx context.Context, in *struct {
	AccountPath
	op.Match
	Body BillingAccountRequest
}) (*op.Versioned[BillingAccount], error) {
	if err := op.CheckName(in.Body.Name); err != nil {
		return nil, err
	}
	var row tenancydb.Account
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		v, err := in.Version(s.accountVersion(ctx, tx, in.ID))
		if err != nil {
			return err
		}
		if row, err = tenancydb.UpdateAccount(ctx, tx, in.ID, v, in.Body.Name, in.Body.MaxProjects); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "billing_account", in.ID, nil, "update", map[string]any{"name": row.Name, "max_projects": row.MaxProjects})
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, accountView(row)), nil
}

func (s *server) deleteAccount(ctx context.Context, in *struct {
	AccountPath
	op.Match
}) (*struct{}, error) {
	return nil, s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		v, err := in.Version(s.accountVersion(ctx, tx, in.ID))
		if err != nil {
			return err
		}
		if err := tenancydb.DeleteAccount(ctx, tx, in.ID, v); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "billing_account", in.ID, nil, "delete", nil)
	})
}
