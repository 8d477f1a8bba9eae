package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestTheAgentOfAnInstallWorkflow: what stands in a shell command on the node is
// bounded, and a binary comes with its sum.
func TestTheAgentOfAnInstallWorkflow(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("a", 64)
	for says, a := range map[string]spec.InstallAgent{
		"agent.binary_sha256: is required":  {BinaryURL: "http://images.example/agent"},
		"agent.binary_sha256: is of no use": {BinarySHA256: sum},
		"agent.binary_url: must be visible": {BinaryURL: "http://images.example/$(id)", BinarySHA256: sum},
		"agent.binary_url: must be an http": {BinaryURL: "file:///agent", BinarySHA256: sum},
		"agent.heartbeat_seconds":           {HeartbeatSeconds: 31},
		"agent.platform_users[1]: must be":  {PlatformUsers: []string{"ops", "no; login"}},
		"agent.platform_users: must be at":  {PlatformUsers: make([]string, 17)},
		"agent.update_key: must be":         {UpdateKey: "AAAA"},
	} {
		require.ErrorContains(t, spec.InstallWorkflowSpec{Kernel: spec.BootImage{URL: "http://h/k"}, Agent: &a}.Validate(), says)
	}
	for _, a := range []*spec.InstallAgent{nil, {}, {BinaryURL: "https://images.example/agent.tar.gz", BinarySHA256: sum, HeartbeatSeconds: 10, Simulated: true,
		PlatformUsers: []string{"ops"}, UpdateKey: strings.Repeat("A", 43) + "="}} {
		require.NoError(t, spec.InstallWorkflowSpec{Kernel: spec.BootImage{URL: "http://h/k"}, Agent: a}.Validate())
	}
}
