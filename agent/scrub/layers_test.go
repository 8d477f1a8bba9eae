package scrub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/blockdev/sysfs"
	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// layer puts a layer over devices and gives it a number of its own.
func (b *bench) layer(name string, minor int, over ...string) {
	b.Helper()
	sysfs.New(b.T, b.host.Root).Virtual(name, over...)
	dir := "/sys/block/" + name
	if strings.HasPrefix(name, "dm-") { // of a RAID there is no device file here that could have the number
		b.put(dir+"/dev", fmt.Sprintf("253:%d\n", minor))
		b.put(dir+"/dm/name", name+"\n")
		b.put(dir+"/dm/uuid", "LVM-"+name+"\n")
	}
	for _, o := range over {
		b.put(b.holders(o)+"/"+name+"/dev", "")
	}
}

// holders is where the kernel shows what lies over a device or a partition.
func (b *bench) holders(name string) string {
	if whole := b.host.wholeDevice(name); whole != "" && whole != name {
		name = whole + "/" + name
	}
	return "/sys/block/" + name + "/holders"
}

// gone takes a layer away, as the kernel does.
func (b *bench) gone(name string) {
	below, err := os.ReadDir(filepath.Join(b.host.Root, "sys/block", name, "slaves"))
	require.NoError(b, err)
	for _, o := range below {
		require.NoError(b, os.RemoveAll(filepath.Join(b.host.Root, b.holders(o.Name()), name)))
	}
	real, err := filepath.EvalSymlinks(filepath.Join(b.host.Root, "sys/block", name))
	require.NoError(b, err)
	require.NoError(b, os.RemoveAll(real))
	require.NoError(b, os.Remove(filepath.Join(b.host.Root, "sys/block", name)))
}

// kernel answers dmsetup and mdadm: a layer on which another lies is busy.
func (b *bench) kernel() {
	stop := func(name string) (string, error) {
		if len(b.host.names("/sys/block", name, "holders")) > 0 {
			return "", fmt.Errorf("%s is busy", name)
		}
		b.gone(name)
		return "", nil
	}
	b.answer["mdadm"] = func(args []string) (string, error) { return stop(filepath.Base(args[1])) }
	b.answer["dmsetup"] = func(args []string) (string, error) { return stop("dm-" + args[4]) }
}

func (b *bench) layersOnly(change func(*spec.ScrubArgs)) lifecycle.StepResult {
	b.Helper()
	args := spec.ScrubArgs{RunID: "job_1", Steps: []string{StepLayers}}
	if change != nil {
		change(&args)
	}
	return stepOf(Scrub(b.Context(), b.host, args, nil), StepLayers)
}

func TestLayers_AreStoppedFromTheTop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kernel()
	b.put("/sys/block/sdb/sdb1/partition", "1\n")
	b.layer("md127", 127, "nvme0n1", "sdb1")
	b.put("/sys/block/md127/md/sync_action", "resync\n") // it is being rebuilt
	b.layer("dm-0", 0, "md127")
	b.layer("dm-1", 1, "dm-0")
	b.layer("dm-2", 2, "dm-0", "dm-1")
	// Names that a tenant gives: of other layers, of options, with ends of lines.
	b.put("/sys/block/dm-0/dm/name", "dm-1\n")
	b.put("/sys/block/dm-1/dm/name", "--force\n-m 0\n")
	b.put("/sys/block/dm-2/dm/name", "../../dev/sda\n")
	res, dev := b.erase(func(a *spec.ScrubArgs) { a.AllowOverwrite = true; a.ProtectSerials = nil })
	require.True(t, stepOf(res, StepLayers).OK, stepOf(res, StepLayers).Detail)
	require.Equal(t, "4 layers taken apart", stepOf(res, StepLayers).Detail)
	var took []string
	for _, s := range b.said {
		if strings.HasPrefix(s, "dmsetup") || strings.HasPrefix(s, "mdadm") {
			took = append(took, s)
		}
	}
	require.Equal(t, []string{"dmsetup remove -j 253 -m 2", "dmsetup remove -j 253 -m 1", "dmsetup remove -j 253 -m 0", "mdadm --stop /dev/md127"}, took)
	require.True(t, dev["nvme0n1"].Verified, dev["nvme0n1"].Detail)
}

