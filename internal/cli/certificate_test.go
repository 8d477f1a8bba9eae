package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/cli"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
)

func TestCertificatesAreVerifiedWithoutTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("viewer")
	node := dbtest.Node(t, w.store)
	ring := &signing.Ring{Store: w.store, Secrets: w.sealed}
	for _, run := range []string{"job_1", "job_2"} {
		_, err := ring.Certify(t.Context(), evidence.Certificate{
			Subject: evidence.Subject{NodeID: node.ID, SiteID: node.SiteID, Hostname: node.Hostname},
			Run:     evidence.Run{ID: run, Kind: "decommission", Mode: "soft_reset"}, Simulated: run == "job_1",
			Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0n1", Serial: "S9", Method: lifecycle.SanitizePurge, Verified: true}},
		})
		require.NoError(t, err)
	}
	list := w.run("", "certificate", "list", node.Hostname)
	require.Equal(t, cli.ExitOK, list.code, list.err)
	require.Contains(t, list.out, "job_2")
	require.Contains(t, list.out, "simulated")

	exported := w.run("", "certificate", "export", node.Hostname)
	require.Equal(t, cli.ExitOK, exported.code, exported.err)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	whole := file("whole.json", exported.out)
	w.env = map[string]string{} // offline from here on
	said := w.run("", "certificate", "verify", whole)
	require.Equal(t, cli.ExitOK, said.code, said.err)
	require.Contains(t, said.out, "genuine and whole: 2 certificates")
	key := regexp.MustCompile(`[0-9a-f]{64}`).FindString(said.out)
	require.Equal(t, cli.ExitOK, w.run(exported.out, "certificate", "verify", "-", "--key", strings.ToUpper(key)).code, "from standard input, with the key named")

	other := w.run("", "certificate", "verify", whole, "--key", strings.Repeat("a", 64))
	require.Equal(t, cli.ExitError, other.code)
	require.Contains(t, other.err, "not trusted")
	touched := strings.Replace(exported.out, `"payload": "ey`, `"payload": "eX`, 1)
	require.NotEqual(t, exported.out, touched)
	bad := w.run("", "certificate", "verify", file("touched.json", touched))
	require.Equal(t, cli.ExitError, bad.code)
	require.Contains(t, bad.err, "NOT genuine")

	require.Equal(t, cli.ExitUsage, w.run("", "certificate", "verify", file("else.json", "{}")).code)
	require.Equal(t, cli.ExitUsage, w.run("", "certificate", "verify", filepath.Join(dir, "none")).code)
	require.Equal(t, cli.ExitUsage, w.run("", "certificate", "verify", whole, "--key", "short").code)
	require.Equal(t, cli.ExitUsage, w.run("", "certificate", "verify", whole, "--key", "").code, "an unset variable trusts nobody, and not everybody")
}
