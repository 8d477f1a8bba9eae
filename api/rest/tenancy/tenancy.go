// Package tenancy is the area of billing accounts, projects and what their members make. Customers'
// routes are bound to the project in their path by row-level security; operators' routes are below
// /admin.
package tenancy

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func access() op.Access {
	return op.Access{
		op.RoleSignedIn: {"GET /projects", "POST /projects", "GET /invitations", "POST /invitations/{id}/accept", "GET /catalogue", "GET /currencies"},
		op.RoleProjectAny: {
			"GET /projects/{id}", "GET /projects/{id}/members", "GET /projects/{id}/members/{member_id}", "DELETE /projects/{id}/members/{member_id}",
			"GET /projects/{id}/group-roles", "GET /projects/{id}/quotas",
			// Every role may have tokens; none of them allows more than its member.
			"GET /projects/{id}/tokens", "GET /projects/{id}/tokens/{token_id}", "POST /projects/{id}/tokens", "DELETE /projects/{id}/tokens/{token_id}",
		},
		op.RoleProjectViewer:  {"GET /projects/{id}/ssh-keys", "GET /projects/{id}/ssh-keys/{key_id}"},
		op.RoleProjectBilling: {"GET /projects/{id}/billing-account", "GET /projects/{id}/export"},
		op.RoleProjectMember: {
			"POST /projects/{id}/ssh-keys", "DELETE /projects/{id}/ssh-keys/{key_id}",
		},
		op.RoleProjectOwner: {
			"PATCH /projects/{id}", "DELETE /projects/{id}", "POST /projects/{id}/close", "GET /projects/{id}/audit-log",
			"PATCH /projects/{id}/members/{member_id}", "PUT /projects/{id}/group-roles/{group}", "DELETE /projects/{id}/group-roles/{group}",
			"GET /projects/{id}/invitations", "POST /projects/{id}/invitations",
			"GET /projects/{id}/invitations/{invitation_id}", "DELETE /projects/{id}/invitations/{invitation_id}",
		},
		op.RoleViewer: {"GET /admin/billing-accounts", "GET /admin/billing-accounts/{id}", "GET /admin/billing-accounts/{id}/groups", "GET /admin/projects"},
		op.RoleOperator: {
			"POST /admin/billing-accounts", "PUT /admin/billing-accounts/{id}", "POST /admin/projects", "POST /admin/projects/{id}/close",
			"PUT /admin/billing-accounts/{id}/groups/{group}", "DELETE /admin/billing-accounts/{id}/groups/{group}",
			"PUT /admin/projects/{id}/quotas/{sku}", "DELETE /admin/projects/{id}/quotas/{sku}",
		},
		op.RoleAdmin: {"DELETE /admin/billing-accounts/{id}", "PUT /admin/catalogue/{sku}", "DELETE /admin/catalogue/{sku}"},
	}
}

type server struct{ api *op.API }

// Register declares the area's operations.
func Register(api *op.API) {
	api.Grant(access())
	api.RequireStepUp(stepUps()...)
	s := &server{api}
	s.registerAccounts()
	s.registerAccountGroups()
	s.registerProjects()
	s.registerAdminProjects()
	s.registerMembers()
	s.registerInvitations()
	s.registerKeys()
	s.registerTokens()
	s.registerCatalogue()
}

// stepUps lists what a session may do only after a second sign-in: the end of a project, with its
// keys and tokens, cannot be undone, a token outlives the session that made it, and what bounds
// customers or is offered to them is not changed by a browser that was left open.
func stepUps() []op.StepUp {
	return []op.StepUp{
		{Route: "POST /admin/projects/{id}/close"}, {Route: "POST /projects/{id}/close"}, {Route: "DELETE /projects/{id}"},
		{Route: "POST /projects/{id}/tokens"},
		{Route: "DELETE /admin/billing-accounts/{id}"}, {Route: "PUT /admin/catalogue/{sku}"}, {Route: "DELETE /admin/catalogue/{sku}"},
		{Route: "DELETE /admin/projects/{id}/quotas/{sku}"},
	}
}

// route declares one operation of the area.
func route[I, O any](s *server, id, method, path, summary string, handler func(context.Context, *I) (*O, error)) {
	status := 0
	if method == http.MethodDelete {
		status = http.StatusNoContent
	}
	op.Add(s.api, huma.Operation{OperationID: id, Method: method, Path: path, Tags: []string{"projects"}, Summary: summary, DefaultStatus: status}, handler)
}

