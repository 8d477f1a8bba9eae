package tenancy

import (
	"context"
	"net/http"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AdminProjectRequest asks for a project with an invitation to its first owner.
type AdminProjectRequest struct {
	ProjectRequest
	OwnerEmail   string `json:"owner_email,omitempty" maxLength:"254" doc:"Who is invited as owner: a verified e-mail address, or owner_subject"`
	OwnerSubject string `json:"owner_subject,omitempty" maxLength:"300" doc:"oidc: and the subject of the sign-in"`
}

// ReasonRequest says why.
type ReasonRequest struct {
	Reason string `json:"reason" required:"true" minLength:"3" maxLength:"500" doc:"The owners of the project see it"`
}

// QuotaRequest sets a quota.
type QuotaRequest struct {
	MaxNodes int    `json:"max_nodes" required:"true" minimum:"0" maximum:"100000"`
	Reason   string `json:"reason" required:"true" minLength:"3" maxLength:"500" doc:"The owners of the project see it"`
}

// QuotaPath is the path of a quota.
type QuotaPath struct {
	ProjectPath
	SKU string `path:"sku" maxLength:"200" doc:"sku_..., or total for all SKUs together"`
}

// totalQuota stands in a path for the quota of all SKUs.
const totalQuota = "total"

func (p QuotaPath) skuID() string {
	if p.SKU == totalQuota {
		return ""
	}
	return p.SKU
}

func (s *server) registerAdminProjects() {
	const one = "/admin/projects/{id}"
	route(s, "list-all-projects", http.MethodGet, "/admin/projects", "List the projects of all customers", s.listAllProjects)
	route(s, "create-project-for", http.MethodPost, "/admin/projects", "Create a project and invite its first owner", s.createProjectFor)
	route(s, "close-project-of", http.MethodPost, one+"/close", "End everything of a customer's project and keep its data", s.closeProjectOf)
	route(s, "set-quota", http.MethodPut, one+"/quotas/{sku}", "Set how many nodes a project may have", s.setQuota)
	route(s, "delete-quota", http.MethodDelete, one+"/quotas/{sku}", "Remove a quota; without one for all SKUs a project may have no nodes", s.deleteQuota)
}

func (s *server) listAllProjects(ctx context.Context, in *struct {
	op.Page
	BillingAccountID string `query:"billing_account_id" maxLength:"200" doc:"Only those of this account"`
}) (*op.Listed[Project], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := tenancydb.ListProjects(ctx, s.api.Store(), after, in.BillingAccountID, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r tenancydb.Project) string { return r.ID }, projectView), nil
}

func (s *server) createProjectFor(ctx context.Context, in *struct {
	op.Key
	Body AdminProjectRequest
}) (*op.Created[Project], error) {
	if err := op.CheckName(in.Body.Name); err != nil {
		return nil, err
	}
	owner := InvitationRequest{Email: in.Body.OwnerEmail, Subject: in.Body.OwnerSubject, Role: lifecycle.RoleProjectOwner, Days: 30}
	if owner.Email == "" && owner.Subject == "" {
		return nil, invalid("owner_email", "or owner_subject must say who is invited as the first owner")
	}
	invitation, err := owner.row("", op.PrincipalOf(ctx).ID)
	if err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Project], error) {
		row, err := tenancy.CreateProject(ctx, tx, tenancy.NewProject{AccountID: in.Body.BillingAccountID, Name: in.Body.Name, Tags: in.Body.Tags}, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		invitation.ProjectID = row.ID
		made, err := tenancydb.CreateInvitation(ctx, tx, invitation)
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+"/projects/"+row.ID, row.Version, projectView(row)),
			op.Audit(ctx, tx, lifecycle.Project.Resource, row.ID, nil, "invite", map[string]any{"invitation": made.ID, "email": made.Email, "subject": made.Subject, "role": made.Role})
	})
}

// operator is the actor of an operator's change, with the reason that the body gives.
func operator(ctx context.Context, location, reason string) (db.Actor, error) {
	a := op.Actor(ctx)
	var err error
	a.Comment, err = op.CheckReason(location, reason)
	return a, err
}

func (s *server) closeProjectOf(ctx context.Context, in *struct {
	ProjectPath
	op.Match
	Body ReasonRequest
}) (*op.Versioned[Project], error) {
	v, err := in.Version(op.AnyVersion)
	if err != nil {
		return nil, err
	}
	a, err := operator(ctx, "body.reason", in.Body.Reason)
	if err != nil {
		return nil, err
	}
	return s.close(ctx, in.ID, v, a)
}

// changeQuota runs a change of a quota under the lock of the project, with its audit row.
func (s *server) changeQuota(ctx context.Context, in QuotaPath, name string, a db.Actor, do func(*db.Tx) error) error {
	return s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		if _, err := tenancydb.LockProject(ctx, tx, in.ID); err != nil {
			return err
		}
		if err := do(tx); err != nil {
			return err
		}
		return tx.AppendAudit(ctx, db.Entry{ResourceKind: lifecycle.Project.Resource, ResourceID: in.ID, Kind: db.EntryAction, Name: name, Actor: a})
	})
}

func (s *server) setQuota(ctx context.Context, in *struct {
	QuotaPath
	Body QuotaRequest
}) (*struct{ Body Quota }, error) {
	a, err := operator(ctx, "body.reason", in.Body.Reason)
	if err != nil {
		return nil, err
	}
	a.Metadata = map[string]any{"sku": in.SKU, "max_nodes": in.Body.MaxNodes}
	out := &struct{ Body Quota }{}
	err = s.changeQuota(ctx, in.QuotaPath, "set_quota", a, func(tx *db.Tx) error {
		if err := tenancydb.PutQuota(ctx, tx, in.ID, in.skuID(), in.Body.MaxNodes); err != nil {
			return err
		}
		rows, err := tenancydb.ListQuotas(ctx, tx, in.ID)
		for _, r := range rows {
			if q := quotaView(r); q.SKUID == in.skuID() {
				out.Body = q
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *server) deleteQuota(ctx context.Context, in *struct {
	QuotaPath
	Reason string `header:"Slipway-Reason" maxLength:"500" doc:"Why, for the owners of the project; required"`
}) (*struct{}, error) {
	a, err := operator(ctx, "header.Slipway-Reason", in.Reason)
	if err != nil {
		return nil, err
	}
	a.Metadata = map[string]any{"sku": in.SKU}
	return nil, s.changeQuota(ctx, in.QuotaPath, "delete_quota", a, func(tx *db.Tx) error { return tenancydb.DeleteQuota(ctx, tx, in.ID, in.skuID()) })
}
