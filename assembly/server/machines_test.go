package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// TestMachineAdapters_NamedInTheSettings: the settings name further providers, and the simulated
// one has every capability.
func TestMachineAdapters_NamedInTheSettings(t *testing.T) {
	t.Parallel()
	all := machineAdapters(config.Machine{Simulated: true, Providers: "dc-1=datacenter, lab=fake"})
	for name, as := range map[string]string{"dc-1": "datacenter", "lab": "fake"} {
		got, err := all.For(name)
		require.NoError(t, err)
		want, err := all.For(as)
		require.NoError(t, err)
		require.Equal(t, want.Offers(), got.Offers(), name)
	}
	simulated, err := all.For("lab")
	require.NoError(t, err)
	require.ElementsMatch(t, runplan.Capabilities(), simulated.Offers())
	_, err = machineAdapters(config.Machine{}).For("dc-1")
	require.ErrorContains(t, err, "the providers are")
}
