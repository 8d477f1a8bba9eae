package simnode

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// The kinds of a Layer.
const (
	LayerRAID      = "raid"
	LayerLVM       = "lvm"
	LayerCrypt     = "crypt" // nobody opens it again after a boot
	LayerMultipath = "multipath"
	LayerBcache    = "bcache"
)

// Layer is a block device over disks, or over layers before it, as a tenant makes them.
type Layer struct {
	Name string   `json:"name"` // the kernel's: md0, dm-0, bcache0
	Kind string   `json:"kind"`
	Over []string `json:"over"`
	// Label is the name that the tenant gives a mapping.
	Label string `json:"label,omitempty"`
}

const (
	// layerLabel is where each disk below a layer holds a record of all of them, until it is
	// erased.
	layerLabel = 12288
	layerMark  = "SIMULATED-LAYERS "
)

// Stack makes layers over the node's disks and mounts the last one at a directory; "" mounts none.
// The system puts them together again at each boot, but what lies over a crypt layer.
func (n *Node) Stack(mount string, layers ...Layer) error {
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	record, err := json.Marshal(layers)
	if err != nil {
		return fmt.Errorf("record the layers: %w", err)
	}
	errs := []error{t.stack(layers)}
	for _, d := range n.opt.Machine.Spec().Disks {
		if slices.ContainsFunc(layers, func(l Layer) bool { return slices.Contains(l.Over, d.Name) }) {
			errs = append(errs, n.writeAt(d.Name, layerMark+string(record)+"\n", layerLabel))
		}
	}
	if mount != "" {
		errs = append(errs, t.put("/proc/mounts", fmt.Appendf(nil, "/dev/%s %s ext4 rw,relatime 0 0\n", layers[len(layers)-1].Name, mount), 0o644, true))
	}
	return errors.Join(errs...)
}

func (n *Node) writeAt(disk, text string, at int64) error {
	f, err := os.OpenFile(n.image(disk), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("use the disk %s: %w", disk, err)
	}
	_, err = f.WriteAt([]byte(text), at)
	return errors.Join(err, f.Close())
}

// stack shows layers as the kernel does.
func (t *tree) stack(layers []Layer) error {
	var errs []error
	for i, l := range layers {
		dir := "/sys/devices/virtual/block/" + l.Name
		errs = append(errs, t.link("/sys/block/"+l.Name, dir))
		files := map[string]string{"size": "16384\n", "ro": "0\n", "removable": "0\n"}
		switch l.Kind {
		case LayerRAID:
			files["md/array_state"], files["md/sync_action"] = "clean\n", "idle\n"
		case LayerBcache:
			files["bcache/stop"] = ""
		case LayerLVM, LayerCrypt, LayerMultipath:
			files["dm/name"], files["dev"] = l.Label+"\n", fmt.Sprintf("253:%d\n", i)
			files["dm/uuid"] = map[string]string{LayerLVM: "LVM-", LayerCrypt: "CRYPT-LUKS2-", LayerMultipath: "mpath-"}[l.Kind] + l.Name + "\n"
		default:
			errs = append(errs, fmt.Errorf("the layer %s is of the unknown kind %q", l.Name, l.Kind))
		}
		for name, content := range files {
			errs = append(errs, t.put(dir+"/"+name, []byte(content), 0o644, false))
		}
		for _, below := range l.Over {
			errs = append(errs, t.dir(dir+"/slaves/"+below), t.dir("/sys/block/"+below+"/holders/"+l.Name))
		}
	}
	return errors.Join(errs...)
}

// restack shows after a boot what the system puts together from the disks.
func (n *Node) restack(t *tree, disks []simhw.Disk) error {
	old, err := filepath.Glob(filepath.Join(n.root, "sys/devices/virtual/block/*"))
	if err != nil {
		return fmt.Errorf("look for the layers of the last boot: %w", err)
	}
	for _, p := range old {
		for _, gone := range []string{p, filepath.Join(n.root, "sys/block", filepath.Base(p))} {
			if err := os.RemoveAll(gone); err != nil {
				return fmt.Errorf("end the layers of the last boot: %w", err)
			}
		}
	}
	there := map[string]bool{}
	records := map[string]bool{}
	for _, d := range disks {
		if err := t.root.RemoveAll(filepath.Join("sys/block", d.Name, "holders")); err != nil {
			return fmt.Errorf("end the layers of the last boot: %w", err)
		}
		if record := n.layersOn(d.Name); record != "" {
			there[d.Name], records[record] = true, true
		}
	}
	for record := range records {
		var all, now []Layer
		if err := json.Unmarshal([]byte(record), &all); err != nil {
			return fmt.Errorf("read the record of the layers: %w", err)
		}
		for _, l := range all {
			if l.Kind != LayerCrypt && !slices.ContainsFunc(l.Over, func(o string) bool { return !there[o] }) {
				there[l.Name] = true
				now = append(now, l)
			}
		}
		if err := t.stack(now); err != nil {
			return err
		}
	}
	return nil
}

// layersOn returns the record of layers that a disk holds, "" for none.
func (n *Node) layersOn(disk string) string {
	f, err := os.Open(filepath.Clean(n.image(disk)))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(layerLabel, 0); err != nil {
		return ""
	}
	line, err := bufio.NewReaderSize(f, 1<<16).ReadSlice('\n')
	if err != nil {
		return ""
	}
	record, _ := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), layerMark)
	if len(record) == len(line)-1 {
		return ""
	}
	return record
}

// ImportPool imports a ZFS pool over disks.
func (n *Node) ImportPool(pool string, disks ...string) error {
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	n.note(filepath.Join("zpool", pool), strings.Join(disks, "\n")+"\n")
	return t.put("/proc/spl/kstat/zfs/"+pool+"/state", []byte("ONLINE\n"), 0o644, false)
}

// SwapOn uses a layer or a disk as swap.
func (n *Node) SwapOn(device string) error {
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	return t.put("/proc/swaps", []byte("Filename\tType\tSize\tUsed\tPriority\n/dev/"+device+" partition 8388604 0 -2\n"), 0o644, false)
}
