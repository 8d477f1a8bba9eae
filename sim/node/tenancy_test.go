package simnode_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/csv"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/agent/metadata"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/taskhandlers"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	sshrunner "github.com/slipway-cloud/slipway/providers/ssh"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	allocationID = "alc_9"
	tenantUser   = "t-alc9"
)

// tenantKey is a key pair of a tenant, the private half in a file for ssh.
type tenantKey struct {
	public, file string
	private      providers.Secret
}

func newTenantKey(t *testing.T) tenantKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	raw := pem.EncodeToMemory(block)
	file := filepath.Join(t.TempDir(), "id")
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	return tenantKey{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), file, providers.NewSecret(string(raw))}
}

// handlers are those of the agent, on the node's files and with its programs, as the agent's
// process has them.
func (s *site) handlers() task.Registry {
	tools := toolrunner.ForTasks(s.node.Root(), filepath.Join(filepath.Dir(s.node.Root()), "tools")+":/usr/bin:/bin")
	tools.Path = tools.Tools
	return taskhandlers.Host{Root: s.node.Root(), Tool: tools.Run, HasTool: tools.Has, StateDir: "/var/lib/slipway-agent"}.Handlers(taskhandlers.Uninstall{})
}

func (s *site) do(kind lifecycle.TaskKind, args any) {
	s.Helper()
	rec := task.NewRecorder(nil, nil, nil)
	res := s.handlers()[kind].Run(s.Context(), task.Request{Args: args}, rec)
	require.True(s, res.OK, "%s: %s %+v", kind, res.Message, rec.Steps())
}

func (s *site) target() providers.SSHTarget {
	return providers.SSHTarget{Address: s.node.SSHAddress(), Rule: providers.SimulatedAddresses(), User: tenantUser, HostKey: s.hostKey}
}

func (s *site) accepts(key tenantKey) bool {
	s.Helper()
	ok, err := sshrunner.New().OfferKey(s.Context(), s.target(), key.public)
	require.NoError(s, err)
	return ok
}

