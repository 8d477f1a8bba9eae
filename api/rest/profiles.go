package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Profile is the policy of a site for one kind of node, defaults filled in.
type Profile struct {
	ID        string           `json:"id"`
	SiteID    string           `json:"site_id"`
	Name      string           `json:"name"`
	Spec      spec.ProfileSpec `json:"spec"`
	Version   int64            `json:"version"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
}

func profileView(r db.Profile) Profile {
	return Profile{r.ID, r.SiteID, r.Name, r.Spec.WithDefaults(), r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC()}
}

// ProfileRequest is a profile as an operator writes it; what is left out gets its
// default.
type ProfileRequest struct {
	Name string           `json:"name" required:"true" maxLength:"100" doc:"Unique at its site"`
	Spec spec.ProfileSpec `json:"spec"`
}

func (r ProfileRequest) validate() error {
	if err := op.CheckName(r.Name); err != nil {
		return err
	}
	return op.PrefixFieldErrors("body.spec", r.Spec.WithDefaults().Validate(slices.Concat(lifecycle.OnboardingStages(), lifecycle.DecommissionStages())))
}

// ProfilePath is the path of one.
type ProfilePath struct {
	SitePath
	ProfileID string `path:"profile_id" maxLength:"200" doc:"prof_..."`
}

func (s *server) registerProfiles() {
	const base = "/admin/maas-sites/{id}/profiles"
	tags := []string{"profiles"}
	op.Add(s.api, huma.Operation{OperationID: "list-profiles", Method: http.MethodGet, Path: base, Tags: tags, Summary: "List a site's profiles"}, s.listProfiles)
	op.Add(s.api, huma.Operation{
		OperationID: "create-profile", Method: http.MethodPost, Path: base, Tags: tags, Summary: "Create a profile", DefaultStatus: http.StatusCreated,
	}, s.createProfile)
	op.Add(s.api, huma.Operation{OperationID: "get-profile", Method: http.MethodGet, Path: base + "/{profile_id}", Tags: tags, Summary: "Read a profile"}, s.getProfile)
	op.Add(s.api, huma.Operation{OperationID: "update-profile", Method: http.MethodPut, Path: base + "/{profile_id}", Tags: tags, Summary: "Replace a profile's name and spec"}, s.updateProfile)
	op.Add(s.api, huma.Operation{
		OperationID: "delete-profile", Method: http.MethodDelete, Path: base + "/{profile_id}", Tags: tags, Summary: "Delete a profile that nothing refers to",
		DefaultStatus: http.StatusNoContent,
	}, s.deleteProfile)
}

func (s *server) listProfiles(ctx context.Context, in *struct {
	SitePath
	op.Page
	Name string `query:"name" maxLength:"200" doc:"Only the profile of this name"`
}) (*op.Listed[Profile], error) {
	if _, err := s.store.Site(ctx, in.ID); err != nil {
		return nil, err
	}
	if in.Name != "" {
		return op.OneNamed(profileView)(s.store.ProfileByName(ctx, in.ID, in.Name))
	}
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListProfiles(ctx, in.ID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.Profile) string { return r.ID }, profileView), nil
}

func (s *server) createProfile(ctx context.Context, in *struct {
	SitePath
	op.Key
	Body ProfileRequest
}) (*op.Created[Profile], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Profile], error) {
		if _, err := tx.Site(ctx, in.ID); err != nil {
			return nil, err
		}
		row, err := tx.CreateProfile(ctx, in.ID, in.Body.Name, in.Body.Spec.WithDefaults())
		if err != nil {
			return nil, err
		}
		at := op.Prefix + "/admin/maas-sites/" + in.ID + "/profiles/" + row.ID
		return op.NewCreated(at, row.Version, profileView(row)), auditSpec(ctx, tx, "profile", row.ID, "create", nil, &stated{row.Name, row.Spec})
	})
}

// profileOf reads a profile of this site; another site's is not found.
func profileOf(ctx context.Context, read interface {
	Profile(ctx context.Context, id string) (db.Profile, error)
}, siteID, id string) (db.Profile, error) {
	row, err := read.Profile(ctx, id)
	if err == nil && row.SiteID != siteID {
		return db.Profile{}, fmt.Errorf("profile %s at site %s: %w", id, siteID, db.ErrNotFound)
	}
	return row, err
}

func (s *server) getProfile(ctx context.Context, in *ProfilePath) (*op.Versioned[Profile], error) {
	row, err := profileOf(ctx, s.store, in.ID, in.ProfileID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, profileView(row)), nil
}

func (s *server) updateProfile(ctx context.Context, in *struct {
	ProfilePath
	op.Match
	Body ProfileRequest
}) (*op.Versioned[Profile], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	var row db.Profile
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		now, err := profileOf(ctx, tx, in.ID, in.ProfileID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if row, err = tx.UpdateProfile(ctx, in.ProfileID, v, in.Body.Name, in.Body.Spec.WithDefaults()); err != nil {
			return err
		}
		return auditSpec(ctx, tx, "profile", in.ProfileID, "update", &stated{now.Name, now.Spec}, &stated{row.Name, row.Spec})
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, profileView(row)), nil
}

func (s *server) deleteProfile(ctx context.Context, in *struct {
	ProfilePath
	op.Match
}) (*struct{}, error) {
	return nil, s.store.Tx(ctx, func(tx *db.Tx) error {
		now, err := profileOf(ctx, tx, in.ID, in.ProfileID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if err := tx.DeleteProfile(ctx, in.ProfileID, v); err != nil {
			return err
		}
		return auditSpec(ctx, tx, "profile", in.ProfileID, "delete", &stated{now.Name, now.Spec}, nil)
	})
}
