package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Site is one MAAS region and its policy.
type Site = gen.Site

// CreateSite adds a site; a taken name gives *ConflictError with its id. The
// caller has validated the spec.
func (s statements) CreateSite(ctx context.Context, name string, spec spec.SiteSpec) (Site, error) {
	row, err := s.q.InsertSite(ctx, gen.InsertSiteParams{ID: NewID("site"), Name: name, Spec: spec})
	if errors.Is(err, pgx.ErrNoRows) {
		other, err := s.SiteByName(ctx, name)
		if err != nil {
			return Site{}, err
		}
		return Site{}, conflictWith("sites_name_unique", other.ID)
	}
	return row, MapError("site "+name, err)
}

// Site reads one site, or ErrNotFound.
func (s statements) Site(ctx context.Context, id string) (Site, error) {
	row, err := s.q.Site(ctx, id)
	return row, MapError("site "+id, err)
}

// SiteByName reads one site, or ErrNotFound.
func (s statements) SiteByName(ctx context.Context, name string) (Site, error) {
	row, err := s.q.SiteByName(ctx, name)
	return row, MapError("site "+name, err)
}

// ListSites lists sites by id, from the one after the id given.
func (s statements) ListSites(ctx context.Context, after string, limit int) ([]Site, error) {
	rows, err := s.q.ListSites(ctx, gen.ListSitesParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list sites", err)
}

// UpdateSite replaces name and spec of the version given, or ErrStale.
func (s statements) UpdateSite(ctx context.Context, id string, version int64, name string, spec spec.SiteSpec) (Site, error) {
	row, err := s.q.UpdateSite(ctx, gen.UpdateSiteParams{ID: id, Version: version, Name: name, Spec: spec})
	return CheckUpdate("site "+id, row, err, s.siteExists(ctx, id))
}

// DeleteSite deletes the version given, or ErrStale; *ConflictError while
// something refers to the site.
func (s statements) DeleteSite(ctx context.Context, id string, version int64) error {
	n, err := s.q.DeleteSite(ctx, gen.DeleteSiteParams{ID: id, Version: version})
	return CheckDelete("site "+id, n, err, s.siteExists(ctx, id))
}

func (s statements) siteExists(ctx context.Context, id string) func() error {
	return func() error {
		_, err := s.Site(ctx, id)
		return err
	}
}
