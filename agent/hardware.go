package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const maxFile = 1 << 20

// read reads a small file of the node.
func (c Config) read(p string) ([]byte, error) {
	f, err := os.Open(c.path(p))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// text reads a file of one line; "" when it cannot be read.
func (c Config) text(elem ...string) string {
	raw, err := c.read(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return clip(string(raw), 200)
}

func (c Config) exists(elem ...string) bool {
	_, err := os.Stat(c.path(filepath.Join(elem...)))
	return err == nil
}

func (c Config) names(dir string) []string {
	entries, err := os.ReadDir(c.path(dir))
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// BootID is the kernel's id of this boot; it changes at each boot and is the
// proof of one.
func (c Config) BootID() (string, error) {
	raw, err := c.read("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	id := clip(string(raw), 64)
	if id == "" {
		return "", fmt.Errorf("the boot id in %s is empty", c.path("/proc/sys/kernel/random/boot_id"))
	}
	return id, nil
}

// memory is MemTotal in MiB, nil when it cannot be read.
func (c Config) memory() *int64 {
	raw, err := c.read("/proc/meminfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			if n := number(f[1]); n != nil {
				mib := *n / 1024
				return &mib
			}
		}
	}
	return nil
}

// cpus counts the processors that are on, from a list such as 0-63,128-191.
func (c Config) cpus() int {
	total := 0
	for part := range strings.SplitSeq(c.text("/sys/devices/system/cpu/online"), ",") {
		first, last, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		if err != nil || a < 0 {
			return 0
		}
		b := a
		if ranged {
			if b, err = strconv.Atoi(last); err != nil || b < a {
				return 0
			}
		}
		total += b - a + 1
	}
	return total
}

// nics lists the interfaces that have a device behind them: no loopback, no
// bridges, bonds, VLANs or tunnels.
func (c Config) nics() []spec.NICReport {
	const class = "/sys/class/net"
	var out []spec.NICReport
	for _, name := range c.names(class) {
		if !c.exists(class, name, "device") {
			continue
		}
		n := spec.NICReport{Name: name, MAC: strings.ToLower(c.text(class, name, "address"))}
		switch c.text(class, name, "operstate") {
		case "up":
			n.Up = true
		case "unknown": // some drivers do not say; then the cable does
			n.Up = c.text(class, name, "carrier") == "1"
		}
		if v := number(c.text(class, name, "speed")); v != nil {
			n.SpeedMbps = int(*v)
		}
		if v := number(c.text(class, name, "mtu")); v != nil {
			n.MTU = int(*v)
		}
		out = append(out, n)
	}
	return out
}

const block = "/sys/block"

// disks lists the drives: block devices with a device behind them that are no
// removable media and no hidden path of a multipath drive.
func (c Config) disks(mounts []spec.MountReport) []spec.DiskReport {
	boot := c.bootDisks(mounts)
	var out []spec.DiskReport
	for _, name := range c.names(block) {
		if !c.exists(block, name, "device") || c.text(block, name, "removable") == "1" || c.text(block, name, "hidden") == "1" {
			continue
		}
		d := spec.DiskReport{Name: name, Model: c.text(block, name, "device/model"), Serial: c.serial(name), Boot: boot[name]}
		if v := number(c.text(block, name, "size")); v != nil {
			d.Bytes = *v * 512 // the kernel counts 512-byte sectors whatever the drive's own size
		}
		out = append(out, d)
	}
	return out
}

// serial is where the kernel shows it: NVMe, virtio, or the SCSI page 0x80,
// which starts with four bytes of header.
func (c Config) serial(disk string) string {
	for _, p := range []string{"device/serial", "serial"} {
		if s := c.text(block, disk, p); s != "" {
			return s
		}
	}
	if raw, err := c.read(filepath.Join(block, disk, "device/vpd_pg80")); err == nil && len(raw) > 4 {
		return clip(string(raw[4:]), 100)
	}
	return ""
}

// bootDisks are the drives that hold the system: those below the mounts of /,
// /boot and /boot/efi, through partitions and device mapper.
func (c Config) bootDisks(mounts []spec.MountReport) map[string]bool {
	found := map[string]bool{}
	for _, m := range mounts {
		if slices.Contains([]string{"/", "/boot", "/boot/efi"}, m.Target) && strings.HasPrefix(m.Source, "/dev/") {
			c.addDrives(found, strings.TrimPrefix(m.Source, "/dev/"), 8)
		}
	}
	return found
}

func (c Config) addDrives(found map[string]bool, dev string, depth int) {
	if depth == 0 {
		return
	}
	if mapped, ok := strings.CutPrefix(dev, "mapper/"); ok {
		dev = c.mapperDevice(mapped)
	}
	if dev == "" || strings.Contains(dev, "/") {
		return
	}
	if !c.exists(block, dev) {
		for _, disk := range c.names(block) {
			if c.exists(block, disk, dev) {
				dev = disk
				break
			}
		}
	}
	slaves := c.names(filepath.Join(block, dev, "slaves"))
	for _, s := range slaves {
		c.addDrives(found, s, depth-1)
	}
	if len(slaves) == 0 {
		found[dev] = true
	}
}

func (c Config) mapperDevice(name string) string {
	for _, dev := range c.names(block) {
		if c.text(block, dev, "dm/name") == name {
			return dev
		}
	}
	return ""
}
