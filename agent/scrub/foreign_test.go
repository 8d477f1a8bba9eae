package scrub

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/blockdev/sysfs"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	fcLUN    = "pci0000:b0/0000:b0:00.0/host5/rport-5:0-1/target5:0:1/5:0:1:0"
	iscsiLUN = "platform/host3/session2/target3:0:0/3:0:0:0"
)

// foreign adds a device with data that is not the node's.
func (b *bench) foreign(name string, add func(*sysfs.Tree)) {
	b.Helper()
	add(sysfs.New(b.T, b.host.Root))
	b.put("/sys/block/"+name+"/size", fmt.Sprintf("%d\n", diskBytes/512))
	b.put("/sys/block/"+name+"/device/serial", "F1\n")
	b.put("/sys/block/"+name+"/device/model", "REMOTE\n")
	b.put("/dev/"+name, strings.Repeat("remote data ", diskBytes/12)+strings.Repeat(".", diskBytes%12))
}

func (b *bench) mentions(word string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(strings.Join(b.said, "\n"), word)
}

func foreignKinds() map[string]func(*bench) string {
	disk := func(name, parent string) func(*bench) string {
		return func(b *bench) string {
			b.foreign(name, func(t *sysfs.Tree) { t.Disk(name, parent) })
			return name
		}
	}
	nvme := func(transport string) func(*bench) string {
		return func(b *bench) string {
			b.foreign("nvme7n1", func(t *sysfs.Tree) { t.NVMe("nvme7n1", "nqn.remote", "nvme7", transport) })
			return "nvme7n1"
		}
	}
	virtual := func(name string) func(*bench) string {
		return func(b *bench) string {
			b.foreign(name, func(t *sysfs.Tree) { t.Virtual(name) })
			return name
		}
	}
	over := func(layer string, below func(*bench) string) func(*bench) string {
		return func(b *bench) string {
			under := below(b)
			b.foreign(layer, func(t *sysfs.Tree) { t.Virtual(layer, "sdb", under) })
			return layer
		}
	}
	return map[string]func(*bench) string{
		"nvme tcp": nvme("tcp"), "nvme rdma": nvme("rdma"), "nvme fc": nvme("fc"),
		"nvme multipath mixed": func(b *bench) string {
			b.foreign("nvme7n1", func(t *sysfs.Tree) { t.Multipath("nvme7n1", "nqn.mixed", "nvme7", "pcie", "nvme8", "tcp") })
			return "nvme7n1"
		},
		"fc": disk("sdc", fcLUN), "iscsi": disk("sdc", iscsiLUN), "usb": disk("sdc", "pci0000:00/0000:00:14.0/usb2/2-1/host6/target6:0:0/6:0:0:0"),
		"raid volume": disk("sdc", "pci0000:17/0000:18:00.0/host7/target7:2:0/7:2:0:0"), "pmem": disk("pmem0", "LNXSYSTM:00/ndbus0/region0/namespace0.0"),
		"rbd": disk("rbd0", "rbd/0"), "nbd": virtual("nbd0"), "drbd": virtual("drbd0"),
		"dm over nvme tcp": over("dm-0", nvme("tcp")), "dm over iscsi": over("dm-0", disk("sdc", iscsiLUN)), "dm over rbd": over("dm-0", disk("rbd0", "rbd/0")),
		"md over fc": over("md0", disk("sdc", fcLUN)),
	}
}

func TestForeignDevice_NothingIsErased(t *testing.T) {
	t.Parallel()
	for name, add := range foreignKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			dev := add(b)
			before := b.image(dev)
			res, devices := b.erase(func(a *spec.ScrubArgs) { a.AllowOverwrite = true })
			require.False(t, res.OK)
			require.Equal(t, lifecycle.TaskCodeStepFailed, res.Code)
			require.False(t, stepOf(res, StepDisks).OK)
			require.Contains(t, stepOf(res, StepDisks).Detail, dev+" is not this node's")
			require.Contains(t, devices[dev].Detail, "is not touched")
			require.Equal(t, before, b.image(dev))
			require.False(t, b.mentions("/dev/"), "no program is given a device: %v", b.said)
			for _, local := range []string{"sdb", "nvme0n1"} {
				require.False(t, devices[local].Verified)
				require.NotContains(t, b.image(local), canaryMark, "nothing is written")
			}
			validated := Validate(t.Context(), b.host, spec.ValidateArgs{RunID: "job_1", Steps: []string{StepDiskBlank}}, nil)
			require.Contains(t, stepOf(validated, StepDiskBlank).Detail, dev+" is not this node's")
		})
	}
}

// A volume of a RAID controller may hold the system: it is left alone as every system disk is.
func TestForeignSystemDisk(t *testing.T) {
	t.Parallel()
	for parent, ok := range map[string]bool{"pci0000:17/0000:18:00.0/host7/target7:2:0/7:2:0:0": true, fcLUN: false} {
		b := newBench(t)
		b.foreign("sdc", func(t *sysfs.Tree) { t.Disk("sdc", parent) })
		require.NoError(t, os.RemoveAll(filepath.Join(b.host.Root, "sys/block/sda")))
		b.put("/proc/mounts", "/dev/sdc / ext4 rw 0 0\n")
		before := b.image("sdc")
		res, devices := b.erase(protectS1)
		require.Equal(t, ok, res.OK, res.Message)
		require.Equal(t, ok, devices["nvme0n1"].Verified)
		require.False(t, devices["sdc"].Verified)
		require.Equal(t, before, b.image("sdc"))
	}
}

