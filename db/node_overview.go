package db

import (
	"context"

	"github.com/slipway-cloud/slipway/db/gen"
)

// NodeOverview is a node with the ids of its live job and BMC, "" for none, and,
// if Heard, the last heartbeat of its agent.
type NodeOverview = gen.NodeOverviewRow

// NodeOverview reads a node and what belongs to it in one statement, or
// ErrNotFound.
func (s statements) NodeOverview(ctx context.Context, id string) (NodeOverview, error) {
	row, err := s.q.NodeOverview(ctx, id)
	return row, MapError("node "+id, err)
}
