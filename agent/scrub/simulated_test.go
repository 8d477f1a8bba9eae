package scrub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/scrub"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// nodeFixture is a simulated node that is up.
type nodeFixture struct {
	*testing.T
	node    *simnode.Node
	machine *simhw.Machine
	spec    simhw.Spec
	host    scrub.Host
	run     string
}

func newNodeFixture(t *testing.T, change ...func(*simhw.Spec)) *nodeFixture {
	t.Helper()
	hardware := simhw.GPUServer("Dell", 7)
	hardware.Disks = slices.Insert(hardware.Disks, len(hardware.Disks)-1, simhw.Disk{Name: "sdb", Model: "SIM SATA SSD", Serial: "D000007", Bytes: 960_197_124_096})
	for _, c := range change {
		c(&hardware)
	}
	w := &nodeFixture{T: t, spec: hardware, run: "job_1"}
	w.machine = simhw.NewMachine(t.Context(), simhw.NewClock(5000), hardware)
	dir := t.TempDir()
	var err error
	w.node, err = simnode.New(simnode.Options{Machine: w.machine, Dir: dir, AgentBinary: "/bin/false"})
	require.NoError(t, err)
	t.Cleanup(w.node.Close)
	w.machine.Install(simhw.OS{System: "ubuntu", Series: "jammy", Hostname: "gpu-07", Disk: "sda"})
	w.machine.SetBootOverride(simhw.Override{Target: "Hdd", Enabled: "Continuous"})
	w.machine.PowerOn("test")
	tools := filepath.Join(dir, "tools")
	path := tools + ":/usr/bin:/bin"
	w.host = scrub.Host{Root: w.node.Root(), Run: toolrunner.ForTasks(w.node.Root(), path).Run, AllowWipe: true, Poll: time.Millisecond, Patience: 100 * time.Millisecond, StateDir: t.TempDir(),
		Health: func(ctx context.Context) spec.HealthReport {
			return agent.Report(ctx, agentconfig.Config{Root: w.node.Root(), ToolsPath: path, ToolTimeout: time.Minute, Simulated: true})
		}}
	w.booted()
	return w
}

const memoryRequest = "sys/firmware/efi/efivars/MemoryOverwriteRequestControl-e20939be-32d4-41be-a150-897f85d49829"

