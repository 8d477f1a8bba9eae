package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// freshPlans runs queries whose plan depends on their arguments: a filter that is not set drops out
// of it, and how frequent a text is decides the way to it. A prepared statement would keep one plan
// for all arguments after five runs.
type freshPlans struct{ DBTX }

// Query plans the statement with its arguments and runs it, in one round trip.
func (f freshPlans) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return f.DBTX.Query(ctx, sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
}
