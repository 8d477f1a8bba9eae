package machinesdb

import (
	"context"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/machines/gen"
)

// CheckRight returns nil while a project may use a machine, and db.ErrNotFound otherwise. project
// "" is the platform, which may use all. Whatever acts on a machine for a project calls it when it
// acts: the right ends in the transaction that fences the release of the node, which may be after a
// request was accepted. The same function of the database decides which machines row-level security
// shows to a customer.
func CheckRight(ctx context.Context, c Conn, m Machine, project string) error {
	if project == "" {
		return nil
	}
	if m.ProjectID == nil || *m.ProjectID != project {
		return db.NotFound(what(m.ID))
	}
	may, err := queries(c).MayUseMachine(ctx, gen.MayUseMachineParams{ProjectID: project, NodeID: m.NodeID})
	if err != nil {
		return db.MapError(what(m.ID), err)
	}
	if !may {
		return db.NotFound(what(m.ID))
	}
	return nil
}

// KeepRight is CheckRight for a transaction that gives a project a machine, or a machine its node:
// a release of the node is fenced after it, and ends the right that it gives. It returns
// db.ErrNotFound, too, while somebody else changes the allocation that has the node.
func KeepRight(ctx context.Context, tx *db.Tx, m Machine, project string) error {
	if project == "" || m.NodeID == nil {
		return CheckRight(ctx, tx, m, project)
	}
	occupant, err := queries(tx).NodeOccupant(ctx, *m.NodeID)
	if err != nil {
		return db.MapError(what(m.ID), err)
	}
	if occupant != "" {
		kept, err := queries(tx).KeepAllocation(ctx, occupant)
		if err != nil {
			return db.MapError(what(m.ID), err)
		}
		if len(kept) == 0 {
			return db.NotFound(what(m.ID))
		}
	}
	return CheckRight(ctx, tx, m, project)
}

// UnlinkFromNode ends the link of another machine to a node, where no project has that machine and
// no run is active on it, and returns its id. "" is none.
func UnlinkFromNode(ctx context.Context, tx *db.Tx, nodeID, machineID string) (string, error) {
	ids, err := queries(tx).UnlinkFromNode(ctx, gen.UnlinkFromNodeParams{NodeID: nodeID, ID: machineID})
	if err != nil || len(ids) == 0 {
		return "", db.MapError("machine of node "+nodeID, err)
	}
	return ids[0], nil
}
