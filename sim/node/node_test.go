package simnode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/agentapi/agentapitest"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// agentBinary is the real program, built once for all tests of the package.
var agentBinary = sync.OnceValues(func() (string, error) {
	agentBuilt.Store(true)
	dir, err := os.MkdirTemp("", "slipway-agent-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "slipway-agent")
	out, err := exec.Command("go", "build", "-o", path, "github.com/slipway-cloud/slipway/cmd/slipway-agent").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

var agentBuilt atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if agentBuilt.Load() {
		if path, err := agentBinary(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// site is a machine, a node on it and the agent API it talks to.
type site struct {
	*testing.T
	store   *agentapitest.Memory
	ca      *nodeca.CA
	api     *agentapi.Server
	clock   *simhw.Clock
	machine *simhw.Machine
	node    *simnode.Node
	login   ssh.Signer
	hostKey string
	// loginPEM is login's private key.
	loginPEM providers.Secret

	mu   sync.Mutex
	sync []bool // what the hardware sync hook heard
}

const nodeID = "node_01"

func newSite(t *testing.T) *site {
	t.Helper()
	bin, err := agentBinary()
	require.NoError(t, err)
	s := &site{T: t, store: agentapitest.New()}
	s.ca, err = nodeca.Create()
	require.NoError(t, err)
	s.api = agentapi.New(agentapi.Config{Store: s.store, CA: s.ca, HeartbeatInterval: 50 * time.Millisecond, FlushInterval: 5 * time.Millisecond})
	require.NoError(t, s.api.Start(t.Context()))
	s.clock = simhw.NewClock(1000)
	s.machine = simhw.NewMachine(t.Context(), s.clock, simhw.GPUServer("Dell", 7))
	s.node, err = simnode.New(simnode.Options{Machine: s.machine, Dir: t.TempDir(), AgentBinary: bin,
		Log: slog.New(slog.NewTextHandler(logWriter{t}, nil)), HWSync: func(on bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sync = append(s.sync, on)
		}})
	require.NoError(t, err)
	t.Cleanup(func() {
		s.node.Close()
		ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
		defer cancel()
		require.NoError(t, s.api.Shutdown(ctx))
		if t.Failed() {
			for _, name := range []string{"agent.log", "cloud-init-output.log"} {
				raw, _ := os.ReadFile(filepath.Join(filepath.Dir(s.node.Root()), name))
				fmt.Fprintf(os.Stderr, "%s:\n%s\n", name, raw)
			}
		}
	})
	return s
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// userData renders the real document with a fresh token.
func (s *site) userData() []byte {
	s.Helper()
	host, public, err := cloudinit.NewHostKey()
	require.NoError(s, err)
	private, login, err := cloudinit.NewHostKey()
	require.NoError(s, err)
	s.login, err = ssh.ParsePrivateKey([]byte(private.Reveal()))
	require.NoError(s, err)
	s.hostKey, s.loginPEM = public, private
	raw, err := cloudinit.Render(cloudinit.Input{Hostname: "gpu-07", User: "slipway", AuthorizedKeys: []string{login}, HostKey: host,
		Bundle: []byte("#!/bin/sh\ntouch /tmp/slipway-simnode-must-not-run\n"),
		Agent: cloudinit.Agent{ServerURL: s.api.URL(), CAPEM: string(s.ca.CertPEM()), NodeID: nodeID, Simulated: true,
			HeartbeatInterval: 50 * time.Millisecond, Token: providers.NewSecret(s.store.AddToken(nodeID, time.Now().Add(time.Hour)))}})
	require.NoError(s, err)
	return raw
}

// vendorData is shaped like what MAAS sends for hardware sync.
const vendorData = `#cloud-config
ntp: {servers: [127.0.0.1]}
system_info: {default_user: {name: ubuntu}}
write_files:
- {path: /lib/systemd/system/maas_hardware_sync.timer, content: "[Timer]\nOnUnitActiveSec=15min\n"}
- {path: /etc/maas/maas-machine-creds.yml, content: c2VjcmV0, encoding: b64, permissions: '0600'}
runcmd:
- [wget, -O, /usr/bin/must-not-run, 'http://127.0.0.1:1/']
- systemctl enable --now maas_hardware_sync.timer
`

func (s *site) install(user []byte, vendor string) {
	s.machine.Install(simhw.OS{System: "ubuntu", Series: "jammy", Hostname: "gpu-07", Disk: "sda", UserData: user, VendorData: []byte(vendor)})
}

func (s *site) powerOn() {
	s.machine.SetBootOverride(simhw.Override{Target: "Hdd", Enabled: "Continuous"})
	s.machine.PowerOn("test")
}

func (s *site) eventually(what string, ok func() bool) {
	s.Helper()
	require.Eventually(s, ok, runenv.Patience(20*time.Second), 10*time.Millisecond, what)
}

func (s *site) lastHeartbeat() agentapi.Heartbeat { b, _ := s.store.Heartbeat(nodeID); return b }

func (s *site) healthy() []string {
	r := s.lastHeartbeat().Report
	if r == nil || r.BootID != s.machine.BootID() {
		return []string{"no report of this boot"}
	}
	return spec.SKUSpec{GPUs: 8, GPUModelContains: "H100", GPUMemoryMiB: 80000, DriverMinVersion: "550", NICsUp: 4, DataDisks: 4,
		MinMemoryMiB: 1 << 20, RequireECC: true}.CheckHealth(r.Health)
}

func (s *site) ssh(user string) (*ssh.Client, error) {
	pin, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.hostKey))
	if err != nil {
		return nil, err
	}
	return ssh.Dial("tcp", s.node.SSHAddress(), &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(s.login)},
		HostKeyCallback: ssh.FixedHostKey(pin), Timeout: 5 * time.Second})
}

// command runs one command over ssh.
func (s *site) command(line string) (string, int) {
	s.Helper()
	c, err := s.ssh("slipway")
	require.NoError(s, err)
	defer func() { _ = c.Close() }()
	sess, err := c.NewSession()
	require.NoError(s, err)
	var out, errOut bytes.Buffer // two, since they are filled at the same time
	sess.Stdout, sess.Stderr = &out, &errOut
	err = sess.Run(line)
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return out.String() + errOut.String(), exit.ExitStatus()
	}
	require.NoError(s, err)
	return out.String() + errOut.String(), 0
}

func TestANodeBootsEnrolsReportsAndComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.install(s.userData(), vendorData)
	s.powerOn()
	s.eventually("a healthy report", func() bool { return len(s.healthy()) == 0 })
	b := s.lastHeartbeat()
	require.Equal(t, s.machine.BootID(), b.BootID)
	require.True(t, b.Report.Health.Simulated, "a simulated node says so")
	require.NoFileExists(t, filepath.Join(s.node.Root(), cloudinit.TokenPath), "the token is used up")
	require.NoFileExists(t, "/tmp/slipway-simnode-must-not-run")
	seen := map[string]bool{}
	for _, g := range b.Report.Health.GPUs {
		seen[g.UUID+g.Serial] = true
	}
	require.Len(t, seen, 8)
	var boot []string
	for _, d := range b.Report.Health.Disks {
		if d.Boot {
			boot = append(boot, d.Name)
		}
	}
	require.Equal(t, []string{"sda"}, boot)

	first, pid := s.machine.BootID(), s.node.AgentPID()
	require.NotZero(t, pid)
	s.machine.Reset("test")
	s.eventually("a report of the new boot", func() bool { return s.machine.BootID() != first && len(s.healthy()) == 0 })
	require.EqualValues(t, 1, s.lastHeartbeat().Generation, "it is still who it was")
	require.Empty(t, s.store.Alarms())

	pid = s.node.AgentPID()
	s.machine.PowerOff("test", true)
	s.eventually("the agent is gone", func() bool { return s.node.AgentPID() == 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	_, err := net.DialTimeout("tcp", s.node.SSHAddress(), time.Second)
	require.Error(t, err, "ssh is closed")
}

func TestSSHIsUnderTheKeysOfUserData(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.install(s.userData(), "")
	s.powerOn()
	s.eventually("ssh", func() bool { c, err := s.ssh("slipway"); return err == nil && c.Close() == nil })

	out, rc := s.command("cloud-init status --wait --format json")
	require.Zero(t, rc, out)
	require.Contains(t, out, `"status": "done"`)
	out, rc = s.command("systemctl is-active slipway-agent.service && hostname && pwd && echo $SLIPWAY_ROOT")
	require.Zero(t, rc, out)
	require.Equal(t, "active\ngpu-07\n"+s.node.Root()+"\n"+s.node.Root()+"\n", out)
	out, rc = s.command("cat '/proc/sys/kernel/random/boot_id' /etc/hostname")
	require.Equal(t, s.machine.BootID()+"\ngpu-07\n", out, rc)
	out, rc = s.command("sudo -n nvidia-smi -L | grep -c UUID; exit 7")
	require.Equal(t, "8\n", out)
	require.Equal(t, 7, rc)
	for _, danger := range []string{"mount /dev/sda1 /mnt", "apt-get install -y x", "useradd x", "mkfs.ext4 /dev/sda"} {
		out, rc = s.command(danger)
		require.Equal(t, 127, rc, out)
		require.Contains(t, out, "not simulated")
	}
	out, rc = s.command("mkdir -p /var/lib/slipway/ops && touch '/var/lib/slipway/ops/x'")
	require.Zero(t, rc, out)
	require.FileExists(t, filepath.Join(s.node.Root(), "var/lib/slipway/ops/x"))

	_, err := s.ssh("root")
	require.Error(t, err, "the key is of another user")
	own := s.hostKey
	_, s.hostKey, err = cloudinit.NewHostKey()
	require.NoError(t, err)
	_, err = s.ssh("slipway")
	require.ErrorContains(t, err, "host key mismatch")
	s.hostKey = own

	require.NoError(t, s.node.SetFaults(simnode.Faults{SSHRefusesKeys: true}))
	_, err = s.ssh("slipway")
	require.ErrorContains(t, err, "unable to authenticate")
	require.NoError(t, s.node.SetFaults(simnode.Faults{}))

	first := s.machine.BootID()
	c, err := s.ssh("slipway")
	require.NoError(t, err)
	sess, err := c.NewSession()
	require.NoError(t, err)
	_ = sess.Run("reboot") // the connection may be lost before the answer
	s.eventually("another boot", func() bool { return s.machine.BootID() != first })
}

func TestHardwareSyncComesFromVendorDataOrOverSSH(t *testing.T) {
	t.Parallel()
	heard := func(s *site) []bool { s.mu.Lock(); defer s.mu.Unlock(); return append([]bool(nil), s.sync...) }

	s := newSite(t)
	s.install(s.userData(), vendorData)
	s.powerOn()
	s.eventually("the timer runs", func() bool { return len(heard(s)) == 1 && heard(s)[0] })
	creds, err := os.ReadFile(filepath.Join(s.node.Root(), "etc/maas/maas-machine-creds.yml"))
	require.NoError(t, err)
	require.Equal(t, "secret", string(creds))
	s.command("systemctl disable --now maas_hardware_sync.timer")
	require.Equal(t, []bool{true, false}, heard(s))
	_, rc := s.command("systemctl enable --now maas_hardware_sync.timer")
	require.Zero(t, rc)
	require.Equal(t, []bool{true, false, true}, heard(s))
	s.machine.Reset("test")
	s.eventually("it stops with the system and comes back with it", func() bool { return len(heard(s)) == 5 && heard(s)[4] })

	bare := newSite(t)
	bare.install(bare.userData(), "") // vendor-data was lost: there is no unit to enable
	bare.powerOn()
	bare.eventually("ssh", func() bool { c, err := bare.ssh("slipway"); return err == nil && c.Close() == nil })
	out, rc := bare.command("systemctl enable --now maas_hardware_sync.timer")
	require.Equal(t, 1, rc)
	require.Contains(t, out, "does not exist")
	_, rc = bare.command("printf '[Timer]\\n' > /etc/systemd/system/maas_hardware_sync.timer && systemctl enable --now maas_hardware_sync.timer")
	require.Zero(t, rc)
	require.Equal(t, []bool{true}, heard(bare))
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, s.node.SetFaults(simnode.Faults{AgentDown: true}))
	s.install(s.userData(), "")
	s.powerOn()
	s.eventually("the system is up", func() bool { c, err := s.ssh("slipway"); return err == nil && c.Close() == nil })
	out, rc := s.command("cloud-init status --wait")
	require.Contains(t, out, "done", rc)
	require.Zero(t, s.node.AgentPID(), "it never enrols")
	id, err := s.store.Identity(t.Context(), nodeID)
	require.NoError(t, err)
	require.Zero(t, id.Current.Generation)

	require.NoError(t, s.node.SetFaults(simnode.Faults{MissingGPUs: 1, ECCUnknown: true}))
	s.eventually("a report", func() bool { return s.lastHeartbeat().Report != nil })
	bad := strings.Join(s.healthy(), "; ")
	require.Contains(t, bad, "8 GPUs expected, 7 found")
	require.Contains(t, bad, "uncorrected ECC errors are unknown")

	pid := s.node.AgentPID()
	require.NoError(t, s.node.SetFaults(simnode.Faults{AgentDown: true}))
	require.Zero(t, s.node.AgentPID())
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	require.NoError(t, s.node.SetFaults(simnode.Faults{}))
	pid = s.node.AgentPID()
	require.NotZero(t, pid)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	s.eventually("systemd starts it again", func() bool { p := s.node.AgentPID(); return p != 0 && p != pid })
}

func TestAnotherInstallationStartsFromNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.install(s.userData(), "")
	s.powerOn()
	s.eventually("a heartbeat", func() bool { return s.lastHeartbeat().Generation == 1 })
	marker := filepath.Join(s.node.Root(), "var/tenant-data")
	require.NoError(t, os.WriteFile(marker, nil, 0o600))
	s.machine.PowerOff("test", true)
	s.eventually("off", func() bool { return s.machine.Power() == simhw.Off })
	s.install(s.userData(), "")
	s.machine.PowerOn("test")
	s.eventually("it enrols as the next generation", func() bool { return s.lastHeartbeat().Generation == 2 })
	require.NoFileExists(t, marker)
}

func TestOptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	m := simhw.NewMachine(t.Context(), simhw.NewClock(1), simhw.Spec{ID: "x"})
	_, err := simnode.New(simnode.Options{Dir: t.TempDir(), AgentBinary: "x"})
	require.ErrorContains(t, err, "needs a machine")
	_, err = simnode.New(simnode.Options{Machine: m, AgentBinary: "x", Dir: "/tmp/a b;c"})
	require.ErrorContains(t, err, "letters")
}
