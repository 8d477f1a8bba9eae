package blockdev

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// The exceptions. docs/scrub.md says what proves each.
const (
	// ExceptionFloppy is a floppy drive in which the kernel has seen no medium.
	ExceptionFloppy = "a floppy drive without a medium"
	// ExceptionBootArea is a boot area of an eMMC. Root can write to it, so the scrub reads all of
	// it.
	ExceptionBootArea = "a write-protected boot area of an eMMC"
	// ExceptionBMC is a disk that a BMC shows over USB.
	ExceptionBMC = "a read-only disk of the BMC itself"
)

const (
	// noFloppy is the size that the kernel gives a floppy drive without a medium, in sectors.
	noFloppy = "8"
	// maxBootArea is over the largest boot area of JESD84-B51, 32,640 KiB, in sectors.
	maxBootArea = 1 << 16
)

var (
	floppyPlace = regexp.MustCompile(`^/sys/devices/platform/floppy\.\d+/block/fd\d+$`)
	bootArea    = regexp.MustCompile(`/mmc_host/mmc\d+/mmc\d+:[0-9a-f]{4}/block/(mmcblk\d+/)?mmcblk\d+boot\d$`)
)

// bmcDisk is how a maker's BMC names its own disks: the vendor of SCSI and the maker's number of
// USB.
type bmcDisk struct{ vendor, usb string }

// bmcDisks lists makers whose BMC shows a disk of its own. Source: metal3-io/baremetal-operator 596
// for iLO, Dell's iDRAC manual ("SECUPD", "OEMDRV") for iDRAC, and the USB ID repository, read in
// November 2026. A maker that is not here has no exception.
func bmcDisks() []bmcDisk { return []bmcDisk{{"iLO", "03f0"}, {"iDRAC", "413c"}} }

// exception returns why a device with a parent can hold nothing of a tenant, "" for any other
// device. Where the kernel puts a device decides, since no name, size or flag that a tenant can set
// moves a drive at PCIe, ATA or SAS to one of these places.
func (s Sys) exception(name, where string) string {
	readOnly := s.text(blockClass, name, "ro") == "1"
	removable := s.text(blockClass, name, "removable") == "1"
	switch {
	case floppyPlace.MatchString(where) && removable && s.text(blockClass, name, "size") == noFloppy:
		return ExceptionFloppy
	case bootArea.MatchString(where) && readOnly && s.sectors(name) <= maxBootArea:
		return ExceptionBootArea
	case usbBus.MatchString(where) && readOnly && removable && s.ofBMC(name, where):
		return ExceptionBMC
	}
	return ""
}

// ofBMC reports whether a USB disk is one of bmcDisks. Virtual media are none: an image of somebody
// is behind them.
func (s Sys) ofBMC(name, where string) bool {
	if strings.Contains(strings.ToLower(s.text(blockClass, name, "device/model")), "virtual") {
		return false
	}
	vendor := s.text(blockClass, name, "device/vendor")
	i := slices.IndexFunc(bmcDisks(), func(b bmcDisk) bool { return b.vendor == vendor })
	if i < 0 {
		return false
	}
	for dir := path.Dir(where); strings.Contains(dir, "/usb"); dir = path.Dir(dir) {
		if id := s.text(dir, "idVendor"); id != "" {
			return id == bmcDisks()[i].usb
		}
	}
	return true
}
