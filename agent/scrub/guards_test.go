package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/blockdev/sysfs"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const diskBytes = 8 << 20

// bench is a made-up node whose drives answer from Go, so that each turn of a
// conversation with a drive can be set.
type bench struct {
	*testing.T
	host Host

	mu       sync.Mutex
	said     []string // what was run
	answer   map[string]func(args []string) (string, error)
	sanitize []string // statuses still to be told, the last for ever
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, answer: map[string]func([]string) (string, error){}, sanitize: []string{"0"}}
	b.host = Host{Root: t.TempDir(), Run: b.run, AllowWipe: true, Poll: time.Millisecond, Patience: 100 * time.Millisecond, StateDir: t.TempDir()}
	b.put(simulatedMark, "")
	b.put(bootIDFile, "boot-1\n")
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n")
	b.put("/sys/class/dmi/id/sys_vendor", "QEMU\n") // whose virtio disks are local
	b.disk("sda", "BOOT")
	b.put("/sys/block/sda/sda1/partition", "1\n")
	b.disk("nvme0n1", "N0")
	b.disk("sdb", "S1")
	b.answer["nvme"] = b.nvme
	b.answer["blkdiscard"] = func(args []string) (string, error) {
		if args[0] != "--version" {
			b.wipe(filepath.Base(args[len(args)-1]))
		}
		return "blkdiscard from util-linux 2.39", nil
	}
	b.answer["hdparm"] = func([]string) (string, error) { return "", errors.New("hdparm failed: no ATA") }
	return b
}

func (b *bench) put(path, content string) {
	b.Helper()
	p := filepath.Join(b.host.Root, path)
	require.NoError(b, os.MkdirAll(filepath.Dir(p), 0o755))
	require.NoError(b, os.WriteFile(p, []byte(content), 0o600))
}

func (b *bench) disk(name, serial string) {
	b.Helper()
	dir := "/sys/block/" + name
	switch tree := sysfs.New(b.T, b.host.Root); {
	case strings.HasPrefix(name, "nvme"):
		tree.NVMe(name, "nqn.local", "nvme0", "pcie")
	case strings.HasPrefix(name, "vd"):
		tree.Disk(name, "pci0000:00/0000:00:04.0/virtio"+strconv.Itoa(int(name[2])))
	default:
		tree.Disk(name, fmt.Sprintf("pci0000:00/0000:00:17.0/ata%d/host%[1]d/target%[1]d:0:0/%[1]d:0:0:0", name[2]))
	}
	b.put(dir+"/size", fmt.Sprintf("%d\n", diskBytes/512))
	b.put(dir+"/removable", "0\n")
	b.put(dir+"/ro", "0\n")
	b.put(dir+"/device/model", "MODEL\n")
	b.put(dir+"/device/serial", serial+"\n")
	b.put("/dev/"+name, strings.Repeat("tenant's data  \n", diskBytes/16))
}

func (b *bench) wipe(name string) {
	require.NoError(b, os.WriteFile(filepath.Join(b.host.Root, "dev", name), make([]byte, diskBytes), 0o600))
}

func (b *bench) image(name string) string {
	b.Helper()
	raw, err := os.ReadFile(filepath.Join(b.host.Root, "dev", name))
	require.NoError(b, err)
	return string(raw)
}

func (b *bench) run(_ context.Context, name string, args ...string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, name+" "+strings.Join(args, " "))
	do, ok := b.answer[name]
	if !ok {
		return nil, fmt.Errorf("%s %w", name, toolrunner.ErrNotInstalled)
	}
	out, err := do(args)
	return []byte(out), err
}

func (b *bench) nvme(args []string) (string, error) {
	switch args[0] {
	case "version":
		return "nvme version 2.8", nil
	case "id-ctrl":
		return `{"sn":"N0","oacs":94,"fna":4,"sanicap":3}`, nil
	case "id-ns":
		return `{"flbas":0,"dps":0}`, nil
	case "sanitize":
		b.wipe("nvme0n1")
		b.sanitize = []string{"2", "2", "1"}
		return "", nil
	case "sanitize-log":
		now := b.sanitize[0]
		if len(b.sanitize) > 1 {
			b.sanitize = b.sanitize[1:]
		}
		return `{"nvme0":{"sprog":1,"sstat":{"status":"(` + now + `)"}}}`, nil
	case "format":
		b.wipe("nvme0n1")
		return "", nil
	}
	return "", errors.New("unknown")
}

