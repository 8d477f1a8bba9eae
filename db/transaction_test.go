package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestTx_BeginsWithItsFirstStatement runs each form of a first statement: what follows is in the
// same transaction, and all of it is undone together.
func TestTx_BeginsWithItsFirstStatement(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s := dbtest.Open(t, dsn+"&pool_max_conns=1")
	one := func(ctx context.Context, c db.DBTX, sql string, args ...any) (id string, err error) {
		err = c.QueryRow(ctx, sql, args...).Scan(&id)
		return id, err
	}
	const xact = "SELECT coalesce(pg_current_xact_id()::text, $1)"
	errUndo := errors.New("undo")
	for name, first := range map[string]func(ctx context.Context, c db.DBTX) (string, error){
		"row": func(ctx context.Context, c db.DBTX) (string, error) { return one(ctx, c, xact, "") },
		"row without any": func(ctx context.Context, c db.DBTX) (string, error) {
			return one(ctx, c, "SELECT pg_current_xact_id()::text")
		},
		"row with a mode": func(ctx context.Context, c db.DBTX) (string, error) {
			return one(ctx, c, xact, pgx.QueryExecModeCacheDescribe, "")
		},
		"rows": func(ctx context.Context, c db.DBTX) (string, error) {
			rows, err := c.Query(ctx, xact+" FROM generate_series(1, 3)", "")
			if err != nil {
				return "", err
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.Len(t, ids, 3)
			return ids[0], err
		},
		"some of its rows": func(ctx context.Context, c db.DBTX) (id string, err error) {
			rows, err := c.Query(ctx, xact+" FROM generate_series(1, 3)", "")
			if err != nil {
				return "", err
			}
			require.True(t, rows.Next())
			err = rows.Scan(&id)
			rows.Close()
			return id, errors.Join(err, rows.Err())
		},
		"no rows": func(ctx context.Context, c db.DBTX) (string, error) {
			tag, err := c.Exec(ctx, "UPDATE skus SET name = name WHERE id = $1", "sku_none")
			require.Zero(t, tag.RowsAffected())
			require.Equal(t, "UPDATE 0", tag.String())
			if err != nil {
				return "", err
			}
			return one(ctx, c, xact, "")
		},
	} {
		var before, sku string
		err := s.Tx(t.Context(), func(tx *db.Tx) error {
			id, err := first(t.Context(), tx.DBTX())
			require.NoError(t, err, name)
			again, err := one(t.Context(), tx.DBTX(), xact, "")
			require.NoError(t, err, name)
			require.Equal(t, id, again, name)
			row, err := tx.CreateSKU(t.Context(), name, spec.SKUSpec{})
			require.NoError(t, err, name)
			before, sku = id, row.ID
			return errUndo
		})
		require.ErrorIs(t, err, errUndo, name)
		require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
			id, err := first(t.Context(), tx.DBTX())
			require.NotEqual(t, before, id, "%s: another transaction", name)
			return err
		}), name)
		_, err = s.SKU(t.Context(), sku)
		require.ErrorIs(t, err, db.ErrNotFound, name)
	}
}

// TestTx_FirstStatementFails: the error is that of the statement, nothing is committed, and the
// only connection can be used again.
func TestTx_FirstStatementFails(t *testing.T) {
	t.Parallel()
	s := dbtest.Open(t, dbtest.Database(t)+"&pool_max_conns=1")
	for name, first := range map[string]func(ctx context.Context, c db.DBTX) error{
		"exec": func(ctx context.Context, c db.DBTX) error { _, err := c.Exec(ctx, "SELECT 1 / $1::int", 0); return err },
		"row": func(ctx context.Context, c db.DBTX) error {
			return c.QueryRow(ctx, "SELECT 1 / $1::int", 0).Scan(new(int))
		},
		"plain": func(ctx context.Context, c db.DBTX) error { return c.QueryRow(ctx, "SELECT 1 / 0").Scan(new(int)) },
		"rows": func(ctx context.Context, c db.DBTX) error {
			rows, err := c.Query(ctx, "SELECT 1 / $1::int", 0)
			if err == nil {
				rows.Close()
				err = rows.Err()
			}
			return err
		},
	} {
		err := s.Tx(t.Context(), func(tx *db.Tx) error { return first(t.Context(), tx.DBTX()) })
		require.ErrorContains(t, err, "division by zero", name)
		err = s.Tx(t.Context(), func(tx *db.Tx) error { _ = first(t.Context(), tx.DBTX()); return nil })
		require.ErrorIs(t, err, pgx.ErrTxCommitRollback, "%s: what has failed is not committed", name)
	}
	require.NoError(t, s.Tx(t.Context(), func(*db.Tx) error { return nil }), "no statement at all")
	require.Panics(t, func() {
		_ = s.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.CreateSKU(t.Context(), "x", spec.SKUSpec{})
			require.NoError(t, err)
			panic("x")
		})
	})
	var state string
	require.NoError(t, s.DBTX().QueryRow(t.Context(), "SELECT count(*)::text FROM skus").Scan(&state))
	require.Equal(t, "0", state, "a panic undoes the transaction")
	err := s.ReadTx(t.Context(), func(tx *db.Tx) error {
		return tx.DBTX().QueryRow(t.Context(), "SELECT current_setting('transaction_isolation') || current_setting($1)", "transaction_read_only").Scan(&state)
	})
	require.NoError(t, err)
	require.Equal(t, "repeatable readon", state)
}

// TestTx_FirstStatementCannotBePrepared: the begin that goes with it was never run, so nothing that
// follows may be run either: it would be committed by itself.
func TestTx_FirstStatementCannotBePrepared(t *testing.T) {
	t.Parallel()
	s := dbtest.Open(t, dbtest.Database(t)+"&pool_max_conns=1")
	const sql = "SELECT 1 FROM table_that_is_not_there WHERE id = $1"
	batch := func(ctx context.Context, c db.DBTX, sql string, args ...any) error {
		var b pgx.Batch
		b.Queue(sql, args...)
		return c.(interface {
			SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
		}).SendBatch(ctx, &b).Close()
	}
	for name, first := range map[string]func(ctx context.Context, c db.DBTX) error{
		"exec":  func(ctx context.Context, c db.DBTX) error { _, err := c.Exec(ctx, sql, 1); return err },
		"row":   func(ctx context.Context, c db.DBTX) error { return c.QueryRow(ctx, sql, 1).Scan(new(int)) },
		"rows":  func(ctx context.Context, c db.DBTX) error { _, err := c.Query(ctx, sql, 1); return err }, //nolint:rowserrcheck,sqlclosecheck // there are none
		"batch": func(ctx context.Context, c db.DBTX) error { return batch(ctx, c, sql, 1) },
	} {
		err := s.Tx(t.Context(), func(tx *db.Tx) error {
			require.ErrorContains(t, first(t.Context(), tx.DBTX()), "table_that_is_not_there", name)
			_, err := tx.CreateSKU(t.Context(), name, spec.SKUSpec{})
			require.ErrorContains(t, err, "the transaction has failed", name)
			require.Error(t, batch(t.Context(), tx.DBTX(), "SELECT $1::int", 1), name)
			return nil
		})
		require.ErrorIs(t, err, pgx.ErrTxCommitRollback, name)
	}
	var skus int
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM skus").Scan(&skus)
	}), "the only connection can be used again")
	require.Zero(t, skus)
}
