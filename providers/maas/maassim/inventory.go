package maassim

import (
	"strings"

	"github.com/slipway-cloud/slipway/internal/simhw"
)

// newNIC makes a physical interface as a record holds it before commissioning.
func (s *Server) newNIC(name, mac string) *nic {
	return &nic{id: s.nextID("nic"), name: name, mac: strings.ToLower(mac), kind: "physical", enabled: true, params: map[string]any{}}
}

func (s *Server) network(vlan int) *Network {
	for i := range s.opt.Networks {
		if s.opt.Networks[i].VLAN == vlan {
			return &s.opt.Networks[i]
		}
	}
	return nil
}

// inventoryNICs writes the cards that commissioning saw: the boot NIC gets an
// AUTO link, others link_up. Links of cards that stay are made anew.
func (s *Server) inventoryNICs(m *machine, spec simhw.Spec) {
	noVLAN := s.take(m, "boot_nic_no_vlan", "stage:commissioning") != nil
	double := s.take(m, "auto_link_duplicate", "stage:commissioning") != nil
	old := m.nics
	m.nics, m.bootNIC, m.gateway4 = nil, 0, 0
	for _, hw := range spec.NICs {
		n := s.newNIC(hw.Name, hw.MAC)
		for _, o := range old {
			if strings.EqualFold(o.mac, hw.MAC) {
				n.id, n.tags = o.id, o.tags
			}
		}
		n.name, n.speed, n.connected, n.discovered = hw.Name, hw.SpeedMbps, hw.VLAN != 0, true
		n.vendor, n.product = spec.Vendor, "Simulated NIC"
		if net := s.network(hw.VLAN); net != nil && (!hw.Boot || !noVLAN) {
			n.vlan = net.VLAN
			mode, subnet := "link_up", 0
			if hw.Boot {
				mode, subnet = "auto", net.VLAN
			}
			n.links = append(n.links, &link{id: s.nextID("link"), mode: mode, subnet: subnet})
			if hw.Boot && double {
				n.links = append(n.links, &link{id: s.nextID("link"), mode: "auto", subnet: net.VLAN})
			}
		}
		if hw.Boot {
			m.bootNIC = n.id
		}
		m.nics = append(m.nics, n)
	}
}

// inventoryDisks writes the drives that commissioning saw and applies the
// site's default layout to whatever enumerates first.
func (s *Server) inventoryDisks(m *machine, spec simhw.Spec) {
	noBoss := s.take(m, "no_boss_disk", "stage:commissioning") != nil
	renamed := s.take(m, "boss_renamed", "stage:commissioning") != nil
	reordered := s.take(m, "boss_reordered", "stage:commissioning") != nil
	old := m.disks
	m.disks, m.bootDisk, m.groups = nil, 0, nil
	drives := spec.Disks
	if reordered {
		drives = nil
		for i := len(spec.Disks) - 1; i >= 0; i-- {
			drives = append(drives, spec.Disks[i])
		}
	}
	for _, hw := range drives {
		boss := strings.Contains(strings.ToUpper(hw.Model), "BOSS")
		if boss && noBoss {
			continue
		}
		d := &disk{name: hw.Name, model: hw.Model, serial: hw.Serial, size: hw.Bytes, firmware: "SIM1", uuid: s.newUUID()}
		for _, o := range old {
			if o.serial == hw.Serial && !reordered && (!boss || !renamed) {
				d.id, d.tags = o.id, o.tags
			}
		}
		if d.id == 0 {
			d.id = s.nextID("disk")
		}
		if boss && renamed {
			d.name = "sdz"
		}
		kind := "ata"
		if hw.NVMe {
			kind = "nvme"
			d.tags = append(d.tags, "ssd")
		}
		d.idPath = "/dev/disk/by-id/" + kind + "-" + strings.ReplaceAll(hw.Model, " ", "_") + "_" + hw.Serial
		m.disks = append(m.disks, d)
	}
	if root := m.effectiveBootDisk(); root != nil {
		s.applyLayout(m, "flat", root)
	}
}

// applyLayout puts one of the simple layouts on a disk.
func (s *Server) applyLayout(m *machine, layout string, root *disk) {
	for _, d := range m.disks {
		d.parts, d.fs, d.table, d.usedFor = nil, nil, "", ""
	}
	m.groups = nil
	if layout == "blank" {
		return
	}
	const efi = 512 << 20
	root.table = "GPT"
	root.parts = []*partition{
		{id: s.nextID("partition"), number: 1, size: efi, uuid: s.newUUID(), bootable: true, fs: &filesystem{"fat32", "efi", s.newUUID(), "/boot/efi"}},
		{id: s.nextID("partition"), number: 2, size: root.size - efi, uuid: s.newUUID(), fs: &filesystem{"ext4", "root", s.newUUID(), "/"}},
	}
	if layout == "lvm" {
		m.groups = []volumeGroup{{s.nextID("group"), "vgroot"}}
	}
}

// rootMounted reports whether some file system is the root.
func (m *machine) rootMounted() bool {
	for _, d := range m.disks {
		if d.fs != nil && d.fs.mount == "/" {
			return true
		}
		for _, p := range d.parts {
			if p.fs != nil && p.fs.mount == "/" {
				return true
			}
		}
	}
	return false
}
