package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/taskhandlers"
)

// unit reads a unit file: section, key, values.
func unit(t *testing.T, name string) map[string]map[string][]string {
	t.Helper()
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	out := map[string]map[string][]string{}
	section := ""
	for n, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
			require.NotContains(t, out, section)
			out[section] = map[string][]string{}
		default:
			key, value, ok := strings.Cut(line, "=")
			require.True(t, ok, "%s:%d", name, n+1)
			require.NotEmpty(t, section)
			out[section][key] = append(out[section][key], value)
		}
	}
	return out
}

func requireAll(t *testing.T, s map[string][]string, want map[string]string) {
	t.Helper()
	for key, value := range want {
		require.Equal(t, []string{value}, s[key], key)
	}
}

func TestTheNetworkHalfHasNoRights(t *testing.T) {
	t.Parallel()
	s := unit(t, "slipway-agent.service")["Service"]
	requireAll(t, s, map[string]string{
		"User": taskhandlers.AgentUser, "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "ProtectSystem": "strict", "ProtectHome": "yes",
		"PrivateTmp": "yes", "OOMScoreAdjust": "-1000", "MemoryMax": "512M", "SystemCallArchitectures": "native", "RestrictNamespaces": "yes",
		"RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX AF_NETLINK",
		"RestrictSUIDSGID":        "yes", "Restart": "always", "RestartPreventExitStatus": "77", "StateDirectory": "slipway-agent", "StateDirectoryMode": "0700",
	})
	require.Equal(t, "@system-service", s["SystemCallFilter"][0])
	require.Contains(t, s["SystemCallFilter"][1], "~@privileged")
	require.Empty(t, s["ReadWritePaths"])
}

// The privileged half works on the machine's own mounts; any of these settings
// would give it others.
func TestThePrivilegedHalfSeesTheMachine(t *testing.T) {
	t.Parallel()
	s := unit(t, "slipway-agent-helper.service")["Service"]
	for key := range s {
		mounts := strings.HasPrefix(key, "Protect") || strings.HasPrefix(key, "Private") || strings.HasSuffix(key, "Paths") || strings.HasPrefix(key, "Bind") ||
			slices.Contains([]string{"DynamicUser", "RootDirectory", "RootImage", "TemporaryFileSystem", "MountFlags", "MountAPIVFS", "ProcSubset", "LogNamespace"}, key)
		require.False(t, mounts, "%s makes a mount namespace", key)
	}
	requireAll(t, s, map[string]string{
		"User": "root", "NoNewPrivileges": "yes", "RestrictAddressFamilies": "AF_UNIX AF_NETLINK", "IPAddressDeny": "any", "OOMScoreAdjust": "-1000", "MemoryMax": "4G",
		"RestartPreventExitStatus": "77", "Restart": "always", "ExecStartPre": "-/opt/slipway-agent/guard", "StateDirectory": "slipway-agent-helper",
	})
	caps := strings.Join(s["CapabilityBoundingSet"], " ")
	// dmesg (the validation reads it), umount, kill and userdel, nvme, /proc of others.
	for _, needed := range []string{"CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_SYS_RAWIO", "CAP_SYS_PTRACE", "CAP_LINUX_IMMUTABLE"} {
		require.Contains(t, strings.Fields(caps), needed)
	}
	for _, never := range []string{"CAP_SYS_TIME", "CAP_NET_RAW", "CAP_NET_BIND_SERVICE", "CAP_SYS_BOOT", "CAP_BPF", "CAP_SETFCAP", "CAP_MAC", "~"} {
		require.NotContains(t, caps, never)
	}
	sock := unit(t, "slipway-agent-helper.socket")["Socket"]
	requireAll(t, sock, map[string]string{"ListenStream": "/run/slipway/helper.sock", "SocketMode": "0660", "SocketUser": "root", "SocketGroup": taskhandlers.AgentUser})
}

