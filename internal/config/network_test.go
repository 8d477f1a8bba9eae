package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestProtectedTargets lists where the control plane listens, without the public URL and without
// what listens on all addresses.
func TestProtectedTargets(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Database.URL = "postgres://slipway:secret@10.0.0.5,10.0.0.6:6432/slipway?sslmode=disable"
	c.Database.OwnerURL = "postgres://owner@10.0.0.5:5432/slipway?sslmode=disable"
	c.Temporal.Address = "temporal.internal:7233"
	c.Portal.TemporalUIURL = "https://temporal.example.com"
	c.API.Listen, c.API.PublicURL = "10.0.0.7:8080", "https://slipway.example.com"
	c.Metrics.Listen = ":9090"
	c.NetworkProbe.Targets = "grafana=10.0.0.8:3000, bastion=10.0.0.9:22"
	require.Equal(t, []spec.ProbeTarget{
		{Name: "grafana", Address: "10.0.0.8:3000"}, {Name: "bastion", Address: "10.0.0.9:22"},
		{Name: "postgres", Address: "10.0.0.5:5432"}, {Name: "postgres-2", Address: "10.0.0.6:6432"},
		{Name: "temporal", Address: "temporal.internal:7233"}, {Name: "temporal-ui", Address: "temporal.example.com:443"}, {Name: "api", Address: "10.0.0.7:8080"},
	}, c.ProtectedTargets())
}

// TestProtectedTargets_PublicAPI: what may be the socket of the public URL is for everybody.
func TestProtectedTargets_PublicAPI(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		listen, public string
		protected      bool
	}{
		{"203.0.113.7:443", "https://203.0.113.7", false},
		{"203.0.113.7:443", "https://slipway.example.com", false},
		{"api.internal:443", "https://203.0.113.7", false},
		{"[fd00:0::7]:8443", "https://[fd00::7]:8443", false},
		{"[::ffff:203.0.113.7]:443", "https://203.0.113.7:443", false},
		{"203.0.113.7:8080", "http://0.0.0.0:8080", false},
		{":443", "https://slipway.example.com", false},
		{"10.0.0.7:8080", "https://slipway.example.com", true},
		{"10.0.0.7:443", "https://203.0.113.7", true},
		{"api.internal:8080", "https://slipway.example.com", true},
	} {
		c := config.Default()
		c.API.Listen, c.API.PublicURL = tc.listen, tc.public
		protected := slices.ContainsFunc(c.ProtectedTargets(), func(t spec.ProbeTarget) bool { return t.Name == "api" })
		require.Equal(t, tc.protected, protected, "%s and %s", tc.listen, tc.public)
	}
}

// TestPassNamespace: installations that namespaces keep apart share neither.
func TestPassNamespace(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Temporal.Namespace = "fra1"
	require.Equal(t, "fra1-maintenance", c.Temporal.PassNamespace())
	c.Temporal.MaintenanceNamespace = "fra1"
	require.Equal(t, "fra1", c.Temporal.PassNamespace())
}

// TestNetworkProbe_Validate: a target that no agent could try is an error of the configuration.
func TestNetworkProbe_Validate(t *testing.T) {
	t.Parallel()
	for targets, good := range map[string]bool{
		"": true, "a=10.0.0.1:22,b=[fd00::1]:22": true, "10.0.0.1:22": false, "a=10.0.0.1": false, "a=10.0.0.1:22,a=10.0.0.2:22": false, "=10.0.0.1:22": false,
	} {
		c := config.Default()
		c.NetworkProbe.Targets = targets
		err := c.Validate(config.PartWorker)
		require.Equal(t, good, err == nil, "%q: %v", targets, err)
		if !good {
			require.ErrorContains(t, err, "network_probe.targets")
		}
	}
}

// TestBoot_Validate: a boot network that is no network would close the listener to its machines.
func TestBoot_Validate(t *testing.T) {
	t.Parallel()
	for networks, good := range map[string]bool{
		"10.20.0.0/24": true, "10.20.0.0/24, fd00:1::/64": true, config.Default().Boot.Networks: true,
		"": false, "10.20.0.0": false, "10.20.0.0/24,boot": false,
	} {
		c := config.Default()
		c.API.PublicURL, c.Boot = "https://slipway.example.com", config.Boot{Listen: "10.20.0.1:8081", Networks: networks}
		err := c.Validate(config.PartAPI)
		require.Equal(t, good, err == nil, "%q: %v", networks, err)
	}
}

// TestTrustedProxies_Validate: a network that holds everybody would let everybody write the address
// that is limited.
func TestTrustedProxies_Validate(t *testing.T) {
	t.Parallel()
	for networks, good := range map[string]bool{
		"": true, "10.30.0.0/28": true, "10.30.0.7/32, fd00:1::/64": true, strings.Repeat("10.30.0.0/28,", 64): true,
		"10.30.0.7": false, "10.30.0.0/28,proxy": false, "0.0.0.0/0": false, "::/0": false, strings.Repeat("10.30.0.0/28,", 65): false,
	} {
		c := config.Default()
		c.API.PublicURL, c.API.TrustedProxies = "https://slipway.example.com", networks
		err := c.Validate(config.PartAPI)
		require.Equal(t, good, err == nil, "%q: %v", networks, err)
		if !good {
			require.ErrorContains(t, err, "api.trusted_proxies")
		}
	}
}
