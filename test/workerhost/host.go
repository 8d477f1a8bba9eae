// Package workerhost is what the server of an instance has besides SSH, for tests: scripts in the
// place of Docker and systemd, and a simulated vLLM.
package workerhost

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/sshd"
)

// Host is the inside of a server.
type Host struct {
	// Root is the folder before every path of the installation.
	Root string
	// Env are the settings with which the installation script works in it.
	Env map[string]string
	// VLLMPort and AgentPort are those of its worker.
	VLLMPort, AgentPort int

	t     *testing.T
	model string

	mu     sync.Mutex
	loaded bool
}

// New makes a server whose vLLM has not loaded its model yet. It skips the test when a program is
// not installed that every server has.
func New(t *testing.T, model string) *Host {
	t.Helper()
	for _, program := range []string{"python3", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("SLIPWAY_REQUIRE_PEERS") == "1" {
				t.Fatal(program + " is not installed and SLIPWAY_REQUIRE_PEERS=1 wants it")
			}
			t.Skip(program + " is not installed: install it to run this test")
		}
	}
	h := &Host{t: t, Root: t.TempDir(), model: model}
	vllm := httptest.NewServer(http.HandlerFunc(h.serveVLLM))
	t.Cleanup(vllm.Close)
	h.VLLMPort, h.AgentPort = portOf(t, strings.TrimPrefix(vllm.URL, "http://")), portOf(t, sshd.FreeAddress(t))
	require.NoError(t, os.MkdirAll(h.bin(), 0o755))
	h.Program("docker", "echo \"$*\" >>"+h.Root+"/docker.log\n")
	h.Program("systemctl", `case $1 in restart)
  [ -f `+h.Root+`/pid ] && kill "$(cat `+h.Root+`/pid)" 2>/dev/null
  setsid python3 `+h.Root+`/opt/slipway-worker/agent.py `+h.Root+`/opt/slipway-worker/agent.json >`+h.Root+`/agent.log 2>&1 </dev/null &
  echo $! >`+h.Root+`/pid
esac
`)
	t.Cleanup(h.stopAgent)
	h.Env = map[string]string{"ROOT": h.Root, "PATH": h.bin() + ":" + os.Getenv("PATH"), "VLLM_URL": vllm.URL, "AGENT_PORT": strconv.Itoa(h.AgentPort)}
	return h
}

func (h *Host) bin() string { return filepath.Join(h.Root, "bin") }

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return n
}

// Program replaces a program of the server by a shell script.
func (h *Host) Program(name, text string) {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(filepath.Join(h.bin(), name), []byte("#!/bin/sh\n"+text), 0o755))
}

// Load has vLLM load its model.
func (h *Host) Load() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loaded = true
}

func (h *Host) stopAgent() {
	raw, err := os.ReadFile(filepath.Join(h.Root, "pid"))
	if err != nil {
		return
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the agent that this test has started
	}
}

// key returns the key of vLLM, which its container reads from a file.
func (h *Host) key() string {
	raw, err := os.ReadFile(filepath.Join(h.Root, "opt/slipway-worker/vllm.env"))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(raw)), "VLLM_API_KEY=")
}

func (h *Host) serveVLLM(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	models := []map[string]string{}
	if h.loaded {
		models = append(models, map[string]string{"id": h.model})
	}
	key := h.key()
	switch {
	case key == "" || r.Header.Get("Authorization") != "Bearer "+key:
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/v1/models":
		_ = json.NewEncoder(w).Encode(map[string]any{"data": models})
	case r.URL.Path == "/v1/completions" && h.loaded, r.URL.Path == "/health":
		_, _ = w.Write([]byte("{}"))
	case r.URL.Path == "/metrics":
		_, _ = fmt.Fprintln(w, `vllm:num_requests_running{engine="0"} 3.0`)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
