package machines_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// bmcLogins stores secrets that may be sent to the BMCs of a site.
func (w *world) bmcLogins(siteID string, names ...string) {
	w.t.Helper()
	for _, name := range names {
		_, err := w.store.PutSecretVersion(w.t.Context(), name, "keeper", []byte("sealed"), make([]byte, 32))
		require.NoError(w.t, err)
		_, err = w.store.SetSecretUse(w.t.Context(), name, spec.SecretUse{Kind: spec.SecretBMCLogin, Sites: []string{siteID}})
		require.NoError(w.t, err)
	}
}

// TestBMC_IsThatOfOneHost: a machine gets no BMC that another host has, and no login that is not
// for it.
func TestBMC_IsThatOfOneHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := dbtest.Site(t, w.store)
	w.bmcLogins(site.ID, "bmc/a")
	node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(site.ID))
	give := func(nodeID, address string) error {
		return w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.GiveBMC(t.Context(), nodeID, db.BMCSpec{NewBMC: db.NewBMC{Address: address, Protocol: "redfish", CredentialRef: "bmc/a"}}, admin)
			return err
		})
	}
	require.NoError(t, give(node.ID, "10.0.0.1"))
	for id, at := range map[string]string{"m-1": "https://10.0.0.1/", "m-2": "10.0.0.2", "m-3": "10.0.0.2:443", "m-4": "10.0.0.4"} {
		_, err := w.register(machines.Registration{ID: id, Spec: spec.MachineSpec{Provider: "any", BMCEndpoint: at}})
		require.NoError(t, err)
	}
	with := func(ref string) machines.Access { return machines.Access{SiteID: site.ID, BMCCredentialRef: ref} }
	require.Equal(t, node.ID, intent.AsRefusal(w.access("m-1", with("bmc/a"))).Existing)
	require.NoError(t, w.access("m-2", with("bmc/a")))
	require.Equal(t, "m-2", intent.AsRefusal(w.access("m-3", with("bmc/a"))).Existing)

	other := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(site.ID))
	var taken *db.ConflictError
	require.ErrorAs(t, give(other.ID, "10.0.0.2"), &taken)
	require.Equal(t, "m-2", taken.Existing)

	for _, ref := range []string{"bmc/none", "ssh/key"} {
		dbtest.StateUse(t, w.store, spec.SecretSSHKey, "ssh/key")
		refused := intent.AsRefusal(w.access("m-4", with(ref)))
		require.NotNil(t, refused, ref)
		require.Equal(t, "bmc_credential_ref", refused.Fields[0].Name)
	}
}

// TestBMC_KeepsItsRecord: access without a login keeps the one that the machine has, another login
// keeps the approved certificate, and a record that nothing names is deleted.
func TestBMC_KeepsItsRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := dbtest.Site(t, w.store)
	w.bmcLogins(site.ID, "bmc/a", "bmc/b")
	stated := spec.MachineSpec{Provider: "any", BMCEndpoint: "10.0.0.1"}
	_, err := w.register(machines.Registration{ID: "m-1", Spec: stated})
	require.NoError(t, err)
	record := func() *string {
		m, err := machinesdb.Get(t.Context(), w.store, "m-1")
		require.NoError(t, err)
		return m.BMCID
	}
	require.NoError(t, w.access("m-1", machines.Access{SiteID: site.ID, BMCCredentialRef: "bmc/a"}))
	id := *record()
	require.NoError(t, w.store.SetBMCPin(t.Context(), id, "ab"))
	for _, ref := range []string{"", "bmc/b", ""} {
		require.NoError(t, w.access("m-1", machines.Access{SiteID: site.ID, BMCCredentialRef: ref}))
	}
	require.Equal(t, id, *record())
	b, err := w.store.BMC(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"bmc/b", "ab"}, []string{b.CredentialRef, b.PinSHA256})

	stated.BMCEndpoint = "10.0.0.2"
	_, err = w.register(machines.Registration{ID: "m-1", Spec: stated})
	require.NoError(t, err)
	require.Nil(t, record())
	_, err = w.store.BMC(t.Context(), id)
	require.ErrorIs(t, err, db.ErrNotFound)

	require.NoError(t, w.access("m-1", machines.Access{SiteID: site.ID, BMCCredentialRef: "bmc/a"}))
	id = *record()
	require.NoError(t, w.access("m-1", machines.Access{}))
	require.Nil(t, record(), "without a site no login may be sent")
	_, err = w.store.BMC(t.Context(), id)
	require.ErrorIs(t, err, db.ErrNotFound)
}
