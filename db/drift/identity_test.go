package drift_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestObserveIdentity_HoldsNode keeps a node whose serial number is that of a node in service from
// being claimed until an operator ignores the finding. The node that came first stays free.
func TestObserveIdentity_HoldsNode(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s := dbtest.Open(t, dsn)
	site := dbtest.Site(t, s)
	tie := func(id string, m db.NodeMachine) {
		require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
			if err := tx.SetNodeMachine(t.Context(), id, m); err != nil {
				return err
			}
			return driftdb.ObserveIdentity(t.Context(), tx, id)
		}))
	}
	claimable := func(id string) (free bool) {
		require.NoError(t, dbtest.Owner(t, dsn).QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM claimable_nodes WHERE id = $1)", id).Scan(&free))
		return free
	}
	first := dbtest.FreeNode(t, s, dbtest.At(site.ID), dbtest.Hostname("gpu-1"))
	tie(first.ID, db.NodeMachine{SystemID: "aaaaaa", Serial: "SN-1", HardwareUUID: "4c4c4544-0042-3510-8054-b7c04f503031", MACs: []string{"52:54:00:00:00:01"}})
	second := dbtest.FreeNode(t, s, dbtest.At(site.ID), dbtest.Hostname("gpu-2"))
	tie(second.ID, db.NodeMachine{SystemID: "bbbbbb", Serial: "SN-1", HardwareUUID: "4c4c4544-0042-3510-8054-b7c04f503032", MACs: []string{"52:54:00:00:00:02"}})
	filler := dbtest.FreeNode(t, s, dbtest.At(site.ID), dbtest.Hostname("gpu-3"))
	tie(filler.ID, db.NodeMachine{SystemID: "cccccc", Serial: "NA", HardwareUUID: "03000200-0400-0500-0006-000700080009", MACs: []string{"52:54:00:00:00:03"}})
	require.True(t, claimable(first.ID))
	require.False(t, claimable(second.ID))
	require.True(t, claimable(filler.ID))

	rows, err := driftdb.ListFindings(t.Context(), s, driftdb.Filter{Detector: lifecycle.DriftIdentityConflict}, "", 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, "the serial number of gpu-2 is that of node gpu-1 ("+first.ID+"); it has another hardware UUID and another MAC address", rows[0].Finding.Message)
	_, err = driftdb.BeginPass(t.Context(), s, site.ID, time.Minute)
	require.NoError(t, err)
	_, err = dbtest.Owner(t, dsn).Exec(t.Context(), "UPDATE drift_findings SET status = 'ignored', version = version + 1 WHERE id = $1", rows[0].Finding.ID)
	require.NoError(t, err)
	require.True(t, claimable(second.ID), "the operator has decided")

	keys, err := driftdb.ListSharedKeys(t.Context(), s, site.ID, "", 10)
	require.NoError(t, err)
	require.Equal(t, []driftdb.SharedKey{{Key: "serial SN-1", Nodes: []string{first.ID, second.ID}}}, keys)
	_, err = dbtest.Owner(t, dsn).Exec(t.Context(), "UPDATE nodes SET hardware_uuid = '44454C4C-4200-1035-8054-B7C04F503031' WHERE id = $1", filler.ID)
	require.NoError(t, err)
	keys, err = driftdb.ListSharedKeys(t.Context(), s, site.ID, "serial SN-1", 10)
	require.NoError(t, err)
	require.Len(t, keys, 1, "the other byte order is the same UUID")
	require.Equal(t, []string{first.ID, filler.ID}, keys[0].Nodes)
}
