// Package tenancydb stores billing accounts, projects and what belongs to a project. It is a
// package below db. A function that takes a *db.ProjectTx runs for a customer: row-level security
// binds it to one project. A function that takes a *db.Tx or a *db.Store runs for the platform and
// sees every project; it finds out who asks, or is for operators.
package tenancydb

import (
	"context"
	"encoding/json"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/db/tenancy/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The rows.
type (
	Account    = gen.BillingAccount
	Project    = gen.Project
	Member     = gen.ProjectMember
	GroupRole  = gen.ProjectGroupRole
	Invitation = gen.ProjectInvitation
	SSHKey     = gen.ProjectSSHKey
	Token      = gen.TokenRow
	Quota      = gen.ListQuotasRow
)

// Conn runs queries: a *db.Store, a *db.Tx or a *db.ProjectTx.
type Conn interface{ DBTX() db.DBTX }

func queries(c Conn) *gen.Queries { return gen.New(c.DBTX()) }

// DefaultCurrency is that of an account for which none is named.
const DefaultCurrency = "USD"

// CreateAccount adds a billing account in the default currency. It returns a *db.ConflictError when
// the name is taken.
func CreateAccount(ctx context.Context, tx *db.Tx, name string, maxProjects int) (Account, error) {
	return CreateAccountIn(ctx, tx, name, DefaultCurrency, maxProjects)
}

// CreateAccountIn adds a billing account in a currency, which it keeps. It returns a
// *db.ConflictError when the name is taken, and db.ErrNotFound when there is no such currency.
func CreateAccountIn(ctx context.Context, tx *db.Tx, name, currency string, maxProjects int) (Account, error) {
	row, err := queries(tx).InsertAccount(ctx, gen.InsertAccountParams{ID: db.NewID("acc"), Name: name, Currency: currency, MaxProjects: maxProjects})
	return row, db.MapError("billing account "+name, err)
}

// ReadAccount returns one billing account, or db.ErrNotFound.
func ReadAccount(ctx context.Context, c Conn, id string) (Account, error) {
	row, err := queries(c).Account(ctx, id)
	return row, db.MapError("billing account "+id, err)
}

// AccountByName returns one billing account, or db.ErrNotFound.
func AccountByName(ctx context.Context, c Conn, name string) (Account, error) {
	row, err := queries(c).AccountByName(ctx, name)
	return row, db.MapError("billing account "+name, err)
}

// ListAccounts lists billing accounts by id, from the one after the id given.
func ListAccounts(ctx context.Context, c Conn, after string, limit int) ([]Account, error) {
	rows, err := queries(c).ListAccounts(ctx, gen.ListAccountsParams{After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list billing accounts", err)
}

// UpdateAccount changes the version given, or returns db.ErrStale.
func UpdateAccount(ctx context.Context, tx *db.Tx, id string, version int64, name string, maxProjects int) (Account, error) {
	row, err := queries(tx).UpdateAccount(ctx, gen.UpdateAccountParams{ID: id, Version: version, Name: name, MaxProjects: maxProjects})
	return db.CheckUpdate("billing account "+id, row, err, func() error { _, err := ReadAccount(ctx, tx, id); return err })
}

// DeleteAccount deletes the version given. It returns a *db.ConflictError while the account has
// projects.
func DeleteAccount(ctx context.Context, tx *db.Tx, id string, version int64) error {
	n, err := queries(tx).DeleteAccount(ctx, gen.DeleteAccountParams{ID: id, Version: version})
	return db.CheckDelete("billing account "+id, n, err, func() error { _, err := ReadAccount(ctx, tx, id); return err })
}

// LockAccount locks a billing account, so that its projects can be counted.
func LockAccount(ctx context.Context, tx *db.Tx, id string) (Account, error) {
	row, err := queries(tx).LockAccount(ctx, id)
	return row, db.MapError("billing account "+id, err)
}

// CountProjects counts the projects of an account that are not closed.
func CountProjects(ctx context.Context, tx *db.Tx, accountID string) (int64, error) {
	n, err := queries(tx).CountProjectsOf(ctx, accountID)
	return n, db.MapError("count projects", err)
}

// OwnsProjectIn reports whether an identity owns an active project of the account.
func OwnsProjectIn(ctx context.Context, tx *db.Tx, accountID, subject string) (bool, error) {
	owns, err := queries(tx).OwnsProjectIn(ctx, gen.OwnsProjectInParams{BillingAccountID: accountID, Subject: subject})
	return owns, db.MapError("read the owners of an account's projects", err)
}

func projectPayload(id, name string, from, to lifecycle.ProjectStatus) (json.RawMessage, error) {
	return json.Marshal(map[string]any{"project_id": id, "name": name, "from": from, "status": to})
}

// CreateProject adds an active project with its audit row and its event.
func CreateProject(ctx context.Context, tx *db.Tx, accountID, name string, tags map[string]string, a db.Actor) (Project, error) {
	st, err := a.Stamp(nil)
	if err != nil {
		return Project{}, err
	}
	id := db.NewID("prj")
	payload, err := projectPayload(id, name, "", lifecycle.ProjectActive)
	if err != nil {
		return Project{}, err
	}
	_, err = queries(tx).InsertProject(ctx, gen.InsertProjectParams{
		ID: id, BillingAccountID: accountID, Name: name, Tags: labels(tags), Payload: payload,
		AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
	})
	if err != nil {
		return Project{}, db.MapError("project "+name, err)
	}
	return ReadProject(ctx, tx, id)
}

func labels(tags map[string]string) record.Labels {
	if tags == nil {
		return record.Labels{}
	}
	return tags
}

// ReadProject returns one project, or db.ErrNotFound.
func ReadProject(ctx context.Context, c Conn, id string) (Project, error) {
	row, err := queries(c).Project(ctx, id)
	return row, db.MapError("project "+id, err)
}

// LockProject locks a project until the transaction ends.
func LockProject(ctx context.Context, c Conn, id string) (Project, error) {
	row, err := queries(c).LockProject(ctx, id)
	return row, db.MapError("project "+id, err)
}

// ListProjects lists projects by id, from the one after the id given; accountID narrows it.
func ListProjects(ctx context.Context, c Conn, after, accountID string, limit int) ([]Project, error) {
	rows, err := queries(c).ListProjects(ctx, gen.ListProjectsParams{After: after, BillingAccountID: accountID, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list projects", err)
}

// ListProjectsOf lists the projects in which an identity has a role, by itself or by a group.
func ListProjectsOf(ctx context.Context, c Conn, after, subject string, groups []string, limit int) ([]Project, error) {
	rows, err := queries(c).ListProjectsOf(ctx, gen.ListProjectsOfParams{
		After: after, Subject: subject, Groups: db.EmptyIfNil(groups), MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("list projects", err)
}

// ListCurrencies lists the currencies of the billing accounts that pay for a project, or with
// projectID "" for the projects in which an identity has a role.
func ListCurrencies(ctx context.Context, c Conn, projectID, subject string, groups []string) ([]string, error) {
	codes, err := queries(c).CurrenciesOf(ctx, gen.CurrenciesOfParams{ProjectID: projectID, Subject: subject, Groups: db.EmptyIfNil(groups)})
	return codes, db.MapError("currencies of projects", err)
}

// UpdateProject changes the version given, or returns db.ErrStale.
func UpdateProject(ctx context.Context, tx *db.ProjectTx, version int64, name string, tags map[string]string) (Project, error) {
	id := tx.Project()
	row, err := queries(tx).UpdateProject(ctx, gen.UpdateProjectParams{ID: id, Version: version, Name: name, Tags: labels(tags)})
	return db.CheckUpdate("project "+id, row, err, func() error { _, err := ReadProject(ctx, tx, id); return err })
}

// MoveProject moves a locked project. It returns *lifecycle.IllegalTransitionError when the state
// or the owner forbids it.
func MoveProject(ctx context.Context, tx *db.Tx, p Project, t lifecycle.Transition[lifecycle.ProjectStatus], a db.Actor) (Project, error) {
	var moved Project
	err := db.CommitTransition(lifecycle.Project, t, p.Status, nil, a, func(st db.AuditStamp) error {
		payload, err := projectPayload(p.ID, p.Name, p.Status, t.To)
		if err != nil {
			return err
		}
		_, err = queries(tx).MoveProject(ctx, gen.MoveProjectParams{
			ID: p.ID, FromState: string(p.Status), ToState: t.To, Version: p.Version, Name: t.Name, Payload: payload,
			AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
		})
		if err == nil {
			moved, err = ReadProject(ctx, tx, p.ID)
		}
		return db.MapError("move project "+p.ID, err)
	})
	return moved, err
}

// Content is something in a project: its kind and its name.
type Content = gen.ProjectContentsRow

// ListContents lists what is in a project besides what goes with it, at most 100.
func ListContents(ctx context.Context, tx *db.Tx, id string) ([]Content, error) {
	rows, err := queries(tx).ProjectContents(ctx, id)
	return rows, db.MapError("contents of project "+id, err)
}

// DeleteProject deletes the version given with its members, quotas and ended invitations. It
// returns a *db.ConflictError while something else refers to the project.
func DeleteProject(ctx context.Context, tx *db.Tx, id string, version int64) error {
	n, err := queries(tx).DeleteProject(ctx, gen.DeleteProjectParams{ID: id, Version: version})
	return db.CheckDelete("project "+id, n, err, func() error { _, err := ReadProject(ctx, tx, id); return err })
}

// EndAccess deletes the keys and tokens of a project and revokes its invitations. Repeatable.
func EndAccess(ctx context.Context, tx *db.Tx, id string) error {
	q := queries(tx)
	for _, end := range []func(context.Context, string) error{q.EndKeys, q.EndTokens, q.EndInvitations} {
		if err := end(ctx, id); err != nil {
			return db.MapError("end the access to project "+id, err)
		}
	}
	return nil
}

// AppendAudit writes what a customer or an operator did in the project of the transaction.
func AppendAudit(ctx context.Context, tx *db.ProjectTx, name string, a db.Actor) error {
	st, err := a.Stamp(nil)
	if err != nil {
		return err
	}
	return db.MapError("audit of a project", queries(tx).AppendProjectAudit(ctx, gen.AppendProjectAuditParams{
		ID: st.AuditID, Name: name, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
	}))
}

// ListAudit lists audit rows of the project of the transaction as JSON objects, newest first, from
// the one before the position given; 0 is the newest.
func ListAudit(ctx context.Context, tx *db.ProjectTx, before int64, limit int) ([]json.RawMessage, error) {
	rows, err := queries(tx).ProjectAudit(ctx, gen.ProjectAuditParams{Before: before, MaxRows: int(db.PageLimit(limit))})
	return rows, db.MapError("audit log of a project", err)
}
