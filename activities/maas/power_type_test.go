package maas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// MAAS powers a machine over the protocol that its BMC's record names, whatever
// the profile says of the others.
func TestMAASIsToldTheBMCsOwnProtocol(t *testing.T) {
	t.Parallel()
	for protocol, want := range map[string]string{"ipmi": "ipmi", "redfish": "redfish", "": "redfish"} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			in := w.createIn()
			in.Profile.PowerType, in.BMC.Protocol, in.BMC.RedfishSysID = "redfish", protocol, "1"
			if protocol == "ipmi" {
				in.BMC.MACs = nil // IPMI does not tell them; commissioning finds them
			}
			f := must(w, w.acts.CreateOrFindMachine, in)
			found, err := w.client().FindMachines(t.Context(), providers.MAASQuery{Hostname: w.host})
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, f.SystemID, found[0].SystemID)
			require.Equal(t, want, found[0].PowerType)
		})
	}
}