// ProjectPath is the path of a project.
type ProjectPath struct {
	ID string `path:"id" maxLength:"200" doc:"prj_..."`
}

// listIn answers a page of what belongs to the project of the request.
func listIn[R, V any](
	ctx context.Context, s *server, page op.Page, list func(context.Context, *db.ProjectTx, string, int) ([]R, error), id func(R) string, view func(R) V,
) (out *op.Listed[V], err error) {
	after, err := page.After()
	if err != nil {
		return nil, err
	}
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if _, err := tenancydb.ReadProject(ctx, tx, tx.Project()); err != nil {
			return err
		}
		rows, err := list(ctx, tx, after, page.Limit+1)
		if err != nil {
			return err
		}
		out = op.Paged(rows, page.Limit, id, view)
		return nil
	})
	return out, err
}

// readIn answers with one thing of the project of the request.
func readIn[R, V any](ctx context.Context, s *server, read func(*db.ProjectTx) (R, error), view func(R) V) (out V, err error) {
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		row, err := read(tx)
		if err == nil {
			out = view(row)
		}
		return err
	})
	return out, err
}

// changeIn runs a change in the project of the request, which must be active. It holds the lock of
// the project, so that what it counts cannot change.
func (s *server) changeIn(ctx context.Context, do func(*db.ProjectTx) error) error {
	return op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		if err := lockActive(ctx, tx); err != nil {
			return err
		}
		return do(tx)
	})
}

func lockActive(ctx context.Context, tx *db.ProjectTx) error {
	p, err := tenancydb.LockProject(ctx, tx, tx.Project())
	if err != nil {
		return err
	}
	return tenancy.RequireActive(p)
}

// refuseProjectToken refuses tokens of projects: one that has leaked could make itself more access,
// or access that outlives it.
func refuseProjectToken(ctx context.Context) error {
	if op.PrincipalOf(ctx).Project == "" {
		return nil
	}
	return problem.New(problem.Forbidden, "a project token cannot change who has access; sign in for this call")
}

// requireMember returns the membership that a key or token will belong to.
func requireMember(ctx context.Context) (string, error) {
	if id := op.ProjectAccessOf(ctx).MemberID; id != "" {
		return id, nil
	}
	return "", problem.New(problem.Forbidden, "keys and tokens belong to a member, and you act by a group or as an operator; accept an invitation of your own first")
}

// requireMemberRole refuses a key for a member whose own role does not allow keys. It is called
// under the lock of the project, so that no key is added after the member has lost the role.
func requireMemberRole(ctx context.Context, tx *db.ProjectTx, memberID string) error {
	m, err := tenancydb.ReadMember(ctx, tx, memberID)
	if err != nil || m.Role.Includes(lifecycle.RoleProjectMember) {
		return err
	}
	return problem.New(problem.Forbidden, "SSH keys need role member of your own, and you have "+string(m.Role)+"; ask an owner of the project for that role")
}

// requireOwn refuses a change of what belongs to another member, unless by an owner who signed in.
// A token changes only what belongs to its member.
func requireOwn(ctx context.Context, memberID string) error {
	access := op.ProjectAccessOf(ctx)
	byToken := op.PrincipalOf(ctx).Project != ""
	if memberID == access.MemberID || !byToken && access.Allows(lifecycle.RoleProjectOwner) {
		return nil
	}
	return problem.New(problem.Forbidden, "this belongs to another member; ask that member, or an owner of the project")
}

func identity(p op.Principal) tenancy.Identity {
	return tenancy.Identity{Subject: p.Identity.Subject, Name: p.Name, Email: p.Identity.Email, Groups: p.Identity.Groups}
}

// requireIdentity refuses tokens on routes that are for those who sign in.
func requireIdentity(ctx context.Context) (tenancy.Identity, error) {
	who := identity(op.PrincipalOf(ctx))
	if who.Subject == "" {
		return who, problem.New(problem.Forbidden, "this call is for users who sign in with the identity provider; a token has no identity")
	}
	return who, nil
}

// customer is the actor of a change that no project has authorized.
func customer(ctx context.Context) db.Actor {
	return db.Actor{Owner: lifecycle.OwnerCustomer, ID: op.PrincipalOf(ctx).ID}
}

func invalid(field, message string) error {
	return problem.NewInvalid(problem.Field{Location: "body." + field, Message: message})
}

func checkRole(role lifecycle.ProjectRole) error {
	if role.IsKnown() {
		return nil
	}
	return invalid("role", "must be owner, member, billing or viewer")
}
