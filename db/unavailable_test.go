package db_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

func TestWhatCountsAsADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"08006", "53300", "57P01", "57P02", "57P03", "58030", "25006"} {
		require.True(t, db.IsUnavailable(fmt.Errorf("read: %w", &pgconn.PgError{Code: code})), code)
	}
	for _, code := range []string{"23505", "42703", "40001", "57014", "22001"} {
		require.False(t, db.IsUnavailable(&pgconn.PgError{Code: code}), code)
	}
	require.True(t, db.IsUnavailable(fmt.Errorf("read: %w", io.ErrUnexpectedEOF)))
	require.True(t, db.IsUnavailable(fmt.Errorf("read: %w", net.ErrClosed)))
	require.False(t, db.IsUnavailable(nil))
	require.False(t, db.IsUnavailable(db.ErrNotFound))
	require.False(t, db.IsUnavailable(errors.New("something else")))
}

// TestBackendsThatEndAndServersThatAreGone looks at what the driver really says.
func TestBackendsThatEndAndServersThatAreGone(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	other, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer other.Close(t.Context()) //nolint:errcheck // of a test
	tx, err := c.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "SELECT pg_terminate_backend($1)", c.PgConn().PID())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT 1")
	require.True(t, db.IsUnavailable(err), "in the midst of a transaction: %v", err)
	_, err = c.Exec(t.Context(), "SELECT 1")
	require.True(t, db.IsUnavailable(err), "on a dead connection: %v", err)
	require.True(t, db.IsUnavailable(tx.Commit(t.Context())), "at the commit")

	_, err = pgx.Connect(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.True(t, db.IsUnavailable(err), "nobody listens: %v", err)
}
