package tenancy

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ProjectExport is everything that is stored of a project. Tokens are without their text, which is
// not stored, and webhooks without their secrets. Parts that need role owner are left out for
// others.
type ProjectExport struct {
	ExportedAt     time.Time      `json:"exported_at" doc:"When the export began"`
	Project        Project        `json:"project"`
	BillingAccount ProjectAccount `json:"billing_account"`
	Members        []Member       `json:"members" nullable:"false"`
	GroupRoles     []GroupRole    `json:"group_roles" nullable:"false"`
	Quotas         []Quota        `json:"quotas" nullable:"false"`
	Notices        []Notice       `json:"notices" nullable:"false"`
	Invitations    []Invitation   `json:"invitations,omitempty" doc:"For owners"`
	SSHKeys        []SSHKey       `json:"ssh_keys,omitempty" doc:"For owners"`
	Tokens         []ProjectToken `json:"tokens,omitempty" doc:"For owners"`
	Webhooks       []Webhook      `json:"webhooks,omitempty" doc:"For owners"`
	Audit          []AuditEntry   `json:"audit,omitempty" doc:"For owners; newest first"`
	Events         []ProjectEvent `json:"events,omitempty" doc:"For owners; as long as events are kept"`
	Complete       bool           `json:"complete" doc:"true, and the last member: an export without it was cut short"`
}

// exportPage is how many rows of a list an export holds at a time.
const exportPage = 500

// exportPart is one list of an export.
type exportPart struct {
	name  string
	least lifecycle.ProjectRole
	// page returns the rows after a place in the list and the place of the last; "" ends the list.
	page func(ctx context.Context, tx *db.ProjectTx, after string) (rows []any, last string, err error)
}

// pagesOf exports a list that is read page by page.
func pagesOf[R, V any](
	name string, least lifecycle.ProjectRole, list func(context.Context, *db.ProjectTx, string, int) ([]R, error), id func(R) string, view func(R) V,
) exportPart {
	return exportPart{name, least, func(ctx context.Context, tx *db.ProjectTx, after string) ([]any, string, error) {
		rows, err := list(ctx, tx, after, exportPage)
		out, last := make([]any, 0, len(rows)), ""
		for _, r := range rows {
			out = append(out, view(r))
		}
		if len(rows) == exportPage {
			last = id(rows[len(rows)-1])
		}
		return out, last, err
	}}
}

// numbered makes a list with numbers for places one with texts.
func numbered[R any](list func(context.Context, *db.ProjectTx, int64, int) ([]R, error)) func(context.Context, *db.ProjectTx, string, int) ([]R, error) {
	return func(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]R, error) {
		place := int64(0)
		if after != "" {
			var err error
			if place, err = strconv.ParseInt(after, 10, 64); err != nil {
				return nil, err
			}
		}
		return list(ctx, tx, place, limit)
	}
}

// wholeOf exports a list that is read at once, since a project has few of it.
func wholeOf[R, V any](name string, least lifecycle.ProjectRole, list func(context.Context, *db.ProjectTx) ([]R, error), view func(R) V) exportPart {
	return exportPart{name, least, func(ctx context.Context, tx *db.ProjectTx, _ string) ([]any, string, error) {
		rows, err := list(ctx, tx)
		out := make([]any, 0, len(rows))
		for _, r := range rows {
			out = append(out, view(r))
		}
		return out, "", err
	}}
}

func same[T any](v T) T { return v }

