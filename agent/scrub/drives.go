package scrub

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/task"
)

const blockClass = "/sys/block"

// drive is a disk as the kernel shows it.
type drive struct {
	name, model, serial, wwn string
	bytes                    int64
	place                    blockdev.Device
}

func (d drive) nvme() bool { return strings.HasPrefix(d.name, "nvme") }
func (d drive) ata() bool  { return strings.HasPrefix(d.name, "sd") }

// scsi is true for a disk that says that it is no ATA disk: the kernel shows
// ATA as the vendor of those.
func (h Host) scsi(d drive) bool {
	vendor := h.text(blockClass, d.name, "device/vendor")
	return vendor != "" && vendor != "ATA"
}

// blocks is the node's sysfs.
func (h Host) blocks() blockdev.Sys { return blockdev.Sys(h.Root) }

// drives lists the drives of this node, and the devices that are not this node's. A device that has
// no medium of its own is neither.
func (r *run) drives() ([]drive, error) {
	devices, err := r.blocks().Devices()
	if err != nil {
		return nil, err
	}
	var out []drive
	for _, place := range devices {
		name := place.Name
		if place.Class == blockdev.Layer || !r.concerns("disk", name) {
			continue
		}
		if d := r.driveAt(place); !r.excepted(d) {
			out = append(out, d)
		}
	}
	return out, nil
}

func (h Host) driveAt(place blockdev.Device) drive {
	name := place.Name
	sectors, err := strconv.ParseInt(h.text(blockClass, name, "size"), 10, 64)
	d := drive{name: name, model: h.text(blockClass, name, "device/model"), serial: h.diskSerial(name), wwn: h.wwn(name), place: place}
	if err == nil && sectors > 0 && sectors < 1<<53 {
		d.bytes = sectors * 512 // the kernel counts so, whatever the drive's own size
	}
	return d
}

// diskSerial is where the kernel shows it: NVMe, virtio, or the SCSI page 0x80,
// which starts with four bytes of header.
func (h Host) diskSerial(name string) string {
	for _, p := range []string{"device/serial", "serial"} {
		if s := h.text(blockClass, name, p); s != "" {
			return s
		}
	}
	if raw, err := h.read(blockClass, name, "device/vpd_pg80"); err == nil && len(raw) > 4 {
		return task.Clip(string(raw[4:]), 100)
	}
	return ""
}

func (h Host) wwn(name string) string {
	for _, p := range []string{"wwid", "device/wwid", "device/wwn"} {
		if s := h.text(blockClass, name, p); s != "" {
			return s
		}
	}
	return ""
}

// protected compares serial and WWN, never the name: names move from boot to
// boot.
func (r *run) protected(d drive) bool {
	return slices.ContainsFunc(r.protect, d.is)
}

// is reports whether a text is the serial number or the WWN of the drive. MAAS has the WWN of a SAS
// drive where its serial number should be.
func (d drive) is(name string) bool {
	name = strings.TrimSpace(name)
	return name != "" && (strings.EqualFold(name, d.serial) || strings.EqualFold(name, d.wwn) || strings.EqualFold(name, strings.TrimPrefix(d.wwn, "eui.")) ||
		strings.EqualFold(name, strings.TrimPrefix(d.wwn, "naa.")))
}

// ramRoots are kinds of root file systems that lie on no disk.
var ramRoots = regexp.MustCompile(`^(tmpfs|ramfs|rootfs|overlay|squashfs|nfs4?)$`)

// systemMounts are where the running system's own file systems are mounted.
func systemMounts() []string { return []string{"/", "/boot", "/boot/efi", "/usr", "/var"} }

// deviceOf returns the name of the block device that a mount lies on. The number decides, since a
// name below /dev can be given to anything; the name counts where the file system has a number of
// its own.
func (h Host) deviceOf(m hostscan.Mount) (string, bool) {
	if name := h.blocks().ByNumber(m.Dev); name != "" {
		return name, true
	}
	return strings.CutPrefix(m.Source, "/dev/")
}

