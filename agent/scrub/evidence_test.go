package scrub

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/agent/blockdev/sysfs"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// formatOnly makes the NVMe drive one that can only format. done says whether a format does its
// work, layout what the namespace's layout is afterwards.
func (b *bench) formatOnly(done bool, layout string, said error) {
	now := `{"flbas":1,"dps":9}`
	b.answer["nvme"] = func(args []string) (string, error) {
		switch args[0] {
		case "id-ctrl":
			return `{"sn":"N0","oacs":94,"fna":0,"sanicap":0}`, nil
		case "id-ns":
			return now, nil
		case "format":
			if done {
				b.wipe("nvme0n1")
			}
			now = layout
			return "", said
		}
		return b.nvme(args)
	}
}

// nvme-cli 816 and 2651: the format succeeds in the drive, then the program cannot read the
// partition table again, or set the block size, and ends with an error. The evidence on the drive
// decides.
func TestErase_EvidenceOnTheDriveDecides(t *testing.T) {
	t.Parallel()
	said := errors.New("nvme failed: failed to re-read partition table")
	const same = `{"flbas":1,"dps":9}`
	for name, c := range map[string]struct {
		done     bool
		layout   string
		said     error
		verified bool
		detail   string
	}{
		"it worked and says so":            {true, same, nil, true, "sampled blocks are blank"},
		"it worked and ends with an error": {true, same, said, true, "the program said otherwise: nvme failed: failed to re-read"},
		"it did nothing and says it did":   {false, same, nil, false, "still holds"},
		"it did nothing and says so":       {false, same, said, false, "failed to re-read"},
		"it changed the sector format":     {true, `{"flbas":0,"dps":0}`, nil, false, "the sector format of nvme0n1 was [--lbaf=1 --ms=0 --pi=1 --pil=1] and is [--lbaf=0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.formatOnly(c.done, c.layout, c.said)
			_, dev := b.erase(protectS1)
			d := dev["nvme0n1"]
			require.Equal(t, c.verified, d.Verified, d.Detail)
			require.Contains(t, d.Detail, c.detail)
			require.True(t, b.ran("nvme format /dev/nvme0n1 --ses=1 --lbaf=1 --ms=0 --pi=1 --pil=1 --force"), "%v", b.said)
			want := lifecycle.SanitizePurge
			if !c.verified && (c.said != nil || c.layout != same) {
				want = lifecycle.SanitizeNone
			}
			require.Equal(t, want, d.Method)
		})
	}
}

func TestErase_SanitizeThatRanAndSaidOtherwise(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{true, false} {
		b := newBench(t)
		b.sanitize = []string{"1"} // of an operation before
		b.answer["nvme"] = func(args []string) (string, error) {
			if args[0] == "sanitize" {
				if done {
					_, _ = b.nvme(args)
				}
				return "", errors.New("nvme failed: Interrupted system call")
			}
			return b.nvme(args)
		}
		_, dev := b.erase(protectS1)
		require.Equal(t, done, dev["nvme0n1"].Verified, dev["nvme0n1"].Detail)
		require.Contains(t, dev["nvme0n1"].Detail, "Interrupted system call")
	}
}

const (
	usbILO   = "pci0000:00/0000:00:14.0/usb1/1-3/1-3.1/1-3.1:1.0/host9/target9:0:0/9:0:0:0"
	floppy   = "platform/floppy.0"
	eMMC     = "platform/mmc_host/mmc0/mmc0:0001"
	atAnATA  = "pci0000:00/0000:00:17.0/ata9/host9/target9:0:0/9:0:0:0"
	bootSize = "8192\n"
)

func (b *bench) device(name, parent string, files map[string]string) {
	b.Helper()
	sysfs.New(b.T, b.host.Root).Disk(name, parent)
	for file, content := range files {
		b.put("/sys/block/"+name+"/"+file, content)
	}
}

func iLO() map[string]string {
	return map[string]string{"size": "524288\n", "ro": "1\n", "removable": "1\n", "device/vendor": "iLO\n", "device/model": "LUN 00 Media 0\n", "device/serial": "ILO1\n"}
}

// Devices that can hold nothing of a tenant do not keep the drives from being erased, and the
// result names them.
func TestException_IsNamedAndTheRestIsErased(t *testing.T) {
	t.Parallel()
	for name, lay := range map[string]func(*bench) string{
		blockdev.ExceptionFloppy: func(b *bench) string {
			b.device("fd0", floppy, map[string]string{"size": "8\n", "removable": "1\n"})
			return "fd0"
		},
		blockdev.ExceptionBMC: func(b *bench) string {
			b.device("sdc", usbILO, iLO())
			b.put("/sys/devices/pci0000:00/0000:00:14.0/usb1/1-3/1-3.1/idVendor", "03f0\n")
			return "sdc"
		},
		blockdev.ExceptionBootArea: func(b *bench) string {
			b.device("mmcblk0boot0", eMMC, map[string]string{"size": bootSize, "ro": "1\n"})
			b.put("/dev/mmcblk0boot0", strings.Repeat("\x00", 4<<20))
			return "mmcblk0boot0"
		},
	} {
		b := newBench(t)
		dev := lay(b)
		res, devices := b.erase(protectS1)
		require.True(t, res.OK, res.Message)
		require.Contains(t, stepOf(res, StepDisks).Detail, "exception: "+dev)
		require.Contains(t, stepOf(res, StepDisks).Detail, "is "+name+" and was not erased")
		require.True(t, devices["nvme0n1"].Verified)
		require.False(t, b.mentions("/dev/"+dev))
		looked := Validate(t.Context(), b.host, spec.ValidateArgs{RunID: "job_1", Steps: []string{StepDiskBlank}, ProtectSerials: []string{"S1"}}, nil)
		require.True(t, looked.OK, looked.Message)
		require.Contains(t, stepOf(looked, StepDiskBlank).Detail, "exception: "+dev)
	}
}