// booted waits for the boot that makes the firmware's variable: sshd answers
// when everything is laid out.
func (w *nodeFixture) booted() {
	w.Helper()
	require.Eventually(w, func() bool {
		if _, err := os.Stat(filepath.Join(w.node.Root(), memoryRequest)); err != nil {
			return false
		}
		conn, err := net.Dial("tcp", w.node.SSHAddress())
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, runenv.Patience(30*time.Second), 5*time.Millisecond)
	w.host.BootID, w.host.Serial = w.machine.BootID(), w.spec.Serial
}

func (w *nodeFixture) scrub(args spec.ScrubArgs) lifecycle.TaskResult {
	args.RunID = w.run
	return scrub.Scrub(w.Context(), w.host, args, nil)
}

func (w *nodeFixture) validate(not string) lifecycle.TaskResult {
	return scrub.Validate(w.Context(), w.host, spec.ValidateArgs{RunID: w.run, NotBootID: not,
		SKU: spec.SKUSpec{GPUs: 8, GPUModelContains: "H100", DataDisks: 5, RequireECC: true}}, nil)
}

func failed(res lifecycle.TaskResult) []string {
	var out []string
	for _, s := range res.Steps {
		if !s.OK {
			out = append(out, s.Name)
		}
	}
	return out
}

func device(res lifecycle.TaskResult, name string) lifecycle.DeviceResult {
	i := slices.IndexFunc(res.Devices, func(d lifecycle.DeviceResult) bool { return d.Name == name })
	if i < 0 {
		return lifecycle.DeviceResult{}
	}
	return res.Devices[i]
}

func (w *nodeFixture) holds(disk, text string) bool {
	w.Helper()
	yes, err := w.node.DiskHolds(disk, text)
	require.NoError(w, err)
	return yes
}

func (w *nodeFixture) restart() (before string) {
	before = w.machine.BootID()
	require.NoError(w, os.Remove(filepath.Join(w.node.Root(), memoryRequest)))
	w.machine.Reset("test")
	w.booted()
	return before
}

func TestAScrubbedNodeIsProvenCleanFromAFreshBoot(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	require.NoError(t, w.node.Occupy())
	before := w.validate("")
	require.Equal(t, []string{scrub.StepContainers, scrub.StepProcesses, scrub.StepUsers, scrub.StepKeys, scrub.StepAutostart, scrub.StepMounts,
		scrub.StepDiskBlank, scrub.StepHardware, scrub.StepGPUState}, failed(before), "a look finds all that a tenant left")

	var heard []lifecycle.StepResult
	res := scrub.Scrub(t.Context(), w.host, spec.ScrubArgs{RunID: w.run}, func(s lifecycle.StepResult) { heard = append(heard, s) })
	require.True(t, res.OK, "%s", res.Message)
	require.True(t, res.Simulated)
	require.Equal(t, res.Steps, heard)
	require.Len(t, res.Steps, len(scrub.Steps()))
	require.Len(t, res.Devices, 8+1+6)
	for _, d := range res.Devices {
		switch {
		case d.Name == "sda":
			require.Equal(t, lifecycle.SanitizeNone, d.Method)
			require.False(t, d.Verified, "what the agent runs from is never proven by the agent")
		case d.Kind == "disk":
			require.True(t, d.Verified, d.Detail)
			require.Equal(t, lifecycle.SanitizePurge, d.Method)
			require.NotEmpty(t, d.Serial)
			require.Regexp(t, `^(nvme sanitize \(block erase\), nvme version 2\.8|hdparm --security-erase-enhanced, hdparm v9\.65)`, d.Tool)
			require.False(t, w.holds(d.Name, simnode.TenantMark))
			require.False(t, w.holds(d.Name, "SLIPWAY-SCRUB-CANARY"))
		default:
			require.True(t, d.Verified, d.Detail)
			require.Equal(t, lifecycle.SanitizeClear, d.Method)
		}
	}
	var out scrub.Output
	require.NoError(t, json.Unmarshal(res.Output, &out))
	require.Equal(t, scrub.Output{BootDisks: []string{"B000007"}}, out)
	require.NoFileExists(t, filepath.Join(w.node.Root(), "etc/ld.so.preload"))
	require.NoDirExists(t, filepath.Join(w.node.Root(), "home/tenant1"))
	for _, dir := range []string{"tmp", "var/tmp", "dev/shm"} {
		left, err := os.ReadDir(filepath.Join(w.node.Root(), dir))
		require.NoError(t, err)
		require.Empty(t, left, dir)
	}

	same := w.validate(res.BootID)
	require.Equal(t, []string{scrub.StepFreshBoot}, failed(same), "%s", same.Message)
	after := w.validate(w.restart())
	require.True(t, after.OK, "%s", after.Message)
	require.True(t, after.Simulated)
	require.Len(t, after.Devices, 8+5)
	for _, d := range after.Devices {
		require.True(t, d.Verified, d.Detail)
	}
}

// faultsOfARun is how many failures `make test` plants, drawn by the seed of the run; `make proof`
// plants all.
const faultsOfARun = 6

func TestAPlantedFailureIsNamedByItsStep(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	all := []string{scrub.StepIdentity}
	type planted struct {
		name   string
		faults simnode.ScrubFaults
		steps  []string
		says   string
	}
	for _, c := range runenv.Sample(t, "SLIPWAY_SCRUB_FAULTS", "planted failures", []planted{
		{"other machine", simnode.ScrubFaults{OtherMachine: true}, all, "ANOTHER"},
		{"container stays", simnode.ScrubFaults{ContainerStays: true}, []string{scrub.StepContainers}, "containerd still holds 10"},
		{"containerd does not answer", simnode.ScrubFaults{ContainerdDown: true}, []string{scrub.StepContainers}, "what it holds is unknown: ctr failed"},
		{"process stays", simnode.ScrubFaults{ProcessStays: true}, []string{scrub.StepProcesses}, "miner"},
		{"user stays", simnode.ScrubFaults{UserStays: true}, []string{scrub.StepUsers}, "tenant1"},
		{"keys unreadable", simnode.ScrubFaults{KeysUnreadable: true}, []string{scrub.StepKeys}, "keys of root"},
		{"packages unknown", simnode.ScrubFaults{PackagesUnknown: true}, []string{scrub.StepAutostart}, "cannot be told"},
		{"mount busy", simnode.ScrubFaults{MountBusy: true}, []string{scrub.StepMounts}, "/mnt/tenants/a"},
		{"a layer stays", simnode.ScrubFaults{LayerStays: true}, []string{scrub.StepLayers, scrub.StepDisks}, "md0 stays: mdadm failed"},
		{"a remote volume stays", simnode.ScrubFaults{RemoteStays: true}, []string{scrub.StepRemoteDevices, scrub.StepDisks}, "volume-7 stays connected"},
		{"a temporary directory is a link", simnode.ScrubFaults{TemporaryIsLink: true}, []string{scrub.StepFiles}, "/var/tmp is no directory but a link"},
		{"GPU in use", simnode.ScrubFaults{GPUProcess: true}, []string{scrub.StepGPUProcesses, scrub.StepGPUReset, scrub.StepGPUMemory}, "python3"},
		{"MIG reads N/A", simnode.ScrubFaults{GPUMIGUnknown: true}, []string{scrub.StepGPUReset, scrub.StepGPUMemory}, `does not tell whether MIG is on ("N/A")`},
		{"reset fails", simnode.ScrubFaults{GPUResetFails: true}, []string{scrub.StepGPUReset, scrub.StepGPUMemory}, "in use by another process"},
		{"memory residue", simnode.ScrubFaults{GPUMemoryResidue: true}, []string{scrub.StepGPUMemory}, "something was left in its memory"},
		{"no memory request", simnode.ScrubFaults{MemoryRequestRefused: true}, []string{scrub.StepMemoryRequest}, "MemoryOverwriteRequestControl"},
		{"sanitize fails", simnode.ScrubFaults{SanitizeFails: true}, []string{scrub.StepDisks}, "sanitize operation failed"},
		{"frozen drive", simnode.ScrubFaults{FrozenDrive: true}, []string{scrub.StepDisks}, "frozen by the firmware"},
		{"a format does nothing", simnode.ScrubFaults{SanitizeUnsupported: true, EraseKeepsData: true, FormatSaysError: true}, []string{scrub.StepDisks}, "failed to re-read partition table"},
		{"drives lie", simnode.ScrubFaults{EraseKeepsData: true}, []string{scrub.StepDisks}, "written before it was erased"},
	}, faultsOfARun) {
		w.run = "job_" + c.name
		require.NoError(t, w.node.SetFaults(simnode.Faults{Scrub: c.faults}))
		require.NoError(t, w.node.Occupy())
		res := w.scrub(spec.ScrubArgs{})
		require.False(t, res.OK, c.name)
		require.Equal(t, c.steps, failed(res), "%s: %s", c.name, res.Message)
		require.Contains(t, res.Message, c.says, c.name)
		switch {
		case c.faults.OtherMachine:
			require.Equal(t, lifecycle.TaskCodeOtherMachine, res.Code)
			require.Len(t, res.Steps, 1)
			require.True(t, w.holds("nvme0n1", simnode.TenantMark), "nothing is touched on another machine")
		case c.faults.LayerStays:
			require.True(t, w.holds("nvme0n1", simnode.TenantMark))
			require.True(t, device(res, "nvme2n1").Verified, "one drive does not stop the others")
		case c.faults.RemoteStays:
			require.True(t, w.holds(simnode.RemoteVolume, simnode.TenantMark))
			require.False(t, device(res, simnode.RemoteVolume).Verified)
			require.True(t, w.holds("nvme0n1", simnode.TenantMark), "nothing is erased while it is connected")
		case c.faults.FrozenDrive:
			require.False(t, device(res, "sdb").Verified)
			require.True(t, device(res, "nvme0n1").Verified, "one drive does not stop the others")
		case c.faults.SanitizeFails:
			require.Equal(t, lifecycle.SanitizeNone, device(res, "nvme3n1").Method)
			require.True(t, device(res, "sdb").Verified, "one drive does not stop the others")
		}
	}
	require.NoError(t, w.node.SetFaults(simnode.Faults{}))
	require.NoError(t, w.node.Occupy())
	w.run = "job_repaired"
	res := w.scrub(spec.ScrubArgs{})
	require.True(t, res.OK, "%s", res.Message)
}

// eightDrives is a machine as GPU nodes have them, with the system on a drive of its own.
func eightDrives(s *simhw.Spec) {
	system := s.Disks[len(s.Disks)-1]
	s.Disks = nil
	for i := range 8 {
		s.Disks = append(s.Disks, simhw.Disk{Name: fmt.Sprintf("nvme%dn1", i), Model: "SAMSUNG MZWLO3T8HCLS", Serial: fmt.Sprintf("E%d", i), Bytes: 3_840_755_982_336, NVMe: true})
	}
	s.Disks = append(s.Disks, system)
}

// A tenant's file system and swap on LVM on LUKS on a RAID 0 over eight drives end with the tenant,
// and the node is proven clean from a fresh boot.
func TestScrub_TakesApartWhatLiesOverEightDrives(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t, eightDrives)
	var drives []string
	args := spec.ScrubArgs{}
	for _, d := range w.spec.Disks {
		args.ExpectedDrives = append(args.ExpectedDrives, spec.ExpectedDrive{Serial: d.Serial, Model: d.Model, Bytes: d.Bytes / 512 * 512})
		if d.NVMe {
			drives = append(drives, d.Name)
		}
	}
	require.NoError(t, w.node.Occupy())
	require.NoError(t, w.node.Stack("/mnt/scratch", simnode.Layer{Name: "md0", Kind: simnode.LayerRAID, Over: drives},
		simnode.Layer{Name: "dm-0", Kind: simnode.LayerCrypt, Over: []string{"md0"}, Label: "luks-scratch"},
		simnode.Layer{Name: "dm-1", Kind: simnode.LayerLVM, Over: []string{"dm-0"}, Label: "vg-swap"},
		simnode.Layer{Name: "dm-2", Kind: simnode.LayerLVM, Over: []string{"dm-0"}, Label: "vg-data"}))
	require.NoError(t, w.node.SwapOn("dm-1"))

	busy := w.scrub(spec.ScrubArgs{ExpectedDrives: args.ExpectedDrives, Steps: []string{scrub.StepDisks}})
	require.Contains(t, busy.Message, "dm-2 (\"vg-data\") stays: it is mounted at /mnt/scratch")
	require.True(t, w.holds("nvme0n1", simnode.TenantMark))

	res := w.scrub(args)
	require.True(t, res.OK, res.Message)
	for _, name := range drives {
		require.True(t, device(res, name).Verified, device(res, name).Detail)
		require.False(t, w.holds(name, simnode.TenantMark))
	}
	before := w.restart()
	require.NoDirExists(t, filepath.Join(w.node.Root(), "sys/block/md0"), "nothing is left that the system would put together")
	after := scrub.Validate(t.Context(), w.host, spec.ValidateArgs{RunID: w.run, NotBootID: before, ExpectedDrives: args.ExpectedDrives,
		SKU: spec.SKUSpec{GPUs: 8, GPUModelContains: "H100", DataDisks: 8, RequireECC: true}}, nil)
	require.True(t, after.OK, after.Message)
}

