package tenancy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Identity is who signed in. Email is "" unless it is a plain address that the identity provider
// has verified: notices are sent to it.
type Identity struct {
	Subject, Name, Email string
	Groups               []string
}

func (i Identity) member(role lifecycle.ProjectRole) tenancydb.NewMember {
	return tenancydb.NewMember{Subject: i.Subject, Name: i.Name, Email: i.Email, Role: role}
}

// NewProject asks for a project of a billing account.
type NewProject struct {
	AccountID, Name string
	Tags            map[string]string
}

// CreateProject accepts a project of an operator. It refuses an account that has as many projects
// as it may have.
func CreateProject(ctx context.Context, tx *db.Tx, p NewProject, a db.Actor) (tenancydb.Project, error) {
	if why := CheckTags(p.Tags); why != "" {
		return tenancydb.Project{}, &intent.Refusal{Kind: intent.Invalid, Fields: []intent.Field{{Name: "tags", Message: why}}}
	}
	account, err := tenancydb.LockAccount(ctx, tx, p.AccountID)
	if err != nil {
		return tenancydb.Project{}, err
	}
	n, err := tenancydb.CountProjects(ctx, tx, account.ID)
	if err != nil {
		return tenancydb.Project{}, err
	}
	if n >= int64(account.MaxProjects) {
		return tenancydb.Project{}, &intent.Refusal{Kind: intent.Conflict, Detail: fmt.Sprintf(
			"the billing account has %d of %d projects; close one, or ask an operator for more", n, account.MaxProjects)}
	}
	return tenancydb.CreateProject(ctx, tx, account.ID, p.Name, p.Tags, a)
}

// CreateOwnProject accepts a project of a customer, who becomes its owner. An account in which the
// customer owns no active project does not exist for him: db.ErrNotFound.
func CreateOwnProject(ctx context.Context, tx *db.Tx, p NewProject, who Identity, a db.Actor) (tenancydb.Project, error) {
	owns, err := tenancydb.OwnsProjectIn(ctx, tx, p.AccountID, who.Subject)
	if err != nil {
		return tenancydb.Project{}, err
	}
	if !owns {
		return tenancydb.Project{}, db.NotFound("billing account " + p.AccountID)
	}
	project, err := CreateProject(ctx, tx, p, a)
	if err != nil {
		return tenancydb.Project{}, err
	}
	_, err = tenancydb.AddMember(ctx, tx, project.ID, who.member(lifecycle.RoleProjectOwner))
	return project, err
}

// End ends what runs in a project and returns how much of it still runs.
type End func(ctx context.Context, tx *db.Tx, projectID string) (int, error)

// CloseProject ends what runs in a project by end, the access of everybody but its members, and its
// keys. A project with nothing left that runs is closed; until then it is closing, and closing it
// again continues.
func CloseProject(ctx context.Context, tx *db.Tx, id string, version int64, end End, a db.Actor) (tenancydb.Project, error) {
	p, err := lockVersion(ctx, tx, id, version)
	if err != nil {
		return tenancydb.Project{}, err
	}
	if p.Status == lifecycle.ProjectClosed {
		return p, nil
	}
	if p.Status == lifecycle.ProjectActive {
		if p, err = tenancydb.MoveProject(ctx, tx, p, lifecycle.ProjectClose, a); err != nil {
			return tenancydb.Project{}, err
		}
	}
	if err := tenancydb.EndAccess(ctx, tx, id); err != nil {
		return tenancydb.Project{}, err
	}
	running, err := end(ctx, tx, id)
	if err != nil || running > 0 {
		return p, err
	}
	return tenancydb.MoveProject(ctx, tx, p, lifecycle.ProjectFinish, a)
}

func lockVersion(ctx context.Context, tx *db.Tx, id string, version int64) (tenancydb.Project, error) {
	p, err := tenancydb.LockProject(ctx, tx, id)
	if err == nil && version != 0 && p.Version != version {
		err = fmt.Errorf("project %s: %w", id, db.ErrStale)
	}
	return p, err
}

// DeleteProject deletes a project that is empty. Its audit log stays.
func DeleteProject(ctx context.Context, tx *db.Tx, id string, version int64, a db.Actor) error {
	p, err := lockVersion(ctx, tx, id, version)
	if err != nil {
		return err
	}
	contents, err := tenancydb.ListContents(ctx, tx, id)
	if err != nil {
		return err
	}
	if len(contents) > 0 {
		names := make([]string, 0, len(contents))
		for _, c := range contents {
			names = append(names, strings.ReplaceAll(c.Kind, "_", " ")+" "+c.Name)
		}
		return &intent.Refusal{Kind: intent.Conflict, Detail: "the project is not empty: " + strings.Join(names, ", ") + "; remove these first, or close the project"}
	}
	if err := tx.AppendAudit(ctx, db.Entry{ResourceKind: lifecycle.Project.Resource, ResourceID: id, Kind: db.EntryAction, Name: "delete", Actor: a}); err != nil {
		return err
	}
	return tenancydb.DeleteProject(ctx, tx, id, p.Version)
}

// AcceptInvitation makes the identity a member. For every other identity the invitation does not
// exist: db.ErrNotFound.
func AcceptInvitation(ctx context.Context, tx *db.Tx, id string, who Identity, a db.Actor) (tenancydb.Member, error) {
	i, err := tenancydb.LockInvitation(ctx, tx, id)
	if err != nil {
		return tenancydb.Member{}, err
	}
	if i.Subject != who.Subject && (i.Email == "" || i.Email != who.Email) {
		return tenancydb.Member{}, db.NotFound("invitation " + id)
	}
	p, err := tenancydb.LockProject(ctx, tx, i.ProjectID)
	if err != nil {
		return tenancydb.Member{}, err
	}
	if err := RequireActive(p); err != nil {
		return tenancydb.Member{}, err
	}
	err = tenancydb.AcceptInvitation(ctx, tx, id, who.Subject)
	if errors.Is(err, db.ErrStale) {
		return tenancydb.Member{}, &intent.Refusal{Kind: intent.Conflict, Detail: "the invitation was accepted, revoked, or has expired; ask an owner of the project for a new one"}
	}
	if err != nil {
		return tenancydb.Member{}, err
	}
	m, err := tenancydb.AddMember(ctx, tx, i.ProjectID, who.member(i.Role))
	if err != nil {
		return tenancydb.Member{}, err
	}
	a.Metadata = map[string]any{"member": m.ID, "subject": m.Subject, "role": m.Role, "invitation": i.ID}
	return m, tx.AppendAudit(ctx, db.Entry{
		ResourceKind: lifecycle.Project.Resource, ResourceID: i.ProjectID, Kind: db.EntryAction, Name: "accept_invitation", Actor: a,
	})
}
