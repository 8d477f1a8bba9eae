package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const maxFile = 1 << 20

// nodeReader reads what a report holds, and the boot id, from the files and programs of a node.
type nodeReader struct {
	root      string // the directory that stands for the node's "/"
	simulated bool
	serverURL string // of the control plane
	tools     toolrunner.Runner
}

func newNodeReader(c agentconfig.Config) nodeReader {
	return nodeReader{root: c.Root, simulated: c.Simulated, serverURL: c.ServerURL, tools: toolrunner.Runner{Root: c.Root, Tools: c.ToolsPath, Timeout: c.ToolTimeout}}
}

func (n nodeReader) path(p string) string { return filepath.Join(n.root, p) }

// read reads a small file of the node.
func (n nodeReader) read(p string) ([]byte, error) {
	f, err := os.Open(n.path(p))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// text reads a file of one line; "" when it cannot be read.
func (n nodeReader) text(elem ...string) string {
	raw, err := n.read(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return task.Clip(string(raw), 200)
}

func (n nodeReader) exists(elem ...string) bool {
	_, err := os.Stat(n.path(filepath.Join(elem...)))
	return err == nil
}

func (n nodeReader) names(dir string) []string {
	entries, err := os.ReadDir(n.path(dir))
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// bootID is the kernel's id of this boot; it changes at each boot and is the
// proof of one.
func (n nodeReader) bootID() (string, error) {
	raw, err := n.read("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	id := task.Clip(string(raw), 64)
	if id == "" {
		return "", fmt.Errorf("the boot id in %s is empty", n.path("/proc/sys/kernel/random/boot_id"))
	}
	return id, nil
}

// memory is MemTotal in MiB, nil when it cannot be read.
func (n nodeReader) memory() *int64 {
	raw, err := n.read("/proc/meminfo")
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
func (n nodeReader) cpus() int {
	total := 0
	for part := range strings.SplitSeq(n.text("/sys/devices/system/cpu/online"), ",") {
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
// bridges, bonds, VLANs or tunnels, and no virtual function of a card, which comes and goes.
func (n nodeReader) nics() []spec.NICReport {
	const class = "/sys/class/net"
	var out []spec.NICReport
	for _, name := range n.names(class) {
		if !n.exists(class, name, "device") || n.exists(class, name, "device", "physfn") {
			continue
		}
		nic := spec.NICReport{Name: name, MAC: strings.ToLower(n.text(class, name, "address"))}
		switch n.text(class, name, "operstate") {
		case "up":
			nic.Up = true
		case "unknown": // some drivers do not say; then the cable does
			nic.Up = n.text(class, name, "carrier") == "1"
		}
		if v := number(n.text(class, name, "speed")); v != nil {
			nic.SpeedMbps = int(*v)
		}
		if v := number(n.text(class, name, "mtu")); v != nil {
			nic.MTU = int(*v)
		}
		out = append(out, nic)
	}
	return out
}

const block = "/sys/block"

// disks lists the drives: block devices with a device behind them that are no
// removable media, no hidden path of a multipath drive and no volume of another
// machine.
func (n nodeReader) disks(mounts []spec.MountReport) []spec.DiskReport {
	boot := n.bootDisks(mounts)
	var out []spec.DiskReport
	for _, name := range n.names(block) {
		if !n.exists(block, name, "device") || n.text(block, name, "removable") == "1" || n.text(block, name, "hidden") == "1" {
			continue
		}
		if place := blockdev.Sys(n.root).Classify(name); place.Network || place.Exception != "" {
			continue // a volume of another machine, or what can hold nothing
		}
		d := spec.DiskReport{Name: name, Model: n.text(block, name, "device/model"), Serial: n.serial(name), Boot: boot[name]}
		if v := number(n.text(block, name, "size")); v != nil {
			d.Bytes = *v * 512 // the kernel counts 512-byte sectors whatever the drive's own size
		}
		out = append(out, d)
	}
	return out
}

// serial is where the kernel shows it: NVMe, virtio, or the SCSI page 0x80,
// which starts with four bytes of header.
func (n nodeReader) serial(disk string) string {
	for _, p := range []string{"device/serial", "serial"} {
		if s := n.text(block, disk, p); s != "" {
			return s
		}
	}
	if raw, err := n.read(filepath.Join(block, disk, "device/vpd_pg80")); err == nil && len(raw) > 4 {
		return task.Clip(string(raw[4:]), 100)
	}
	return ""
}

// bootDisks are the drives that hold the system: those below the mounts of /,
// /boot and /boot/efi, through partitions and device mapper.
func (n nodeReader) bootDisks(mounts []spec.MountReport) map[string]bool {
	found := map[string]bool{}
	for _, m := range mounts {
		if slices.Contains([]string{"/", "/boot", "/boot/efi"}, m.Target) && strings.HasPrefix(m.Source, "/dev/") {
			n.addDrives(found, strings.TrimPrefix(m.Source, "/dev/"), 8)
		}
	}
	return found
}

func (n nodeReader) addDrives(found map[string]bool, dev string, depth int) {
	if depth == 0 {
		return
	}
	if mapped, ok := strings.CutPrefix(dev, "mapper/"); ok {
		dev = n.mapperDevice(mapped)
	}
	if dev == "" || strings.Contains(dev, "/") {
		return
	}
	if !n.exists(block, dev) {
		for _, disk := range n.names(block) {
			if n.exists(block, disk, dev) {
				dev = disk
				break
			}
		}
	}
	slaves := n.names(filepath.Join(block, dev, "slaves"))
	for _, s := range slaves {
		n.addDrives(found, s, depth-1)
	}
	if len(slaves) == 0 {
		found[dev] = true
	}
}

func (n nodeReader) mapperDevice(name string) string {
	for _, dev := range n.names(block) {
		if n.text(block, dev, "dm/name") == name {
			return dev
		}
	}
	return ""
}