func TestScrub_TakesApartEachLayer(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	for name, lay := range map[string]func() error{
		"raid": func() error {
			return w.node.Stack("", simnode.Layer{Name: "md127", Kind: simnode.LayerRAID, Over: []string{"nvme0n1", "nvme1n1"}})
		},
		"lvm": func() error {
			return w.node.Stack("/mnt/a", simnode.Layer{Name: "dm-0", Kind: simnode.LayerLVM, Over: []string{"nvme0n1"}, Label: "vg-a--b"})
		},
		"crypt": func() error {
			return w.node.Stack("", simnode.Layer{Name: "dm-0", Kind: simnode.LayerCrypt, Over: []string{"sdb"}})
		},
		"multipath": func() error {
			return w.node.Stack("", simnode.Layer{Name: "dm-3", Kind: simnode.LayerMultipath, Over: []string{"sdb"}})
		},
		"bcache": func() error {
			return w.node.Stack("", simnode.Layer{Name: "bcache0", Kind: simnode.LayerBcache, Over: []string{"nvme2n1"}})
		},
		"zfs":  func() error { return w.node.ImportPool("tank", "nvme0n1", "nvme1n1") },
		"swap": func() error { return w.node.SwapOn("nvme3n1") },
	} {
		w.run = "job_" + name
		require.NoError(t, w.node.Fill())
		require.NoError(t, lay())
		if name != "zfs" && name != "swap" { // the system puts it together again after a boot, but LUKS
			w.restart()
		}
		if name == "crypt" {
			require.NoError(t, lay())
		}
		res := w.scrub(spec.ScrubArgs{Steps: []string{scrub.StepMounts, scrub.StepDisks}})
		require.True(t, res.OK, "%s: %s", name, res.Message)
		require.NoDirExists(t, filepath.Join(w.node.Root(), "proc/spl/kstat/zfs/tank"))
		for _, d := range w.spec.Disks[:5] {
			require.False(t, w.holds(d.Name, simnode.TenantMark), "%s: %s", name, d.Name)
		}
	}
	// A pool with a device that is no drive of this node stays as it is.
	require.NoError(t, w.node.ImportPool("tank", "nvme0n1", "sda"))
	w.run = "job_mixed"
	res := w.scrub(spec.ScrubArgs{Steps: []string{scrub.StepLayers}})
	require.Contains(t, res.Message, "the ZFS pool \"tank\" stays: it lies over drives of this node and over sda")
}