func TestForeignMount_StaysAndKeepsItsFiles(t *testing.T) {
	t.Parallel()
	kinds := foreignKinds()
	for _, name := range []string{"nvme tcp", "nvme rdma", "nvme fc", "iscsi"} {
		delete(kinds, name) // it is unmounted to be disconnected: TestRemoteDevices_AreDisconnectedFirst
	}
	for name, add := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			dev := add(b)
			b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/"+dev+" /home/t ext4 rw 0 0\n/dev/"+dev+" /tmp ext4 rw 0 0\n")
			b.put("/etc/fstab", "/dev/"+dev+" /home/t ext4 defaults 0 0\n")
			b.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\nt:x:1001:1001::/home/t:/bin/sh\n")
			b.put("/home/t/.ssh/authorized_keys", "ssh-ed25519 AAAA t\n")
			b.put("/home/t/data", "remote")
			b.put("/tmp/data", "remote")
			res := Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepMounts, StepUsers, StepKeys, StepFiles}}, nil)
			for _, step := range []string{StepMounts, StepUsers, StepKeys, StepFiles} {
				require.False(t, stepOf(res, step).OK, step)
				require.Contains(t, stepOf(res, step).Detail, "not this node's", step)
			}
			require.False(t, b.ran("umount"))
			require.False(t, b.ran("userdel"))
			for _, path := range []string{"home/t/data", "home/t/.ssh/authorized_keys", "tmp/data"} {
				raw, err := os.ReadFile(filepath.Join(b.host.Root, path))
				require.NoError(t, err)
				require.NotEmpty(t, raw)
			}
			raw, err := os.ReadFile(filepath.Join(b.host.Root, "etc/fstab"))
			require.NoError(t, err)
			require.Contains(t, string(raw), dev)
		})
	}
}

// An account's home may be a share of another machine: it does not go with the account.
func TestNetworkHome_StaysWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\nnas:/home /home nfs4 rw 0 0\n")
	b.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\nt:x:1001:1001::/home/t:/bin/sh\n")
	b.put("/home/t/data", "remote")
	b.answer["userdel"] = func([]string) (string, error) {
		b.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
		return "", os.RemoveAll(filepath.Join(b.host.Root, "home/t"))
	}
	users := func() lifecycle.StepResult {
		return stepOf(Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepUsers}}, nil), StepUsers)
	}
	require.Contains(t, users().Detail, "nas:/home is mounted at /home, and what is there is not this node's")
	require.FileExists(t, filepath.Join(b.host.Root, "home/t/data"))
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n")
	require.True(t, users().OK)
}

func TestContainersOnForeignStorage_Stay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.foreign("sdc", func(t *sysfs.Tree) { t.Disk("sdc", fcLUN) })
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/sdc /var/lib/docker ext4 rw 0 0\n")
	b.answer["docker"] = func(args []string) (string, error) { return "c0ffee", nil }
	res := Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepContainers}}, nil)
	require.Contains(t, stepOf(res, StepContainers).Detail, "/dev/sdc, mounted at /var/lib/docker, is not this node's")
	require.True(t, b.ran("docker ps"))
	require.False(t, b.ran("docker rm"))
	require.False(t, b.ran("docker system"))
}

// remote connects an NVMe volume over TCP and an iSCSI LUN, both mounted, and programs that end the
// connections.
func (b *bench) remote() {
	b.foreign("nvme7n1", func(t *sysfs.Tree) { t.NVMe("nvme7n1", "nqn.remote", "nvme7", "tcp") })
	b.foreign("sdc", func(t *sysfs.Tree) { t.Disk("sdc", iscsiLUN); t.Put("class/iscsi_session/session2/state", "LOGGED_IN") })
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/nvme7n1 /mnt/a ext4 rw 0 0\n/dev/sdc /mnt/b ext4 rw 0 0\n")
	drop := func(paths ...string) {
		for _, p := range paths {
			require.NoError(b, os.RemoveAll(filepath.Join(b.host.Root, "sys", p)))
		}
	}
	b.answer["umount"] = func(args []string) (string, error) {
		raw, err := os.ReadFile(filepath.Join(b.host.Root, "proc/mounts"))
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, " "+args[1]+" ") {
				b.put("/proc/mounts", strings.Replace(string(raw), line, "", 1))
			}
		}
		return "", err
	}
	local := b.answer["nvme"]
	b.answer["nvme"] = func(args []string) (string, error) {
		if args[0] == "disconnect" {
			drop("class/nvme/nvme7", "block/nvme7n1")
			return "", nil
		}
		return local(args)
	}
	b.answer["iscsiadm"] = func([]string) (string, error) { drop("class/iscsi_session/session2", "block/sdc"); return "", nil }
}

