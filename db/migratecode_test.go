package db_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

const viewText = "SELECT pg_get_viewdef('state_transitions'::regclass)"

// forge gives a view another text, and says which version's functions and views were applied last.
func forge(t *testing.T, conn *pgx.Conn, applied string) (former string) {
	t.Helper()
	former = texts(t, conn, viewText)[0]
	exec(t, conn, `CREATE OR REPLACE VIEW state_transitions AS
		SELECT pos, id, resource_kind, resource_id, seq, node_id, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata, workflow_id,
			version, at, prev_hash, hash FROM audit_log WHERE false`)
	exec(t, conn, fmt.Sprintf("COMMENT ON TABLE goose_db_version IS '%s'", applied))
	require.NotEqual(t, former, texts(t, conn, viewText)[0])
	return former
}

func TestMigrate_ReplacesFunctionsAndViews(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		applied  string
		replaced bool
	}{
		"of an earlier version":            {"functions and views of version 1, 0123456789abcdef", true},
		"of this version, with other text": {"functions and views of version 23, 0123456789abcdef", true},
		"of which nothing is known":        {"", true},
		"of a later version":               {"functions and views of version 90001, 0123456789abcdef", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.OwnerDSN(t, dbtest.FreshDatabase(t))
			conn := raw(t, dsn)
			former := forge(t, conn, c.applied)
			forged := texts(t, conn, viewText)[0]
			require.NoError(t, db.Migrate(t.Context(), dsn))
			want := map[bool]string{true: former, false: forged}[c.replaced]
			require.Equal(t, want, texts(t, conn, viewText)[0])
		})
	}
}

// A migrated database is not touched again: a view that a query reads is not locked for nothing.
func TestMigrate_CanBeRepeated(t *testing.T) {
	t.Parallel()
	dsn := dbtest.OwnerDSN(t, dbtest.FreshDatabase(t))
	conn := raw(t, dsn)
	const rows = "SELECT string_agg(r.xmin::text, ',' ORDER BY r.oid) FROM pg_rewrite r WHERE r.ev_class IN ('attention'::regclass, 'state_transitions'::regclass)"
	before := texts(t, conn, rows)
	require.NoError(t, db.Migrate(t.Context(), dsn))
	require.Equal(t, before, texts(t, conn, rows))
}

// Processes that start at the same time may all migrate an empty database.
func TestMigrate_ByManyAtOnce(t *testing.T) {
	t.Parallel()
	dsn := dbtest.UnmigratedDatabase(t)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = db.Migrate(t.Context(), dsn) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, []string{"0"}, texts(t, raw(t, dsn), "SELECT count(*)::text FROM attention"))
}