// A format that ends with an error after its work is an erasure, and the sector format stays.
func TestScrub_FormatThatEndsWithAnError(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	require.NoError(t, w.node.SetFaults(simnode.Faults{Scrub: simnode.ScrubFaults{SanitizeUnsupported: true, FormatSaysError: true}}))
	require.NoError(t, w.node.Occupy())
	res := w.scrub(spec.ScrubArgs{})
	require.True(t, res.OK, res.Message)
	require.True(t, device(res, "nvme0n1").Verified)
	require.Contains(t, device(res, "nvme0n1").Detail, "the program said otherwise")
	require.False(t, w.holds("nvme0n1", simnode.TenantMark))
}

func TestValidationRefusesWhatItFindsOrCannotKnow(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	for _, c := range []struct {
		faults simnode.Faults
		steps  []string
	}{
		{simnode.Faults{Scrub: simnode.ScrubFaults{OtherMachine: true}}, []string{scrub.StepFreshBoot}},
		{simnode.Faults{MissingGPUs: 1}, []string{scrub.StepHardware}},
		{simnode.Faults{ECCUnknown: true}, []string{scrub.StepHardware}},
		{simnode.Faults{Scrub: simnode.ScrubFaults{GPUMIGUnknown: true}}, []string{scrub.StepHardware, scrub.StepGPUState}},
		{simnode.Faults{Scrub: simnode.ScrubFaults{GPUProcess: true}}, []string{scrub.StepGPUState}},
		{simnode.Faults{Scrub: simnode.ScrubFaults{XID: 79}}, []string{scrub.StepGPUErrors}},
		{simnode.Faults{Scrub: simnode.ScrubFaults{XID: 13}}, nil}, // an application's own mistake
	} {
		require.NoError(t, w.node.SetFaults(c.faults))
		res := w.validate("")
		require.Equal(t, c.steps, failed(res), "%+v: %s", c.faults, res.Message)
		require.Equal(t, c.steps == nil, res.OK)
		if c.faults.Scrub.OtherMachine {
			require.Equal(t, lifecycle.TaskCodeOtherMachine, res.Code)
			require.Len(t, res.Steps, 1, "what is found on another machine is no evidence of this node")
			require.Empty(t, res.Devices)
		}
	}
	require.NoError(t, w.node.SetFaults(simnode.Faults{Scrub: simnode.ScrubFaults{FabricDown: true}}))
	require.Equal(t, []string{scrub.StepGPUFabric}, failed(w.validate("")))
	require.NoError(t, w.node.SetFaults(simnode.Faults{}))
	require.True(t, w.validate("").OK)
}

