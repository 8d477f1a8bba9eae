package fake_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/fake"
	"github.com/slipway-cloud/slipway/test/conformance"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func script(b conformance.Behaviour) string {
	lines := []string{"#fake"}
	add := func(wanted bool, format string, args ...any) {
		if wanted {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	add(b.Count, "count")
	add(b.Stdout != "", "stdout %q", b.Stdout)
	add(b.Stderr != "", "stderr %q", b.Stderr)
	add(b.Wait, "wait")
	add(b.Hang, "hang")
	add(b.Flood > 0, "flood %d", b.Flood)
	add(true, "exit %d", b.Exit)
	return strings.Join(lines, "\n")
}

func TestProvider_ConformsAsAMachineAdapter(t *testing.T) {
	t.Parallel()
	conformance.ExerciseMachine(t, func(*testing.T) conformance.MachineFixture {
		p := fake.New()
		return conformance.MachineFixture{
			Adapter: p.Adapter(), Target: providers.MachineTarget{ID: "m-1"}, Script: script,
			Runs: func() int { return p.Runs("m-1") }, Release: func() { p.Release("m-1") },
		}
	})
}

func exec(t *testing.T, p *fake.Provider, id, text string) (providers.RemoteResult, string, error) {
	t.Helper()
	var out string
	res, err := p.Exec(t.Context(), providers.MachineTarget{ID: "m-1"}, providers.RemoteCommand{OpID: id, Script: text, Timeout: runenv.Patience(time.Minute)},
		func(_ context.Context, c providers.OutputChunk) error { out += string(c.Data); return nil })
	return res, out, err
}

// A real script on a simulated machine must not look as if it had run.
func TestExec_SaysThatNothingWasRun(t *testing.T) {
	t.Parallel()
	res, out, err := exec(t, fake.New(), "op", "apt-get upgrade")
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Equal(t, "simulated: nothing was run\n", out)
	require.True(t, fake.New().Adapter().Simulated)

	res, out, err = exec(t, fake.New(), "op", "#fake\ncuont")
	require.NoError(t, err)
	require.Equal(t, 127, res.ExitCode)
	require.Equal(t, "line 2 is not known\n", out)
}

// A command that runs while the machine restarts is lost, and not run again.
func TestReboot_LosesWhatRuns(t *testing.T) {
	t.Parallel()
	p := fake.New()
	ended := make(chan error, 1)
	go func() {
		_, _, err := exec(t, p, "op", "#fake\ncount\nwait")
		ended <- err
	}()
	require.Eventually(t, func() bool { return p.Runs("m-1") == 1 }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	require.NoError(t, p.Reboot(t.Context(), providers.MachineTarget{ID: "m-1"}))
	require.Equal(t, providers.KindUncertain, providers.KindOf(<-ended))
	p.Release("m-1")
	_, _, err := exec(t, p, "op", "#fake\ncount\nwait")
	require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
	require.Equal(t, 1, p.Runs("m-1"))
}

func TestSetNetboot_RefusesAnUnknownDevice(t *testing.T) {
	t.Parallel()
	err := fake.New().SetNetboot(t.Context(), providers.MachineTarget{ID: "m-1"}, providers.BootCD)
	require.Equal(t, providers.KindUnsupported, providers.KindOf(err), "%v", err)
}

// Machines do not share anything.
func TestProvider_MachinesAreApart(t *testing.T) {
	t.Parallel()
	p := fake.New()
	one, err := p.Inspect(t.Context(), providers.MachineTarget{ID: "m-1"})
	require.NoError(t, err)
	two, err := p.Inspect(t.Context(), providers.MachineTarget{ID: "m-2"})
	require.NoError(t, err)
	require.NotEqual(t, one.Serial, two.Serial)
	require.NotEqual(t, one.MACs, two.MACs)
	require.NoError(t, p.Reboot(t.Context(), providers.MachineTarget{ID: "m-2"}))
	after, err := p.Inspect(t.Context(), providers.MachineTarget{ID: "m-1"})
	require.NoError(t, err)
	require.Equal(t, one, after)
}

// The provider is chosen by its name, and a plan that it cannot carry out is refused before it
// starts.
func TestAdapters_RefuseWhatTheProviderLacks(t *testing.T) {
	t.Parallel()
	adapters := providers.MachineAdapters{"fake": fake.New().Adapter(), "command-only": {RemoteExec: fake.New()}}
	_, err := adapters.For("datacentre")
	require.Equal(t, providers.KindNotFound, providers.KindOf(err))
	require.ErrorContains(t, err, "command-only, fake")

	plans, err := runplan.Defaults()
	require.NoError(t, err)
	for provider, want := range map[string]map[lifecycle.RunType]runplan.Capability{
		"fake":         {"REBOOT": "", "UPGRADE": "", "REPAVE": "", "NET_RECONFIG": "", "RMA": ""},
		"command-only": {"REBOOT": "PowerControl", "UPGRADE": "PowerControl", "REPAVE": "Netboot", "NET_RECONFIG": "NetworkConfig", "RMA": "Return"},
	} {
		adapter, err := adapters.For(provider)
		require.NoError(t, err)
		for runType, plan := range plans {
			err := runplan.CheckStart(runType, plan.For("").WithNetplan("network: {}"), runplan.StartFacts{Provider: provider, Offered: adapter.Offers(), Phase: lifecycle.MachineReady})
			if want[runType] == "" {
				require.NoError(t, err, "%s, %s", provider, runType)
				continue
			}
			require.ErrorContains(t, err, "needs "+string(want[runType])+", which provider \""+provider+"\" does not have", runType)
		}
	}
}
