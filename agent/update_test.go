package agent_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/agent/selfupdate"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// installation is a node with v1.2.3 and an update to v1.3.0 to be fetched.
func (n *node) installation() (args string) {
	n.s.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	require.NoError(n.s, err)
	n.cfg.UpdateKey = base64.StdEncoding.EncodeToString(pub)
	n.cfg.InstallDir = "/opt/slipway-agent"
	dir := filepath.Join(n.cfg.Root, n.cfg.InstallDir)
	require.NoError(n.s, os.MkdirAll(filepath.Join(dir, "a"), 0o755))
	require.NoError(n.s, os.Symlink("a", filepath.Join(dir, "current")))
	program := []byte("#!/bin/sh\necho v1.3.0\n")
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(program) }))
	n.s.Cleanup(files.Close)
	sum := sha256.Sum256(program)
	manifest, err := json.Marshal(selfupdate.Manifest{Version: "v1.3.0", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(program)), OS: runtime.GOOS, Arch: runtime.GOARCH})
	require.NoError(n.s, err)
	raw, err := json.Marshal(spec.UpdateArgs{Manifest: manifest, ManifestSignature: ed25519.Sign(key, append([]byte(selfupdate.Context), manifest...)), BinaryURL: files.URL})
	require.NoError(n.s, err)
	return string(raw)
}

// once runs a version of the agent, in one process or two, until a task ends it
// or done says so, and gives why it ended.
func (n *node) once(version string, done func() bool) error {
	n.s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(30*time.Second))
	defer cancel()
	log := slog.New(slog.NewTextHandler(testWriter{n.s.T}, nil))
	halves := 1
	ended := make(chan error, 2)
	if n.cfg.HelperSocket != "" {
		halves = 2
		l, err := privileged.Listen(filepath.Join(n.cfg.Root, n.cfg.HelperSocket), -1)
		require.NoError(n.s, err)
		go func() { ended <- agent.Helper(ctx, n.cfg, version, log, l, []int{os.Getuid()}) }()
	}
	a, err := agent.New(n.cfg, version, log)
	require.NoError(n.s, err)
	go func() { ended <- a.Run(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var why error
	for range halves {
	wait:
		for {
			select {
			case err := <-ended:
				if err != nil {
					why = err
				}
				cancel() // systemd starts the other half again too, when it follows
				break wait
			case <-tick.C:
				if done != nil && done() {
					cancel()
				}
			}
		}
	}
	return why
}

func TestAnUpdateOfTheWholeAgent(t *testing.T) {
	t.Parallel()
	for _, socket := range []string{"", "/s"} {
		for _, healthy := range []bool{true, false} {
			s := serve(t)
			d := newFakeTasks(t, s)
			n := s.node("n1").taskWait()
			n.cfg.HelperSocket = socket
			n.cfg.UpdateTrial = 20 * time.Second
			d.put("n1", "t1", lifecycle.TaskKindUpdate, n.installation())
			link := func() string {
				to, err := os.Readlink(filepath.Join(n.cfg.Root, "/opt/slipway-agent/current"))
				require.NoError(t, err)
				return to
			}
			require.ErrorIs(t, n.once("v1.2.3", nil), task.ErrRestart)
			require.Equal(t, "b", link())
			require.Equal(t, lifecycle.TaskDispatched, d.status("t1"), "nothing is reported before the new version has proved itself")
			if healthy {
				require.NoError(t, n.once("v1.3.0", func() bool { return d.status("t1") == lifecycle.TaskSucceeded }))
				require.Equal(t, "b", link())
				require.JSONEq(t, `{"version":"v1.3.0"}`, string(d.last("t1").Output))
				continue
			}
			d.cut(true) // the new version does not get through
			n.cfg.UpdateTrial = 200 * time.Millisecond
			require.ErrorIs(t, n.once("v1.3.0", nil), task.ErrRestart)
			require.Equal(t, "a", link())
			d.cut(false)
			require.NoError(t, n.once("v1.2.3", func() bool { return d.status("t1") == lifecycle.TaskFailed }))
			require.Equal(t, task.CodeRolledBack, d.last("t1").Code)
			require.Equal(t, "a", link())
		}
	}
}
