package blockdev

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/blockdev/sysfs"
)

// The places of real drives in sysfs, as kernels show them.
const (
	ahci     = "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0"
	sasHBA   = "pci0000:64/0000:64:02.0/0000:65:00.0/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0"
	expander = "pci0000:64/0000:64:02.0/0000:65:00.0/host1/port-1:0/expander-1:0/port-1:0:3/end_device-1:0:3/target1:0:3/1:0:3:0"
	fc       = "pci0000:b0/0000:b0:00.0/host5/rport-5:0-1/target5:0:1/5:0:1:0"
	iscsi    = "platform/host3/session2/target3:0:0/3:0:0:0"
	usb      = "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0"
	raid     = "pci0000:17/0000:17:00.0/0000:18:00.0/host7/target7:2:0/7:2:0:0"
	virtio   = "pci0000:00/0000:00:04.0/virtio1"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dev    string
		make   func(*sysfs.Tree)
		class  Class
		reason string
	}{
		"nvme pcie":                {"nvme0n1", func(f *sysfs.Tree) { f.NVMe("nvme0n1", "nqn.a", "nvme0", "pcie") }, Local, "PCIe bus of this node (nvme0)"},
		"nvme tcp":                 {"nvme1n1", func(f *sysfs.Tree) { f.NVMe("nvme1n1", "nqn.b", "nvme1", "tcp") }, Foreign, "nvme1 (transport tcp)"},
		"nvme rdma":                {"nvme1n1", func(f *sysfs.Tree) { f.NVMe("nvme1n1", "nqn.b", "nvme1", "rdma") }, Foreign, "nvme1 (transport rdma)"},
		"nvme fc":                  {"nvme1n1", func(f *sysfs.Tree) { f.NVMe("nvme1n1", "nqn.b", "nvme1", "fc") }, Foreign, "nvme1 (transport fc)"},
		"nvme loop":                {"nvme1n1", func(f *sysfs.Tree) { f.NVMe("nvme1n1", "nqn.b", "nvme1", "loop") }, Foreign, "nvme1 (transport loop)"},
		"nvme of no transport":     {"nvme1n1", func(f *sysfs.Tree) { f.NVMe("nvme1n1", "nqn.b", "nvme1", "") }, Foreign, "nvme1 (transport unknown)"},
		"nvme multipath all pcie":  {"nvme0n1", func(f *sysfs.Tree) { f.Multipath("nvme0n1", "nqn.a", "nvme0", "pcie", "nvme1", "pcie") }, Local, "(nvme0, nvme1)"},
		"nvme multipath all tcp":   {"nvme0n1", func(f *sysfs.Tree) { f.Multipath("nvme0n1", "nqn.a", "nvme0", "tcp", "nvme1", "tcp") }, Foreign, "nvme1 (transport tcp)"},
		"nvme multipath mixed":     {"nvme0n1", func(f *sysfs.Tree) { f.Multipath("nvme0n1", "nqn.a", "nvme0", "pcie", "nvme1", "tcp") }, Foreign, "nvme1 (transport tcp)"},
		"nvme without controllers": {"nvme0n1", func(f *sysfs.Tree) { f.Multipath("nvme0n1", "nqn.a") }, Foreign, "does not show"},
		"nvme paths as two disks": {"nvme0n1", func(f *sysfs.Tree) {
			f.NVMe("nvme0n1", "nqn.a", "nvme0", "pcie")
			f.NVMe("nvme1n1", "nqn.a", "nvme1", "tcp")
		}, Foreign, "nvme1 (transport tcp)"},
		"sata ata":               {"sda", func(f *sysfs.Tree) { f.Disk("sda", ahci) }, Local, "ATA port"},
		"sas end device":         {"sda", func(f *sysfs.Tree) { f.Disk("sda", sasHBA) }, Local, "SAS end device"},
		"sas behind an expander": {"sda", func(f *sysfs.Tree) { f.Disk("sda", expander) }, Local, "SAS end device"},
		"sas behind an fc rport": {"sda", func(f *sysfs.Tree) {
			f.Disk("sda", "pci0000:b0/0000:b0:00.0/host5/rport-5:0-1/port-5:0/end_device-5:0/target5:0:0/5:0:0:0")
		}, Foreign, "Fibre Channel"},
		"sas of an fc host":       {"sda", func(f *sysfs.Tree) { f.Disk("sda", sasHBA); f.Put("class/fc_host/host1/port_name", "0x1") }, Foreign, "host1"},
		"fc":                      {"sda", func(f *sysfs.Tree) { f.Disk("sda", fc) }, Foreign, "Fibre Channel"},
		"iscsi":                   {"sda", func(f *sysfs.Tree) { f.Disk("sda", iscsi) }, Foreign, "iSCSI session 2"},
		"iscsi of an adapter":     {"sda", func(f *sysfs.Tree) { f.Disk("sda", "pci0000:b0/0000:b0:00.0/host3/session2/target3:0:0/3:0:0:0") }, Foreign, "iSCSI session 2"},
		"ata of an iscsi host":    {"sda", func(f *sysfs.Tree) { f.Disk("sda", ahci); f.Put("class/iscsi_host/host0/state", "online") }, Foreign, "iSCSI host host0"},
		"usb":                     {"sda", func(f *sysfs.Tree) { f.Disk("sda", usb) }, Foreign, "USB"},
		"sata behind usb":         {"sda", func(f *sysfs.Tree) { f.Disk("sda", "pci0000:00/0000:00:14.0/usb2/2-1/ata9/host6/target6:0:0/6:0:0:0") }, Foreign, "USB"},
		"raid volume":             {"sda", func(f *sysfs.Tree) { f.Disk("sda", raid); f.Put("class/scsi_host/host7/proc_name", "megaraid_sas\n") }, Foreign, "host7 (megaraid_sas)"},
		"scsi_debug":              {"sda", func(f *sysfs.Tree) { f.Disk("sda", "pseudo_0/adapter0/host8/target8:0:0/8:0:0:0") }, Foreign, "SCSI host host8"},
		"virtio of QEMU":          {"vda", func(f *sysfs.Tree) { f.Disk("vda", virtio); f.Put("class/dmi/id/sys_vendor", "QEMU\n") }, Local, "virtio disk of a QEMU machine"},
		"virtio of a server":      {"vda", func(f *sysfs.Tree) { f.Disk("vda", virtio); f.Put("class/dmi/id/sys_vendor", "Dell Inc.\n") }, Foreign, "virtio"},
		"virtio of no firmware":   {"vda", func(f *sysfs.Tree) { f.Disk("vda", virtio) }, Foreign, "virtio"},
		"rbd":                     {"rbd0", func(f *sysfs.Tree) { f.Disk("rbd0", "rbd/0") }, Foreign, "Ceph RBD"},
		"nbd":                     {"nbd0", func(f *sysfs.Tree) { f.Virtual("nbd0") }, Foreign, "network block device"},
		"drbd":                    {"drbd0", func(f *sysfs.Tree) { f.Virtual("drbd0") }, Foreign, "DRBD"},
		"pmem":                    {"pmem0", func(f *sysfs.Tree) { f.Disk("pmem0", "LNXSYSTM:00/ndbus0/region0/namespace0.0") }, Foreign, "unknown kind"},
		"mmc":                     {"mmcblk0", func(f *sysfs.Tree) { f.Disk("mmcblk0", "platform/mmc_host/mmc0/mmc0:0001") }, Foreign, "unknown kind"},
		"a directory, not a link": {"sda", func(f *sysfs.Tree) { f.Put("block/sda/size", "8") }, Foreign, "unknown kind"},
		"no such device":          {"sdz", func(f *sysfs.Tree) { f.Put("block/sda/size", "8") }, Foreign, "cannot be read"},
		"loop":                    {"loop0", func(f *sysfs.Tree) { f.Virtual("loop0") }, Layer, "loop device"},
		"ram":                     {"ram0", func(f *sysfs.Tree) { f.Virtual("ram0") }, Layer, "memory"},
		"zram":                    {"zram0", func(f *sysfs.Tree) { f.Virtual("zram0") }, Layer, "memory"},
		"dm over nothing":         {"dm-0", func(f *sysfs.Tree) { f.Virtual("dm-0") }, Foreign, "nothing shows"},
		"unknown virtual device":  {"zd0", func(f *sysfs.Tree) { f.Virtual("zd0") }, Foreign, "nothing shows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := sysfs.New(t, t.TempDir())
			c.make(tree)
			d := Sys(tree.Root).Classify(c.dev)
			require.Equal(t, c.class, d.Class, d.Reason)
			require.Contains(t, d.Reason, c.reason)
		})
	}
}

