package sshd

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The texts in a netplan file of a System that decide about its network.
const (
	CutOff  = "# cut off" // nobody reaches the system
	Moved   = "# moved"   // it answers at After alone
	Invalid = "# invalid" // netplan refuses the file
)

// System is a folder that stands for / of a machine behind an SSH server. Its netplan, systemctl
// and systemd-run are stand-ins: they keep the files, the timer and what runs at a boot, and know
// no network. The text of the netplan files decides at which of two addresses the server is
// reached. A second of its timer and of its sleep is 1/Speed seconds.
type System struct {
	Root          string
	Before, After string // the addresses
	backend       string

	mu    sync.Mutex
	conns map[net.Conn]string // with the address that they came by
}

// Speed is how much faster the time of a System runs.
const Speed = 40

// NewSystem returns a system with one file of netplan, in front of the SSH server at an address.
func NewSystem(t *testing.T, backend string) *System {
	t.Helper()
	s := &System{Root: t.TempDir(), backend: backend, conns: map[net.Conn]string{}}
	s.write(t, "etc/netplan/50-cloud-init.yaml", "network: {version: 2}\n", 0o600)
	s.write(t, "etc/systemd/system/.keep", "", 0o600)
	s.write(t, "bin/netplan", netplanProgram, 0o700)
	s.write(t, "bin/systemctl", systemctlProgram, 0o700)
	s.write(t, "bin/systemd-run", systemdRunProgram, 0o700)
	s.write(t, "bin/sleep", sleepProgram, 0o700)
	s.write(t, "bin/sync", syncProgram, 0o700)
	s.run(t, "bin/netplan", "apply")
	before, after := listen(t), listen(t)
	s.Before, s.After = before.Addr().String(), after.Addr().String()
	s.serve(before)
	s.serve(after)
	go s.enforce(t)
	t.Cleanup(func() { s.stopTimer() })
	return s
}

const programHead = `#!/bin/sh
root=$(dirname "$(dirname "$0")")
units=$root/etc/systemd/system
`

const netplanProgram = programHead + `case $1 in
generate) if grep -q '^# invalid' "$3"/etc/netplan/*.yaml; then echo "Error in network definition: line 1" >&2; exit 78; fi ;;
apply)
	if [ -s "$root/failing-applies" ]; then sed -i 1d "$root/failing-applies"; exit 1; fi
	echo apply >>"$root/applies"; cat "$root"/etc/netplan/*.yaml >"$root/network.$$"; mv "$root/network.$$" "$root/network" ;;
*) exit 64 ;;
esac
`

const systemctlProgram = programHead + `last=; for last; do :; done
case $1 in
daemon-reload) ;;
enable) : >"$root/enabled-$last" ;;
disable) rm -f "$root/enabled-$last" ;;
is-active) kill -0 "$(cat "$root/timer")" 2>/dev/null ;;
stop) kill -- "-$(cat "$root/timer")" 2>/dev/null; rm -f "$root/timer" ;;
restart)
	[ ! -e "$root/no-timer" ] || exit 1
	after=$(sed -n 's/^OnActiveSec=\([0-9]*\)s$/\1/p' "$units/$last")
	command=$(sed -n 's/^ExecStart=//p' "$units/$(sed -n 's/^Unit=//p' "$units/$last")")
	after=$(awk "BEGIN { print $after / 40 }")
	setsid sh -c 'echo $$ >"$1/timer"; /bin/sleep "$2"; rm -f "$1/timer"; eval "$3"' sh "$root" "$after" "$command" >/dev/null 2>&1 </dev/null &
	while ! [ -s "$root/timer" ]; do /bin/sleep 0.01; done ;;
*) exit 64 ;;
esac
`

const sleepProgram = `#!/bin/sh
exec /bin/sleep "$(awk "BEGIN { print $1 / 40 }")"
`

