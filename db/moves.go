package db

import (
	"context"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// nodeMove is a change of a node's state, or its creation, as it is logged.
type nodeMove struct {
	node Node // as it is after it
	from lifecycle.NodeStatus
	name string
	by   Actor
}

// logMoves logs what a transaction that is committed did to nodes. The audit has the same, with
// comment and metadata.
func (s *Store) logMoves(ctx context.Context, moves []nodeMove) {
	for _, m := range moves {
		s.log.InfoContext(ctx, "node changed its state", "node", m.node.ID, "hostname", m.node.Hostname, "from", m.from, "to", m.node.Status,
			"transition", m.name, "owner", m.by.Owner, "actor", m.by.ID, "workflow", m.by.WorkflowID)
	}
}
