package dbtest

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db"
)

// Planner runs queries and keeps the plan of the last one. A time would tell of the machine; the
// plan does not.
type Planner struct {
	db.DBTX
	Plan string
}

// Query explains the query and runs it.
func (p *Planner) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := p.DBTX.Query(ctx, "EXPLAIN (COSTS OFF) "+sql, args...)
	if err != nil {
		return nil, err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	p.Plan = strings.Join(lines, "\n")
	return p.DBTX.Query(ctx, sql, args...)
}
