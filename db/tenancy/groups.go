package tenancydb

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/tenancy/gen"
)

// AccountGroup is a group of the identity provider that belongs to a billing account.
type AccountGroup = gen.BillingAccountGroup

// AddAccountGroup has a group belong to a billing account. It can be repeated. It returns a
// *db.ConflictError when the group belongs to another account.
func AddAccountGroup(ctx context.Context, tx *db.Tx, accountID, group string) (AccountGroup, error) {
	row, err := queries(tx).InsertAccountGroup(ctx, gen.InsertAccountGroupParams{GroupName: group, BillingAccountID: accountID})
	if err = db.MapError("group "+group, err); !errors.Is(err, db.ErrNotFound) {
		return row, err
	}
	other, err := queries(tx).AccountGroup(ctx, group)
	if err != nil {
		return row, db.MapError("group "+group, err)
	}
	return row, &db.ConflictError{What: "group", Existing: other.BillingAccountID, Message: "the group belongs to billing account " + other.BillingAccountID +
		"; a group belongs to one account: remove it there first"}
}

// BelongsToAccount reports whether a group belongs to a billing account. Without that it has no
// rights in the projects of the account, whatever role it was given.
func BelongsToAccount(ctx context.Context, c Conn, accountID, group string) (bool, error) {
	row, err := queries(c).AccountGroup(ctx, group)
	if err = db.MapError("group "+group, err); errors.Is(err, db.ErrNotFound) {
		return false, nil
	}
	return err == nil && row.BillingAccountID == accountID, err
}

// ListAccountGroups lists the groups of a billing account by name, from the one after the name
// given.
func ListAccountGroups(ctx context.Context, c Conn, accountID, after string, limit int) ([]AccountGroup, error) {
	rows, err := queries(c).ListAccountGroups(ctx, gen.ListAccountGroupsParams{BillingAccountID: accountID, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("groups of account "+accountID, err)
}

// RemoveAccountGroup ends that a group belongs to a billing account, with its roles in the projects
// of the account, and returns these projects. It returns db.ErrNotFound when the group is none of
// the account.
func RemoveAccountGroup(ctx context.Context, tx *db.Tx, accountID, group string) ([]string, error) {
	n, err := queries(tx).DeleteAccountGroup(ctx, gen.DeleteAccountGroupParams{GroupName: group, BillingAccountID: accountID})
	if err := deleted("group "+group, n, err); err != nil {
		return nil, err
	}
	projects, err := queries(tx).DeleteRolesOfGroup(ctx, gen.DeleteRolesOfGroupParams{BillingAccountID: accountID, GroupName: group})
	return projects, db.MapError("roles of group "+group, err)
}
