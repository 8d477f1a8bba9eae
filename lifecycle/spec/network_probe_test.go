package spec_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestProbeNetworkArgs_Check: what the agent would try is bounded in number and time, and is a host
// with a port.
func TestProbeNetworkArgs_Check(t *testing.T) {
	t.Parallel()
	many := spec.ProbeNetworkArgs{TimeoutMillis: 2000}
	for i := range spec.MaxProbeTargets + 1 {
		many.Targets = append(many.Targets, spec.ProbeTarget{Name: fmt.Sprint(i), Address: "10.0.0.1:22"})
	}
	one := func(name, address string) spec.ProbeNetworkArgs {
		return spec.ProbeNetworkArgs{TimeoutMillis: 2000, Targets: []spec.ProbeTarget{{Name: name, Address: address}}}
	}
	for name, c := range map[string]struct {
		args spec.ProbeNetworkArgs
		bad  string
	}{
		"good": {one("maas", "10.0.0.1:5240"), ""}, "good IPv6": {one("maas", "[fd00::1]:5240"), ""}, "a host name": {one("db", "db.internal:5432"), ""},
		"too many": {many, "at most 64"}, "no time": {spec.ProbeNetworkArgs{}, "timeout_millis is 0"}, "no port": {one("maas", "10.0.0.1"), "not a host and a port"},
		"port 0": {one("maas", "10.0.0.1:0"), "not a host and a port"}, "no host": {one("maas", ":22"), "not a host and a port"},
		"no name": {one("", "10.0.0.1:22"), "no name"}, "lines": {one("a\nb", "10.0.0.1:22"), "no name"},
		"same name": {spec.ProbeNetworkArgs{TimeoutMillis: 2000, Targets: append(one("a", "10.0.0.1:22").Targets, one("a", "10.0.0.2:22").Targets...)}, "of another target"},
	} {
		raw, err := json.Marshal(c.args)
		require.NoError(t, err)
		_, err = lifecycle.TaskKindProbeNetwork.CheckArgs(1, raw)
		if c.bad == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.bad, name)
	}
}

// TestProbeNetworkArgs_OpenTargets: a result that leaves a target out proves nothing, and one that
// names a target of its own is not believed.
func TestProbeNetworkArgs_OpenTargets(t *testing.T) {
	t.Parallel()
	args := spec.ProbeNetworkArgs{Targets: []spec.ProbeTarget{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	for output, want := range map[string]struct {
		open []string
		bad  string
	}{
		`{"tried":3}`: {nil, ""}, `{"tried":3,"open":["c","a"]}`: {[]string{"a", "c"}, ""}, `{"tried":2,"not_tried":["b"]}`: {nil, ""},
		`{"tried":2}`: {nil, "2 of 3 targets"}, `{"tried":4,"open":[]}`: {nil, "4 of 3"}, `{"tried":3,"open":["x"]}`: {nil, "not asked for"},
		`{"tried":0,"not_tried":["a","b","c"],"open":["a"]}`: {nil, "3 of 3"}, `x`: {nil, "cannot be read"},
	} {
		open, err := args.OpenTargets(json.RawMessage(output))
		if want.bad == "" {
			require.NoError(t, err, output)
			require.Equal(t, want.open, open, output)
			continue
		}
		require.ErrorContains(t, err, want.bad, output)
	}
}