// The rebuild of an array is stopped first, and without mdadm the kernel is told itself.
func TestLayers_WithoutMdadmTheKernelIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.layer("md0", 0, "nvme0n1")
	b.put("/sys/block/md0/md/sync_action", "recover\n")
	b.put("/sys/block/md0/md/array_state", "clean\n")
	b.answer["kernel"] = func(args []string) (string, error) {
		raw, err := os.ReadFile(filepath.Join(b.host.Root, args[0]))
		require.NoError(b, err)
		require.Contains(b, string(raw), args[1])
		if args[1] == "clear" {
			b.gone("md0")
		}
		return "", nil
	}
	step := b.layersOnly(nil)
	require.True(t, step.OK, step.Detail)
	require.Equal(t, []string{"kernel /sys/block/md0/md/sync_action frozen", "mdadm --stop /dev/md0", "kernel /sys/block/md0/md/array_state clear"}, b.said)
}

// A layer that does not lie over this task's drives alone stays as it is.
func TestLayers_OverOtherDrivesStay(t *testing.T) {
	t.Parallel()
	only := func(serials ...string) func(*spec.ScrubArgs) {
		return func(a *spec.ScrubArgs) {
			for _, s := range append(serials, "BOOT") {
				a.ExpectedDrives = append(a.ExpectedDrives, spec.ExpectedDrive{Serial: s})
			}
		}
	}
	for name, c := range map[string]struct {
		lay  func(*bench)
		args func(*spec.ScrubArgs)
		says string
	}{
		"the system's own": {func(b *bench) { b.layer("dm-0", 0, "sda"); b.layer("dm-1", 1, "dm-0") }, nil, "no layer"},
		"the root": {func(b *bench) {
			b.layer("md0", 0, "nvme0n1")
			b.layer("dm-0", 0, "md0")
			b.put("/proc/1/mountinfo", "22 1 253:0 / / rw - ext4 /dev/sdb rw\n")
		}, nil, "no layer"},
		"partly the system's": {func(b *bench) { b.layer("md0", 0, "sda", "nvme0n1") }, nil, "over sda, which this task does not erase"},
		"protected":           {func(b *bench) { b.layer("md0", 0, "sdb") }, protectS1, "no layer"},
		"partly protected":    {func(b *bench) { b.layer("md0", 0, "sdb", "nvme0n1") }, protectS1, "over sdb, which"},
		"partly foreign": {func(b *bench) {
			b.foreign("sdc", func(t *sysfs.Tree) { t.Disk("sdc", iscsiLUN) })
			b.layer("dm-0", 0, "nvme0n1")
			b.layer("dm-1", 1, "dm-0", "sdc")
		}, nil, "over sdc, which"},
		"foreign below a layer": {func(b *bench) {
			b.foreign("rbd0", func(t *sysfs.Tree) { t.Disk("rbd0", "rbd/0") })
			b.layer("dm-0", 0, "rbd0")
			b.layer("md0", 0, "dm-0", "nvme0n1")
		}, nil, "over rbd0, which"},
		"a loop over a device": {func(b *bench) {
			b.layer("loop0", 7)
			b.put("/sys/block/loop0/loop/backing_file", "/dev/sdc\n")
			b.layer("dm-0", 0, "loop0", "sdb")
		}, nil, "over loop0, which"},
		"read-only drives":             {func(b *bench) { b.layer("md0", 0, "sdb", "nvme0n1"); b.put("/sys/block/sdb/ro", "1\n") }, nil, "over sdb, which"},
		"nothing may be erased":        {func(b *bench) { b.layer("md0", 0, "sdb"); b.host.AllowWipe = false }, nil, "no layer"},
		"a cycle that no kernel makes": {func(b *bench) { b.layer("dm-0", 0, "dm-1"); b.layer("dm-1", 1, "dm-0", "sdb") }, nil, "no layer"},
		"mounted": {func(b *bench) {
			b.layer("md0", 0, "sdb")
			b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/md0 /x ext4 rw 0 0\n")
		}, only("N0", "S1"), "md0 stays: it is mounted at /x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.kernel()
			c.lay(b)
			step := b.layersOnly(c.args)
			require.Contains(t, step.Detail, c.says)
			require.Equal(t, strings.HasPrefix(c.says, "no layer"), step.OK)
			require.Empty(t, b.said, "nothing is told to stop")
		})
	}
}