func TestTheUnitsAreKnownToTheUninstall(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("slipway-agent*")
	require.NoError(t, err)
	want := taskhandlers.Units()
	slices.Sort(want)
	slices.Sort(files)
	require.Equal(t, want, files)
	for _, f := range files {
		unit(t, f)
	}
}

func TestSystemdTakesTheUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	for _, n := range taskhandlers.Units() {
		raw, err := os.ReadFile(n)
		require.NoError(t, err)
		// The programs are not on this machine.
		text := strings.NewReplacer("/opt/slipway-agent/current/slipway-agent", "/bin/true", "/opt/slipway-agent/guard", "/bin/true").Replace(string(raw))
		require.NoError(t, os.WriteFile(filepath.Join(dir, n), []byte(text), 0o644))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	for _, n := range taskhandlers.Units() {
		args = append(args, filepath.Join(dir, n))
	}
	out, err := exec.CommandContext(ctx, analyze, args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		require.NotContains(t, line, "slipway-agent", string(out))
	}
	require.NoError(t, err, string(out))
}

// site is a directory with the installer's files, a fake system and a log of
// what was called.
type site struct {
	t                 *testing.T
	root, bin, log    string
	binary, sum, conf string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, root: t.TempDir(), bin: t.TempDir()}
	s.log = filepath.Join(s.bin, "log")
	for tool, does := range map[string]string{"systemctl": "", "useradd": "touch " + s.bin + "/known", "getent": "[ -f " + s.bin + "/known ]", "chown": "exit 9"} {
		script := fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >>%s\n%s\n", tool, s.log, does)
		require.NoError(t, writeProgram(filepath.Join(s.bin, tool), script))
	}
	s.conf = s.file("agent.yaml", "server_url: https://slipway.example:7443\nca_pem: x\nnode_id: n1\nhelper_socket: /run/slipway/helper.sock\ntoken_file: /var/lib/slipway-agent/token\n")
	s.build("one")
	return s
}

func (s *site) file(name, content string) string {
	s.t.Helper()
	p := filepath.Join(s.bin, name)
	require.NoError(s.t, os.WriteFile(p, []byte(content), 0o600))
	return p
}

func (s *site) build(content string) {
	s.binary = s.file("slipway-agent-"+content, content)
	h := sha256.Sum256([]byte(content))
	s.sum = hex.EncodeToString(h[:])
}

func (s *site) run(script string, args ...string) (string, error) {
	cmd := exec.CommandContext(s.t.Context(), "sh", append([]string{script}, args...)...)
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "SLIPWAY_ROOT=" + s.root}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// writeProgram writes a program that can be run at once. No other test may fork while the file is
// open: its child would hold the file open for writing, and running it would fail ("text file
// busy").
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o755)
}

func (s *site) install(more ...string) (string, error) {
	return s.run("./install.sh", append([]string{"--binary", s.binary, "--sha256", s.sum, "--config", s.conf}, more...)...)
}

func (s *site) read(p string) string {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.root, p))
	require.NoError(s.t, err)
	return string(raw)
}

func TestTheInstallerInstallsAndMayBeRunAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token, keys, pattern := s.file("token", "secret\n"), s.file("keys", "[]\n"), s.file("pattern", "a program")
	for range 2 {
		out, err := s.install("--token", token, "--task-keys", keys, "--gpu-pattern", pattern)
		require.NoError(t, err, out)
		require.Equal(t, "one", s.read("/opt/slipway-agent/current/slipway-agent"))
		to, err := os.Readlink(filepath.Join(s.root, "/opt/slipway-agent/current"))
		require.NoError(t, err)
		require.Equal(t, "a", to)
	}
	for p, mode := range map[string]os.FileMode{"/etc/slipway/agent.yaml": 0o640, "/var/lib/slipway-agent/token": 0o600, "/opt/slipway-agent/guard": 0o755,
		"/opt/slipway-agent/a/slipway-agent": 0o755, "/etc/systemd/system/slipway-agent-helper.socket": 0o644, "/etc/slipway/task-keys.json": 0o644,
		"/usr/local/bin/slipway-gpu-pattern": 0o755} {
		info, err := os.Stat(filepath.Join(s.root, p))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), p)
	}
	log, err := os.ReadFile(s.log)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(log), "useradd --system"))
	require.Equal(t, 2, strings.Count(string(log), "systemctl restart slipway-agent.service"))

	s.build("two")
	out, err := s.install()
	require.NoError(t, err, out)
	require.Equal(t, "two", s.read("/opt/slipway-agent/current/slipway-agent"))
	require.Equal(t, "one", s.read("/opt/slipway-agent/a/slipway-agent"), "the version before stays")

	cfg, err := agentconfig.Load(filepath.Join(s.root, "/etc/slipway/agent.yaml"), nil)
	require.NoError(t, err)
	require.Equal(t, "/opt/slipway-agent", cfg.InstallDir)
	require.Equal(t, "/var/lib/slipway-agent-helper", cfg.HelperStateDir)
}

func TestTheInstallerChecksBeforeItChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	right := s.sum
	other := strings.Repeat("0", 64)
	for says, change := range map[string]func(){
		"does not have the sha256": func() { s.sum = other },
		"64 lower-case hex digits": func() { s.sum = strings.ToUpper(right) },
		"there is no file":         func() { s.binary += "-not" },
		"must say: helper_socket":  func() { s.conf = s.file("bad.yaml", "token_file: /var/lib/slipway-agent/token\n") },
		"must say: token_file": func() {
			s.conf = s.file("bad.yaml", "helper_socket: /run/slipway/helper.sock\ntoken_file: /etc/slipway/token\n")
		},
		"are needed": func() { s.conf = "" },
	} {
		keep := *s
		change()
		out, err := s.install()
		*s = keep
		require.Error(t, err, says)
		require.Contains(t, out, says)
	}
	left, err := os.ReadDir(s.root)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, os.MkdirAll(filepath.Join(s.root, "opt/slipway-agent"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "opt/slipway-agent/trial"), []byte("task=t\noutcome=trying\n"), 0o644))
	out, err := s.install()
	require.Error(t, err)
	require.Contains(t, out, "on trial")
}

func TestTheGuardPutsAVersionBackThatDoesNotStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.run("./guard.sh")
	require.NoError(t, err, "without a trial there is nothing to do")
	dir := filepath.Join(s.root, "opt/slipway-agent")
	link := func() string {
		to, err := os.Readlink(filepath.Join(dir, "current"))
		require.NoError(t, err)
		return to
	}
	trial := func(until time.Time) {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		text := fmt.Sprintf("task=task-1\nversion=v1.3.0\nprevious=a\nnext=b\noutcome=trying\nuntil=%d\nstarts=0\ndetail=\n", until.Unix())
		require.NoError(t, os.WriteFile(filepath.Join(dir, "trial"), []byte(text), 0o644))
		_ = os.Remove(filepath.Join(dir, "current"))
		require.NoError(t, os.Symlink("b", filepath.Join(dir, "current")))
	}
	trial(time.Now().Add(time.Hour))
	for n := 1; n <= 5; n++ {
		out, err := s.run("./guard.sh")
		require.NoError(t, err, out)
		require.Contains(t, s.read("/opt/slipway-agent/trial"), fmt.Sprintf("starts=%d\n", n))
		require.Equal(t, "b", link())
	}
	out, err := s.run("./guard.sh")
	require.NoError(t, err)
	require.Contains(t, out, "v1.3.0 did not prove itself")
	require.Equal(t, "a", link())
	require.Contains(t, s.read("/opt/slipway-agent/trial"), "outcome=rolled_back\n")
	_, err = s.run("./guard.sh")
	require.NoError(t, err)
	require.Contains(t, s.read("/opt/slipway-agent/trial"), "starts=6\n", "what is settled is left alone")

	trial(time.Now().Add(-time.Second))
	_, err = s.run("./guard.sh")
	require.NoError(t, err)
	require.Equal(t, "a", link(), "a trial that is too long ago is over")
}
