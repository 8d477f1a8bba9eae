package sshd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Host is the SSH server of a machine that restarts and is installed again: it answers while the
// system of the machine is up, under the host key of that system. Its methods may be called by any
// goroutine.
type Host struct {
	Address string
	program string
	conf    string
	key     string // file of the host key
	log     string

	mu  sync.Mutex
	cmd *exec.Cmd // nil while the machine is down
}

// NewHost returns the server of a machine that is down, at a free port of an address of the
// loopback interface. It accepts one login key, and skips the test when OpenSSH is not installed.
func NewHost(t *testing.T, ip string, authorized []byte) *Host {
	t.Helper()
	h := &Host{program: findSSHD(t)}
	if os.Geteuid() == 0 {
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // sshd's privilege separation folder
	}
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	require.NoError(t, err)
	h.Address = l.Addr().String()
	require.NoError(t, l.Close())
	_, port, err := net.SplitHostPort(h.Address)
	require.NoError(t, err)
	dir := t.TempDir()
	h.conf, h.key, h.log = filepath.Join(dir, "sshd_config"), filepath.Join(dir, "host"), filepath.Join(dir, "log")
	keys := filepath.Join(dir, "authorized")
	require.NoError(t, os.WriteFile(keys, authorized, 0o600))
	require.NoError(t, os.WriteFile(h.conf, config(ip, port, "HostKey "+h.key, "AuthorizedKeysFile "+keys), 0o600))
	t.Cleanup(h.Down)
	return h
}

// Up starts the server of a system that has this host key, in PEM. A server that ran before is
// ended.
func (h *Host) Up(hostPEM []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down()
	if len(hostPEM) == 0 {
		return errors.New("the system has no host key")
	}
	if err := os.WriteFile(h.key, hostPEM, 0o600); err != nil {
		return fmt.Errorf("write the host key: %w", err)
	}
	cmd := exec.Command(h.program, "-D", "-f", h.conf, "-E", h.log) //nolint:forbidigo // Down ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start sshd: %w", err)
	}
	h.cmd = cmd
	return nil
}

// Down ends the server and its sessions.
func (h *Host) Down() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down()
}

func (h *Host) down() {
	if h.cmd == nil {
		return
	}
	_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
	_ = h.cmd.Wait()
	h.cmd = nil
}
