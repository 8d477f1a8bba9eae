// Package sysfs makes sysfs trees of block devices for tests, with the links of a real kernel.
package sysfs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Tree is a sysfs below a root directory.
type Tree struct {
	Root string
	tb   testing.TB
}

// New returns a tree below root, which may hold one already.
func New(tb testing.TB, root string) *Tree { return &Tree{Root: root, tb: tb} }

// Put writes a file below /sys. It follows the links of the tree.
func (t *Tree) Put(name, content string) {
	t.tb.Helper()
	p := filepath.Join(t.Root, "sys", name)
	t.must(os.MkdirAll(filepath.Dir(p), 0o755))
	t.must(os.WriteFile(p, []byte(content), 0o600))
}

// Disk adds a disk below the device at a path of /sys/devices.
func (t *Tree) Disk(name, parent string) {
	t.tb.Helper()
	t.device(name, path.Join("devices", parent, "block", name))
	t.link("block/"+name+"/device", path.Join("devices", parent))
}

// Virtual adds a disk without a parent that lies over other devices.
func (t *Tree) Virtual(name string, over ...string) {
	t.tb.Helper()
	t.device(name, "devices/virtual/block/"+name)
	for _, o := range over {
		t.Put("block/"+name+"/slaves/"+o+"/dev", "0:0")
	}
}

// NVMe adds a namespace of one controller.
func (t *Tree) NVMe(name, nqn, controller, transport string) {
	t.tb.Helper()
	dir := t.Controller(controller, nqn, transport)
	t.device(name, dir+"/"+name)
	t.link("block/"+name+"/device", dir)
}

// Multipath adds a namespace of a subsystem with these controllers and their transports, in turn.
func (t *Tree) Multipath(name, nqn string, controllers ...string) {
	t.tb.Helper()
	dir := "devices/virtual/nvme-subsystem/nvme-subsys-" + name
	t.Put(dir+"/subsysnqn", nqn+"\n")
	for i := 0; i+1 < len(controllers); i += 2 {
		t.link(dir+"/"+controllers[i], t.Controller(controllers[i], nqn, controllers[i+1]))
	}
	t.device(name, dir+"/"+name)
	t.link("block/"+name+"/device", dir)
}

// Controller adds an NVMe controller and returns its directory below /sys.
func (t *Tree) Controller(name, nqn, transport string) string {
	t.tb.Helper()
	dir := "devices/virtual/nvme-fabrics/ctl/" + name
	if transport == "pcie" {
		dir = fmt.Sprintf("devices/pci0000:00/0000:00:01.0/0000:%s:00.0/nvme/%s", strings.TrimPrefix(name, "nvme"), name)
	}
	t.Put(dir+"/subsysnqn", nqn+"\n")
	if transport != "" {
		t.Put(dir+"/transport", transport+"\n")
	}
	t.link("class/nvme/"+name, dir)
	return dir
}

func (t *Tree) device(name, dir string) {
	t.tb.Helper()
	t.Put(dir+"/size", "16384\n")
	t.link("block/"+name, dir)
}

// link makes a relative link, as the kernel does. A link that is there already stays.
func (t *Tree) link(name, target string) {
	t.tb.Helper()
	at, err := t.realDir(filepath.Join(t.Root, "sys", filepath.Dir(name)))
	t.must(err)
	to := filepath.Join(t.Root, "sys", target)
	t.must(os.MkdirAll(to, 0o755))
	to, err = filepath.EvalSymlinks(to)
	t.must(err)
	rel, err := filepath.Rel(at, to)
	t.must(err)
	if err := os.Symlink(rel, filepath.Join(at, filepath.Base(name))); err != nil && !os.IsExist(err) {
		t.must(err)
	}
}

func (t *Tree) realDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func (t *Tree) must(err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatal(err)
	}
}
