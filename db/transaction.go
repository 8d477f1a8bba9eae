package db

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The statements that begin a transaction.
const (
	beginWrite = "begin"
	beginRead  = "begin isolation level repeatable read read only"
)

// transaction is a transaction that begins with its first statement, in the same round trip.
type transaction struct {
	conn   *pgxpool.Conn
	begin  string // "" after it was sent
	failed error  // why it did not begin; then no statement is run
}

// transact runs fn in a transaction and commits it when fn returns nil. fn must not use its
// argument after it has returned, nor run two statements at once.
func transact(ctx context.Context, pool *pgxpool.Pool, begin string, fn func(DBTX) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // it closes a connection that is still in a transaction, as after a panic
	t := &transaction{conn: conn, begin: begin}
	if err := fn(t); err != nil {
		if isOpen(conn) {
			_, _ = conn.Exec(ctx, "rollback")
		}
		return err
	}
	switch {
	case t.failed != nil:
		return pgx.ErrTxCommitRollback
	case t.begin != "":
		return nil // it ran no statement
	}
	tag, err := conn.Exec(ctx, "commit")
	if err == nil && tag.String() == "ROLLBACK" {
		return pgx.ErrTxCommitRollback
	}
	return err
}

// isOpen reports whether a connection is in a transaction, also in one that has failed.
func isOpen(conn *pgxpool.Conn) bool { return conn.Conn().PgConn().TxStatus() != 'I' }

// first sends the begin together with the first statement. It returns nil when the transaction has
// begun before, or when it had to send the begin alone, because the statement cannot be sent
// together with another one.
func (t *transaction) first(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	if t.begin == "" {
		return nil, t.failed
	}
	begin := t.begin
	t.begin = ""
	if !canFollow(args) {
		_, err := t.conn.Exec(ctx, begin)
		return nil, t.began(err)
	}
	var batch pgx.Batch
	batch.Queue(begin)
	batch.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, &batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return nil, t.began(err)
	}
	return results, nil
}

// began records the error of a begin after which there is no transaction, and returns the error.
// PostgreSQL prepares a whole batch before it runs any of it, so a first statement that cannot be
// prepared also prevents the begin. Without the record the next statement would then be committed
// by itself.
func (t *transaction) began(err error) error {
	if err != nil && !isOpen(t.conn) {
		t.failed = fmt.Errorf("the transaction has failed: %w", err)
	}
	return err
}

// canFollow reports whether a statement can be sent in a batch. A text without arguments may hold
// several statements, and options of a statement do not work in a batch.
func canFollow(args []any) bool {
	return len(args) > 0 && !slices.ContainsFunc(args, func(arg any) bool {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return true
		}
		return false
	})
}

// Exec implements DBTX.
func (t *transaction) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	first, err := t.first(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	if first == nil {
		return t.conn.Exec(ctx, sql, args...)
	}
	tag, err := first.Exec()
	if closed := first.Close(); err == nil {
		err = closed
	}
	return tag, err
}

// Query implements DBTX.
func (t *transaction) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	first, err := t.first(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	if first == nil {
		return t.conn.Query(ctx, sql, args...)
	}
	rows, err := first.Query()
	if err != nil {
		_ = first.Close()
		return nil, err
	}
	return &firstRows{Rows: rows, batch: first}, nil
}

// QueryRow implements DBTX.
func (t *transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	first, err := t.first(ctx, sql, args)
	if err != nil {
		return failedRow{err}
	}
	if first == nil {
		return t.conn.QueryRow(ctx, sql, args...)
	}
	return firstRow{first}
}

// SendBatch runs the statements of a queue.
func (t *transaction) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.begin != "" {
		var all pgx.Batch
		all.Queue(t.begin)
		all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
		t.begin = ""
		results := t.conn.SendBatch(ctx, &all)
		_, err := results.Exec() // each result and Close return its error too
		_ = t.began(err)
		return results
	}
	if t.failed != nil {
		return failedBatch{t.failed}
	}
	return t.conn.SendBatch(ctx, b)
}

// failedBatch holds the results of statements that were not run.
type failedBatch struct{ err error }

// Exec implements pgx.BatchResults.
func (f failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }

// Query implements pgx.BatchResults.
func (f failedBatch) Query() (pgx.Rows, error) { return nil, f.err }

// QueryRow implements pgx.BatchResults.
func (f failedBatch) QueryRow() pgx.Row { return failedRow(f) }

// Tx implements pgx.BatchResults.
func (f failedBatch) Tx() pgx.Tx { return nil }

// Close implements pgx.BatchResults.
func (f failedBatch) Close() error { return f.err }

// firstRows holds the rows of the first statement. The connection is free again after the last row.
type firstRows struct {
	pgx.Rows
	batch pgx.BatchResults
	err   error
}

// Next implements pgx.Rows.
func (r *firstRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close implements pgx.Rows.
func (r *firstRows) Close() {
	r.Rows.Close()
	if r.batch != nil {
		r.err = r.batch.Close()
		r.batch = nil
	}
}

// Err implements pgx.Rows.
func (r *firstRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// firstRow is the row of the first statement.
type firstRow struct{ batch pgx.BatchResults }

// Scan implements pgx.Row.
func (r firstRow) Scan(dest ...any) error {
	err := r.batch.QueryRow().Scan(dest...)
	if closed := r.batch.Close(); err == nil {
		err = closed
	}
	return err
}

// failedRow is the row of a statement that was not run.
type failedRow struct{ err error }

// Scan implements pgx.Row.
func (r failedRow) Scan(...any) error { return r.err }