// A drive cannot be made to look like an exception by what a tenant can set.
func TestException_IsNoWayToKeepADrive(t *testing.T) {
	t.Parallel()
	for name, lay := range map[string]func(*bench){
		"set read-only and removable": func(b *bench) { b.device("sdc", atAnATA, iLO()) },
		"writable disk of a BMC":      func(b *bench) { b.device("sdc", usbILO, iLO()); b.put("/sys/block/sdc/ro", "0\n") },
		"fixed disk of a BMC":         func(b *bench) { b.device("sdc", usbILO, iLO()); b.put("/sys/block/sdc/removable", "0\n") },
		"virtual medium, an image behind": func(b *bench) {
			b.device("sdc", usbILO, iLO())
			b.put("/sys/block/sdc/device/model", "Virtual Media\n")
		},
		"a stick that says it is an iLO": func(b *bench) {
			b.device("sdc", usbILO, iLO())
			b.put("/sys/devices/pci0000:00/0000:00:14.0/usb1/1-3/1-3.1/idVendor", "0781\n")
		},
		"a stick":              func(b *bench) { b.device("sdc", usbILO, iLO()); b.put("/sys/block/sdc/device/vendor", "SanDisk\n") },
		"a floppy with a disk": func(b *bench) { b.device("fd0", floppy, map[string]string{"size": "2880\n", "removable": "1\n"}) },
		"a drive named fd0": func(b *bench) {
			b.device("fd0", "pci0000:17/0000:18:00.0/host7/target7:2:0/7:2:0:0", map[string]string{"size": "8\n", "removable": "1\n"})
		},
		"a boot area with its protection off": func(b *bench) {
			b.device("mmcblk0boot0", eMMC, map[string]string{"size": bootSize, "ro": "0\n"})
		},
		"an eMMC of that name": func(b *bench) { b.device("mmcblk0boot0", eMMC, map[string]string{"size": "999999999\n", "ro": "1\n"}) },
		"recorded as a drive":  func(b *bench) { b.device("sdc", usbILO, iLO()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			lay(b)
			res, devices := b.erase(func(a *spec.ScrubArgs) {
				protectS1(a)
				if name == "recorded as a drive" {
					for _, s := range []string{"ILO1", "N0", "S1", "BOOT"} {
						a.ExpectedDrives = append(a.ExpectedDrives, spec.ExpectedDrive{Serial: s})
					}
				}
			})
			require.False(t, res.OK, res.Message)
			require.NotContains(t, res.Message, "exception:")
			local := name == "set read-only and removable"
			require.Equal(t, local, devices["nvme0n1"].Verified, "a foreign device keeps all from being erased, a drive of this node itself only")
			require.False(t, devices["sdc"].Verified)
		})
	}
}

// Root can write to a boot area and protect it again. Its content decides; its serial number in
// protect_serials lets the scrub go on.
func TestException_BootAreaThatHoldsSomething(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.device("mmcblk0boot0", eMMC, map[string]string{"size": bootSize, "ro": "1\n", "device/serial": "0xabc\n"})
	b.put("/dev/mmcblk0boot0", strings.Repeat("\x00", 3<<20)+"tenant"+strings.Repeat("\x00", 1<<20-6))
	res, devices := b.erase(protectS1)
	require.False(t, res.OK)
	require.Contains(t, res.Message, "mmcblk0boot0, a write-protected boot area of an eMMC, is not proven blank: it holds something at byte 3145728")
	require.True(t, devices["nvme0n1"].Verified, "it keeps no drive from being erased")
	res, devices = b.erase(func(a *spec.ScrubArgs) { a.ProtectSerials = []string{"S1", "0xabc"}; a.RunID = "job_2" })
	require.True(t, res.OK, res.Message)
	require.False(t, devices["mmcblk0boot0"].Verified, "the certificate is not clean")
	require.Contains(t, string(res.Output), "0xabc")
	require.NoError(t, os.Remove(filepath.Join(b.host.Root, "dev/mmcblk0boot0")))
	res, devices = b.erase(func(a *spec.ScrubArgs) { protectS1(a); a.RunID = "job_3" })
	require.False(t, res.OK, "what cannot be read is not blank")
	require.True(t, devices["nvme0n1"].Verified)
}
