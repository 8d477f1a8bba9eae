package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestProtectedTargets lists where the control plane listens, without the public URL and without what
// listens on all addresses.
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
	c.API.Listen, c.API.PublicURL = "203.0.113.7:443", "https://203.0.113.7"
	for _, target := range c.ProtectedTargets() {
		require.NotEqual(t, "api", target.Name, "it is for everybody")
	}
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