// exportParts lists what an export holds besides the project and its account.
func exportParts() []exportPart {
	const all, owner = lifecycle.RoleProjectBilling, lifecycle.RoleProjectOwner
	quotas := func(ctx context.Context, tx *db.ProjectTx) ([]tenancydb.Quota, error) {
		return tenancydb.ListQuotas(ctx, tx, tx.Project())
	}
	return []exportPart{
		pagesOf("members", all, tenancydb.ListMembers, memberID, memberView),
		wholeOf("group_roles", all, tenancydb.ListGroupRoles, groupRoleView),
		wholeOf("quotas", all, quotas, quotaView),
		pagesOf("notices", all, readNotices, noticeID, same[Notice]),
		pagesOf("invitations", owner, tenancydb.ListInvitations, invitationID, invitationView),
		pagesOf("ssh_keys", owner, tenancydb.ListSSHKeys, keyID, keyView),
		pagesOf("tokens", owner, tenancydb.ListTokens, tokenID, tokenView),
		pagesOf("webhooks", owner, webhookdb.List, func(w webhookdb.Webhook) string { return w.ID }, webhookView),
		pagesOf("audit", owner, numbered(readAudit), func(e AuditEntry) string { return strconv.FormatInt(e.pos, 10) }, same[AuditEntry]),
		pagesOf("events", owner, numbered(webhookdb.EventsAfter), func(e webhookdb.Event) string { return strconv.FormatInt(*e.ProjectCursor, 10) }, projectEventView),
	}
}

func (s *server) registerExport() {
	s.api.Unbounded(func(path string) bool {
		rest, ok := strings.CutPrefix(path, op.Prefix+"/projects/")
		return ok && strings.HasSuffix(rest, "/export") && strings.Count(rest, "/") == 1
	})
	op.Add(s.api, huma.Operation{
		OperationID: "export-project", Method: http.MethodGet, Path: "/projects/{id}/export", Tags: []string{"projects"}, Summary: "Everything that is stored of a project",
		Description: "The answer is one JSON object without a limit of size, with each element of a list on a line of its own. Its last member is complete: an " +
			"answer without it was cut short. Each list is read in pages, one after the other: a row that is there from the beginning to the end is in it " +
			"once, and what is added or deleted meanwhile may be in it or not. For members with role billing it holds project, billing account, members, " +
			"group roles, quotas and notices.",
		Responses: map[string]*huma.Response{"200": {
			Description: "The export",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: op.Schema[ProjectExport](s.api, "ProjectExport")}},
		}},
	}, s.exportProject)
}

func (s *server) exportProject(ctx context.Context, in *ProjectPath) (*huma.StreamResponse, error) {
	began := time.Now().UTC()
	account, err := s.getProjectAccount(ctx, in) // with the audit row of an operator
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		s.api.StreamDocument(c, func(ctx context.Context, d *op.Document) error {
			if err := d.Member("exported_at", began); err != nil {
				return err
			}
			return s.writeExport(ctx, d, account.Body)
		})
	}}, nil
}

// writeExport writes what the role of the reader includes. Each page is read in a transaction of
// its own, so that a slow reader holds none.
func (s *server) writeExport(ctx context.Context, d *op.Document, account ProjectAccount) error {
	access := op.ProjectAccessOf(ctx)
	var project tenancydb.Project
	err := s.api.Store().ForProject(ctx, access.Project, func(tx *db.ProjectTx) (err error) {
		project, err = tenancydb.ReadProject(ctx, tx, tx.Project())
		return err
	})
	if err == nil {
		err = d.Member("project", projectView(project))
	}
	if err == nil {
		err = d.Member("billing_account", account)
	}
	if err != nil {
		return err
	}
	for _, part := range exportParts() {
		if !access.Allows(part.least) {
			continue
		}
		if err := d.List(part.name, func(add func(any) error) error { return s.writePart(ctx, part, add) }); err != nil {
			return err
		}
	}
	return nil
}

// writePart writes the pages of one list. An export takes long, so each page needs that the reader
// still has the role.
func (s *server) writePart(ctx context.Context, part exportPart, add func(any) error) error {
	for after := ""; ; {
		ctx, access, err := op.AccessAgain(ctx)
		if err != nil {
			return err
		}
		if !access.Allows(part.least) {
			return problem.New(problem.Forbidden, "the reader is "+string(part.least)+" no more")
		}
		var rows []any
		next := ""
		err = s.api.Store().ForProject(ctx, access.Project, func(tx *db.ProjectTx) (err error) {
			rows, next, err = part.page(ctx, tx, after)
			return err
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := add(r); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		after = next
	}
}
