package simnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// cloudinitAgent is where cloud-init looks for an image's own agent.
const cloudinitAgent = "/usr/local/bin/slipway-agent"

// tree writes below one directory and nowhere else: os.Root follows no path or
// link out of it.
type tree struct{ root *os.Root }

func openTree(dir string) (*tree, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the node's root: %w", err)
	}
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the node's root: %w", err)
	}
	return &tree{r}, nil
}

func (t *tree) close() { _ = t.root.Close() }

// put writes one file of the node; path is a path of the node.
func (t *tree) put(path string, content []byte, mode os.FileMode, add bool) error {
	rel := strings.TrimPrefix(filepath.Clean("/"+path), "/")
	if rel == "" {
		return errors.New("a file of the node has no path")
	}
	if dir := filepath.Dir(rel); dir != "." {
		if err := t.root.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make /%s on the node: %w", dir, err)
		}
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if add {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	f, err := t.root.OpenFile(rel, flags, mode.Perm())
	if err != nil {
		return fmt.Errorf("write /%s on the node: %w", rel, err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode.Perm()), f.Close()); err != nil {
		return fmt.Errorf("write /%s on the node: %w", rel, err)
	}
	return nil
}

func (t *tree) dir(path string) error {
	if err := t.root.MkdirAll(strings.TrimPrefix(path, "/"), 0o755); err != nil {
		return fmt.Errorf("make %s on the node: %w", path, err)
	}
	return nil
}

// system lays out what the kernel would show: /proc and /sys of the machine as
// built, for this boot.
func (t *tree) system(s simhw.Spec, ev simhw.Event) error {
	bootDisk := ev.OS.Disk
	if bootDisk == "" && len(s.Disks) > 0 {
		bootDisk = s.Disks[len(s.Disks)-1].Name
	}
	part := partition(bootDisk)
	root := "/dev/" + part + " / ext4 rw,relatime 0 0"
	if ev.OS.Live {
		root = "tmpfs / tmpfs rw,relatime 0 0"
	}
	files := map[string]string{
		"/etc/hostname":                    ev.OS.Hostname + "\n",
		"/etc/slipway-simulated":           "This node is simulated.\n",
		"/proc/sys/kernel/random/boot_id":  ev.BootID + "\n",
		"/proc/meminfo":                    fmt.Sprintf("MemTotal:       %d kB\nMemFree:        %d kB\n", s.MemoryMiB*1024, s.MemoryMiB*900),
		"/proc/mounts":                     "proc /proc proc rw 0 0\n" + root + "\n",
		"/sys/devices/system/cpu/online":   fmt.Sprintf("0-%d\n", max(s.CPUs, 1)-1),
		"/sys/class/dmi/id/product_serial": s.Serial + "\n",
		"/sys/class/dmi/id/product_uuid":   s.UUID + "\n",
		"/sys/class/dmi/id/product_name":   s.Model + "\n",
		"/sys/class/dmi/id/sys_vendor":     s.Vendor + "\n",
		"/sys/class/net/lo/operstate":      "unknown\n",
	}
	if !ev.OS.Live {
		files[fmt.Sprintf("/sys/block/%s/%s/partition", bootDisk, part)] = "1\n"
	}
	if s.GPUs > 0 {
		files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + driverVersion + "  Release Build  (simulated)  \n"
	}
	for _, n := range s.NICs {
		dir := "/sys/class/net/" + n.Name
		state, carrier, speed := "up", "1", n.SpeedMbps
		if n.VLAN == 0 { // the cable leads nowhere
			state, carrier, speed = "down", "0", -1
		}
		files[dir+"/address"] = n.MAC + "\n"
		files[dir+"/operstate"] = state + "\n"
		files[dir+"/carrier"] = carrier + "\n"
		files[dir+"/speed"] = fmt.Sprintf("%d\n", speed)
		files[dir+"/mtu"] = "1500\n"
		files[dir+"/device/vendor"] = "0x15b3\n"
	}
	for i, d := range s.Disks {
		if err := t.blockDevice(d, i); err != nil {
			return err
		}
		dir := "/sys/block/" + d.Name
		files[dir+"/size"] = fmt.Sprintf("%d\n", d.Bytes/512)
		files[dir+"/removable"] = "0\n"
		files[dir+"/device/model"] = d.Model + "\n"
		files[dir+"/device/serial"] = d.Serial + "\n"
	}
	for path, content := range files {
		if err := t.put(path, []byte(content), 0o644, false); err != nil {
			return err
		}
	}
	return errors.Join(t.dir("/tmp"), t.dir("/var/lib"), t.dir("/etc/systemd/system"), t.dir("/lib/systemd/system"))
}

// blockDevice lays out a drive as the kernel does: /sys/block/NAME is a link into the tree of
// devices, whose path shows the bus.
func (t *tree) blockDevice(d simhw.Disk, i int) error {
	if !d.NVMe {
		parent := fmt.Sprintf("/sys/devices/pci0000:00/0000:00:17.0/ata%d/host%[2]d/target%[2]d:0:0/%[2]d:0:0:0", i+1, i)
		return errors.Join(t.link("/sys/block/"+d.Name, parent+"/block/"+d.Name), t.link("/sys/block/"+d.Name+"/device", parent))
	}
	ctrl := d.Name[:strings.LastIndexByte(d.Name, 'n')]
	return t.controller(d.Name, fmt.Sprintf("/sys/devices/pci0000:00/0000:%02x:00.0/nvme/%s", i+1, ctrl), "pcie", "nqn.2014-08.org.nvmexpress:"+d.Serial)
}

// controller lays out an NVMe controller at a path of /sys/devices, with one namespace.
func (t *tree) controller(namespace, dir, transport, nqn string) error {
	return errors.Join(t.put(dir+"/transport", []byte(transport+"\n"), 0o644, false), t.put(dir+"/subsysnqn", []byte(nqn+"\n"), 0o644, false),
		t.link("/sys/class/nvme/"+filepath.Base(dir), dir), t.link("/sys/block/"+namespace, dir+"/"+namespace), t.link("/sys/block/"+namespace+"/device", dir))
}

// link makes a relative link to a directory, which it makes too. A link that is there already
// stays.
func (t *tree) link(path, target string) error {
	parent := filepath.Dir(path)
	if err := errors.Join(t.dir(target), t.dir(parent)); err != nil {
		return err
	}
	// Relative to where the parent really is, since it may be a link itself.
	if real, err := t.root.Readlink(strings.TrimPrefix(parent, "/")); err == nil {
		parent = filepath.Join(filepath.Dir(parent), real)
	}
	rel, err := filepath.Rel(parent, target)
	if err != nil {
		return fmt.Errorf("link %s on the node: %w", path, err)
	}
	if err := t.root.Symlink(rel, strings.TrimPrefix(path, "/")); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link %s on the node: %w", path, err)
	}
	return nil
}

// holdAgent puts the agent where an image holds it: a few bytes that stand for
// the program, since a copy for each of a thousand nodes would fill the disk.
func (n *Node) holdAgent(t *tree) error {
	if _, err := os.Lstat(filepath.Join(n.root, cloudinitAgent)); err == nil {
		return nil // the image's, or what an installation made of it
	}
	return t.put(cloudinitAgent, StandIn(n.opt.AgentBinary), 0o755, false)
}

// StandIn returns a few bytes that run a program of this machine, to be installed in its place.
func StandIn(program string) []byte {
	return []byte("#!/bin/sh\nexec '" + strings.ReplaceAll(program, "'", `'\''`) + "' \"$@\"\n")
}

func partition(disk string) string {
	if strings.HasPrefix(disk, "nvme") {
		return disk + "p1"
	}
	return disk + "1"
}

// replaceAtomically writes a file that a running program may read.
func replaceAtomically(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
