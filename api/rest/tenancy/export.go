package tenancy

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// ProjectExport is everything that is stored of a project. Tokens are without their text, which is
// not stored.
type ProjectExport struct {
	ExportedAt    time.Time      `json:"exported_at"`
	Project       Project        `json:"project"`
	Members       []Member       `json:"members" nullable:"false"`
	GroupRoles    []GroupRole    `json:"group_roles" nullable:"false"`
	Invitations   []Invitation   `json:"invitations" nullable:"false"`
	SSHKeys       []SSHKey       `json:"ssh_keys" nullable:"false"`
	Tokens        []ProjectToken `json:"tokens" nullable:"false"`
	Quotas        []Quota        `json:"quotas" nullable:"false"`
	Audit         []AuditEntry   `json:"audit" nullable:"false"`
	AuditComplete bool           `json:"audit_complete" doc:"false when only the newest rows are here; the audit log has all"`
}

// The largest export: rows of each list, and audit rows.
const (
	exportPage  = 500
	exportRows  = 20000
	exportAudit = 10000
)

// readAll reads every page of a list.
func readAll[R, V any](
	ctx context.Context, tx *db.ProjectTx, list func(context.Context, *db.ProjectTx, string, int) ([]R, error), id func(R) string, view func(R) V,
) ([]V, error) {
	out := []V{}
	for after := ""; ; {
		rows, err := list(ctx, tx, after, exportPage)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			out = append(out, view(r))
			after = id(r)
		}
		if len(rows) < exportPage || len(out) >= exportRows {
			return out, nil
		}
	}
}

func (s *server) exportProject(ctx context.Context, in *ProjectPath) (*struct{ Body ProjectExport }, error) {
	out := &struct{ Body ProjectExport }{}
	err := op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		p, err := tenancydb.ReadProject(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		e := ProjectExport{ExportedAt: time.Now().UTC(), Project: projectView(p), GroupRoles: []GroupRole{}, Quotas: []Quota{}}
		if e.Members, err = readAll(ctx, tx, tenancydb.ListMembers, memberID, memberView); err != nil {
			return err
		}
		if e.Invitations, err = readAll(ctx, tx, tenancydb.ListInvitations, invitationID, invitationView); err != nil {
			return err
		}
		if e.SSHKeys, err = readAll(ctx, tx, tenancydb.ListSSHKeys, keyID, keyView); err != nil {
			return err
		}
		if e.Tokens, err = readAll(ctx, tx, tenancydb.ListTokens, tokenID, tokenView); err != nil {
			return err
		}
		if err := exportSettings(ctx, tx, &e); err != nil {
			return err
		}
		out.Body = e
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// exportSettings adds group roles, quotas and the newest audit rows.
func exportSettings(ctx context.Context, tx *db.ProjectTx, e *ProjectExport) error {
	groups, err := tenancydb.ListGroupRoles(ctx, tx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		e.GroupRoles = append(e.GroupRoles, groupRoleView(g))
	}
	quotas, err := tenancydb.ListQuotas(ctx, tx, tx.Project())
	if err != nil {
		return err
	}
	for _, q := range quotas {
		e.Quotas = append(e.Quotas, quotaView(q))
	}
	e.Audit = []AuditEntry{}
	for before := int64(0); len(e.Audit) < exportAudit; {
		rows, err := readAudit(ctx, tx, before, exportPage)
		if err != nil {
			return err
		}
		e.Audit = append(e.Audit, rows...)
		if e.AuditComplete = len(rows) < exportPage; e.AuditComplete {
			break
		}
		before = rows[len(rows)-1].pos
	}
	return nil
}
