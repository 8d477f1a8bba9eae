package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// RoCEAssignment is the record of one host's RoCE ports. It is keyed
// by site and hostname and may be there before the node is.
type RoCEAssignment = gen.RoCEAssignment

// CreateRoCEAssignment adds a host's record; a host that has one gives
// *ConflictError with its id.
func (s statements) CreateRoCEAssignment(ctx context.Context, siteID, hostname string, ports []spec.RoCEPort) (RoCEAssignment, error) {
	row, err := s.q.InsertRoCEAssignment(ctx, gen.InsertRoCEAssignmentParams{ID: NewID("roce"), SiteID: siteID, Hostname: hostname, Spec: EmptyIfNil(ports)})
	if errors.Is(err, pgx.ErrNoRows) {
		other, err := s.RoCEAssignmentOfHost(ctx, siteID, hostname)
		if err != nil {
			return RoCEAssignment{}, err
		}
		return RoCEAssignment{}, conflictWith("roce_assignments_host_unique", other.ID)
	}
	return row, MapError("RoCE assignment of "+hostname, err)
}

// RoCEAssignment reads the RoCE ports of a host, or ErrNotFound.
func (s statements) RoCEAssignment(ctx context.Context, siteID, hostname string) ([]spec.RoCEPort, error) {
	row, err := s.RoCEAssignmentOfHost(ctx, siteID, hostname)
	return row.Spec, err
}

// RoCEAssignmentOfHost reads the record of a host, or ErrNotFound.
func (s statements) RoCEAssignmentOfHost(ctx context.Context, siteID, hostname string) (RoCEAssignment, error) {
	row, err := s.q.RoCEAssignmentOfHost(ctx, gen.RoCEAssignmentOfHostParams{SiteID: siteID, Hostname: hostname})
	return row, MapError("RoCE assignment of "+hostname, err)
}

// RoCEAssignmentByID reads one record, or ErrNotFound.
func (s statements) RoCEAssignmentByID(ctx context.Context, id string) (RoCEAssignment, error) {
	row, err := s.q.RoCEAssignmentByID(ctx, id)
	return row, MapError("RoCE assignment "+id, err)
}

// ListRoCEAssignments lists the records of a site by id, from the one after
// the id given.
func (s statements) ListRoCEAssignments(ctx context.Context, siteID, after string, limit int) ([]RoCEAssignment, error) {
	rows, err := s.q.ListRoCEAssignments(ctx, gen.ListRoCEAssignmentsParams{SiteID: siteID, After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list RoCE assignments", err)
}

// UpdateRoCEAssignment replaces the ports of the version given, or ErrStale.
func (s statements) UpdateRoCEAssignment(ctx context.Context, id string, version int64, ports []spec.RoCEPort) (RoCEAssignment, error) {
	row, err := s.q.UpdateRoCEAssignment(ctx, gen.UpdateRoCEAssignmentParams{ID: id, Version: version, Spec: EmptyIfNil(ports)})
	return CheckUpdate("RoCE assignment "+id, row, err, s.roceExists(ctx, id))
}

// DeleteRoCEAssignment deletes the version given, or ErrStale.
func (s statements) DeleteRoCEAssignment(ctx context.Context, id string, version int64) error {
	n, err := s.q.DeleteRoCEAssignment(ctx, gen.DeleteRoCEAssignmentParams{ID: id, Version: version})
	return CheckDelete("RoCE assignment "+id, n, err, s.roceExists(ctx, id))
}

func (s statements) roceExists(ctx context.Context, id string) func() error {
	return func() error {
		_, err := s.RoCEAssignmentByID(ctx, id)
		return err
	}
}
