package agent_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// tree writes files below a new root; a name that ends in / is a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(p, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte(content), 0o600))
	}
	return root
}

func tools(t *testing.T, nvidiaSMI string) string {
	t.Helper()
	dir := t.TempDir()
	if nvidiaSMI != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+nvidiaSMI), 0o755))
	}
	return dir
}

func config(root, toolsPath string) agentconfig.Config {
	return agentconfig.Config{Root: root, ToolsPath: toolsPath, Simulated: true, ToolTimeout: 20 * time.Second}
}

func machine(t *testing.T) string {
	return tree(t, map[string]string{
		"proc/meminfo":                              "MemTotal:       2113413040 kB\nMemFree:  1 kB\n",
		"proc/mounts":                               "proc /proc proc rw 0 0\n/dev/mapper/vg-root / ext4 rw 0 0\n/dev/sda1 /boot/efi vfat rw 0 0\nnas:/tenant\\040a /mnt/tenants/a\\134b nfs4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/nvme0n1 /scratch xfs rw 0 0\n",
		"sys/devices/system/cpu/online":             "0-63,128-191\n",
		"sys/class/net/lo/address":                  "00:00:00:00:00:00\n",
		"sys/class/net/bond0/operstate":             "up\n",
		"sys/class/net/eno1/address":                "52:54:00:AA:bb:01\n",
		"sys/class/net/eno1/operstate":              "up\n",
		"sys/class/net/eno1/speed":                  "25000\n",
		"sys/class/net/eno1/mtu":                    "9000\n",
		"sys/class/net/eno1/device/":                "",
		"sys/class/net/eno2/operstate":              "down\n",
		"sys/class/net/eno2/speed":                  "-1\n",
		"sys/class/net/eno2/device/":                "",
		"sys/class/net/eno1v0/address":              "52:54:00:AA:BB:77\n",
		"sys/class/net/eno1v0/operstate":            "up\n",
		"sys/class/net/eno1v0/device/physfn/vendor": "0x15b3\n",
		"sys/class/net/ib0/operstate":               "unknown\n",
		"sys/class/net/ib0/carrier":                 "1\n",
		"sys/class/net/ib0/device/":                 "",
		"sys/block/loop0/size":                      "8\n",
		"sys/block/sr0/removable":                   "1\n",
		"sys/block/sr0/device/":                     "",
		"sys/block/sda/size":                        "937571968\n",
		"sys/block/sda/device/model":                "DELLBOSS VD     \n",
		"sys/block/sda/device/vpd_pg80":             "\x00\x80\x00\x08SER-1234",
		"sys/block/sda/sda1/partition":              "1\n",
		"sys/block/sda/sda2/partition":              "2\n",
		"sys/block/dm-0/dm/name":                    "vg-root\n",
		"sys/block/dm-0/slaves/sda2":                "",
		"sys/block/nvme0n1/size":                    "7501476528\n",
		"sys/block/nvme0n1/device/model":            "SAMSUNG MZWLO3T8HCLS\n",
		"sys/block/nvme0n1/device/serial":           "S0N0\n",
		"sys/block/nvme0c0n1/hidden":                "1\n",
		"sys/block/nvme0c0n1/device/":               "",
		"proc/sys/kernel/random/boot_id":            "2f1b0c9e-0000-4000-8000-000000000001\n",
		"proc/driver/nvidia/version":                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\nGCC version: 11\n",
		"sys/block/ram0/device_not_there/":          "",
	})
}

