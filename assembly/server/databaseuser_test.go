package server

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

func TestDatabaseUser_PrivilegedIsRefused(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	require.NoError(t, checkDatabaseUser(t.Context(), dbtest.Open(t, dsn), false, log))
	require.Empty(t, logged.String())
	owner := dbtest.Open(t, dbtest.OwnerDSN(t, dsn))
	err := checkDatabaseUser(t.Context(), owner, false, log)
	require.ErrorIs(t, err, db.ErrPrivilegedUser)
	require.ErrorContains(t, err, "database.owner_url")
	require.NoError(t, checkDatabaseUser(t.Context(), owner, true, log))
	require.Contains(t, logged.String(), "is a superuser")
}
