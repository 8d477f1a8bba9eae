package db_test

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// A migration that another session keeps waiting lets others to the table, comes back, and says at
// last who it was. It goes through when the other is done.
func TestMigrate_WaitsShortlyForALock(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), dbtest.OwnerDSN(t, dbtest.FreshDatabase(t))
	files := fstest.MapFS{"90001_widen_sites.sql": {Data: []byte("-- +goose Up\nALTER TABLE sites ADD COLUMN widened integer;\n")}}
	const wait = 200 * time.Millisecond
	holder, reader := raw(t, dsn), raw(t, dsn)
	exec(t, holder, "SET application_name = 'monthly report'; BEGIN; SELECT FROM sites")
	err := db.MigrateWith(ctx, dsn, files, wait, 2)
	require.ErrorContains(t, err, "migration 90001_widen_sites.sql did not get its lock in 2 tries")
	require.ErrorContains(t, err, `application "monthly report", holds it`)

	errs := make(chan error, 1)
	go func() { errs <- db.MigrateWith(ctx, dsn, files, wait, 100) }()
	require.Eventually(t, func() bool {
		return texts(t, reader, "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = 'sites'::regclass")[0] != "0"
	}, runenv.Patience(time.Minute), wait/20)
	exec(t, reader, "SELECT FROM sites")
	exec(t, holder, "COMMIT")
	require.NoError(t, <-errs)
	exec(t, reader, "SELECT widened FROM sites")
}
