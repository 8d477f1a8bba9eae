package maassim

import (
	"fmt"
	"slices"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// inventoryDisks matches drives by serial, so ids stay; what vanished goes, and
// recommissioning wipes the layout and applies the site's default.
func (s *Server) inventoryDisks(m *machine, spec simhw.Spec) {
	seen := spec.Disks
	if s.take(m, "no_boss_disk", "stage:commissioning") != nil {
		seen = slices.DeleteFunc(slices.Clone(seen), isBOSS)
	}
	old := m.disks
	m.disks = nil
	for _, hw := range seen {
		d := findSerial(old, hw.Serial)
		if d == nil {
			d = &disk{id: s.nextID("disk"), uuid: s.newUUID(), tags: []string{"ssd"}, firmware: "1.0"}
		}
		d.name, d.model, d.serial, d.size, d.idPath = hw.Name, hw.Model, hw.Serial, hw.Bytes, idPath(hw)
		m.disks = append(m.disks, d)
	}
	s.clearLayout(m)
	shuffled := s.shuffleBOSS(m)
	if m.diskByID(m.bootDisk) == nil {
		m.bootDisk = 0
		if d := m.effectiveBootDisk(); d != nil && !shuffled {
			m.bootDisk = d.id
		}
	}
	if boot := m.effectiveBootDisk(); boot != nil {
		_ = s.applyLayout(m, fmt.Sprint(s.config["default_storage_layout"]), boot) // the site's default may not fit; the disk then stays blank
	}
}

// shuffleBOSS is what a firmware or kernel update can do to enumeration.
func (s *Server) shuffleBOSS(m *machine) bool {
	done := false
	if s.take(m, "boss_renamed", "stage:commissioning") != nil {
		done = true
		for _, d := range m.disks {
			if strings.Contains(d.model, "BOSS") {
				d.id, d.name = s.nextID("disk"), "sdz"
			}
		}
	}
	if s.take(m, "boss_reordered", "stage:commissioning") != nil {
		done = true
		slices.Reverse(m.disks)
		for _, d := range m.disks {
			d.id = s.nextID("disk")
		}
	}
	if done {
		m.bootDisk = 0
	}
	return done
}

func isBOSS(d simhw.Disk) bool { return strings.Contains(d.Model, "BOSS") }

func findSerial(set []*disk, serial string) *disk {
	for _, d := range set {
		if !d.virtual && d.serial == serial {
			return d
		}
	}
	return nil
}

func idPath(d simhw.Disk) string {
	kind := "ata"
	if d.NVMe {
		kind = "nvme"
	}
	return "/dev/disk/by-id/" + kind + "-" + strings.ReplaceAll(d.Model, " ", "_") + "_" + d.Serial
}

// mounted is the physical disk below a mount point, nil for none.
func (m *machine) mounted(path string) *disk {
	for _, d := range m.disks {
		hit := d.fs != nil && d.fs.mount == path
		for _, p := range d.parts {
			hit = hit || (p.fs != nil && p.fs.mount == path)
		}
		if hit && d.virtual {
			return m.diskByID(d.on)
		}
		if hit {
			return d
		}
	}
	return nil
}

func (s *Server) clearLayout(m *machine) {
	m.disks = slices.DeleteFunc(m.disks, func(d *disk) bool { return d.virtual })
	for _, d := range m.disks {
		d.table, d.parts, d.fs, d.usedFor = "", nil, nil, "Unused"
	}
	m.groups = nil
}

const mib = int64(1) << 20

// applyLayout writes one of MAAS's layouts onto a disk.
func (s *Server) applyLayout(m *machine, layout string, root *disk) *reply {
	var cache *disk
	for _, d := range m.disks {
		if !d.virtual && d != root && cache == nil {
			cache = d
		}
	}
	if layout == "bcache" && cache == nil {
		return text(400, "Failed to configure storage layout 'bcache': Node doesn't have an available cache device to setup bcache.")
	}
	s.clearLayout(m)
	if layout == "blank" {
		return nil
	}
	root.table = "GPT"
	root.usedFor = fmt.Sprintf("GPT partitioned with %d partitions", 2)
	s.addPart(root, 512*mib, &filesystem{kind: "fat32", label: "efi", uuid: s.newUUID(), mount: "/boot/efi"}).bootable = true
	fs := &filesystem{kind: "ext4", label: "root", uuid: s.newUUID(), mount: "/"}
	rest := root.size - 516*mib
	switch layout {
	case "lvm":
		s.addPart(root, rest, nil).usedFor = "LVM volume for vgroot"
		m.groups = []volumeGroup{{id: s.nextID("group"), name: "vgroot"}}
		s.addVirtual(m, root, "vgroot-lvroot", rest, fs)
	case "bcache":
		s.addPart(root, 1024*mib, &filesystem{kind: "ext4", label: "boot", uuid: s.newUUID(), mount: "/boot"})
		s.addPart(root, rest-1024*mib, nil).usedFor = "Backing device for bcache0"
		cache.usedFor = "Cache set for bcache0"
		s.addVirtual(m, root, "bcache0", rest-1024*mib, fs)
	default:
		s.addPart(root, rest, fs)
	}
	return nil
}

func (s *Server) addPart(d *disk, size int64, fs *filesystem) *partition {
	p := &partition{id: s.nextID("partition"), number: len(d.parts) + 1, size: size, uuid: s.newUUID(), fs: fs}
	if fs != nil {
		p.usedFor = fmt.Sprintf("%s formatted filesystem mounted at %s", fs.kind, fs.mount)
	}
	d.parts = append(d.parts, p)
	return p
}

func (s *Server) addVirtual(m *machine, below *disk, name string, size int64, fs *filesystem) {
	m.disks = append(m.disks, &disk{
		id: s.nextID("disk"), name: name, size: size, virtual: true, uuid: s.newUUID(), on: below.id, fs: fs,
		usedFor: fmt.Sprintf("%s formatted filesystem mounted at %s", fs.kind, fs.mount),
	})
}

// setStorageLayout takes root_device as a block-device id, not as a path.
func (c *call) setStorageLayout() *reply {
	m, s := c.rec, c.s
	if m.status != Ready {
		return stateConflict("Cannot change the storage layout on a machine that is not Ready.")
	}
	layout := c.form.Get("storage_layout")
	if layout == "" {
		return field("storage_layout", "This field is required.")
	}
	known := []string{"flat", "lvm", "bcache", "vmfs6", "vmfs7", "custom", "blank"}
	if !slices.Contains(known, layout) {
		return field("storage_layout", "'%s' is not a valid storage_layout.  It should be one of: '%s'.", layout, strings.Join(known, "', '"))
	}
	root := m.effectiveBootDisk()
	if root == nil {
		return text(400, "Machine is missing a boot disk; no storage layout can be applied.")
	}
	if bad := c.chosenRoot(&root); bad != nil {
		return bad
	}
	if size, given, bad := c.intParam("boot_size"); bad != nil {
		return bad
	} else if given && int64(size) > root.size {
		return field("boot_size", "Size is too large. Maximum size is %d.", root.size)
	}
	switch layout {
	case "vmfs6", "vmfs7", "custom":
		return text(400, "Failed to configure storage layout '%s': it needs a commissioning script or an image that this region does not have.", layout)
	}
	if bad := s.applyLayout(m, layout, root); bad != nil {
		return bad
	}
	s.count(m, countLayout)
	return jsonReply(s.machineJSON(m))
}

func (c *call) chosenRoot(root **disk) *reply {
	v := c.form.Get("root_device")
	if v == "" {
		return nil
	}
	var ids []string
	for _, d := range c.rec.disks {
		if d.virtual {
			continue
		}
		id := fmt.Sprint(d.id)
		if id == v {
			*root = d
			return nil
		}
		ids = append(ids, id)
	}
	return field("root_device", "'%s' is not a valid root_device.  It should be one of: '%s'.", v, strings.Join(ids, "', '"))
}

func (c *call) listDisks() *reply {
	return jsonReply(c.s.disksJSON(c.rec, func(*disk) bool { return true }))
}

func (c *call) disk() (*disk, *reply) {
	if d := c.rec.diskByID(c.num("n")); d != nil {
		return d, nil
	}
	return nil, notFound("BlockDevice")
}

func (c *call) setBootDisk() *reply {
	d, bad := c.disk()
	if bad != nil {
		return bad
	}
	if d.virtual {
		return text(400, "Cannot set a %s block device as the boot disk.", "virtual")
	}
	if c.rec.status != Ready {
		return stateConflict("Cannot set as boot disk for a node that is not Ready.")
	}
	c.rec.bootDisk = d.id
	c.s.count(c.rec, countBootDisk)
	return text(200, "OK")
}
