package maas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// rotated is a world whose BMC has got another password, stored as bmc/fresh.
func rotated(t *testing.T, faults ...maassim.Fault) (*world, maasact.PowerLoginIn) {
	t.Helper()
	w := newWorld(t).created()
	spec := w.hw.Spec()
	w.hw.SetBMC(spec.BMCAddress, spec.BMCUser, "a-fresh-password")
	dbtest.StateUse(t, w.store, "bmc_login", "bmc/fresh")
	w.secret("bmc/fresh", `{"username":"`+spec.BMCUser+`","password":"a-fresh-password"}`)
	for _, f := range faults {
		w.fault(f)
	}
	return w, maasact.PowerLoginIn{JobRef: w.ref, BMCID: w.bmc.BMCID, CredentialRef: "bmc/fresh"}
}

func TestMAASIsToldTheNewLoginOnce(t *testing.T) {
	t.Parallel()
	w, in := rotated(t)
	look := in
	look.ObserveOnly = true
	require.False(t, must(w, w.acts.UpdatePowerLogin, look).Done)
	require.Zero(t, w.counts("power_settings"))
	for range 2 {
		f := must(w, w.acts.UpdatePowerLogin, in)
		require.True(t, f.Done)
		require.Equal(t, "off", f.Power, "MAAS can log in again")
	}
	require.Equal(t, 1, w.counts("power_settings"))
	require.True(t, must(w, w.acts.UpdatePowerLogin, look).Done)
}

// A lost answer, an answer that is no JSON, a reset before and after: the write
// is made once.
func TestTheLoginIsWrittenOnceThroughFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []maassim.Fault{
		{Name: "504_but_continues", Op: "update", Count: 1}, {Name: "truncated_json", Op: "update", Count: 1},
		{Name: "connection_reset", Op: "update", Phase: maassim.After, Count: 1}, {Name: "connection_reset", Op: "update", Count: 1},
	} {
		t.Run(f.Name+f.Phase, func(t *testing.T) {
			t.Parallel()
			w, in := rotated(t, f)
			if _, err := run(w, w.acts.UpdatePowerLogin, in); err != nil {
				require.Equal(t, "connection_reset", f.Name)
				must(w, w.acts.UpdatePowerLogin, in)
			}
			require.Equal(t, 1, w.counts("power_settings"))
		})
	}
}

func TestALoginThatMAASCannotUseIsShown(t *testing.T) {
	t.Parallel()
	w, in := rotated(t)
	in.CredentialRef = "bmc/login" // the BMC does not take it any more
	require.Contains(t, fails(w, lifecycle.FailPowerNotConfirmed, w.acts.UpdatePowerLogin, in), "cannot read the power state")
	in.Unproven = true
	require.True(t, must(w, w.acts.UpdatePowerLogin, in).Done)
	in.CredentialRef = "bmc/none"
	fails(w, lifecycle.FailSecretUnavailable, w.acts.UpdatePowerLogin, in)
}

func TestWhereThereIsNothingToTellMAAS(t *testing.T) {
	t.Parallel()
	w, in := rotated(t)
	m := w.client()
	bare := in
	bare.NodeID = ""
	require.Contains(t, must(w, w.acts.UpdatePowerLogin, bare).Note, "no machine of MAAS")
	require.NoError(t, m.SetPowerLogin(t.Context(), w.id, "maas", providers.NewSecret("its-own-password")))
	require.Contains(t, must(w, w.acts.UpdatePowerLogin, in).Note, "another user")
	require.Equal(t, 1, w.counts("power_settings"))
	require.NoError(t, m.DeleteMachine(t.Context(), w.id))
	require.Contains(t, must(w, w.acts.UpdatePowerLogin, in).Note, "no longer in MAAS")
}

func TestMAASIsAtAnotherBMC(t *testing.T) {
	t.Parallel()
	w, in := rotated(t)
	bmc, err := w.store.BMC(t.Context(), w.bmc.BMCID)
	require.NoError(t, err)
	bmc.Address = "https://127.0.2.99"
	_, err = w.store.UpdateBMC(t.Context(), bmc)
	require.NoError(t, err)
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.UpdatePowerLogin, in), "127.0.2.99")
	in.Unproven = true
	require.Contains(t, must(w, w.acts.UpdatePowerLogin, in).Note, "another BMC")
	require.Zero(t, w.counts("power_settings"))
}
