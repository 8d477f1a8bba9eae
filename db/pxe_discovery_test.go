package db_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestDiscover_OneNetworkFillsNoList: a sender that has filled the list of discovered nodes, from
// all addresses of its network, keeps no machine of another network from being discovered.
func TestDiscover_OneNetworkFillsNoList(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	macs := 0
	see := func(n int, source func(int) string) (last db.Node, err error) {
		err = s.Tx(t.Context(), func(tx *db.Tx) error {
			for i := 0; i < n && err == nil; i++ {
				macs++
				last, _, err = tx.Discover(t.Context(), db.Discovery{MAC: mac(macs), Source: source(i)})
			}
			return err
		})
		return last, err
	}
	from := func(source string) func(int) string { return func(int) string { return source } }
	hostile := func(i int) string { return fmt.Sprintf("fd00::%x", i+1) }
	_, err := see(db.MaxDiscovered, hostile)
	require.NoError(t, err)
	_, err = see(1, hostile)
	require.ErrorIs(t, err, db.ErrDiscoveryFull)

	exec(t, owner, "UPDATE pxe_nodes SET seen_at = now() - interval '1 hour' FROM pxe_macs m WHERE m.node_id = pxe_nodes.node_id AND m.mac = $1", mac(7))
	gone, err := s.NodeOfMAC(t.Context(), mac(7))
	require.NoError(t, err)
	machine, err := see(1, from("192.0.2.7"))
	require.NoError(t, err)
	_, err = s.NodeOfMAC(t.Context(), mac(7))
	require.ErrorIs(t, err, db.ErrNotFound, "the one that was not seen for the longest gives way")
	requireWhole(t, s, "node", gone.ID)
	for range 3 {
		_, err = see(1, hostile)
		require.ErrorIs(t, err, db.ErrDiscoveryFull)
	}
	_, err = s.Node(t.Context(), machine.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"1000"}, texts(t, owner, "SELECT count(*)::text FROM nodes WHERE status = 'discovered'"))

	// A row that nobody saw for a day gives way to one of its own network, and another one does
	// not.
	_, err = see(1, hostile)
	require.ErrorIs(t, err, db.ErrDiscoveryFull)
	exec(t, owner, "UPDATE pxe_nodes SET seen_at = now() - interval '25 hours' FROM pxe_macs m WHERE m.node_id = pxe_nodes.node_id AND m.mac IN ($1, $2)", mac(8), mac(macs-4))
	_, err = see(1, hostile)
	require.NoError(t, err)
	_, err = s.NodeOfMAC(t.Context(), mac(8))
	require.ErrorIs(t, err, db.ErrNotFound)
	_, err = s.Node(t.Context(), machine.ID)
	require.NoError(t, err)
}

// TestDiscover_NetworksShareTheList: two networks that are hostile to each other end with equal
// parts, and then neither takes anything from the other.
func TestDiscover_NetworksShareTheList(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	macs := 0
	see := func(n int, source string) error {
		return s.Tx(t.Context(), func(tx *db.Tx) (err error) {
			for ; n > 0 && err == nil; n-- {
				macs++
				_, _, err = tx.Discover(t.Context(), db.Discovery{MAC: mac(macs), Source: source})
			}
			return err
		})
	}
	require.NoError(t, see(502, "192.0.2.1"))
	require.NoError(t, see(db.MaxDiscovered-502, "192.0.2.2"))
	require.NoError(t, see(1, "192.0.2.2"))
	require.ErrorIs(t, see(1, "192.0.2.1"), db.ErrDiscoveryFull)
	require.NoError(t, see(1, "192.0.2.2"), "500 each")
	require.ErrorIs(t, see(1, "192.0.2.2"), db.ErrDiscoveryFull)
	require.ErrorIs(t, see(1, "192.0.2.1"), db.ErrDiscoveryFull)
	require.NoError(t, see(1, "192.0.2.3"))
	require.Equal(t, []string{"1000"}, texts(t, owner, "SELECT count(*)::text FROM nodes WHERE status = 'discovered'"))
}
