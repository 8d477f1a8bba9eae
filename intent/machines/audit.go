package machines

import (
	"context"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AuditProject writes what a customer does with machines, or an operator for the project, into the
// audit log of the project. It writes nothing for project "", which is the platform.
func AuditProject(ctx context.Context, tx *db.Tx, name, project string, meta map[string]any, actor db.Actor) error {
	if project == "" {
		return nil
	}
	actor.Metadata = meta
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: lifecycle.Project.Resource, ResourceID: project, Kind: db.EntryAction, Name: name, Actor: actor})
}

// AuditCancel writes into the audit log of the project of a job's run that somebody cancelled it.
func AuditCancel(ctx context.Context, tx *db.Tx, jobID string, actor db.Actor) error {
	run, err := machinesdb.FindRunOfJob(ctx, tx, jobID)
	if err != nil {
		return err
	}
	return AuditProject(ctx, tx, "cancel_run", text(run.ProjectID), map[string]any{"run": run.ID, "machine": run.MachineID}, actor)
}
