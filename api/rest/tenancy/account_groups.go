package tenancy

import (
	"context"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// AccountGroup is a group of the identity provider that belongs to a billing account.
type AccountGroup struct {
	Group     string    `json:"group"`
	CreatedAt time.Time `json:"created_at"`
}

func accountGroupView(r tenancydb.AccountGroup) AccountGroup {
	return AccountGroup{r.GroupName, r.CreatedAt.UTC()}
}

// AccountGroupPath is the path of a group of a billing account.
type AccountGroupPath struct {
	AccountPath
	Group string `path:"group" maxLength:"200" doc:"A group of the identity provider, as its tokens name it"`
}

func (s *server) registerAccountGroups() {
	const base, one = "/admin/billing-accounts/{id}/groups", "/admin/billing-accounts/{id}/groups/{group}"
	route(s, "list-billing-account-groups", http.MethodGet, base, "List the groups of the identity provider that belong to a billing account", s.listAccountGroups)
	route(s, "add-billing-account-group", http.MethodPut, one, "Have a group belong to a billing account, whose projects may give it roles", s.addAccountGroup)
	route(s, "remove-billing-account-group", http.MethodDelete, one, "Remove a group from a billing account, with its roles in the projects of the account", s.removeAccountGroup)
}

func (s *server) listAccountGroups(ctx context.Context, in *struct {
	AccountPath
	op.Page
}) (*op.Listed[AccountGroup], error) {
	if _, err := tenancydb.ReadAccount(ctx, s.api.Store(), in.ID); err != nil {
		return nil, err
	}
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := tenancydb.ListAccountGroups(ctx, s.api.Store(), in.ID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r tenancydb.AccountGroup) string { return r.GroupName }, accountGroupView), nil
}

func (s *server) addAccountGroup(ctx context.Context, in *AccountGroupPath) (*struct{ Body AccountGroup }, error) {
	out := &struct{ Body AccountGroup }{}
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		if _, err := tenancydb.ReadAccount(ctx, tx, in.ID); err != nil {
			return err
		}
		row, err := tenancydb.AddAccountGroup(ctx, tx, in.ID, in.Group)
		if err != nil {
			return err
		}
		out.Body = accountGroupView(row)
		return op.Audit(ctx, tx, "billing_account", in.ID, nil, "add_group", map[string]any{"group": in.Group})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *server) removeAccountGroup(ctx context.Context, in *AccountGroupPath) (*struct{}, error) {
	return nil, s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		projects, err := tenancydb.RemoveAccountGroup(ctx, tx, in.ID, in.Group)
		if err != nil {
			return err
		}
		return op.Audit(ctx, tx, "billing_account", in.ID, nil, "remove_group", map[string]any{"group": in.Group, "roles_ended_in": db.EmptyIfNil(projects)})
	})
}

// requireGroupOfAccount refuses a role for a group that does not belong to the billing account of
// the project: nobody of the group has consented. Whose group it is else is not said.
func (s *server) requireGroupOfAccount(ctx context.Context, projectID, group string) error {
	p, err := tenancydb.ReadProject(ctx, s.api.Store(), projectID)
	if err != nil {
		return err
	}
	is, err := tenancydb.BelongsToAccount(ctx, s.api.Store(), p.BillingAccountID, group)
	if err != nil || is {
		return err
	}
	return problem.New(problem.Forbidden, "the group does not belong to billing account "+p.BillingAccountID+" of the project; an operator of the platform registers it: "+
		"slipway billing-account group add "+p.BillingAccountID+" GROUP")
}
