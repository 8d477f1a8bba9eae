package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Project is what owns allocations.
type Project struct {
	ID               string                  `json:"id"`
	BillingAccountID string                  `json:"billing_account_id"`
	Name             string                  `json:"name"`
	Tags             map[string]string       `json:"tags" nullable:"false"`
	Status           lifecycle.ProjectStatus `json:"status"`
	Version          int64                   `json:"version"`
	CreatedAt        time.Time               `json:"created_at"`
	UpdatedAt        time.Time               `json:"updated_at"`
	ClosedAt         *time.Time              `json:"closed_at,omitempty"`
}

func projectView(r tenancydb.Project) Project {
	return Project{r.ID, r.BillingAccountID, r.Name, r.Tags, r.Status, r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC(), r.ClosedAt}
}

// ProjectRequest asks for a project.
type ProjectRequest struct {
	BillingAccountID string            `json:"billing_account_id" required:"true" maxLength:"200"`
	Name             string            `json:"name" required:"true" maxLength:"100"`
	Tags             map[string]string `json:"tags,omitempty" maxProperties:"50" itemMaxLength:"200"`
}

// ProjectPatch changes what is set.
type ProjectPatch struct {
	Name *string           `json:"name,omitempty" maxLength:"100"`
	Tags map[string]string `json:"tags,omitempty" maxProperties:"50" itemMaxLength:"200" doc:"Replaces all tags"`
}

func (s *server) registerProjects() {
	const one = "/projects/{id}"
	route(s, "list-projects", http.MethodGet, "/projects", "List the projects that you have a role in", s.listProjects)
	route(s, "create-project", http.MethodPost, "/projects", "Create a project in a billing account of which you own a project", s.createProject)
	route(s, "get-project", http.MethodGet, one, "Read a project", s.getProject)
	route(s, "update-project", http.MethodPatch, one, "Change a project's name and tags", s.updateProject)
	route(s, "delete-project", http.MethodDelete, one, "Delete a project that is empty", s.deleteProject)
	route(s, "close-project", http.MethodPost, one+"/close", "End everything of a project and keep its data", s.closeProject)
	route(s, "get-project-billing-account", http.MethodGet, one+"/billing-account", "Read the billing account that pays for a project", s.getProjectAccount)
	s.registerExport()
	route(s, "list-project-audit", http.MethodGet, one+"/audit-log", "Who did what in a project, newest first", s.listAudit)
	route(s, "list-project-quotas", http.MethodGet, one+"/quotas", "How many nodes a project may have", s.listQuotas)
}

func (s *server) listProjects(ctx context.Context, in *op.Page) (*op.Listed[Project], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	who := op.PrincipalOf(ctx)
	rows := []tenancydb.Project{}
	switch {
	case who.Project != "" && after < who.Project:
		err = s.api.Store().ForProject(ctx, who.Project, func(tx *db.ProjectTx) error {
			p, err := tenancydb.ReadProject(ctx, tx, who.Project)
			rows = append(rows[:0], p)
			return err
		})
	case who.Identity.Subject != "":
		rows, err = tenancydb.ListProjectsOf(ctx, s.api.Store(), after, who.Identity.Subject, who.Identity.Groups, in.Limit+1)
	}
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r tenancydb.Project) string { return r.ID }, projectView), nil
}

func (s *server) createProject(ctx context.Context, in *struct {
	op.Key
	Body ProjectRequest
}) (*op.Created[Project], error) {
	who, err := requireIdentity(ctx)
	if err != nil {
		return nil, err
	}
	if err := op.CheckName(in.Body.Name); err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Project], error) {
		row, err := tenancy.CreateOwnProject(ctx, tx, tenancy.NewProject{AccountID: in.Body.BillingAccountID, Name: in.Body.Name, Tags: in.Body.Tags}, who, customer(ctx))
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+"/projects/"+row.ID, row.Version, projectView(row)), nil
	})
}

func (s *server) getProject(ctx context.Context, in *ProjectPath) (*op.Versioned[Project], error) {
	p, err := readIn(ctx, s, func(tx *db.ProjectTx) (tenancydb.Project, error) { return tenancydb.ReadProject(ctx, tx, in.ID) }, projectView)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(p.Version, p), nil
}

func (s *server) updateProject(ctx context.Context, in *struct {
	ProjectPath
	op.Match
	Body ProjectPatch
}) (*op.Versioned[Project], error) {
	if in.Body.Name != nil {
		if err := op.CheckName(*in.Body.Name); err != nil {
			return nil, err
		}
	}
	if why := tenancy.CheckTags(in.Body.Tags); why != "" {
		return nil, invalid("tags", why)
	}
	var row tenancydb.Project
	err := s.changeIn(ctx, func(tx *db.ProjectTx) error {
		p, err := tenancydb.ReadProject(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return p.Version, nil })
		if err != nil {
			return err
		}
		if in.Body.Name != nil {
			p.Name = *in.Body.Name
		}
		if in.Body.Tags != nil {
			p.Tags = in.Body.Tags
		}
		if row, err = tenancydb.UpdateProject(ctx, tx, v, p.Name, p.Tags); err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "update", map[string]any{"name": row.Name, "tags": row.Tags})
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, projectView(row)), nil
}

