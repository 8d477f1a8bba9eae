package drift_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// addresses returns the addresses of the record of a node, after who named them.
func (w *world) addresses(nodeID string) []string {
	w.t.Helper()
	n, err := w.store.Node(w.t.Context(), nodeID)
	require.NoError(w.t, err)
	require.Equal(w.t, n.IPAddressesSource != "", n.IPAddressesAt != nil)
	return append([]string{string(n.IPAddressesSource)}, n.IPAddresses...)
}

// showAddresses has the region show these addresses of the machine.
func (w *world) showAddresses(addresses ...any) {
	w.front.says(each(func(m map[string]any) { m["ip_addresses"] = addresses }))
}

// TestAddresses_OfMAAS: a node that MAAS deployed has the addresses that MAAS gives its machine,
// also where nothing recorded them at the deployment. Others wait until an operator has adopted
// them, and a machine that is not deployed any more has none.
func TestAddresses_OfMAAS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shown, err := w.maas.Machine(t.Context(), w.id)
	require.NoError(t, err)
	require.NotEmpty(t, shown.IPAddresses)
	require.Equal(t, append([]string{"maas"}, shown.IPAddresses...), w.addresses(w.node.ID), "the passes of the fixture have found them")

	w.showAddresses("10.10.9.9", "fd00::9")
	w.recordHeartbeat(nil)
	w.pass()
	require.Equal(t, []string{lifecycle.DriftAddressesChanged}, w.open())
	require.Equal(t, append([]string{"maas"}, shown.IPAddresses...), w.addresses(w.node.ID))
	_, err = w.act(w.finding(lifecycle.DriftAddressesChanged).ID, lifecycle.DriftAdopt)
	require.NoError(t, err)
	adopted := w.addresses(w.node.ID)
	require.ElementsMatch(t, []string{"maas", "10.10.9.9", "fd00::9"}, adopted)
	w.showAddresses("fd00::9", "10.10.9.9")
	w.recordHeartbeat(nil)
	w.pass()
	require.Equal(t, adopted, w.addresses(w.node.ID), "another order is no change")

	w.front.says(nil)
	w.release()
	w.recordHeartbeat(nil)
	w.pass()
	require.Equal(t, []string{""}, w.addresses(w.node.ID), "MAAS has given them to nobody, or to another machine")
}

// TestAddresses_OfTheAgent: a node that is in no MAAS has the address that its agent reports,
// unless a tenant has it, who may be root.
func TestAddresses_OfTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reports := func(n db.Node, address string) {
		w.recordHeartbeatOf(n.ID, "boot-of-"+n.ID, func(b *db.Heartbeat) { b.Report = &spec.HealthReport{Address: address} })
	}
	byHand := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
	lent := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
	dbtest.Occupy(t, w.store, lent.ID)
	left := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
	_, err := w.store.DBTX().Exec(t.Context(), "UPDATE nodes SET tenant_left_at = now() WHERE id = $1", left.ID)
	require.NoError(t, err)
	require.NoError(t, w.store.SetNodeAddresses(t.Context(), left.ID, db.NodeAddresses{Source: lifecycle.AddressesOfAgent, IPs: []string{"10.3.0.9"}}))
	for _, address := range []string{"10.3.0.1", "10.3.0.2"} {
		for _, n := range []db.Node{byHand, lent, left} {
			reports(n, address)
		}
		w.recordHeartbeat(func(b *db.Heartbeat) { b.Report.Address = address })
		w.pass()
		require.Equal(t, []string{"agent", address}, w.addresses(byHand.ID))
		require.Equal(t, []string{""}, w.addresses(lent.ID))
		require.Equal(t, []string{""}, w.addresses(left.ID), "what the tenant left may run there")
		require.Equal(t, "maas", w.addresses(w.node.ID)[0])
	}
	require.NoError(t, w.store.SetNodeAddresses(t.Context(), byHand.ID, db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: []string{"10.0.0.8", "none", "10.0.0.8"}}))
	require.NoError(t, w.store.SetNodeAddresses(t.Context(), byHand.ID, db.NodeAddresses{Source: lifecycle.AddressesOfAgent, IPs: []string{"10.3.0.3"}}))
	require.Equal(t, []string{"maas", "10.0.0.8"}, w.addresses(byHand.ID), "MAAS knows better")
}