func TestReportReadsAMachine(t *testing.T) {
	t.Parallel()
	xml := smi(12, "550.90.07", 1, gpu("NVIDIA H100 80GB HBM3", "GPU-a", healthyV12))
	dir := tools(t, "[ \"$1 $2\" = '-q -x' ] || exit 9\ncat \"${0%/*}/answer.xml\"\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "answer.xml"), xml, 0o600))
	r := agent.Report(t.Context(), config(machine(t), dir+":/usr/bin:/bin"))

	require.True(t, r.Simulated)
	require.Equal(t, 128, r.CPUs)
	require.Equal(t, ptr[int64](2063879), r.MemoryMiB)
	require.Equal(t, "550.90.07", r.Driver)
	require.Empty(t, r.GPUError)
	require.Len(t, r.GPUs, 1)
	require.NotNil(t, r.DiskFreeMB)
	require.Equal(t, []spec.NICReport{
		{Name: "eno1", MAC: "52:54:00:aa:bb:01", Up: true, SpeedMbps: 25000, MTU: 9000},
		{Name: "eno2"}, {Name: "ib0", Up: true},
	}, r.NICs)
	require.Equal(t, []spec.DiskReport{
		{Name: "nvme0n1", Model: "SAMSUNG MZWLO3T8HCLS", Serial: "S0N0", Bytes: 3_840_755_982_336},
		{Name: "sda", Model: "DELLBOSS VD", Serial: "SER-1234", Bytes: 480_036_847_616, Boot: true},
	}, r.Disks)
	require.Equal(t, []spec.MountReport{
		{Source: "/dev/mapper/vg-root", Target: "/", FSType: "ext4"},
		{Source: "/dev/sda1", Target: "/boot/efi", FSType: "vfat"},
		{Source: "nas:/tenant a", Target: `/mnt/tenants/a\b`, FSType: "nfs4"},
		{Source: "/dev/nvme0n1", Target: "/scratch", FSType: "xfs"},
	}, r.Mounts)
}

func TestReportOfAHalfBrokenMachineStillComes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ script, want string }{
		"no nvidia-smi":    {"", "is not installed"},
		"driver gone":      {"echo 'NVIDIA-SMI has failed because it could not talk to the driver.'\nexit 9", "could not talk to the driver"},
		"speaks on stderr": {"echo 'Unable to determine the device handle' >&2\nexit 255", "Unable to determine"},
		"no xml":           {"echo hello", "cannot be read"},
		"endless":          {"exec cat /dev/zero", "wrote over"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := agent.Report(t.Context(), config(machine(t), tools(t, tt.script)+":/usr/bin:/bin"))
			require.Contains(t, r.GPUError, tt.want)
			require.Nil(t, r.GPUs)
			require.Equal(t, "550.54.15", r.Driver, "the kernel still tells its version")
			require.Equal(t, 128, r.CPUs)
		})
	}
	empty := agent.Report(t.Context(), config(t.TempDir(), t.TempDir()))
	require.Nil(t, empty.MemoryMiB)
	require.Zero(t, empty.CPUs)
	require.NotEmpty(t, spec.SKUSpec{GPUs: 8}.CheckHealth(empty), "unknown is not healthy")
}

func TestReport_EndsAToolThatHangs(t *testing.T) {
	t.Parallel()
	c := config(machine(t), tools(t, "exec sleep 600")+":/usr/bin:/bin")
	c.ToolTimeout = 300 * time.Millisecond
	r := agent.Report(t.Context(), c)
	require.Contains(t, r.GPUError, "did not end in time: the limit is 300ms")
}

// TestReport_OwnAddress: a node whose only way to the control plane is the loopback device, or that
// knows none, names no address.
func TestReport_OwnAddress(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"https://127.0.0.1:9443", "https://[::1]:9443", "none", "\x00"} {
		c := config(t.TempDir(), "/bin")
		c.ServerURL = server
		require.Empty(t, agent.Report(t.Context(), c).Address, server)
	}
	c := config(t.TempDir(), "/bin")
	c.ServerURL = "https://192.0.2.1:9443"
	if address := agent.Report(t.Context(), c).Address; address != "" { // a machine without a network has none
		ip, err := netip.ParseAddr(address)
		require.NoError(t, err)
		require.False(t, ip.IsLoopback() || ip.IsUnspecified())
	}
}