func (s *server) deleteProject(ctx context.Context, in *struct {
	ProjectPath
	op.Match
}) (*struct{}, error) {
	v, err := s.endVersion(ctx, in.Match)
	if err != nil {
		return nil, err
	}
	return nil, s.api.Store().Tx(ctx, func(tx *db.Tx) error { return tenancy.DeleteProject(ctx, tx, in.ID, v, op.ProjectActor(ctx)) })
}

func (s *server) closeProject(ctx context.Context, in *struct {
	ProjectPath
	op.Match
}) (*op.Versioned[Project], error) {
	v, err := s.endVersion(ctx, in.Match)
	if err != nil {
		return nil, err
	}
	return s.close(ctx, in.ID, v, op.ProjectActor(ctx))
}

// endVersion reads the version that a project's end is meant for, 0 for whichever is there.
func (s *server) endVersion(ctx context.Context, m op.Match) (int64, error) {
	if err := refuseProjectToken(ctx); err != nil {
		return 0, err
	}
	return m.Version(op.AnyVersion)
}

func (s *server) close(ctx context.Context, id string, version int64, a db.Actor) (*op.Versioned[Project], error) {
	var row tenancydb.Project
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) (err error) {
		row, err = tenancy.CloseProject(ctx, tx, id, version, endProject(a), a)
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, projectView(row)), nil
}

// endProject returns what ends everything that runs in a project.
func endProject(a db.Actor) tenancy.End {
	return func(ctx context.Context, tx *db.Tx, id string) (int, error) {
		allocations, err := allocation.EndProject(a)(ctx, tx, id)
		if err != nil {
			return allocations, err
		}
		instances, err := instance.EndProject(a)(ctx, tx, id)
		return allocations + instances, err
	}
}

// AuditEntry is one row of a project's audit log.
type AuditEntry struct {
	ID          string          `json:"id"`
	Kind        string          `json:"kind"`
	Name        string          `json:"name"`
	FromState   string          `json:"from_state"`
	ToState     string          `json:"to_state"`
	TriggeredBy string          `json:"triggered_by" doc:"customer, or admin for an operator"`
	ActorID     string          `json:"actor_id" doc:"Of an operator it is operator"`
	Comment     string          `json:"comment" doc:"The reason of an operator"`
	Metadata    json.RawMessage `json:"metadata"`
	At          time.Time       `json:"at"`
	pos         int64
}

func auditView(raw json.RawMessage) (AuditEntry, error) {
	var e AuditEntry
	at := struct {
		*AuditEntry
		Pos int64 `json:"pos"`
	}{AuditEntry: &e}
	if err := json.Unmarshal(raw, &at); err != nil {
		return e, fmt.Errorf("read an audit row: %w", err)
	}
	e.pos, e.At = at.Pos, e.At.UTC()
	if e.TriggeredBy == lifecycle.OwnerAdmin.TriggeredBy() {
		e.ActorID = "operator"
	}
	return e, nil
}

func readAudit(ctx context.Context, tx *db.ProjectTx, before int64, limit int) ([]AuditEntry, error) {
	rows, err := tenancydb.ListAudit(ctx, tx, before, limit)
	if err != nil {
		return nil, err
	}
	out := make([]AuditEntry, 0, len(rows))
	for _, raw := range rows {
		e, err := auditView(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (s *server) listAudit(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (out *op.Listed[AuditEntry], err error) {
	before, err := in.AfterNumber()
	if err != nil {
		return nil, err
	}
	err = op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		rows, err := readAudit(ctx, tx, before, in.Limit+1)
		if err != nil {
			return err
		}
		out = op.Paged(rows, in.Limit, func(e AuditEntry) string { return strconv.FormatInt(e.pos, 10) }, func(e AuditEntry) AuditEntry { return e })
		return nil
	})
	return out, err
}

// Quota is how many nodes a project may have.
type Quota struct {
	SKUID     string    `json:"sku_id,omitempty" doc:"Left out for all SKUs together"`
	SKU       string    `json:"sku,omitempty" doc:"The SKU's name"`
	MaxNodes  int       `json:"max_nodes"`
	UpdatedAt time.Time `json:"updated_at"`
}

func quotaView(r tenancydb.Quota) Quota {
	q := Quota{SKU: r.SKUName, MaxNodes: r.MaxNodes, UpdatedAt: r.UpdatedAt.UTC()}
	if r.SKUID != nil {
		q.SKUID = *r.SKUID
	}
	return q
}

func (s *server) listQuotas(ctx context.Context, _ *ProjectPath) (*op.Listed[Quota], error) {
	// A project has at most one quota for each SKU.
	return listIn(ctx, s, op.Page{Limit: maxQuotas}, func(ctx context.Context, tx *db.ProjectTx, _ string, _ int) ([]tenancydb.Quota, error) {
		return tenancydb.ListQuotas(ctx, tx, tx.Project())
	}, func(tenancydb.Quota) string { return "" }, quotaView)
}

const maxQuotas = 1000
