package boot

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The facts that the firmware reports count by the state of the node: they
// describe the machine until somebody approves it, and are evidence of one
// while it migrates.
func TestWhatFirmwareSaysCountsByState(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	asks := func(mac, query string) {
		t.Helper()
		status, _, body := s.get("/boot/" + mac + ".ipxe?" + query)
		require.Equal(t, http.StatusOK, status, body)
	}
	of := func(id string) (db.Node, db.PXENode) {
		t.Helper()
		n, err := s.store.Node(t.Context(), id)
		require.NoError(t, err)
		p, err := s.store.PXENode(t.Context(), id)
		require.NoError(t, err)
		return n, p
	}
	mac := "52:54:00:00:0b:01"
	asks(mac, "serial=OLD&uuid=4C4C4544-0042-3510-8054-B7C04F503031")
	n, err := s.store.NodeOfMAC(t.Context(), mac)
	require.NoError(t, err)
	require.Equal(t, "OLD", n.Serial)
	asks(mac, "serial=%20NEW%3Bx&uuid=03000200-0400-0500-0006-000700080009")
	seen, p := of(n.ID)
	require.Equal(t, []string{"NEW?x", "4c4c4544-0042-3510-8054-b7c04f503031", "NEW?x"}, []string{seen.Serial, seen.HardwareUUID, p.Facts.SerialNumber}, "what the machine says now; what it does not say stays")
	require.Greater(t, seen.Version, n.Version, "whoever approves has seen it, or is told so")
	asks(mac, "serial=To+Be+Filled+By+O.E.M.")
	again, _ := of(n.ID)
	require.Equal(t, seen.Serial, again.Serial, "no serial number")
	require.Equal(t, seen.Version, again.Version)

	for _, i := range lifecycle.NodePXE.States {
		if i.State == lifecycle.NodeDiscovered || i.State == lifecycle.NodeRetired {
			continue
		}
		id, mac := s.node(i.State)
		_, err := s.conn.Exec(t.Context(), "UPDATE pxe_nodes SET seen_at = now() - interval '1 hour' WHERE node_id = $1", id)
		require.NoError(t, err)
		before, was := of(id)
		asks(mac, "serial=OTHER&uuid=5c4c4544-0042-3510-8054-b7c04f503031&vendor=v")
		after, is := of(id)
		require.Equal(t, before, after, i.State)
		require.Equal(t, was.Facts, is.Facts, i.State)
		firmware := ""
		if i.State == lifecycle.NodeMigrating {
			firmware = "OTHER"
		}
		require.Equal(t, firmware, is.Firmware.SerialNumber, i.State)
		inService := i.State == lifecycle.NodeInstalled || i.State == lifecycle.NodeActive || i.State == lifecycle.NodeReprovision
		require.Equal(t, inService, is.SeenAt.Equal(was.SeenAt), "%s: only one that is to boot from the network is seen there", i.State)
	}
}
