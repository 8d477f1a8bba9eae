package maas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// TestRoCEAddressThatIsSetAlready: MAAS answers with an error and has made the
// link all the same, as when an execution that was taken for lost was faster.
func TestRoCEAddressThatIsSetAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	port := spec.RoCEPort{Interface: "ens1f0", SubnetCIDR: subnetOf(w, 2), IP: addressIn(w, 2)}
	_, err := w.store.CreateRoCEAssignment(t.Context(), w.ref.SiteID, w.host, []spec.RoCEPort{port})
	require.NoError(t, err)
	before := w.counts("links")
	w.fault(maassim.Fault{Name: "504_but_continues", Op: "link_subnet"})
	for range 2 {
		must(w, w.acts.ApplyRoCE, w.networkIn())
	}
	require.Equal(t, before+1, w.counts("links"))
}
