package maas_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/test/conformance"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestRegion runs the conformance suite on a real region, with a machine that
// the suite may install and that the region must not hold yet:
//
//	SLIPWAY_TEST_MAAS_URL, _KEY             the region, an administrator's key
//	SLIPWAY_TEST_MAAS_CA                    PEM file of a private CA, if there is one
//	SLIPWAY_TEST_MAAS_MACS                  MAC addresses of the machine, with commas
//	SLIPWAY_TEST_MAAS_BMC, _USER, _PASSWORD its BMC
//	SLIPWAY_TEST_MAAS_POWER, _ARCH, _SERIES redfish, amd64/generic, the region's default
//
// Without a URL there is no region to test; the simulator stands in always.
func TestRegion(t *testing.T) {
	t.Parallel()
	env := func(name, otherwise string) string {
		if v := os.Getenv("SLIPWAY_TEST_MAAS_" + name); v != "" {
			return v
		}
		return otherwise
	}
	if env("URL", "") == "" {
		t.Skip("set SLIPWAY_TEST_MAAS_URL and the other SLIPWAY_TEST_MAAS_ variables to run on a real region")
	}
	ca := ""
	if file := env("CA", ""); file != "" {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		ca = string(data)
	}
	conformance.ExerciseMAAS(t, func(t *testing.T) conformance.MAASFixture {
		return conformance.MAASFixture{
			Opener: maas.Opener{},
			Site:   providers.MAASSite{Rule: spec.AddressRule{Anywhere: true}, URL: env("URL", ""), APIKey: providers.NewSecret(env("KEY", "")), CAPEM: ca},
			Series: env("SERIES", ""),
			Machine: providers.MAASCreate{
				Hostname: "slipway-conformance", Architecture: env("ARCH", "amd64/generic"), MACs: strings.Split(env("MACS", ""), ","),
				PowerType: env("POWER", "redfish"), PowerAddress: env("BMC", ""), PowerUser: env("USER", ""),
				PowerPassword: providers.NewSecret(env("PASSWORD", "")),
			},
			Settle: settle(75*time.Minute, 5*time.Second),
		}
	})
}

// settle polls at an interval and fails the test after patience.
func settle(patience, every time.Duration) func(*testing.T, string, func() bool) {
	return func(t *testing.T, what string, cond func() bool) {
		t.Helper()
		tick := time.NewTicker(every)
		defer tick.Stop()
		// The condition runs here and not in require.Eventually's goroutine, so
		// that it may end the test itself.
		for end := time.Now().Add(runenv.Patience(patience)); !cond(); <-tick.C {
			require.True(t, time.Now().Before(end), runenv.Deadline+"waited %s in vain for %s", patience, what)
		}
	}
}
