package simnode_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	sshrunner "github.com/slipway-cloud/slipway/providers/ssh"
	simnode "github.com/slipway-cloud/slipway/sim/node"
)

// TestSlipwaysOwnSSHRunnerWorksOnANode uses the real provider, with its
// deadlines, its standard input and its operations that run once.
func TestSlipwaysOwnSSHRunnerWorksOnANode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.install(s.userData(), "")
	s.powerOn()
	s.eventually("ssh", func() bool { c, err := s.ssh("slipway"); return err == nil && c.Close() == nil })
	run := func(c providers.SSHCommand) providers.SSHResult {
		t.Helper()
		if c.Timeout == 0 {
			c.Timeout = 20 * time.Second
		}
		res, err := sshrunner.New().RunSSH(t.Context(), providers.SSHTarget{Address: s.node.SSHAddress(), Rule: providers.SimulatedAddresses(), User: "slipway",
			HostKey: s.hostKey, PrivateKeyPEM: s.loginPEM}, c)
		require.NoError(t, err)
		return res
	}
	for _, path := range []string{"/lib/systemd/system/maas_hardware_sync.timer", "/etc/maas/maas-machine-creds.yml"} {
		res := run(providers.SSHCommand{Argv: []string{"sudo", "-n", "install", "-D", "-m", "0600", "/dev/stdin", path}, Stdin: []byte("[Timer]\n")})
		require.Zero(t, res.ExitCode, string(res.Stderr))
		got, err := os.ReadFile(filepath.Join(s.node.Root(), path))
		require.NoError(t, err)
		require.Equal(t, "[Timer]\n", string(got))
	}
	res := run(providers.SSHCommand{Argv: []string{"sudo", "-n", "systemctl", "enable", "--now", "maas_hardware_sync.timer"}})
	require.Zero(t, res.ExitCode, string(res.Stderr))
	s.mu.Lock()
	require.Equal(t, []bool{true}, s.sync)
	s.mu.Unlock()

	once := providers.SSHCommand{Argv: []string{"sh", "-c", "echo $$"}, OpID: "op-1"}
	first := run(once)
	require.Zero(t, first.ExitCode, string(first.Stderr))
	require.Equal(t, first.Stdout, run(once).Stdout, "it ran once")
	require.DirExists(t, filepath.Join(s.node.Root(), "var/lib/slipway/ops/op-1"))
	res = run(providers.SSHCommand{Argv: []string{"sleep", "60"}, Timeout: time.Second})
	require.Equal(t, 124, res.ExitCode)

	require.NoError(t, s.node.SetFaults(simnode.Faults{SSHLosesAnswerTo: "maas"}))
	_, err := sshrunner.New().RunSSH(t.Context(), providers.SSHTarget{Address: s.node.SSHAddress(), Rule: providers.SimulatedAddresses(), User: "slipway", HostKey: s.hostKey,
		PrivateKeyPEM: s.loginPEM}, providers.SSHCommand{Argv: []string{"rm", "/etc/maas/maas-machine-creds.yml"}})
	require.True(t, providers.IsKind(err, providers.KindUncertain), "%v", err)
	require.NoFileExists(t, filepath.Join(s.node.Root(), "/etc/maas/maas-machine-creds.yml"), "it ran all the same")
	require.Zero(t, run(providers.SSHCommand{Argv: []string{"true"}}).ExitCode)
}