// openSSH runs a command, or a shell that reads input, with a real OpenSSH client and the pinned
// host key.
func (s *site) openSSH(key tenantKey, input string, command ...string) (string, error) {
	s.Helper()
	client, err := exec.LookPath("ssh")
	require.NoError(s, err, "OpenSSH's client; install openssh-client")
	host, port, ok := strings.Cut(s.node.SSHAddress(), ":")
	require.True(s, ok)
	known := filepath.Join(s.TempDir(), "known_hosts")
	require.NoError(s, os.WriteFile(known, []byte(fmt.Sprintf("[%s]:%s %s\n", host, port, s.hostKey)), 0o600))
	args := []string{"-F", "none", "-i", key.file, "-p", port, "-l", tenantUser, "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes",
		"-o", "UserKnownHostsFile=" + known, "-o", "LogLevel=ERROR", host}
	cmd := exec.CommandContext(s.Context(), client, append(args, command...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func newRunningSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.install(s.userData(), "")
	s.powerOn()
	s.installed()
	return s
}

// installed waits until the system answers and its first boot has ended.
func (s *site) installed() {
	s.eventually("ssh", func() bool { c, err := s.ssh("slipway"); return err == nil && c.Close() == nil })
	s.eventually("cloud-init has ended", func() bool { out, _ := s.command("cloud-init status"); return strings.Contains(out, "done") })
}

func TestTenantAccount_OnANode(t *testing.T) {
	t.Parallel()
	s := newRunningSite(t)
	key, other := newTenantKey(t), newTenantKey(t)
	require.False(t, s.accepts(key), "there is no account")
	s.do(lifecycle.TaskKindCreateUser, &spec.CreateUserArgs{AllocationID: allocationID, User: tenantUser, Root: true})
	require.False(t, s.accepts(key), "the account has no key")
	s.do(lifecycle.TaskKindSetKeys, &spec.SetKeysArgs{AllocationID: allocationID, User: tenantUser, Keys: []string{key.public}})
	require.True(t, s.accepts(key))
	require.False(t, s.accepts(other))

	to := s.target()
	to.PrivateKeyPEM = key.private
	uid, err := sshrunner.New().Login(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, 1001, uid)
	out, err := s.openSSH(key, "", "id -un; id -u; sudo -n id -u; whoami; pwd; hostname")
	require.NoError(t, err, out)
	require.Equal(t, fmt.Sprintf("%s\n1001\n0\n%[1]s\n%s/home/%[1]s\ngpu-07\n", tenantUser, s.node.Root()), out)
	out, err = s.openSSH(key, "cd /\ncat /etc/hostname\nexit 3\n")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out)
	require.Equal(t, 3, exit.ExitCode(), "a shell without a command")
	require.Equal(t, "gpu-07\n", out)

	s.do(lifecycle.TaskKindCreateUser, &spec.CreateUserArgs{AllocationID: allocationID, User: tenantUser})
	_, err = s.openSSH(key, "", "sudo -n id -u")
	require.Error(t, err, "no longer root")

	// A login that is open ends with the account.
	session := make(chan error, 1)
	go func() { _, err := s.openSSH(key, "", "echo in >started; sleep 600"); session <- err }()
	s.eventually("the session runs", func() bool {
		_, err := os.Stat(filepath.Join(s.node.Root(), "home", tenantUser, "started"))
		return err == nil
	})
	s.do(lifecycle.TaskKindSetKeys, &spec.SetKeysArgs{AllocationID: allocationID, User: tenantUser})
	require.False(t, s.accepts(key))
	for range 2 {
		s.do(lifecycle.TaskKindRevokeUser, &spec.RevokeUserArgs{AllocationID: allocationID, User: tenantUser, RemoveHome: true})
	}
	select {
	case err := <-session:
		require.Error(t, err)
	case <-time.After(runenv.Patience(20 * time.Second)):
		t.Fatal(runenv.Deadline + ": the session of a revoked account goes on")
	}
	require.False(t, s.accepts(key))
	require.NoDirExists(t, filepath.Join(s.node.Root(), "home", tenantUser))
	out, rc := s.command("id " + tenantUser)
	require.Equal(t, 1, rc, out)
}

// TestTroubles_OfARevocation: an agent that does nothing, and a process that no signal ends.
func TestTroubles_OfARevocation(t *testing.T) {
	t.Parallel()
	s := newRunningSite(t)
	key := newTenantKey(t)
	s.do(lifecycle.TaskKindCreateUser, &spec.CreateUserArgs{AllocationID: allocationID, User: tenantUser})
	s.do(lifecycle.TaskKindSetKeys, &spec.SetKeysArgs{AllocationID: allocationID, User: tenantUser, Keys: []string{key.public}})
	require.ErrorContains(t, s.node.HoldProcess("nobody-there"), "no account")
	require.NoError(t, s.node.HoldProcess(tenantUser))
	revoke := task.Request{Args: &spec.RevokeUserArgs{AllocationID: allocationID, User: tenantUser, RemoveHome: true}}
	res := s.handlers()[lifecycle.TaskKindRevokeUser].Run(t.Context(), revoke, task.NewRecorder(nil, nil, nil))
	require.False(t, res.OK)
	require.Contains(t, res.Message, "do not end even by SIGKILL")
	require.False(t, s.accepts(key), "the account is locked first")

	require.Equal(t, simnode.Faults{}, s.node.Faults(), "other processes end as they should")
	require.NoError(t, os.RemoveAll(filepath.Join(s.node.Root(), "proc", "4344"))) // the device has answered
	s.do(lifecycle.TaskKindRevokeUser, revoke.Args)
	s.do(lifecycle.TaskKindCreateUser, &spec.CreateUserArgs{AllocationID: allocationID, User: tenantUser})
	s.do(lifecycle.TaskKindSetKeys, &spec.SetKeysArgs{AllocationID: allocationID, User: tenantUser, Keys: []string{key.public}})
	require.NoError(t, s.node.SetFaults(simnode.Faults{SSHKeepsAccess: true}))
	s.do(lifecycle.TaskKindRevokeUser, revoke.Args)
	require.True(t, s.accepts(key), "the agent says that the account is gone")
}

// TestNode_DescribesItself: what its programs and files say is of the simulated machine, and
// agrees.
func TestNode_DescribesItself(t *testing.T) {
	t.Parallel()
	s := newRunningSite(t)
	want := s.machine.Spec()
	run := func(line string) string {
		t.Helper()
		out, rc := s.command(line)
		require.Zero(t, rc, "%s: %s", line, out)
		return out
	}
	release := run("cat /etc/os-release")
	require.Contains(t, release, `PRETTY_NAME="Ubuntu 22.04 (Jammy Jellyfish)"`)
	require.Contains(t, release, "VERSION_CODENAME=jammy\n")
	require.Equal(t, "gpu-07\n", run("hostname"))
	require.Equal(t, "gpu-07\n", run("uname -n"))
	kernel := strings.TrimSpace(run("uname -r"))
	log := run("dmesg")
	require.Equal(t, log, run("journalctl -k"))
	for _, text := range []string{"Linux version " + kernel + " ", want.Serial, want.NICs[0].MAC, want.Disks[0].Model, s.machine.BootID(), fmt.Sprintf("%d CPUs", want.CPUs)} {
		require.Contains(t, log, text)
	}
	require.Contains(t, run("lscpu"), fmt.Sprintf("CPU(s):                          %d\n", want.CPUs))
	require.Equal(t, fmt.Sprintf("%d\n", want.CPUs), run("nproc"))
	require.Equal(t, fmt.Sprintf("%d\n", want.CPUs), run("grep -c processor /proc/cpuinfo"))
	require.Equal(t, "1000\n", run("id -u"))
	require.Equal(t, "0\n", run("sudo -n id -u"))

	// One source for the GPUs: the full report, the query, the table, the list, and PCI.
	query := func(fields, format string) [][]string {
		t.Helper()
		r := csv.NewReader(strings.NewReader(run("nvidia-smi --query-gpu=" + fields + " --format=" + format)))
		r.TrimLeadingSpace = true
		rows, err := r.ReadAll()
		require.NoError(t, err)
		return rows
	}
	rows := query("index,name,uuid,serial,pci.bus_id,memory.total,driver_version", "csv")
	require.Equal(t, []string{"index", "name", "uuid", "serial", "pci.bus_id", "memory.total [MiB]", "driver_version"}, rows[0])
	require.Len(t, rows, 1+want.GPUs)
	table, report, pci, list := run("nvidia-smi"), run("nvidia-smi -q -x"), run("lspci -nn -d 10de:"), run("nvidia-smi -L")
	require.Equal(t, want.GPUs, strings.Count(pci, "\n"))
	for _, line := range strings.Split(table, "\n")[1:] {
		require.Contains(t, []int{0, 91}, len(line), "the table is straight: %s", line)
	}
	for i, row := range rows[1:] {
		require.Equal(t, strconv.Itoa(i), row[0])
		require.Equal(t, want.GPUModel, row[1])
		require.Equal(t, "81559 MiB", row[5])
		for _, text := range []string{row[2], row[3], row[4], row[6]} {
			require.Contains(t, report, text)
		}
		require.Contains(t, list, fmt.Sprintf("GPU %d: %s (UUID: %s)\n", i, row[1], row[2]))
		require.Contains(t, table, row[4])
		require.Contains(t, pci, strings.ToLower(strings.TrimPrefix(row[4], "00000000:")))
	}
	require.Contains(t, table, "Driver Version: "+rows[1][6])
	require.Contains(t, run("cat /proc/driver/nvidia/version"), rows[1][6])
	require.Equal(t, [][]string{{"81559"}}, query("memory.total", "csv,noheader,nounits")[:1])
	for line, says := range map[string]string{"nvidia-smi --query-gpu=bogus --format=csv": `Field "bogus" is not a valid field`, "nvidia-smi topo -m": "not simulated"} {
		out, rc := s.command(line)
		require.NotZero(t, rc)
		require.Contains(t, out, says)
	}
	require.NoError(t, s.node.SetFaults(simnode.Faults{MissingGPUs: 1}))
	require.Len(t, query("name", "csv,noheader"), want.GPUs-1)
	require.Equal(t, want.GPUs-1, strings.Count(run("lspci -d 10de:"), "\n"))
	require.Equal(t, want.GPUs-1, strings.Count(run("nvidia-smi"), want.GPUModel))

	up := func() float64 {
		t.Helper()
		f, err := strconv.ParseFloat(strings.Fields(run("cat /proc/uptime"))[0], 64)
		require.NoError(t, err)
		return f
	}
	before := up()
	s.clock.Step(30 * time.Hour)
	require.GreaterOrEqual(t, up()-before, 30*3600.0, "by the machine's clock")
	require.Contains(t, run("uptime"), "up 1 day")
	s.machine.Reset("test")
	s.eventually("another boot is up for a shorter time", func() bool {
		c, err := s.ssh("slipway")
		return err == nil && c.Close() == nil && up() < 30*3600
	})
}

// TestMetadata_OnANode: the agent's process serves what a task has set, until the account is
// revoked.
func TestMetadata_OnANode(t *testing.T) {
	t.Parallel()
	s := newRunningSite(t)
	url := "http://" + s.node.MetadataAddress() + "/latest/meta-data/instance-id"
	read := func() (int, string) {
		res, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
		if err != nil {
			return 0, ""
		}
		defer func() { _ = res.Body.Close() }()
		raw, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(raw)
	}
	s.eventually("the agent serves", func() bool { status, _ := read(); return status == http.StatusNotFound })
	document := &spec.InstanceMetadata{InstanceID: allocationID, Hostname: "gpu-07"}
	s.do(lifecycle.TaskKindSetMetadata, &spec.SetMetadataArgs{AllocationID: allocationID, Document: document})
	status, text := read()
	require.Equal(t, 200, status)
	require.Equal(t, allocationID, text)
	if _, err := exec.LookPath("curl"); err == nil {
		out, rc := s.command("curl -sf http://169.254.169.254/latest/meta-data/hostname")
		require.Equal(t, "gpu-07", out, rc)
	}
	first := s.machine.BootID()
	s.machine.Reset("test")
	s.eventually("it is served after a boot", func() bool { status, _ := read(); return status == 200 && s.machine.BootID() != first })
	s.do(lifecycle.TaskKindRevokeUser, &spec.RevokeUserArgs{AllocationID: allocationID, User: tenantUser})
	s.eventually("it is served no more", func() bool { status, _ := read(); return status == http.StatusNotFound })
	require.NoFileExists(t, filepath.Join(s.node.Root(), metadata.Path))
}

// TestOccupy_HiddenPlants: another installation takes all away but the firmware's boot menu.
func TestOccupy_HiddenPlants(t *testing.T) {
	t.Parallel()
	s := newRunningSite(t)
	none, err := s.node.TenantTraces()
	require.NoError(t, err)
	require.Empty(t, none)
	for range 2 {
		require.NoError(t, s.node.Occupy())
	}
	traces, err := s.node.TenantTraces()
	require.NoError(t, err)
	for _, place := range []string{"/usr/bin/ls", "/usr/sbin/sshd", "/opt/slipway-agent/", "/boot/initrd.img", "/usr/lib/systemd/system/", "/root/.hidden", "/sys/firmware/efi/efivars/Boot0042",
		"/var/log/journal/", "/dev/nvme0n1", simnode.BootEntry} {
		require.Contains(t, strings.Join(traces, "\n"), place)
	}
	first := s.machine.BootID()
	s.machine.Reset("test")
	s.eventually("the agent still runs", func() bool {
		return s.lastHeartbeat().BootID == s.machine.BootID() && s.machine.BootID() != first
	})
	s.machine.PowerOff("test", true)
	s.eventually("off", func() bool { return s.machine.Power() == simhw.Off })
	s.install(s.userData(), "")
	s.machine.PowerOn("test")
	s.installed()
	traces, err = s.node.TenantTraces()
	require.NoError(t, err)
	require.Equal(t, []string{"/dev/nvme0n1", "/dev/nvme1n1", "/dev/nvme2n1", "/dev/nvme3n1", "/sys/firmware/efi/efivars/Boot0042-8be4df61-93ca-11d2-aa0d-00e098032b8c", simnode.BootEntry}, traces,
		"drives are erased by others, and the boot menu is the firmware's")
	s.machine.SetBootEntries()
	s.machine.Erase()
	traces, err = s.node.TenantTraces()
	require.NoError(t, err)
	require.Empty(t, traces, "MAAS has erased every drive, and the firmware has no entry more")
}
