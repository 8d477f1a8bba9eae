package tenancy

import (
	"context"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Member is an identity with a role in a project.
type Member struct {
	ID        string                `json:"id"`
	Subject   string                `json:"subject" doc:"oidc: and the subject of the sign-in"`
	Name      string                `json:"name"`
	Role      lifecycle.ProjectRole `json:"role"`
	Version   int64                 `json:"version"`
	CreatedAt time.Time             `json:"created_at"`
	UpdatedAt time.Time             `json:"updated_at"`
}

func memberID(r tenancydb.Member) string { return r.ID }

func memberView(r tenancydb.Member) Member {
	return Member{r.ID, r.Subject, r.Name, r.Role, r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC()}
}

// GroupRole is the role of a group of the identity provider.
type GroupRole struct {
	Group string                `json:"group"`
	Role  lifecycle.ProjectRole `json:"role"`
}

func groupRoleView(r tenancydb.GroupRole) GroupRole { return GroupRole{r.GroupName, r.Role} }

// RoleRequest names a role.
type RoleRequest struct {
	Role lifecycle.ProjectRole `json:"role" required:"true" maxLength:"20" doc:"owner, member, billing or viewer"`
}

// MemberPath is the path of a member.
type MemberPath struct {
	ProjectPath
	MemberID string `path:"member_id" maxLength:"200" doc:"mem_..."`
}

// GroupPath is the path of a group's role.
type GroupPath struct {
	ProjectPath
	Group string `path:"group" maxLength:"200" doc:"A group of the identity provider"`
}

func (s *server) registerMembers() {
	const base, one, group = "/projects/{id}/members", "/projects/{id}/members/{member_id}", "/projects/{id}/group-roles/{group}"
	route(s, "list-members", http.MethodGet, base, "List the members of a project", s.listMembers)
	route(s, "get-member", http.MethodGet, one, "Read a member", s.getMember)
	route(s, "update-member", http.MethodPatch, one, "Change the role of a member; one who becomes viewer or billing loses its keys and the tokens of other roles", s.updateMember)
	route(s, "remove-member", http.MethodDelete, one, "Remove a member with its keys and tokens; everybody may remove himself", s.removeMember)
	route(s, "list-group-roles", http.MethodGet, "/projects/{id}/group-roles", "List the roles of groups of the identity provider", s.listGroupRoles)
	route(s, "put-group-role", http.MethodPut, group, "Give a group of the identity provider a role; it has to belong to the billing account of the project", s.putGroupRole)
	route(s, "delete-group-role", http.MethodDelete, group, "Take the role of a group", s.deleteGroupRole)
}

func (s *server) listMembers(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (*op.Listed[Member], error) {
	return listIn(ctx, s, in.Page, tenancydb.ListMembers, memberID, memberView)
}

func (s *server) getMember(ctx context.Context, in *MemberPath) (*op.Versioned[Member], error) {
	m, err := readIn(ctx, s, func(tx *db.ProjectTx) (tenancydb.Member, error) { return tenancydb.ReadMember(ctx, tx, in.MemberID) }, memberView)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(m.Version, m), nil
}

func (s *server) updateMember(ctx context.Context, in *struct {
	MemberPath
	op.Match
	Body RoleRequest
}) (*op.Versioned[Member], error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	if err := checkRole(in.Body.Role); err != nil {
		return nil, err
	}
	var row tenancydb.Member
	err := s.changeIn(ctx, func(tx *db.ProjectTx) error {
		before, err := tenancydb.ReadMember(ctx, tx, in.MemberID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return before.Version, nil })
		if err != nil {
			return err
		}
		if row, err = tenancydb.ChangeRole(ctx, tx, in.MemberID, v, in.Body.Role); err != nil {
			return err
		}
		if before.Role == lifecycle.RoleProjectOwner && row.Role != lifecycle.RoleProjectOwner {
			if err := tenancydb.RevokeInvitationsOf(ctx, tx, row.Subject, row.Email); err != nil {
				return err
			}
		}
		if !row.Role.Includes(lifecycle.RoleProjectMember) {
			if err := tenancydb.DeleteKeysAbove(ctx, tx, row.ID, row.Role); err != nil {
				return err
			}
		}
		return op.AuditProject(ctx, tx, "change_role", map[string]any{"member": row.ID, "subject": row.Subject, "from": before.Role, "to": row.Role})
	})
	if err != nil {
		return nil, err
	}
	s.startKeyJobs(ctx)
	return op.WithVersion(row.Version, memberView(row)), nil
}

func (s *server) removeMember(ctx context.Context, in *struct {
	MemberPath
	op.Match
}) (*struct{}, error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	err := op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		m, err := tenancydb.ReadMember(ctx, tx, in.MemberID)
		if err != nil {
			return err
		}
		if err := requireOwn(ctx, m.ID); err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return m.Version, nil })
		if err != nil {
			return err
		}
		if err := tenancydb.RemoveMember(ctx, tx, m.ID, v); err != nil {
			return err
		}
		if err := tenancydb.RevokeInvitationsOf(ctx, tx, m.Subject, m.Email); err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "remove_member", map[string]any{"member": m.ID, "subject": m.Subject, "role": m.Role})
	})
	if err == nil {
		s.startKeyJobs(ctx)
	}
	return nil, err
}

func (s *server) listGroupRoles(ctx context.Context, _ *ProjectPath) (*op.Listed[GroupRole], error) {
	return listIn(ctx, s, op.Page{Limit: maxGroupRoles}, func(ctx context.Context, tx *db.ProjectTx, _ string, _ int) ([]tenancydb.GroupRole, error) {
		return tenancydb.ListGroupRoles(ctx, tx)
	}, func(tenancydb.GroupRole) string { return "" }, groupRoleView)
}

const maxGroupRoles = 100

func (s *server) putGroupRole(ctx context.Context, in *struct {
	GroupPath
	Body RoleRequest
}) (*struct{ Body GroupRole }, error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	if err := checkRole(in.Body.Role); err != nil || in.Body.Role == lifecycle.RoleProjectOwner {
		return nil, invalid("role", "must be member, billing or viewer; an owner is a member of his own")
	}
	if err := s.requireGroupOfAccount(ctx, in.ID, in.Group); err != nil {
		return nil, err
	}
	out := &struct{ Body GroupRole }{}
	err := s.changeIn(ctx, func(tx *db.ProjectTx) error {
		row, err := tenancydb.PutGroupRole(ctx, tx, in.Group, in.Body.Role)
		if err != nil {
			return err
		}
		all, err := tenancydb.ListGroupRoles(ctx, tx)
		if err != nil {
			return err
		}
		if len(all) > maxGroupRoles {
			return invalid("role", "cannot be given: the project has roles for 100 groups already; remove one first")
		}
		out.Body = groupRoleView(row)
		return op.AuditProject(ctx, tx, "put_group_role", map[string]any{"group": row.GroupName, "role": row.Role})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *server) deleteGroupRole(ctx context.Context, in *GroupPath) (*struct{}, error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	return nil, op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if err := tenancydb.DeleteGroupRole(ctx, tx, in.Group); err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "delete_group_role", map[string]any{"group": in.Group})
	})
}
