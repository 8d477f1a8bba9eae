package agentconfig

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoad_RefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const good = "server_url: https://slipway.example:7443\nca_pem: x\nnode_id: n1\n"
	loadText := func(text string) error {
		p := filepath.Join(t.TempDir(), "agent.yaml")
		require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		_, err := Load(p, nil)
		return err
	}
	require.NoError(t, loadText(good))
	require.NoError(t, loadText(good+"root: /tmp/x\nsimulated: true\nheartbeat_interval: 2s\n"))
	require.ErrorContains(t, loadText(good+"root: /tmp/x\n"), "simulated is not set")
	require.ErrorContains(t, loadText(good+"heartbeat: 2s\n"), "heartbeat")
	require.ErrorContains(t, loadText("server_url: http://x\nca_pem: x\nnode_id: n1\n"), "https")
	require.ErrorContains(t, loadText(good+"state_dir: relative\n"), "absolute")
	require.ErrorContains(t, loadText(good+"heartbeat_interval: 1h\n"), "heartbeat_interval")
	require.ErrorContains(t, loadText(""), "not right")
}

func TestRender_GivesWhatLoadReads(t *testing.T) {
	t.Parallel()
	c := Config{ServerURL: "https://slipway.example:7443", CAPEM: "a\nb\n", NodeID: "n1", Root: "/tmp/x", Simulated: true,
		HeartbeatInterval: 2 * time.Second, PlatformUsers: []string{"ops", "ubuntu"}, TaskWait: time.Second}.WithDefaults()
	raw, err := c.Render()
	require.NoError(t, err)
	p := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(p, raw, 0o600))
	got, err := Load(p, func(c *Config) { c.NodeID += "x" })
	require.NoError(t, err)
	c.NodeID = "n1x"
	require.Equal(t, c, got)

	c.Simulated = false
	_, err = c.Render()
	require.ErrorContains(t, err, "simulated is not set")
}
