package machines

import (
	"context"

	"github.com/slipway-cloud/slipway/db"
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