func TestRemoteDevices_AreDisconnectedFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.remote()
	before := b.image("nvme7n1") + b.image("sdc")
	args := spec.ScrubArgs{RunID: "job_1", Steps: []string{StepMounts, StepDisks}, ProtectSerials: []string{"S1"}}
	res := Scrub(t.Context(), b.host, args, nil)
	require.True(t, res.OK, res.Message)
	require.True(t, b.ran("umount -- /mnt/a"))
	require.True(t, b.ran("nvme disconnect -n nqn.remote"))
	require.True(t, b.ran("iscsiadm -m session -r 2 -u"))
	require.Equal(t, "disconnected NVMe subsystem nqn.remote, iSCSI session 2", stepOf(res, StepRemoteDevices).Detail)
	require.Equal(t, before, b.image("nvme7n1")+b.image("sdc"))
	require.NotContains(t, b.image("nvme0n1"), "tenant's data")
	for _, line := range b.said {
		require.NotContains(t, line, "/dev/nvme7")
		require.NotContains(t, line, "/dev/sdc")
	}
}

func TestRemoteDevices_ThatStayFailTheDisks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench)
		says   string
		ran    bool
	}{
		"the program fails": {func(b *bench) {
			b.answer["iscsiadm"] = func([]string) (string, error) { return "", errors.New("busy") }
		}, "iSCSI session 2 stays connected: busy", true},
		"it says it did":     {func(b *bench) { b.answer["iscsiadm"] = func([]string) (string, error) { return "", nil } }, "still there: iSCSI session 2", true},
		"it is mounted":      {func(b *bench) { b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/sdc /mnt/b ext4 rw 0 0\n") }, "sdc is mounted at /mnt/b", false},
		"a layer is over it": {func(b *bench) { b.put("/sys/block/sdc/holders/dm-0/x", "") }, "sdc belongs to dm-0", false},
		"no device": {func(b *bench) {
			b.answer["iscsiadm"] = func([]string) (string, error) {
				return "", os.RemoveAll(filepath.Join(b.host.Root, "sys/block/sdc"))
			}
		}, "still there: iSCSI session 2", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.remote()
			b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n")
			b.host.Patience = b.host.Poll
			c.change(b)
			res, _ := b.erase(protectS1)
			require.False(t, res.OK)
			require.Contains(t, stepOf(res, StepRemoteDevices).Detail, c.says)
			require.Contains(t, stepOf(res, StepDisks).Detail, "storage of other machines is still connected: iSCSI session 2")
			require.Equal(t, c.ran, b.ran("iscsiadm"))
			require.NotContains(t, b.image("nvme0n1"), canaryMark)
			require.False(t, b.ran("nvme sanitize"))
		})
	}
}

// The decision about a device is checked again right before the command: the device may have
// changed.
func TestDeviceThatBecomesForeign_IsNotWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	local := b.answer["nvme"]
	b.answer["nvme"] = func(args []string) (string, error) {
		if args[0] == "sanitize-log" {
			b.put("/sys/class/nvme/nvme0/transport", "tcp\n")
		}
		return local(args)
	}
	res, devices := b.erase(protectS1)
	require.False(t, res.OK)
	require.Contains(t, devices["nvme0n1"].Detail, "nvme0n1 is not this node's")
	require.NotContains(t, b.image("nvme0n1"), canaryMark)
	require.False(t, b.ran("nvme sanitize /dev"))
}

// Files that removed accounts left, and files that start programs, may lie on a LUN of another
// machine.
func TestForeignMount_OfOtherPlaces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.foreign("sdc", func(t *sysfs.Tree) { t.Disk("sdc", fcLUN) })
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/sdc /srv ext4 rw 0 0\n/dev/sdc /var/spool/cron ext4 rw 0 0\n")
	b.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
	b.put("/srv/data", "remote")
	b.put("/var/spool/cron/crontabs/t", "remote")
	b.host.owner = func(path string) (int, bool) { return 1001, path == "/srv/data" }
	notes, err := openNotes(b.host, "job_1")
	require.NoError(t, err)
	require.NoError(t, notes.removing(1001))
	res := Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepAutostart, StepFiles}}, nil)
	for _, step := range []string{StepAutostart, StepFiles} {
		require.False(t, stepOf(res, step).OK, step)
		require.Contains(t, stepOf(res, step).Detail, "/dev/sdc, mounted at", step)
	}
	require.FileExists(t, filepath.Join(b.host.Root, "srv/data"))
	require.FileExists(t, filepath.Join(b.host.Root, "var/spool/cron/crontabs/t"))
}

func TestHostRun_NeedsThePermitOfTheGuard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, line := range []string{"blkdiscard -f --zeroout /dev/sdb", "nvme sanitize /dev/nvme0 --sanact=2", "wipefs -a /dev/sdb"} {
		f := strings.Fields(line)
		_, err := b.host.run(t.Context(), b.host.Poll, f[0], f[1:]...)
		require.Error(t, err, line)
	}
	require.Empty(t, b.said)
}
