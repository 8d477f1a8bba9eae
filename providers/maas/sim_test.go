package maas_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/conformance"
)

// simRegion starts a simulated region with one machine that it does not know.
func simRegion(t *testing.T, profile string) (*maassim.Server, conformance.MAASFixture) {
	t.Helper()
	// Cleanup of the suite still talks to the region, so the region must
	// outlive t.Context.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	fleet := simhw.NewFleet(ctx, simhw.NewClock(50))
	machine, err := fleet.Add(simhw.GPUServer("Dell", 1))
	require.NoError(t, err)
	spec := machine.Spec()
	const bmc = "https://192.0.2.10"
	machine.SetBMC(bmc, spec.BMCUser, spec.BMCPassword)
	srv, err := maassim.New(maassim.Options{
		Fleet: fleet, APIKey: apiKey, Profile: profile,
		// Short work and long patience: a busy test machine must not run into
		// MAAS's own timers.
		Durations: maassim.Durations{
			NetBoot: 2 * time.Second, LocalBoot: time.Second, Commission: 5 * time.Second, Test: 2 * time.Second,
			Install: 5 * time.Second, FirstBoot: 2 * time.Second, ReleasePoll: time.Second,
		},
	})
	require.NoError(t, err)
	addrs, stop, err := srv.Start(ctx, "127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	macs := make([]string, 0, len(spec.NICs))
	for _, n := range spec.NICs {
		macs = append(macs, n.MAC)
	}
	return srv, conformance.MAASFixture{
		Opener: maas.Opener{},
		Site:   providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: "http://" + addrs.API + "/MAAS", APIKey: providers.NewSecret(apiKey)},
		Machine: providers.MAASCreate{
			Hostname: "r01u01", Architecture: spec.Architecture, MACs: macs, PowerType: "redfish",
			PowerAddress: bmc, PowerUser: spec.BMCUser, PowerPassword: providers.NewSecret(spec.BMCPassword),
		},
		CallTimeout: 30 * time.Second,
		Settle:      settle(time.Minute, 10*time.Millisecond),
	}
}

// TestSimulator: the client and the simulator were written from the same
// research by different hands; here they meet.
func TestSimulator(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"3.7", "3.5"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			conformance.ExerciseMAAS(t, func(t *testing.T) conformance.MAASFixture {
				_, f := simRegion(t, profile)
				return f
			})
		})
	}
}

// TestSimulatedFaultsOfCreate: after each failure of a create the kind says
// what to do next, and whether the record exists is what a re-read finds.
func TestSimulatedFaultsOfCreate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault      maassim.Fault
		kind       providers.Kind
		retryAfter time.Duration
		records    int
	}{
		"reset, nothing done":    {maassim.Fault{Name: "connection_reset", Phase: maassim.Before}, providers.KindUncertain, 0, 0},
		"reset, done":            {maassim.Fault{Name: "connection_reset", Phase: maassim.After}, providers.KindUncertain, 0, 1},
		"proxy gave up, done":    {maassim.Fault{Name: "504_but_continues"}, providers.KindUncertain, 0, 1},
		"half an answer":         {maassim.Fault{Name: "truncated_json"}, providers.KindUncertain, 0, 1},
		"BMC away":               {maassim.Fault{Name: "bmc_unreachable"}, providers.KindUncertain, 0, 1},
		"BMC login":              {maassim.Fault{Name: "bmc_auth"}, providers.KindUncertain, 0, 1},
		"serialization":          {maassim.Fault{Name: "409_serialization"}, providers.KindBusy, 5 * time.Second, 0},
		"no rack connection":     {maassim.Fault{Name: "503_retry_after"}, providers.KindUncertain, 10 * time.Second, 0},
		"no rack, done":          {maassim.Fault{Name: "503_retry_after", Phase: maassim.After}, providers.KindUncertain, 10 * time.Second, 1},
		"redirect":               {maassim.Fault{Name: "redirect_301"}, providers.KindForeign, 0, 0},
		"revoked":                {maassim.Fault{Name: "http_401"}, providers.KindUnauthorized, 0, 0},
		"clocks":                 {maassim.Fault{Name: "http_401", Params: map[string]string{"variant": "clock"}}, providers.KindUnauthorized, 0, 0},
		"header lost":            {maassim.Fault{Name: "http_400_unauth"}, providers.KindUnauthorized, 0, 0},
		"forbidden":              {maassim.Fault{Name: "http_403"}, providers.KindForbidden, 0, 0},
		"it enlisted by itself":  {maassim.Fault{Name: "enlist_race"}, providers.KindInvalid, 0, 1},
		"MAC in use":             {maassim.Fault{Name: "dup_mac_create"}, providers.KindInvalid, 0, 0},
		"MAC in use, as a list":  {maassim.Fault{Name: "dup_mac_create", Params: map[string]string{"variant": "list"}}, providers.KindInvalid, 0, 0},
		"MAC in use, for all":    {maassim.Fault{Name: "dup_mac_create", Params: map[string]string{"variant": "all"}}, providers.KindInvalid, 0, 0},
		"host name in use":       {maassim.Fault{Name: "dup_hostname"}, providers.KindInvalid, 0, 0},
		"slow but in time, done": {maassim.Fault{Name: "slow_response", Params: map[string]string{"delay": "20ms"}}, "", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, f := simRegion(t, "3.7")
			m, err := f.Opener.OpenMAAS(f.Site)
			require.NoError(t, err)
			c.fault.Op = "create"
			_, err = srv.AddFault(c.fault)
			require.NoError(t, err)
			_, err = m.CreateMachine(within(t), f.Machine)
			if c.kind == "" {
				require.NoError(t, err)
			} else {
				require.Equal(t, c.retryAfter, requireKind(t, err, c.kind).RetryAfter)
			}
			found, err := m.FindMachines(within(t), providers.MAASQuery{MACs: f.Machine.MACs})
			require.NoError(t, err)
			// A client that sent the create again by itself would find one where
			// none should be: each fault is applied once.
			require.Len(t, found, c.records)
		})
	}
}