func stepOf(res lifecycle.TaskResult, name string) lifecycle.StepResult {
	for _, s := range res.Steps {
		if s.Name == name {
			return s
		}
	}
	return lifecycle.StepResult{}
}

func (b *bench) ran(prefix string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.said, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

func (b *bench) erase(change func(*spec.ScrubArgs)) (lifecycle.TaskResult, map[string]lifecycle.DeviceResult) {
	b.Helper()
	args := spec.ScrubArgs{RunID: "job_1", Steps: []string{StepDisks}}
	if change != nil {
		change(&args)
	}
	res := Scrub(b.Context(), b.host, args, nil)
	devices := map[string]lifecycle.DeviceResult{}
	for _, d := range res.Devices {
		devices[d.Name] = d
	}
	return res, devices
}

// protectS1 lets sdb out of the way where the NVMe drive is what matters.
func protectS1(a *spec.ScrubArgs) { a.ProtectSerials = []string{"s1"} }

func TestWithoutLeaveNothingIsErased(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.host.AllowWipe = false
	res, dev := b.erase(nil)
	require.False(t, res.OK)
	require.Contains(t, res.Message, "was not allowed to erase disks")
	require.Len(t, dev, 3)
	for _, d := range dev {
		require.Equal(t, lifecycle.SanitizeNone, d.Method)
		require.False(t, d.Verified)
		require.Contains(t, b.image(d.Name), "tenant's data")
	}
	require.Empty(t, b.said)
}

func TestDisksThatMustNotBeErasedAreNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench)
		says   string
	}{
		"mounted": {func(b *bench) { b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/sdb /mnt/x ext4 rw 0 0\n") }, "sdb is mounted at /mnt/x"},
		"partition": {func(b *bench) {
			b.put("/sys/block/sdb/sdb1/partition", "1")
			b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /y ext4 rw 0 0\n")
		}, "sdb is mounted at /y"},
		"swap": {func(b *bench) { b.put("/proc/swaps", "Filename Type\n/dev/sdb partition 1 0 -2\n") }, "holds swap"},
		"RAID": {func(b *bench) { b.put("/sys/block/sdb/holders/md0", "") }, "belongs to md0"},
		"RAID of a part": {func(b *bench) {
			b.put("/sys/block/sdb/sdb1/partition", "1")
			b.put("/sys/block/sdb/sdb1/holders/md0", "")
		}, "sdb1 belongs to md0"},
		"read-only":       {func(b *bench) { b.put("/sys/block/sdb/ro", "1\n") }, "read-only"},
		"virtual media":   {func(b *bench) { b.put("/sys/block/sdb/device/model", "Virtual HDisk\n") }, "virtual or removable"},
		"removable":       {func(b *bench) { b.put("/sys/block/sdb/removable", "1\n") }, "virtual or removable"},
		"nameless":        {func(b *bench) { b.put("/sys/block/sdb/device/serial", "\n") }, "no serial number"},
		"same serial":     {func(b *bench) { b.disk("sdc", "S1") }, "of another disk"},
		"root is unknown": {func(b *bench) { b.put("/proc/mounts", "/dev/root / ext4 rw 0 0\n") }, "cannot be told"},
		"no mounts":       {func(b *bench) { b.put("/proc/mounts", "") }, "list of mounts is empty"},
		"unknown size":    {func(b *bench) { b.put("/sys/block/sdb/size", "\n") }, "size of sdb is unknown"},
		"other size":      {func(b *bench) { b.put("/sys/block/sdb/size", "64\n") }, "the kernel says 32768"},
		"no purge": {func(b *bench) {
			b.answer["hdparm"] = func([]string) (string, error) { return strings.ReplaceAll(identify, "164614ACB4A0", "S1")[:200], nil }
		}, "does not allow to overwrite"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c.change(b)
			res, dev := b.erase(nil)
			require.False(t, res.OK)
			require.Equal(t, lifecycle.TaskCodeStepFailed, res.Code)
			require.Contains(t, res.Message, c.says)
			require.False(t, dev["sdb"].Verified)
			require.False(t, b.ran("blkdiscard -f"), "%v", b.said)
			require.Contains(t, b.image("sda"), "tenant's data")
			require.Contains(t, b.image("sdb"), "tenant's data")
			if strings.Contains(name, "unknown") && strings.Contains(name, "root") {
				require.Contains(t, b.image("nvme0n1"), "tenant's data")
			}
		})
	}
}