// syncProgram waits without end for all file systems, as sync does where one of them is on a server
// that nobody reaches. It flushes nothing, so that no test waits for the disk.
const syncProgram = `#!/bin/sh
[ $# -gt 0 ] || exec /bin/sleep 100
for path; do [ -e "$path" ] || exit 1; done
`

const systemdRunProgram = `#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
setsid "$@" >/dev/null 2>&1 </dev/null &
`

func (s *System) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(s.Root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
}

func (s *System) run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(s.Root, name), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Files returns the files of netplan by their names.
func (s *System) Files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	found, err := filepath.Glob(filepath.Join(s.Root, "etc/netplan/*"))
	require.NoError(t, err)
	for _, path := range found {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was being written, and has its name by now
		}
		require.NoError(t, err)
		out[filepath.Base(path)] = string(text)
	}
	return out
}

// RefuseTimers has systemd start no timer.
func (s *System) RefuseTimers(t *testing.T) { t.Helper(); s.write(t, "no-timer", "", 0o600) }

// FailApplies has netplan apply nothing the next times.
func (s *System) FailApplies(t *testing.T, times int) {
	t.Helper()
	s.write(t, "failing-applies", strings.Repeat("fail\n", times), 0o600)
}

// Armed reports whether the way back waits: the timer, or the service of the next boot.
func (s *System) Armed() bool {
	enabled, _ := filepath.Glob(filepath.Join(s.Root, "enabled-*"))
	return s.timer() != 0 || len(enabled) > 0
}

func (s *System) timer() int {
	text, err := os.ReadFile(filepath.Join(s.Root, "timer"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func (s *System) stopTimer() {
	if pid := s.timer(); pid > 1 {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // it is the leader of a session of its own
		_ = os.Remove(filepath.Join(s.Root, "timer"))
	}
}

// Boot restarts the system: its timers are gone, netplan configures the network first, and then the
// services run that are enabled and whose condition holds.
func (s *System) Boot(t *testing.T) {
	t.Helper()
	s.stopTimer()
	s.run(t, "bin/netplan", "apply")
	enabled, err := filepath.Glob(filepath.Join(s.Root, "enabled-*"))
	require.NoError(t, err)
	for _, path := range enabled {
		unit, err := os.ReadFile(filepath.Join(s.Root, "etc/systemd/system", strings.TrimPrefix(filepath.Base(path), "enabled-")))
		require.NoError(t, err)
		command, met := "", true
		for line := range strings.Lines(string(unit)) {
			if p, ok := strings.CutPrefix(strings.TrimSpace(line), "ConditionPathExists="); ok {
				_, err := os.Stat(p)
				met = met && err == nil
			}
			if c, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
				command = c
			}
		}
		if met {
			out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
}

// reachedAt returns the address at which the system is reached now, "" for none.
func (s *System) reachedAt() string {
	text, _ := os.ReadFile(filepath.Join(s.Root, "network"))
	switch {
	case strings.Contains(string(text), CutOff):
		return ""
	case strings.Contains(string(text), Moved):
		return s.After
	}
	return s.Before
}

// listen opens an address.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// serve connects to the server what comes to an address while the system is reached there.
func (s *System) serve(listener net.Listener) {
	address := listener.Addr().String()
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.DialTimeout("tcp", s.backend, time.Second)
			if err != nil || s.reachedAt() != address {
				_ = in.Close()
				if err == nil {
					_ = out.Close()
				}
				continue
			}
			s.mu.Lock()
			s.conns[in], s.conns[out] = address, address
			s.mu.Unlock()
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
}

// enforce cuts the connections of an address that the system has left.
func (s *System) enforce(t *testing.T) {
	for t.Context().Err() == nil {
		at := s.reachedAt()
		s.mu.Lock()
		for c, address := range s.conns {
			if address != at {
				_ = c.Close()
				delete(s.conns, c)
			}
		}
		s.mu.Unlock()
		select {
		case <-t.Context().Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}