// A layer is of the class of what lies below it, over partitions and further layers.
func TestClassify_Layers(t *testing.T) {
	t.Parallel()
	below := map[string]struct {
		make    func(*sysfs.Tree)
		foreign bool
	}{
		"nvme0n1": {func(f *sysfs.Tree) { f.NVMe("nvme0n1", "nqn.a", "nvme0", "pcie") }, false},
		"sda":     {func(f *sysfs.Tree) { f.Disk("sda", ahci) }, false},
		"sdb":     {func(f *sysfs.Tree) { f.Disk("sdb", sasHBA) }, false},
		"loop0":   {func(f *sysfs.Tree) { f.Virtual("loop0") }, false},
		"nvme1n1": {func(f *sysfs.Tree) { f.NVMe("nvme1n1", "nqn.b", "nvme1", "tcp") }, true},
		"nvme2n1": {func(f *sysfs.Tree) { f.Multipath("nvme2n1", "nqn.c", "nvme2", "pcie", "nvme3", "rdma") }, true},
		"sdc":     {func(f *sysfs.Tree) { f.Disk("sdc", fc) }, true},
		"sdd":     {func(f *sysfs.Tree) { f.Disk("sdd", iscsi) }, true},
		"sde":     {func(f *sysfs.Tree) { f.Disk("sde", usb) }, true},
		"rbd0":    {func(f *sysfs.Tree) { f.Disk("rbd0", "rbd/0") }, true},
		"nbd0":    {func(f *sysfs.Tree) { f.Virtual("nbd0") }, true},
		"drbd0":   {func(f *sysfs.Tree) { f.Virtual("drbd0") }, true},
	}
	for name, c := range below {
		for _, layer := range []string{"dm-0", "md0", "bcache0"} {
			t.Run(layer+" over "+name, func(t *testing.T) {
				t.Parallel()
				tree := sysfs.New(t, t.TempDir())
				tree.Disk("sdz", strings.ReplaceAll(ahci, "ata1", "ata2"))
				c.make(tree)
				tree.Put("block/"+name+"/"+name+"p1/partition", "1")
				tree.Virtual(layer, "sdz", name+"p1")
				tree.Virtual("dm-9", layer)
				want := Layer
				if c.foreign {
					want = Foreign
				}
				require.Equal(t, want, Sys(tree.Root).Classify(layer).Class)
				require.Equal(t, want, Sys(tree.Root).Classify("dm-9").Class)
			})
		}
	}
}