func TestProtectionIsBySerialOrWWN(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("/sys/block/sdb/device/wwid", "naa.500a075114acb4a0\n")
	res, dev := b.erase(func(a *spec.ScrubArgs) { a.ProtectSerials = []string{"500A075114ACB4A0", "nvme0n1", ""} })
	require.True(t, res.OK, res.Message)
	require.False(t, dev["sdb"].Verified)
	require.Contains(t, b.image("sdb"), "tenant's data")
	require.True(t, dev["nvme0n1"].Verified, "a name protects nothing")
	require.JSONEq(t, `{"boot_disks":["BOOT"],"protected":["S1"]}`, string(res.Output))
}

func TestANamespaceSharesTheFateOfItsDrive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.disk("nvme0n2", "N0")
	b.put("/sys/block/nvme0n2/wwid", "eui.0002\n")
	res, dev := b.erase(func(a *spec.ScrubArgs) { a.ProtectSerials = []string{"s1", "0002"} })
	require.False(t, res.OK)
	require.Contains(t, dev["nvme0n1"].Detail, "shares its drive with nvme0n2")
	require.False(t, b.ran("nvme sanitize /dev"))
	require.Contains(t, b.image("nvme0n2"), "tenant's data")
}

func TestAScrubThatIsRunAgainGoesOn(t *testing.T) {
	t.Parallel()
	t.Run("the drive is still erasing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		n, err := openNotes(b.host, "job_1")
		require.NoError(t, err)
		require.NoError(t, n.put("N0", note{Begun: true}))
		b.wipe("nvme0n1")
		b.sanitize = []string{"2", "2", "1"}
		res, dev := b.erase(protectS1)
		require.True(t, res.OK, res.Message)
		require.Equal(t, lifecycle.SanitizePurge, dev["nvme0n1"].Method)
		require.False(t, b.ran("nvme sanitize /dev"), "it is not begun twice")
	})
	t.Run("it had ended", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		first, _ := b.erase(protectS1)
		require.True(t, first.OK, first.Message)
		b.said = nil
		again, dev := b.erase(protectS1)
		require.True(t, again.OK)
		require.Equal(t, "nvme sanitize (block erase), nvme version 2.8", dev["nvme0n1"].Tool)
		require.Empty(t, b.said, "a look is enough")
		b.disk("nvme0n1", "N0")
		full, _ := b.erase(protectS1)
		require.True(t, full.OK, full.Message)
		require.True(t, b.ran("nvme sanitize /dev/nvme0"), "the notes are not believed over the disk")
	})
	t.Run("it had ended and did nothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		honest := b.answer["nvme"]
		b.answer["nvme"] = func(args []string) (string, error) {
			if args[0] == "sanitize" { // it says that it has
				b.sanitize = []string{"2", "1"}
				return "", nil
			}
			return b.nvme(args)
		}
		for range 2 { // each time again
			b.said = nil
			lied, dev := b.erase(protectS1)
			require.False(t, lied.OK)
			require.Contains(t, lied.Message, "still holds")
			require.False(t, dev["nvme0n1"].Verified)
			require.True(t, b.ran("nvme sanitize /dev/nvme0"))
		}
		n, err := openNotes(b.host, "job_1")
		require.NoError(t, err)
		require.Equal(t, note{}, n.get("N0"), "what did not prove blank is not done")
		b.answer["nvme"] = honest
		repaired, dev := b.erase(protectS1)
		require.True(t, repaired.OK, repaired.Message)
		require.True(t, dev["nvme0n1"].Verified)
		require.NotContains(t, b.image("nvme0n1"), "tenant's data")
	})
	t.Run("another run starts from the beginning", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		first, _ := b.erase(protectS1)
		require.True(t, first.OK, first.Message)
		b.disk("nvme0n1", "N0")
		second, _ := b.erase(func(a *spec.ScrubArgs) { protectS1(a); a.RunID = "job_2" })
		require.True(t, second.OK, second.Message)
	})
	t.Run("somebody else's operation is not ours", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.sanitize = []string{"2", "2", "1"}
		res, _ := b.erase(protectS1)
		require.True(t, res.OK, res.Message)
		require.True(t, b.ran("nvme sanitize /dev/nvme0 --sanact=2"))
	})
}