func TestAScrubThatDiedGoesOnWhereTheDrivesAre(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	require.NoError(t, w.node.SetFaults(simnode.Faults{Scrub: simnode.ScrubFaults{SanitizeLooks: 5}}))
	require.NoError(t, w.node.Occupy())
	run, poll := w.host.Run, w.host.Poll
	w.host.Poll = time.Minute // no drive is looked at so often that it ends before the last has begun
	ctx, die := context.WithCancel(t.Context())
	started := 0
	var mu sync.Mutex
	w.host.Run = func(c context.Context, name string, args ...string) ([]byte, error) {
		out, err := run(c, name, args...)
		mu.Lock()
		defer mu.Unlock()
		if name == "nvme" && args[0] == "sanitize" && err == nil {
			if started++; started == 4 {
				die()
			}
		}
		return out, err
	}
	res := scrub.Scrub(ctx, w.host, spec.ScrubArgs{RunID: w.run}, nil)
	require.False(t, res.OK)
	require.True(t, slices.ContainsFunc(res.Devices, func(d lifecycle.DeviceResult) bool {
		return strings.HasPrefix(d.Name, "nvme") && !d.Verified
	}), "the drive that had just begun")
	w.host.Poll = poll
	res = w.scrub(spec.ScrubArgs{})
	require.True(t, res.OK, res.Message)
	require.Equal(t, 4, started, "no drive was told twice")
	require.False(t, w.holds("nvme0n1", simnode.TenantMark))
}

