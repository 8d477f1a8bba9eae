package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

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

// ProfileRequest is a profile as a person writes it; what is left out gets its
// default.
type ProfileRequest struct {
	Name string           `json:"name" required:"true" doc:"Unique at its site"`
	Spec spec.ProfileSpec `json:"spec"`
}

func (r ProfileRequest) validate() error {
	if err := checkName(r.Name); err != nil {
		return err
	}
	return under("body.spec", r.Spec.WithDefaults().Validate(slices.Concat(lifecycle.OnboardingStages(), lifecycle.DecommissionStages())))
}

// ProfilePath is the path of one.
type ProfilePath struct {
	SitePath
	ProfileID string `path:"profile_id" doc:"prof_..."`
}

func isNotFound(err error) bool { return errors.Is(err, db.ErrNotFound) }

func (s *Server) registerProfiles() {
	const base = "/admin/maas-sites/{id}/profiles"
	tags := []string{"profiles"}
	add(s, huma.Operation{OperationID: "list-profiles", Method: http.MethodGet, Path: base, Tags: tags, Summary: "List a site's profiles"}, s.listProfiles)
	add(s, huma.Operation{
		OperationID: "create-profile", Method: http.MethodPost, Path: base, Tags: tags, Summary: "Create a profile", DefaultStatus: http.StatusCreated,
	}, s.createProfile)
	add(s, huma.Operation{OperationID: "get-profile", Method: http.MethodGet, Path: base + "/{profile_id}", Tags: tags, Summary: "Read a profile"}, s.getProfile)
	add(s, huma.Operation{OperationID: "update-profile", Method: http.MethodPut, Path: base + "/{profile_id}", Tags: tags, Summary: "Replace a profile's name and spec"}, s.updateProfile)
	add(s, huma.Operation{
		OperationID: "delete-profile", Method: http.MethodDelete, Path: base + "/{profile_id}", Tags: tags, Summary: "Delete a profile that nothing refers to",
		DefaultStatus: http.StatusNoContent,
	}, s.deleteProfile)
}

func (s *Server) listProfiles(ctx context.Context, in *struct {
	SitePath
	Page
	Name string `query:"name" doc:"Only the profile of this name"`
}) (*Listed[Profile], error) {
	if _, err := s.cfg.Store.Site(ctx, in.ID); err != nil {
		return nil, err
	}
	if in.Name != "" {
		return oneNamed(profileView)(s.cfg.Store.ProfileByName(ctx, in.ID, in.Name))
	}
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	rows, err := s.cfg.Store.ListProfiles(ctx, in.ID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return paged(rows, in.Limit, func(r db.Profile) string { return r.ID }, profileView), nil
}

func (s *Server) createProfile(ctx context.Context, in *struct {
	SitePath
	Key
	Body ProfileRequest
}) (*Created[Profile], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	return idempotent(ctx, s, in.Key, in.Body, nil, func(tx *db.Tx) (*Created[Profile], error) {
		if _, err := tx.Site(ctx, in.ID); err != nil {
			return nil, err
		}
		row, err := tx.CreateProfile(ctx, in.ID, in.Body.Name, in.Body.Spec.WithDefaults())
		if err != nil {
			return nil, err
		}
		at := prefix + "/admin/maas-sites/" + in.ID + "/profiles/" + row.ID
		return created(at, row.Version, profileView(row)), s.audit(ctx, tx, "profile", row.ID, nil, "create", nil)
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

func (s *Server) getProfile(ctx context.Context, in *ProfilePath) (*Versioned[Profile], error) {
	row, err := profileOf(ctx, s.cfg.Store, in.ID, in.ProfileID)
	if err != nil {
		return nil, err
	}
	return versioned(row.Version, profileView(row)), nil
}

func (s *Server) updateProfile(ctx context.Context, in *struct {
	ProfilePath
	Match
	Body ProfileRequest
}) (*Versioned[Profile], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	var row db.Profile
	err := s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		now, err := profileOf(ctx, tx, in.ID, in.ProfileID)
		if err != nil {
			return err
		}
		v, err := in.version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if row, err = tx.UpdateProfile(ctx, in.ProfileID, v, in.Body.Name, in.Body.Spec.WithDefaults()); err != nil {
			return err
		}
		return s.audit(ctx, tx, "profile", in.ProfileID, nil, "update", nil)
	})
	if err != nil {
		return nil, err
	}
	return versioned(row.Version, profileView(row)), nil
}

func (s *Server) deleteProfile(ctx context.Context, in *struct {
	ProfilePath
	Match
}) (*struct{}, error) {
	return nil, s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		now, err := profileOf(ctx, tx, in.ID, in.ProfileID)
		if err != nil {
			return err
		}
		v, err := in.version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if err := tx.DeleteProfile(ctx, in.ProfileID, v); err != nil {
			return err
		}
		return s.audit(ctx, tx, "profile", in.ProfileID, nil, "delete", nil)
	})
}