func TestNoiseAfterACryptographicErasureIsDeallocated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.answer["nvme"] = func(args []string) (string, error) {
		switch args[0] {
		case "id-ctrl":
			return `{"sn":"N0","oacs":94,"fna":4,"sanicap":0}`, nil
		case "format":
			b.put("/dev/nvme0n1", strings.Repeat("\x5a\xa5noise!", diskBytes/8))
			return "", nil
		}
		return b.nvme(args)
	}
	res, dev := b.erase(protectS1)
	require.True(t, res.OK, res.Message)
	require.Equal(t, "nvme format (crypto erase), nvme version 2.8", dev["nvme0n1"].Tool)
	require.True(t, b.ran("nvme format /dev/nvme0n1 --ses=2"))
	require.True(t, b.ran("blkdiscard -f /dev/nvme0n1"))

	// A scrub that is run again and finds noise decides again before it writes.
	b.said = nil
	b.put("/dev/nvme0n1", strings.Repeat("\x5a\xa5noise!", diskBytes/8))
	res, _ = b.erase(protectS1)
	require.True(t, res.OK, res.Message)
	require.True(t, strings.HasPrefix(b.said[0], "nvme id-ctrl"), "%v", b.said)
}

func TestOverwritingIsAClearAndNeedsLeave(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.disk("vdb", "V1")
	b.disk("sdc", "SAS1")
	b.put("/sys/block/sdc/device/vendor", "SEAGATE \n")
	res, dev := b.erase(protectS1)
	require.False(t, res.OK)
	require.Contains(t, dev["vdb"].Detail, "no command that purges it")
	require.Contains(t, dev["sdc"].Detail, "no command that purges it")
	require.True(t, dev["nvme0n1"].Verified)
	res, dev = b.erase(func(a *spec.ScrubArgs) { protectS1(a); a.AllowOverwrite = true })
	require.True(t, res.OK, res.Message)
	require.Equal(t, lifecycle.SanitizeClear, dev["vdb"].Method)
	require.Equal(t, lifecycle.SanitizeClear, dev["sdc"].Method)
	require.Equal(t, "blkdiscard --zeroout, blkdiscard from util-linux 2.39", dev["vdb"].Tool)
}

func TestATAErasureKeepsToTheDrivesWord(t *testing.T) {
	t.Parallel()
	drive := func(b *bench, finishes bool) *bool {
		enabled := false
		b.answer["hdparm"] = func(args []string) (string, error) {
			text := strings.ReplaceAll(identify, "164614ACB4A0", "S1")
			switch line := strings.Join(args, " "); {
			case line == "-V":
				return "hdparm v9.65", nil
			case strings.Contains(line, "--security-set-pass"):
				enabled = true
			case strings.Contains(line, "--security-erase-enhanced"):
				if finishes {
					b.wipe("sdb")
					enabled = false
				}
			case strings.Contains(line, "--security-disable"):
				enabled = false
			}
			if enabled {
				text = strings.Replace(text, "not\tenabled", "\tenabled", 1)
			}
			return text, nil
		}
		return &enabled
	}
	b := newBench(t)
	drive(b, true)
	res, dev := b.erase(nil)
	require.True(t, res.OK, res.Message)
	require.Equal(t, "hdparm --security-erase-enhanced, hdparm v9.65", dev["sdb"].Tool)
	require.Equal(t, lifecycle.SanitizePurge, dev["sdb"].Method)

	b = newBench(t)
	locked := drive(b, false)
	res, dev = b.erase(nil)
	require.False(t, res.OK)
	require.Contains(t, dev["sdb"].Detail, "still has a password")
	require.Equal(t, lifecycle.SanitizeNone, dev["sdb"].Method)
	require.False(t, *locked, "the drive is not left with a password")
}
