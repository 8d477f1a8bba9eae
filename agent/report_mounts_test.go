package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// A node in two halves reports the machine's mounts, not those of the network
// half's sandbox; without the other half they are unknown.
func TestTheMountsOfAReportAreTheMachines(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, content := range map[string]string{"proc/mounts": "/dev/sda1 / ext4 ro 0 0\n/dev/sda1 /var/lib/slipway-agent ext4 rw 0 0\n",
		"sys/block/sda/size": "8\n", "sys/block/sda/device/model": "m\n", "sys/block/sda/sda1/partition": "1\n", "sys/block/sdb/size": "8\n", "sys/block/sdb/device/model": "m\n"} {
		p := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte(content), 0o600))
	}
	c := agentconfig.Config{Root: root, Simulated: true, HelperSocket: "/s"}.WithDefaults()
	a := &Agent{cfg: c, node: newNodeReader(c), log: slog.New(slog.DiscardHandler)}
	boot := func(r spec.HealthReport) (out []string) {
		for _, d := range r.Disks {
			if d.Boot {
				out = append(out, d.Name)
			}
		}
		return out
	}
	alone := a.report(t.Context())
	require.Nil(t, alone.Mounts, "what the sandbox shows is not the machine's")
	require.Equal(t, []string{"sda"}, boot(alone))

	machine := []spec.MountReport{{Source: "/dev/sda1", Target: "/", FSType: "ext4"}, {Source: "/dev/sdb", Target: "/data", FSType: "xfs"}}
	l, err := privileged.Listen(filepath.Join(root, "s"), -1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s := privileged.Server{AllowUIDs: []int{os.Getuid()}, Version: "v", Log: a.log, Mounts: func() []spec.MountReport { return machine }}
	go func() { done <- s.Serve(ctx, l) }()
	both := a.report(t.Context())
	require.Equal(t, machine, both.Mounts)
	require.Equal(t, []string{"sda"}, boot(both))
	cancel()
	require.NoError(t, <-done)
}
