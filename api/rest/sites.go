package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Site is one MAAS region and the network around it.
type Site struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Spec      spec.SiteSpec `json:"spec"`
	Version   int64         `json:"version"`
	CreatedAt time.Time     `json:"created_at"`
	UpdatedAt time.Time     `json:"updated_at"`
}

func siteView(r db.Site) Site {
	return Site{r.ID, r.Name, r.Spec, r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC()}
}

// SiteRequest is a site as an operator writes it.
type SiteRequest struct {
	Name string        `json:"name" required:"true" maxLength:"100" doc:"Unique; 1 to 100 letters, digits, dots, dashes or underscores"`
	Spec spec.SiteSpec `json:"spec" required:"true"`
}

func (r SiteRequest) validate() error {
	if err := op.CheckName(r.Name); err != nil {
		return err
	}
	return op.PrefixFieldErrors("body.spec", r.Spec.Validate())
}

// SitePath is the path of one.
type SitePath struct {
	ID string `path:"id" maxLength:"200" doc:"site_..."`
}

func (s *server) registerSites() {
	tags := []string{"sites"}
	op.Add(s.api, huma.Operation{OperationID: "list-sites", Method: http.MethodGet, Path: "/admin/maas-sites", Tags: tags, Summary: "List sites"}, s.listSites)
	op.Add(s.api, huma.Operation{
		OperationID: "create-site", Method: http.MethodPost, Path: "/admin/maas-sites", Tags: tags, Summary: "Create a site", DefaultStatus: http.StatusCreated,
	}, s.createSite)
	op.Add(s.api, huma.Operation{OperationID: "get-site", Method: http.MethodGet, Path: "/admin/maas-sites/{id}", Tags: tags, Summary: "Read a site"}, s.getSite)
	op.Add(s.api, huma.Operation{OperationID: "update-site", Method: http.MethodPut, Path: "/admin/maas-sites/{id}", Tags: tags, Summary: "Replace a site's name and spec"}, s.updateSite)
	op.Add(s.api, huma.Operation{
		OperationID: "delete-site", Method: http.MethodDelete, Path: "/admin/maas-sites/{id}", Tags: tags, Summary: "Delete a site that nothing refers to",
		DefaultStatus: http.StatusNoContent,
	}, s.deleteSite)
	op.Add(s.api, huma.Operation{
		OperationID: "probe-site", Method: http.MethodPost, Path: "/admin/maas-sites/{id}/probe", Tags: tags,
		Summary: "Prove that the site's MAAS can be used", Description: "Asks MAAS for its version, the rights of the API key, SSH keys, settings and images. Changes nothing.",
	}, s.probeSite)
}

func (s *server) listSites(ctx context.Context, in *struct {
	op.Page
	Name string `query:"name" maxLength:"200" doc:"Only the site of this name"`
}) (*op.Listed[Site], error) {
	if in.Name != "" {
		return op.OneNamed(siteView)(s.store.SiteByName(ctx, in.Name))
	}
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListSites(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.Site) string { return r.ID }, siteView), nil
}

func (s *server) createSite(ctx context.Context, in *struct {
	op.Key
	Body SiteRequest
}) (*op.Created[Site], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Site], error) {
		row, err := tx.CreateSite(ctx, in.Body.Name, in.Body.Spec)
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+"/admin/maas-sites/"+row.ID, row.Version, siteView(row)), auditSpec(ctx, tx, "site", row.ID, "create", nil, &stated{row.Name, row.Spec})
	})
}

func (s *server) getSite(ctx context.Context, in *SitePath) (*op.Versioned[Site], error) {
	row, err := s.store.Site(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, siteView(row)), nil
}

func (s *server) updateSite(ctx context.Context, in *struct {
	SitePath
	op.Match
	Body SiteRequest
}) (*op.Versioned[Site], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	var row db.Site
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		now, err := tx.Site(ctx, in.ID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if row, err = tx.UpdateSite(ctx, in.ID, v, in.Body.Name, in.Body.Spec); err != nil {
			return err
		}
		return auditSpec(ctx, tx, "site", in.ID, "update", &stated{now.Name, now.Spec}, &stated{row.Name, row.Spec})
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, siteView(row)), nil
}

func (s *server) deleteSite(ctx context.Context, in *struct {
	SitePath
	op.Match
}) (*struct{}, error) {
	return nil, s.store.Tx(ctx, func(tx *db.Tx) error {
		now, err := tx.Site(ctx, in.ID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if err := tx.DeleteSite(ctx, in.ID, v); err != nil {
			return err
		}
		return auditSpec(ctx, tx, "site", in.ID, "delete", &stated{now.Name, now.Spec}, nil)
	})
}

// Probed is what a site's MAAS said of itself.
type Probed struct {
	SiteID string `json:"site_id"`
	Result any    `json:"result" doc:"Version, user, rights, SSH keys, settings and images of MAAS"`
}

func (s *server) probeSite(ctx context.Context, in *SitePath) (*struct{ Body Probed }, error) {
	row, err := s.store.Site(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if s.cfg.MAASProbe == nil {
		return nil, problem.New(problem.Unavailable, "this server was started without a way to reach MAAS; probe from one that has it")
	}
	got, err := s.cfg.MAASProbe(ctx, row.ID, row.Spec)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Probed }{Probed{in.ID, got}}, nil
}
