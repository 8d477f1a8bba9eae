package tenancy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Invitation asks an identity to become a member.
type Invitation struct {
	ID          string                     `json:"id"`
	ProjectID   string                     `json:"project_id"`
	ProjectName string                     `json:"project_name,omitempty" doc:"In the list of your own invitations"`
	Email       string                     `json:"email,omitempty"`
	Subject     string                     `json:"subject,omitempty"`
	Role        lifecycle.ProjectRole      `json:"role"`
	Status      lifecycle.InvitationStatus `json:"status"`
	Version     int64                      `json:"version"`
	CreatedAt   time.Time                  `json:"created_at"`
	ExpiresAt   time.Time                  `json:"expires_at"`
}

func invitationID(r tenancydb.Invitation) string { return r.ID }

// invitationView shows an overdue invitation as expired, also before the row says so.
func invitationView(r tenancydb.Invitation) Invitation {
	if r.Status == lifecycle.InvitationPending && !time.Now().Before(r.ExpiresAt) {
		r.Status = lifecycle.InvitationExpired
	}
	return Invitation{
		ID: r.ID, ProjectID: r.ProjectID, Email: r.Email, Subject: r.Subject, Role: r.Role, Status: r.Status, Version: r.Version,
		CreatedAt: r.CreatedAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
	}
}

// InvitationRequest names the identity that may accept, by one of email and subject.
type InvitationRequest struct {
	Email   string                `json:"email,omitempty" maxLength:"254" doc:"The identity provider must have verified it"`
	Subject string                `json:"subject,omitempty" maxLength:"300" doc:"oidc: and the subject of the sign-in"`
	Role    lifecycle.ProjectRole `json:"role" required:"true" maxLength:"20" doc:"owner, member, billing or viewer"`
	Days    int                   `json:"days,omitempty" minimum:"1" maximum:"30" default:"7" doc:"For how many days it can be accepted"`
}

const day = 24 * time.Hour

// row checks the request and returns the invitation that it asks for.
func (r InvitationRequest) row(projectID, by string) (tenancydb.Invitation, error) {
	if (r.Email == "") == (r.Subject == "") {
		return tenancydb.Invitation{}, invalid("email", "or subject must be given, one of the two")
	}
	if r.Email != "" {
		email, err := tenancy.ParseEmail(r.Email)
		if err != nil {
			return tenancydb.Invitation{}, invalid("email", err.Error())
		}
		r.Email = email
	} else if why := tenancy.CheckSubject(r.Subject); why != "" {
		return tenancydb.Invitation{}, invalid("subject", why)
	}
	if err := checkRole(r.Role); err != nil {
		return tenancydb.Invitation{}, err
	}
	return tenancydb.Invitation{
		ProjectID: projectID, Email: r.Email, Subject: r.Subject, Role: r.Role, InvitedBy: by, ExpiresAt: time.Now().Add(time.Duration(r.Days) * day),
	}, nil
}

// InvitationPath is the path of an invitation.
type InvitationPath struct {
	ProjectPath
	InvitationID string `path:"invitation_id" maxLength:"200" doc:"inv_..."`
}

func (s *server) registerInvitations() {
	const base, one = "/projects/{id}/invitations", "/projects/{id}/invitations/{invitation_id}"
	route(s, "list-invitations", http.MethodGet, base, "List the invitations to a project", s.listInvitations)
	route(s, "create-invitation", http.MethodPost, base, "Invite an identity to a project", s.createInvitation)
	route(s, "get-invitation", http.MethodGet, one, "Read an invitation", s.getInvitation)
	route(s, "revoke-invitation", http.MethodDelete, one, "Take an invitation back", s.revokeInvitation)
	route(s, "list-own-invitations", http.MethodGet, "/invitations", "List the invitations that you can accept", s.listOwnInvitations)
	route(s, "accept-invitation", http.MethodPost, "/invitations/{id}/accept", "Accept an invitation", s.acceptInvitation)
}

func (s *server) listInvitations(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (*op.Listed[Invitation], error) {
	return listIn(ctx, s, in.Page, tenancydb.ListInvitations, invitationID, invitationView)
}

func (s *server) createInvitation(ctx context.Context, in *struct {
	ProjectPath
	op.Key
	Body InvitationRequest
}) (*op.Created[Invitation], error) {
	if err := requirePerson(ctx); err != nil {
		return nil, err
	}
	row, err := in.Body.row(in.ID, op.PrincipalOf(ctx).ID)
	if err != nil {
		return nil, err
	}
	return op.CreateInProject(ctx, s.api, in.Key, in.Body, nil, func(tx *db.ProjectTx) (*op.Created[Invitation], error) {
		if err := lockActive(ctx, tx); err != nil {
			return nil, err
		}
		n, err := tenancydb.CountPending(ctx, tx, tx.Project())
		if err != nil {
			return nil, err
		}
		if n >= tenancy.MaxInvitations {
			return nil, problem.New(problem.Conflict, "the project has 50 pending invitations, as many as it may have; revoke one first")
		}
		made, err := tenancydb.CreateInvitation(ctx, tx, row)
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+"/projects/"+in.ID+"/invitations/"+made.ID, made.Version, invitationView(made)),
			op.AuditProject(ctx, tx, "invite", map[string]any{"invitation": made.ID, "email": made.Email, "subject": made.Subject, "role": made.Role})
	})
}

func (s *server) getInvitation(ctx context.Context, in *InvitationPath) (*op.Versioned[Invitation], error) {
	i, err := readIn(ctx, s, func(tx *db.ProjectTx) (tenancydb.Invitation, error) {
		return tenancydb.ReadInvitation(ctx, tx, in.InvitationID)
	}, invitationView)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(i.Version, i), nil
}

func (s *server) revokeInvitation(ctx context.Context, in *InvitationPath) (*struct{}, error) {
	if err := requirePerson(ctx); err != nil {
		return nil, err
	}
	return nil, op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		i, err := tenancydb.ReadInvitation(ctx, tx, in.InvitationID)
		if err != nil || i.Status == lifecycle.InvitationRevoked {
			return err
		}
		if err := tenancydb.RevokeInvitation(ctx, tx, i.ID); errors.Is(err, db.ErrStale) {
			return problem.New(problem.Conflict, "the invitation is "+string(i.Status)+" and cannot be revoked; remove the member instead")
		} else if err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "revoke_invitation", map[string]any{"invitation": i.ID})
	})
}

func (s *server) listOwnInvitations(ctx context.Context, _ *struct{}) (*op.Listed[Invitation], error) {
	who := identity(op.PrincipalOf(ctx))
	out := &op.Listed[Invitation]{Body: op.List[Invitation]{Data: []Invitation{}}}
	if who.Subject == "" {
		return out, nil
	}
	rows, err := tenancydb.InvitationsFor(ctx, s.api.Store(), who.Subject, who.Email)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		view := invitationView(r.ProjectInvitation)
		view.ProjectName = r.ProjectName
		out.Body.Data = append(out.Body.Data, view)
	}
	return out, nil
}

func (s *server) acceptInvitation(ctx context.Context, in *struct {
	ID string `path:"id" maxLength:"200" doc:"inv_..."`
}) (*struct{ Body Member }, error) {
	who, err := requireIdentity(ctx)
	if err != nil {
		return nil, err
	}
	out := &struct{ Body Member }{}
	err = s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		m, err := tenancy.AcceptInvitation(ctx, tx, in.ID, who, customer(ctx))
		out.Body = memberView(m)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