// systemDisks are those that hold /, /boot and /boot/efi. It is an error when
// they cannot be told: then none may be erased.
func (h Host) systemDisks(mounts []hostscan.Mount) (map[string]bool, error) {
	found := map[string]bool{}
	known := false
	for _, m := range mounts {
		if !slices.Contains(systemMounts(), m.Target) {
			continue
		}
		dev, isDev := h.deviceOf(m)
		if !isDev {
			known = known || m.Target == "/" && ramRoots.MatchString(m.FSType)
			continue
		}
		drives := h.drivesOf(dev)
		for _, d := range drives {
			found[d] = true
		}
		if len(drives) == 0 {
			return nil, fmt.Errorf("on which disk %s (%s) lies cannot be told", m.Target, m.Source)
		}
		known = known || m.Target == "/"
	}
	if !known {
		return nil, errors.New("on which disk the system lies cannot be told")
	}
	return found, nil
}

// drivesOf are the disks below a block device, through partitions, RAID and
// device mapper; none when the device is not known.
func (h Host) drivesOf(dev string) []string {
	found := map[string]bool{}
	h.addDrives(found, dev, 8)
	out := make([]string, 0, len(found))
	for d := range found {
		out = append(out, d)
	}
	slices.Sort(out)
	return out
}

func (h Host) addDrives(found map[string]bool, dev string, depth int) {
	dev = h.wholeDevice(dev)
	if depth == 0 || dev == "" {
		return
	}
	below := h.names(blockClass, dev, "slaves")
	for _, s := range below {
		h.addDrives(found, s, depth-1)
	}
	if len(below) == 0 {
		found[dev] = true
	}
}

// wholeDevice returns the block device that a path below /dev is, or is a partition of. It returns
// "" when there is none.
func (h Host) wholeDevice(dev string) string {
	if strings.Contains(dev, "/") { // mapper/x, disk/by-uuid/x
		target, err := filepath.EvalSymlinks(h.path("/dev", dev))
		if err != nil {
			return ""
		}
		dev = filepath.Base(target)
	}
	if dev = h.blocks().Whole(dev); !h.exists(blockClass, dev) {
		return ""
	}
	return dev
}

// parts are a disk and its partitions.
func (h Host) parts(name string) []string {
	out := []string{name}
	for _, p := range h.names(blockClass, name) {
		if h.exists(blockClass, name, p, "partition") {
			out = append(out, p)
		}
	}
	return out
}

// inUse says what keeps a disk from being erased, nil for nothing. It is asked
// just before each erasure.
func (h Host) inUse(d drive) error {
	mounts, err := h.mountList()
	if err != nil {
		return err
	}
	system, err := h.systemDisks(mounts)
	if err != nil {
		return err
	}
	if system[d.name] {
		return fmt.Errorf("%s holds the system that runs", d.name)
	}
	for _, m := range mounts {
		if dev, ok := h.deviceOf(m); ok && slices.Contains(h.drivesOf(dev), d.name) {
			return fmt.Errorf("%s is mounted at %s", d.name, m.Target)
		}
	}
	swaps, err := h.swaps()
	if err != nil {
		return err
	}
	for _, s := range swaps {
		if slices.Contains(h.drivesOf(s.device), d.name) {
			return fmt.Errorf("%s holds swap", d.name)
		}
	}
	for _, p := range h.parts(d.name) {
		dir := filepath.Join(blockClass, d.name, "holders")
		if p != d.name {
			dir = filepath.Join(blockClass, d.name, p, "holders")
		}
		if held := h.names(dir); len(held) > 0 {
			return fmt.Errorf("%s belongs to %s (RAID or device mapper)", p, list(held))
		}
	}
	return nil
}

// refusal says why a disk must not be erased, apart from being in use.
func (r *run) refusal(d drive) error {
	switch {
	case d.serial == "":
		return fmt.Errorf("%s shows no serial number, so nobody could tell which disk was erased", d.name)
	case r.text(blockClass, d.name, "ro") == "1":
		return fmt.Errorf("%s is read-only", d.name)
	case strings.Contains(strings.ToLower(d.model), "virtual") || r.text(blockClass, d.name, "removable") == "1":
		return fmt.Errorf("%s (%s) is virtual or removable media", d.name, d.model)
	case d.bytes < blockSize:
		return fmt.Errorf("the size of %s is unknown", d.name)
	}
	return nil
}