func TestLayers_FailuresAreNamedAndBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.layer("dm-0", 0, "sdb")
	b.put("/sys/block/dm-0/dm/name", "vg-data\n")
	step := b.layersOnly(nil)
	require.False(t, step.OK)
	require.Contains(t, step.Detail, `dm-0 ("vg-data") stays: dmsetup is not installed`)

	b.answer["dmsetup"] = func([]string) (string, error) { return "", nil } // says that it did
	require.Contains(t, b.layersOnly(nil).Detail, "it was told to stop and is still there")

	// The system puts it together again, each time when the scrub has just seen that it is gone.
	b = newBench(t)
	b.layer("dm-0", 0, "sdb")
	b.layer("dm-1", 1, "nvme0n1")
	stops := map[string]int{}
	b.answer["dmsetup"] = func(args []string) (string, error) {
		name := "dm-" + args[4]
		b.gone(name)
		stops[name]++
		if other := map[string]string{"dm-0": "dm-1", "dm-1": "dm-0"}[name]; !b.host.exists("/sys/block", other) {
			b.layer(other, 1-int(args[4][0]-'0'), map[string]string{"dm-0": "sdb", "dm-1": "nvme0n1"}[other])
		}
		return "", nil
	}
	step = b.layersOnly(nil)
	require.False(t, step.OK)
	require.Contains(t, step.Detail, "it came back 3 times")
	require.LessOrEqual(t, stops["dm-0"], comebacks+1)

	// A file of the kernel that hangs: the writer waits for a reader who never comes.
	fifo := filepath.Join(b.host.Root, "sys/hang")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, b.host.tell(ctx, "/sys/hang", "1"), "the kernel does not take 1 for /sys/hang")
	f, err := os.OpenFile(fifo, os.O_RDONLY, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestLayers_AThousandMappings(t *testing.T) {
	t.Parallel()
	const many = 1000
	b := newBench(t)
	b.kernel()
	require.NoError(t, os.MkdirAll(filepath.Join(b.host.Root, "sys/class/block"), 0o755))
	require.NoError(t, os.Symlink("../../block/sda/sda1", filepath.Join(b.host.Root, "sys/class/block/sda1")))
	for i := range many {
		below := "sdb"
		if i%10 != 0 { // towers of ten
			below = fmt.Sprintf("dm-%d", i-1)
		}
		b.layer(fmt.Sprintf("dm-%d", i), i, below)
	}
	step := b.layersOnly(nil)
	require.True(t, step.OK, step.Detail)
	require.Equal(t, fmt.Sprintf("%d layers taken apart", many), step.Detail)
}

// Swap in a file on a tenant's mount ends before the mount, swap on a drive before its layers.
func TestLayers_SwapEndsFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kernel()
	b.layer("dm-0", 0, "sdb")
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/nvme0n1 /mnt/a ext4 rw 0 0\n")
	b.put("/proc/swaps", "Filename\tType\tSize\n/dev/dm-0 partition 8 0 -2\n/mnt/a/swap\\040file file 8 0 -3\n/swap.img file 8 0 -4\n")
	b.answer["umount"] = func([]string) (string, error) { b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n"); return "", nil }
	b.answer["swapoff"] = func(args []string) (string, error) {
		if args[1] == "/dev/dm-0" {
			b.put("/proc/swaps", "Filename\tType\tSize\n/swap.img file 8 0 -4\n")
		}
		return "", nil
	}
	res := Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepMounts, StepLayers}}, nil)
	require.True(t, res.OK, res.Message)
	require.Equal(t, []string{"swapoff -- /mnt/a/swap file", "umount -- /mnt/a", "swapoff -- /dev/dm-0", "dmsetup remove -j 253 -m 0"}, b.said)
}

