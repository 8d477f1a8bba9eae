package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Profile is the policy of a site for one kind of node.
type Profile = gen.Profile

// CreateProfile adds a profile; a name taken at the site gives *ConflictError
// with its id. The caller has validated the spec.
func (s statements) CreateProfile(ctx context.Context, siteID, name string, spec spec.ProfileSpec) (Profile, error) {
	row, err := s.q.InsertProfile(ctx, gen.InsertProfileParams{ID: NewID("prof"), SiteID: siteID, Name: name, Spec: spec})
	if errors.Is(err, pgx.ErrNoRows) {
		other, err := s.ProfileByName(ctx, siteID, name)
		if err != nil {
			return Profile{}, err
		}
		return Profile{}, conflictWith("profiles_name_unique", other.ID)
	}
	return row, MapError("profile "+name, err)
}

// Profile reads one profile, or ErrNotFound.
func (s statements) Profile(ctx context.Context, id string) (Profile, error) {
	row, err := s.q.Profile(ctx, id)
	return row, MapError("profile "+id, err)
}

// ProfileByName reads one profile of a site, or ErrNotFound.
func (s statements) ProfileByName(ctx context.Context, siteID, name string) (Profile, error) {
	row, err := s.q.ProfileByName(ctx, gen.ProfileByNameParams{SiteID: siteID, Name: name})
	return row, MapError("profile "+name, err)
}

// ListProfiles lists the profiles of a site ("" is all) by id, from the one
// after the id given.
func (s statements) ListProfiles(ctx context.Context, siteID, after string, limit int) ([]Profile, error) {
	rows, err := s.q.ListProfiles(ctx, gen.ListProfilesParams{SiteID: siteID, After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list profiles", err)
}

// UpdateProfile replaces name and spec of the version given, or ErrStale.
func (s statements) UpdateProfile(ctx context.Context, id string, version int64, name string, spec spec.ProfileSpec) (Profile, error) {
	row, err := s.q.UpdateProfile(ctx, gen.UpdateProfileParams{ID: id, Version: version, Name: name, Spec: spec})
	return CheckUpdate("profile "+id, row, err, s.profileExists(ctx, id))
}

// DeleteProfile deletes the version given, or ErrStale; *ConflictError while
// something refers to the profile.
func (s statements) DeleteProfile(ctx context.Context, id string, version int64) error {
	n, err := s.q.DeleteProfile(ctx, gen.DeleteProfileParams{ID: id, Version: version})
	return CheckDelete("profile "+id, n, err, s.profileExists(ctx, id))
}

func (s statements) profileExists(ctx context.Context, id string) func() error {
	return func() error {
		_, err := s.Profile(ctx, id)
		return err
	}
}
