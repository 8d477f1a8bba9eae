package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// InstallWorkflow is how PXE nodes are installed.
type InstallWorkflow = gen.InstallWorkflow

// CreateInstallWorkflow adds one; a taken name gives *ConflictError with its
// id. The caller has validated the spec.
func (s statements) CreateInstallWorkflow(ctx context.Context, name string, spec spec.InstallWorkflowSpec) (InstallWorkflow, error) {
	row, err := s.q.InsertInstallWorkflow(ctx, gen.InsertInstallWorkflowParams{ID: NewID("wf"), Name: name, Spec: spec})
	if errors.Is(err, pgx.ErrNoRows) {
		other, err := s.InstallWorkflowByName(ctx, name)
		if err != nil {
			return InstallWorkflow{}, err
		}
		return InstallWorkflow{}, conflictWith("install_workflows_name_unique", other.ID)
	}
	return row, MapError("install workflow "+name, err)
}

// InstallWorkflow reads one, or ErrNotFound.
func (s statements) InstallWorkflow(ctx context.Context, id string) (InstallWorkflow, error) {
	row, err := s.q.InstallWorkflow(ctx, id)
	return row, MapError("install workflow "+id, err)
}

// InstallWorkflowByName reads one, or ErrNotFound.
func (s statements) InstallWorkflowByName(ctx context.Context, name string) (InstallWorkflow, error) {
	row, err := s.q.InstallWorkflowByName(ctx, name)
	return row, MapError("install workflow "+name, err)
}

// ListInstallWorkflows lists them by id, from the one after the id given.
func (s statements) ListInstallWorkflows(ctx context.Context, after string, limit int) ([]InstallWorkflow, error) {
	rows, err := s.q.ListInstallWorkflows(ctx, gen.ListInstallWorkflowsParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list install workflows", err)
}

// UpdateInstallWorkflow replaces name and spec of the version given, or
// ErrStale. Installations that run see the new one at their next fetch.
func (s statements) UpdateInstallWorkflow(ctx context.Context, id string, version int64, name string, spec spec.InstallWorkflowSpec) (InstallWorkflow, error) {
	row, err := s.q.UpdateInstallWorkflow(ctx, gen.UpdateInstallWorkflowParams{ID: id, Version: version, Name: name, Spec: spec})
	return CheckUpdate("install workflow "+id, row, err, s.installWorkflowExists(ctx, id))
}

// DeleteInstallWorkflow deletes the version given, or ErrStale; *ConflictError
// while a node is assigned to it.
func (s statements) DeleteInstallWorkflow(ctx context.Context, id string, version int64) error {
	n, err := s.q.DeleteInstallWorkflow(ctx, gen.DeleteInstallWorkflowParams{ID: id, Version: version})
	return CheckDelete("install workflow "+id, n, err, s.installWorkflowExists(ctx, id))
}

func (s statements) installWorkflowExists(ctx context.Context, id string) func() error {
	return func() error {
		_, err := s.InstallWorkflow(ctx, id)
		return err
	}
}

// DeviceGroup is the policy of nodes that carry its name as the label
// lifecycle.LabelDeviceGroup.
type DeviceGroup = gen.DeviceGroup

// DeviceGroup reads one, or ErrNotFound.
func (s statements) DeviceGroup(ctx context.Context, name string) (DeviceGroup, error) {
	row, err := s.q.DeviceGroup(ctx, name)
	return row, MapError("device group "+name, err)
}

// ListDeviceGroups lists them by name, from the one after the name given.
func (s statements) ListDeviceGroups(ctx context.Context, after string, limit int) ([]DeviceGroup, error) {
	rows, err := s.q.ListDeviceGroups(ctx, gen.ListDeviceGroupsParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list device groups", err)
}

// PutDeviceGroup makes a group or changes it; eraseWorkflowID may be empty.
// Repeatable.
func (s statements) PutDeviceGroup(ctx context.Context, name string, autoPromote bool, eraseWorkflowID string) (DeviceGroup, error) {
	row, err := s.q.PutDeviceGroup(ctx, gen.PutDeviceGroupParams{Name: name, AutoPromote: autoPromote, EraseWorkflowID: optional(eraseWorkflowID)})
	return row, MapError("device group "+name, err)
}

// DeleteDeviceGroup deletes one, or ErrNotFound.
func (s statements) DeleteDeviceGroup(ctx context.Context, name string) error {
	n, err := s.q.DeleteDeviceGroup(ctx, name)
	return CheckDelete("device group "+name, n, err, func() error { _, err := s.DeviceGroup(ctx, name); return err })
}
