package maas_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// speechless is a BMC that tells nothing by which MAAS knows the machine, at an
// address of which MAAS knows another spelling.
func speechless(w *world) maasact.CreateIn {
	in := w.createIn()
	in.Profile.AutoClaimSingleNewMachine = true
	in.BMC = contract.BMCFacts{BMCID: w.bmc.BMCID, Address: "https://bmc-gpu-1.example.test"}
	return in
}

// TestTheOneNewMachineIsClaimed: where nothing matches, and the profile lets it.
func TestTheOneNewMachineIsClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.External("enlist", w.bmc.MACs[0]))
	in := speechless(w)
	in.ObserveOnly = true
	seen := must(w, w.acts.CreateOrFindMachine, in)
	in.ObserveOnly = false
	for range 2 {
		f := must(w, w.acts.CreateOrFindMachine, in)
		require.Equal(t, seen.SystemID, f.SystemID)
		require.False(t, f.Created, "a clean-up must not delete what it did not make")
	}
	require.Zero(t, w.counts("creates"))
	node, err := w.store.Node(t.Context(), w.ref.NodeID)
	require.NoError(t, err)
	require.Equal(t, seen.SystemID, *node.MAASSystemID)
}

func TestTheNewMachineIsNotClaimed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*world, *maasact.CreateIn)
		says   string // of the failure; "" creates a machine
	}{
		"the profile does not let it": {func(_ *world, in *maasact.CreateIn) { in.Profile.AutoClaimSingleNewMachine = false }, ""},
		"another serial":              {func(_ *world, in *maasact.CreateIn) { in.BMC.Serial = "OTHER-1" }, ""},
		"somebody locked it":          {func(w *world, _ *maasact.CreateIn) { require.NoError(w.t, w.sim.External("lock", w.bmc.MACs[0])) }, ""},
		"it is being commissioned": {func(w *world, _ *maasact.CreateIn) {
			_, err := w.client().Commission(w.t.Context(), w.record(), providers.MAASCommission{})
			require.NoError(w.t, err)
		}, ""},
		"another node is it": {func(w *world, in *maasact.CreateIn) {
			in.NodeID = dbtest.Node(w.t, w.store, dbtest.At(w.ref.SiteID)).ID
			must(w, w.acts.CreateOrFindMachine, w.createIn())
			in.Hostname = "gpu-2"
		}, ""},
		"another onboarding is just making it": {func(w *world, in *maasact.CreateIn) {
			name, _ := w.sim.Machine(w.bmc.MACs[0])
			dbtest.Node(w.t, w.store, dbtest.At(w.ref.SiteID), dbtest.Hostname(name.Hostname))
		}, ""},
		"there are two": {func(w *world, _ *maasact.CreateIn) { w.addUnknown("redfish") }, "2 are New, any of which may be it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			require.NoError(t, w.sim.External("enlist", w.bmc.MACs[0]))
			in := speechless(w)
			c.change(w, &in)
			if c.says != "" {
				require.Contains(t, fails(w, lifecycle.FailConflictingCandidates, w.acts.CreateOrFindMachine, in), c.says)
				require.Equal(t, 1, w.counts("creates"), "the other record alone")
				return
			}
			in.ObserveOnly = true
			require.Equal(t, providers.MAASAbsent, must(w, w.acts.CreateOrFindMachine, in).Status)
		})
	}
}

// A record without power control requires operator action, since MAAS could not commission it.
func TestCreateOrFindMachine_ManualPower(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addUnknown("manual")
	require.Contains(t, fails(w, lifecycle.FailConflictingCandidates, w.acts.CreateOrFindMachine, speechless(w)), "MAAS cannot power it")
}

// record is the id of the machine's record, whoever made it.
func (w *world) record() string {
	w.t.Helper()
	v, ok := w.sim.Machine(w.bmc.MACs[0])
	require.True(w.t, ok)
	return v.SystemID
}

// addUnknown adds a New record by hand.
func (w *world) addUnknown(powerType string) {
	w.t.Helper()
	form := url.Values{
		"hostname": {"unknown"}, "architecture": {"amd64/generic"}, "mac_addresses": {"52:54:00:aa:bb:01"}, "commission": {"false"}, "power_type": {powerType},
	}
	if powerType != "manual" {
		spec := w.hw.Spec()
		form.Set("power_parameters_power_address", spec.BMCAddress)
		form.Set("power_parameters_power_user", spec.BMCUser)
		form.Set("power_parameters_power_pass", spec.BMCPassword)
	}
	w.post("machines/?op=", form)
}