// A volume of another machine is unmounted and disconnected, and keeps what is on it.
func TestRemoteVolume_KeepsItsData(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	require.NoError(t, w.node.AttachRemote())
	require.NoError(t, w.node.Occupy())
	var drives []spec.ExpectedDrive
	for _, d := range w.host.Health(t.Context()).Disks {
		drives = append(drives, spec.ExpectedDrive{Serial: d.Serial, Model: d.Model, Bytes: d.Bytes})
	}
	require.Len(t, drives, 6, "the node does not report the volume as its own")
	res := w.scrub(spec.ScrubArgs{ExpectedDrives: drives, ProtectSerials: []string{"D000007"}})
	require.True(t, res.OK, res.Message)
	require.Contains(t, res.Steps[0].Detail, "6 of 6 drives as the task says")
	require.True(t, w.holds(simnode.RemoteVolume, simnode.TenantMark))
	require.True(t, w.holds("sdb", simnode.TenantMark), "it is protected")
	require.Empty(t, device(res, simnode.RemoteVolume))
	raw, err := os.ReadFile(filepath.Join(w.node.Root(), "proc/mounts"))
	require.NoError(t, err)
	require.NotContains(t, string(raw), "/mnt/volume")
}

// TestAValidationMayBeAskedForSomeSteps: a live system has no accounts of tenants
// to look for. The fresh boot is asked for in any case.
func TestAValidationMayBeAskedForSomeSteps(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	names := func(r lifecycle.TaskResult) (out []string) {
		for _, s := range r.Steps {
			out = append(out, s.Name)
		}
		return out
	}
	r := scrub.Validate(t.Context(), w.host, spec.ValidateArgs{RunID: w.run, Steps: []string{scrub.StepMounts}}, nil)
	require.Equal(t, []string{scrub.StepFreshBoot, scrub.StepMounts}, names(r))
	r = scrub.Validate(t.Context(), w.host, spec.ValidateArgs{RunID: w.run, Steps: []string{"polish"}}, nil)
	require.Equal(t, lifecycle.TaskCodeRefused, r.Code)
	require.Equal(t, scrub.ValidateSteps(), names(scrub.Validate(t.Context(), w.host, spec.ValidateArgs{RunID: w.run}, nil)))
}

// A retry of the stage comes under the same run id. A drive that did not prove blank is erased
// again; one that did is only looked at.
func TestARetryErasesWhatDidNotProveBlank(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	erased := func() map[string]int {
		n, err := w.node.Erasures()
		require.NoError(t, err)
		return n
	}
	require.NoError(t, w.node.Occupy())
	require.NoError(t, w.node.SetFaults(simnode.Faults{Scrub: simnode.ScrubFaults{EraseKeepsData: true}}))
	res := w.scrub(spec.ScrubArgs{})
	require.Equal(t, []string{scrub.StepDisks}, failed(res), res.Message)
	require.True(t, w.holds("nvme0n1", simnode.TenantMark))
	require.Empty(t, erased())

	require.NoError(t, w.node.SetFaults(simnode.Faults{Scrub: simnode.ScrubFaults{FrozenDrive: true}}))
	res = w.scrub(spec.ScrubArgs{})
	require.Equal(t, []string{scrub.StepDisks}, failed(res), res.Message)
	require.True(t, device(res, "nvme0n1").Verified)
	require.False(t, device(res, "sdb").Verified)

	require.NoError(t, w.node.SetFaults(simnode.Faults{}))
	for range 2 {
		res = w.scrub(spec.ScrubArgs{})
		require.True(t, res.OK, res.Message)
		require.Equal(t, map[string]int{"nvme0n1": 1, "nvme1n1": 1, "nvme2n1": 1, "nvme3n1": 1, "sdb": 1}, erased(), "each once")
	}
	require.False(t, w.holds("nvme0n1", simnode.TenantMark))
	require.False(t, w.holds("sdb", simnode.TenantMark))
	after := w.validate(w.restart())
	require.True(t, after.OK, after.Message)
}
