package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// queue keeps statements that answer nothing, and sends them in one round trip, in their order. It
// stands where a DBTX does.
type queue struct{ batch pgx.Batch }

var errQueued = errors.New("a statement that answers something cannot be queued")

// statements puts what it is asked for into the queue.
func (q *queue) statements() statements { return statementsOn(q, 0) }

// Exec implements DBTX. The tag is empty: nothing has been done yet.
func (q *queue) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	q.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// Query implements DBTX. It always fails.
func (q *queue) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errQueued }

// QueryRow implements DBTX. The row is an error.
func (q *queue) QueryRow(context.Context, string, ...any) pgx.Row { return failedRow{errQueued} }

// send runs the statements. It returns the first error; none after it has run.
func (q *queue) send(ctx context.Context, on DBTX) error {
	b, ok := on.(interface {
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	})
	if !ok {
		return errQueued
	}
	if q.batch.Len() == 0 {
		return nil
	}
	return b.SendBatch(ctx, &q.batch).Close()
}