func TestDevices_LeavesOutWhatHasNoMedium(t *testing.T) {
	t.Parallel()
	tree := sysfs.New(t, t.TempDir())
	tree.Disk("sda", ahci)
	tree.Disk("sdb", usb)
	tree.Put("block/sdb/size", "0\n")
	tree.Put("block/sdb/removable", "1\n")
	tree.Disk("sr0", strings.ReplaceAll(ahci, "ata1", "ata3"))
	tree.Virtual("nbd0")
	tree.Virtual("nbd1")
	tree.Put("block/nbd1/size", "0\n")
	tree.NVMe("nvme0n1", "nqn.a", "nvme0", "pcie")
	tree.Disk("nvme0c0n1", "pci0000:01/hidden")
	tree.Put("block/nvme0c0n1/hidden", "1\n")
	devices, err := Sys(tree.Root).Devices()
	require.NoError(t, err)
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	require.Equal(t, []string{"nbd0", "nvme0n1", "sda"}, names)

	require.NoError(t, os.RemoveAll(filepath.Join(tree.Root, "sys/block")))
	_, err = Sys(tree.Root).Devices()
	require.ErrorContains(t, err, "list the block devices")
}

func TestConnections(t *testing.T) {
	t.Parallel()
	tree := sysfs.New(t, t.TempDir())
	sys := Sys(tree.Root)
	found, err := sys.Connections()
	require.NoError(t, err)
	require.Empty(t, found)
	tree.NVMe("nvme0n1", "nqn.local", "nvme0", "pcie")
	tree.Multipath("nvme1n1", "nqn.mixed", "nvme1", "pcie", "nvme2", "tcp")
	tree.Multipath("nvme3n1", "nqn.remote", "nvme3", "tcp", "nvme4", "tcp")
	tree.Controller("nvme5", "nqn.empty", "rdma")
	tree.Disk("sda", iscsi)
	tree.Put("class/iscsi_session/session2/targetname", "iqn.a")
	found, err = sys.Connections()
	require.NoError(t, err)
	require.Equal(t, []Connection{{KindNVMe, "nqn.empty"}, {KindNVMe, "nqn.remote"}, {KindISCSI, "2"}}, found)
	require.Equal(t, Connection{KindNVMe, "nqn.remote"}, sys.Classify("nvme3n1").Connection)
	require.Equal(t, Connection{KindISCSI, "2"}, sys.Classify("sda").Connection)
	require.Zero(t, sys.Classify("nvme1n1").Connection, "a subsystem with a local path is not disconnected")
}
