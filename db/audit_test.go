package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Equal calls at the same moment write one row. The end of the chain is locked until all of them
// wait, so that each has found no row before any of them can write.
func TestAppendAuditDaily_OneRowOfEqualCalls(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	entry := func(outcome string) db.Entry {
		return db.Entry{ResourceKind: "job", ResourceID: "job_1", Kind: db.EntryCall, Name: "login", To: outcome,
			Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: "job_1", Metadata: map[string]any{"credential_ref": "maas/key"}}}
	}
	require.NoError(t, store.AppendAuditDaily(t.Context(), entry("started")))

	const callers = 3
	owner := dbtest.Owner(t, dsn)
	tx, err := owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM audit_heads WHERE resource_id = 'job_1' FOR UPDATE")
	require.NoError(t, err)
	var calls errgroup.Group
	for range callers {
		calls.Go(func() error { return store.AppendAuditDaily(t.Context(), entry("accepted")) })
	}
	watcher := dbtest.Owner(t, dsn) // outside the transaction, which sees the activity of its first look
	deadline := time.Now().Add(runenv.Patience(30 * time.Second))
	for waiting := 0; waiting < callers; {
		require.False(t, time.Now().After(deadline), "%d calls wait", waiting)
		require.NoError(t, watcher.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, calls.Wait())

	for range 2 {
		rows, err := store.ResourceTimeline(t.Context(), "job", "job_1", 0, 10)
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.NoError(t, store.AppendAuditDaily(t.Context(), entry("accepted")))
	}
	require.NoError(t, store.AppendAuditDaily(t.Context(), entry("rejected")))
	rows, err := store.ResourceTimeline(t.Context(), "job", "job_1", 0, 10)
	require.NoError(t, err)
	require.Len(t, rows, 3, "another outcome has a row of its own")
}
