package machines_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestStartRun_NeedsAWayToLogIn: a run that could not log in to its machine is refused with the
// reason, by the dry run as by the start, and the machine keeps its phase.
func TestStartRun_NeedsAWayToLogIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := dbtest.Site(t, w.store, func(p *dbtest.Params) {
		p.Site = spec.SiteSpec{MAASURL: "https://maas.example/MAAS", MAASAPIKeyRef: "maas/key", SSHKeyRef: "ssh/key", NodeNetworks: []string{"10.1.0.0/16"}}
	})
	node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(site.ID))
	register := func(s spec.MachineSpec) {
		s.Provider = "any"
		_, err := w.register(machines.Registration{ID: "m-1", Spec: s})
		require.NoError(t, err)
	}
	register(spec.MachineSpec{})
	start := reboot("a")
	start.LogsIn = func(string) bool { return true }
	refused := func(why string) {
		t.Helper()
		_, started := w.start(start)
		checked := w.store.Tx(t.Context(), func(tx *db.Tx) error {
			in := start
			in.Offers = func(string) []runplan.Capability { return []runplan.Capability{runplan.CapPowerControl} }
			return machines.CheckRun(t.Context(), tx, in)
		})
		for name, err := range map[string]error{"start": started, "dry run": checked} {
			require.NotNil(t, intent.AsRefusal(err), "%s: %v", name, err)
			require.Contains(t, intent.AsRefusal(err).Detail, why, name)
		}
		m, err := machinesdb.Get(t.Context(), w.store, "m-1")
		require.NoError(t, err)
		require.Equal(t, lifecycle.MachineReady, m.Status)
	}
	at := func(addresses ...string) {
		t.Helper()
		now := db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: addresses}
		require.NoError(t, w.store.SetNodeAddresses(t.Context(), node.ID, now))
	}
	refused("has no site")
	require.NoError(t, w.access("m-1", machines.Access{SiteID: site.ID}))
	refused("has no spec.ssh_endpoint")
	require.NoError(t, w.access("m-1", machines.Access{NodeID: node.ID}))
	refused("no address of node " + node.Hostname)
	at("10.2.0.5")
	refused("is not pinned")
	require.NoError(t, w.store.SetNodeHostKey(t.Context(), node.ID, dbtest.Key))
	refused("10.2.0.5")
	at("10.2.0.5", "10.1.0.5")
	_, err := w.start(start)
	require.NoError(t, err, "one of its addresses is in the networks of the site")
}

// TestStartRun_InstallationGivesTheAddress: a plan that first installs the machine needs no address
// of before.
func TestStartRun_InstallationGivesTheAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.register(machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any"}})
	require.NoError(t, err)
	var plan runplan.Plan
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		plan, err = machines.CreatePlan(t.Context(), tx, runplan.Plan{Steps: []runplan.Step{
			{Name: "boot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}}, {Name: "install", Repave: &runplan.RepaveImage{Image: "ubuntu-22.04"}},
			{Name: "restart", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}},
		}}, false, admin)
		return err
	}))
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		return machines.CheckRun(t.Context(), tx, machines.Start{
			MachineID: "m-1", Type: lifecycle.RunTypeUpgrade, PlanID: plan.ID, LogsIn: func(string) bool { return true },
			Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		})
	}))
}
