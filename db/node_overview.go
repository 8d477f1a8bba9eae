package db

import (
	"context"

	"github.com/slipway-cloud/slipway/db/gen"
)

// NodeOverview is a node with the ids of its live job and BMC, "" for none, and,
// if Heard, the last heartbeat of its agent.
type NodeOverview = gen.NodeOverviewsRow

// NodeOverview reads a node and what belongs to it in one statement, or
// ErrNotFound.
func (s statements) NodeOverview(ctx context.Context, id string) (NodeOverview, error) {
	found, err := s.nodeOverviews(ctx, []string{id})
	row, ok := found[id]
	if err == nil && !ok {
		err = ErrNotFound
	}
	return row, MapError("node "+id, err)
}

// NodeOverview is that of a transaction. Reads that arrive at the same time share a statement.
func (s *Store) NodeOverview(ctx context.Context, id string) (NodeOverview, error) {
	row, err := s.overviews.get(ctx, id)
	return row, MapError("node "+id, err)
}

func (s statements) nodeOverviews(ctx context.Context, ids []string) (map[string]NodeOverview, error) {
	rows, err := s.q.NodeOverviews(ctx, ids)
	found := make(map[string]NodeOverview, len(rows))
	for _, r := range rows {
		found[r.Node.ID] = r
	}
	return found, err
}
