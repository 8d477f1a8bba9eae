package allocation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// TestWakes_OneRequestForEachNode: of the requests that wait, the oldest is told of a node that
// became free, and no other: not one of another site, and not the same one twice.
func TestWakes_OneRequestForEachNode(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.tx(func(tx *db.Tx) error { return tenancydb.PutQuota(t.Context(), tx, m.project.ID, m.sku.ID, 100) })
	wakes := func(limit int) []string {
		t.Helper()
		jobs, _, err := allocationdb.TakeWakes(t.Context(), m.store, limit)
		require.NoError(t, err)
		return jobs
	}
	m.freeNode()
	require.Empty(t, wakes(10), "nobody waits")
	m.create(m.request()) // has that node
	elsewhere := m.request()
	elsewhere.WaitSeconds, elsewhere.SiteID = 60, dbtest.Site(t, m.store).ID
	m.create(elsewhere)
	wait := m.request()
	wait.WaitSeconds = 60
	var waiting []string
	for range 4 {
		waiting = append(waiting, m.create(wait).Job.ID)
	}
	require.Empty(t, wakes(10), "no node is free")

	m.freeNode()
	m.freeNode()
	require.Equal(t, waiting[:1], wakes(1))
	require.Equal(t, waiting[1:2], wakes(10), "the first one has the first node")
	require.Empty(t, wakes(10), "each node is told of once")
	left := m.freeNode()
	_, err := m.store.DBTX().Exec(t.Context(), "UPDATE claim_wakes SET woken_at = now() WHERE node_id = $1", left.ID)
	require.NoError(t, err)
	_, err = m.store.DBTX().Exec(t.Context(), "UPDATE nodes SET tenant_left_at = now() WHERE id = $1", left.ID)
	require.NoError(t, err)
	require.Empty(t, wakes(10), "a node that a tenant left dirty is not free")
	_, err = m.store.DBTX().Exec(t.Context(), "UPDATE nodes SET tenant_left_at = NULL WHERE id = $1", left.ID)
	require.NoError(t, err)
	require.Equal(t, waiting[2:3], wakes(10), "until it is proven clean")
	m.freeNode()
	require.Equal(t, waiting[3:], wakes(10))
	require.Empty(t, wakes(10))
}
