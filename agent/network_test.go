package agent_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// listen opens a port of this machine that answers.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestProbeNetwork_NamesWhatIsOpen: the agent names the targets that take a connection, and leaves
// neither their addresses nor their names on the node's disk, where the next tenant is root.
func TestProbeNetwork_NamesWhatIsOpen(t *testing.T) {
	t.Parallel()
	p := newRealPlane(t, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.node.agent().Run(ctx) }()
	open, hidden := listen(t), listen(t)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	root := p.node.cfg.Root
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/slipway-simulated-network"), []byte(open+"\n"+gone.Addr().String()+"\n"), 0o600))
	args := spec.ProbeNetworkArgs{TimeoutMillis: 2000, Targets: []spec.ProbeTarget{
		{Name: "postgres", Address: open}, {Name: "temporal", Address: hidden}, {Name: "maas", Address: gone.Addr().String()},
	}}
	raw, err := json.Marshal(args)
	require.NoError(t, err)
	done := p.ask(lifecycle.TaskKindProbeNetwork, "probe", string(raw))
	require.Equal(t, lifecycle.TaskSucceeded, done.Status, "%+v", done.Result)
	names, err := args.OpenTargets(done.Result.Output)
	require.NoError(t, err)
	require.Equal(t, []string{"postgres"}, names)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // a file that has just gone holds nothing
		}
		content, err := os.ReadFile(path)
		require.False(t, err == nil && strings.Contains(string(content), hidden), "%s names a target", path)
		return nil
	}))
	cancel()
	require.NoError(t, <-ended)
}

// TestProbeNetwork_NotItself: on a real node an address of the node itself says nothing about its
// network, so it is not tried and is named.
func TestProbeNetwork_NotItself(t *testing.T) {
	t.Parallel()
	in := spec.ProbeNetworkArgs{TimeoutMillis: 2000, Targets: []spec.ProbeTarget{{Name: "api", Address: listen(t)}, {Name: "any", Address: "0.0.0.0:9"}}}
	got := agent.ProbeAsRealNode(t.Context(), in)
	require.Equal(t, spec.ProbeNetworkResult{NotTried: []string{"any", "api"}}, got)
}