// A cache set of bcache whose other member is not this node's stays.
func TestLayers_BcacheOfAForeignDrive(t *testing.T) {
	t.Parallel()
	for foreign, says := range map[bool]string{true: "the bcache of nvme0n1 stays: it lies over drives of this node and over sdc", false: "no layer"} {
		b := newBench(t)
		b.answer["kernel"] = func([]string) (string, error) { return "", nil }
		b.disk("sdd", "S4")
		b.foreign("sdc", func(t *sysfs.Tree) { t.Disk("sdc", iscsiLUN) })
		other := map[bool]string{true: "sdc", false: "sdd"}[foreign]
		for _, d := range []string{"nvme0n1", other} {
			b.put("/sys/block/"+d+"/bcache/label", "")
		}
		b.put("/sys/fs/bcache/uuid/stop", "")
		for member, d := range map[string]string{"cache0": "nvme0n1", "bdev0": other} {
			require.NoError(t, os.Symlink(filepath.Join(b.host.Root, "sys/block", d, "bcache"), filepath.Join(b.host.Root, "sys/fs/bcache/uuid", member)))
		}
		require.NoError(t, os.Symlink(filepath.Join(b.host.Root, "sys/fs/bcache/uuid"), filepath.Join(b.host.Root, "sys/block/nvme0n1/bcache/set")))
		step := b.layersOnly(nil)
		require.Contains(t, step.Detail, says)
		require.Equal(t, !foreign, b.ran("kernel /sys/block/nvme0n1/bcache/set/stop 1"))
	}
}

// The number of a mount decides where it lies, whatever name its source has.
func TestDevice_IsKnownByItsNumber(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("/sys/block/sda/sda1/dev", "8:1\n")
	b.put("/sys/block/sdb/dev", "8:16\n")
	mounts := func(lines string) {
		b.put("/proc/1/mountinfo", lines)
	}
	mounts("22 1 8:1 / / rw - ext4 /dev/root rw\n")
	system, err := b.host.systemNow()
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"sda": true}, system)
	mounts("22 1 8:1 / / rw - ext4 /dev/nvme0n1 rw\n40 22 8:16 / /x rw - ext4 /tmp/disk rw\n")
	system, err = b.host.systemNow()
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"sda": true}, system, "not the drive of that name")
	require.ErrorContains(t, b.host.inUse(drive{name: "sdb"}), "sdb is mounted at /x")
	require.NoError(t, b.host.inUse(drive{name: "nvme0n1"}))
	name, ok := b.host.deviceOf(hostscan.Mount{Source: "/dev/sdb", Dev: "0:41"}) // btrfs has a number of its own
	require.True(t, ok)
	require.Equal(t, "sdb", name)

	mounts("22 1 8:1 / / rw - ext4 /dev/root rw\n")
	res, dev := b.erase(nil) // /dev/sdb is a file here, and the kernel's sdb is 8:16
	require.False(t, res.OK)
	require.Contains(t, dev["sdb"].Detail, `/dev/sdb is not sdb: the kernel gives that drive the number "8:16"`)
	require.Contains(t, b.image("sdb"), "tenant's data")
	require.True(t, dev["nvme0n1"].Verified)
}
