package maas_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/simhw"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/providers/maas/maassim"
	"github.com/slipway-cloud/slipway/providers/providertest"
)

func TestSimulatorConforms(t *testing.T) {
	providertest.ExerciseMAAS(t, func(t *testing.T) providertest.MAASFixture {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		fleet := simhw.NewFleet(ctx, simhw.NewClock(600))
		m, err := fleet.Add(simhw.GPUServer("Dell", 1))
		require.NoError(t, err)
		m.SetBMC("127.0.0.1:1", "root", "simulated-pass-1")
		s, err := maassim.New(maassim.Options{Fleet: fleet, APIKey: "consumer:tokenkey:secretkey"})
		require.NoError(t, err)
		addr, stop, err := s.Start(ctx, "127.0.0.1:0", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(stop)
		var macs []string
		for _, n := range m.Spec().NICs {
			macs = append(macs, n.MAC)
		}
		return providertest.MAASFixture{
			Opener: maas.Opener{}, Site: providers.MAASSite{URL: "http://" + addr.API + "/MAAS", APIKey: providers.NewSecret("consumer:tokenkey:secretkey")},
			Machine: providers.MAASCreate{Hostname: "gpu-1", Architecture: "amd64/generic", MACs: macs, PowerType: "redfish",
				PowerAddress: "127.0.0.1:1", PowerUser: "root", PowerPassword: providers.NewSecret("simulated-pass-1")},
			Settle: func(t *testing.T, what string, cond func() bool) {
				t.Helper()
				require.Eventually(t, cond, 60*time.Second, 20*time.Millisecond, what)
			},
		}
	})
}
