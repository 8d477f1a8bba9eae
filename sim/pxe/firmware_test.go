package pxesim_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// noEngine: nothing here asks Temporal.
type noEngine struct{ rest.Workflows }

func (noEngine) CheckHealth(context.Context, *client.CheckHealthRequest) (*client.CheckHealthResponse, error) {
	return &client.CheckHealthResponse{}, nil
}

// The installer of the test runs its user-data as a script: the first attempt
// fails, the second completes.
const script = `#!/bin/sh
say() {
  wget -q -O - --header 'Content-Type: application/json' --header 'Authorization: Bearer {{ .Token }}' --post-data "$1" {{ .ReportURL }}
}
say '{"mac_address":"{{ .MAC }}","installation_status":"started"}'
say '{"mac_address":"{{ .MAC }}","installation_status":"progress","installation_progress":50}'
{{ if eq .Attempt 1 }}say '{"mac_address":"{{ .MAC }}","installation_status":"failed","installation_error":"no disk, on purpose"}'
{{ else }}say '{"mac_address":"{{ .MAC }}","installation_status":"complete"}'
{{ end }}`

// A real iPXE in QEMU is discovered, is approved, loads a real kernel whose bytes
// are checked, fails once, installs, and is sent on to its disk. make test-pxe
// makes the images that SLIPWAY_TEST_PXE names.
func TestFirmwareInstallsItself(t *testing.T) {
	images := os.Getenv("SLIPWAY_TEST_PXE")
	if images == "" {
		t.Skip("make test-pxe runs this with QEMU; TestAPXENodeFromDiscoveryToService does the same with a simulated machine")
	}
	store := dbtest.Store(t)
	sealed, err := secrets.Open(t.Context(), store, secrets.Keeper{URL: "base64key://", KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sealed.Close() })
	api, err := httpapi.New(httpapi.Config{API: op.Config{Store: store}, REST: rest.Config{Temporal: noEngine{}, Secrets: sealed}})
	require.NoError(t, err)
	server := httptest.NewServer(api.Handler())
	t.Cleanup(server.Close)
	mirror := httptest.NewServer(http.FileServer(http.Dir(images)))
	t.Cleanup(mirror.Close)
	token, err := op.CreateToken(t.Context(), store, "admin", []string{"admin"}, time.Hour)
	require.NoError(t, err)

	console := &console{}
	startMachine(t, server.URL, console)
	node := func() (n db.Node) {
		rows, err := store.ListNodes(t.Context(), db.NodeFilter{Lifecycle: "pxe"}, "", 2)
		require.NoError(t, err)
		if len(rows) > 0 {
			n = rows[0]
		}
		return n
	}
	reaches := func(what string, limit time.Duration, met func() bool) {
		t.Helper()
		began := time.Now()
		require.Eventually(t, met, runenv.Patience(limit), 200*time.Millisecond, "%s; the console says:\n%s", what, console)
		t.Logf("%s after %.0f s", what, time.Since(began).Seconds())
	}
	reaches("a real firmware is discovered", time.Minute, func() bool { return node().Status == lifecycle.NodeDiscovered })
	p, err := store.PXENode(t.Context(), node().ID)
	require.NoError(t, err)
	require.Equal(t, "QEMU", p.Facts.Vendor, "what SMBIOS says")

	call := func(method, path string, body any) {
		t.Helper()
		b, err := json.Marshal(body)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api/v1"+path, bytes.NewReader(b))
		require.NoError(t, err)
		for k, v := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json", "If-Match": "*", "Idempotency-Key": "k"} {
			req.Header.Set(k, v)
		}
		res, err := server.Client().Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		said, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Less(t, res.StatusCode, 300, string(said))
	}
	call("POST", "/admin/install-workflows", map[string]any{"name": "linux", "spec": map[string]any{
		"kernel": checked(t, mirror.URL, images, "vmlinuz"), "initrds": []any{checked(t, mirror.URL, images, "initrd")},
		"command_line": "console=ttyS0 quiet panic=5 ds=nocloud-net;s={{ .SeedURL }}", "user_data": script,
	}})
	w, err := store.InstallWorkflowByName(t.Context(), "linux")
	require.NoError(t, err)
	call("PATCH", "/nodes/"+node().ID, map[string]any{"install_workflow_id": w.ID})
	call("POST", "/nodes/"+node().ID+"/state", map[string]any{"state": "pending"})

	reaches("a real kernel reports started", 5*time.Minute, func() bool { return node().Status == lifecycle.NodeInstalling })
	reaches("its first attempt fails", time.Minute, func() bool { return node().InstallAttempts == 1 })
	require.Equal(t, "no disk, on purpose", node().LastInstallError)
	reaches("its second attempt completes", 5*time.Minute, func() bool { return node().Status == lifecycle.NodeInstalled })
	require.Zero(t, node().InstallAttempts)
	reaches("the firmware is sent on to its disk", 3*time.Minute, func() bool { return strings.Contains(console.String(), "is installed;") })
	_, total, err := store.NodeHistory(t.Context(), node().ID, 10, 0)
	require.NoError(t, err)
	require.EqualValues(t, 4, total)
}

func checked(t *testing.T, url, dir, name string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	sum := sha256.Sum256(b)
	return map[string]any{"url": url + "/" + name, "sha256": hex.EncodeToString(sum[:])}
}

// console is what a machine writes to its serial line.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// startMachine starts QEMU with an emulated CPU, whose firmware writes to the
// serial line (graphics=off). Its user network has a DHCP
// server that names Slipway's script, and no way out but to this machine.
func startMachine(t *testing.T, server string, out io.Writer) {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(server, "http://"), ":")
	cmd := exec.CommandContext(t.Context(), "qemu-system-x86_64", "-machine", "pc,graphics=off", "-accel", "tcg", "-m", "512", "-display", "none", "-monitor", "none",
		"-serial", "stdio", "-boot", "n", "-netdev", "user,id=net,bootfile=http://10.0.2.2:"+port+"/boot/start.ipxe",
		"-device", "virtio-net-pci,netdev=net,mac=52:54:00:12:34:56")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed: its status says nothing
	})
}
