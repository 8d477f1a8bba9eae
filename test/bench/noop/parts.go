package noop

import (
	"context"

	"github.com/slipway-cloud/slipway/providers"
)

// The parts of every machine: a small boot disk among data disks, a boot port
// and two fast ports on another network.
const (
	bootDisk  = 1
	dataDisks = 4
	bootPort  = 1
	bootNet   = 1
	fastNet   = 2
	// FastCIDR is the network of the ports that FastPorts names.
	FastCIDR = "127.20.0.0/16"
)

// FastPorts names the ports that RoCE records may speak of.
func FastPorts() []string { return []string{"ens2", "ens3"} }

// BootSerial is the serial number of the disk that a system is installed on.
const BootSerial = "RIGBOOT"

// DataSerial returns the serial number of a data disk.
func DataSerial(i int) string { return "RIG" + string(rune('0'+i)) }

// BlockDevices implements providers.MAAS.
func (r *Region) BlockDevices(_ context.Context, systemID string) (disks []providers.MAASBlockDevice, err error) {
	err = r.with(systemID, func(m *machine) {
		disks = append(disks, providers.MAASBlockDevice{ID: bootDisk, Name: "sda", Model: "Noop BOSS-N1", Serial: BootSerial, SizeBytes: 480e9, Type: "physical"})
		for i := range dataDisks {
			disks = append(disks, providers.MAASBlockDevice{
				ID: bootDisk + 1 + i, Name: "nvme" + string(rune('0'+i)) + "n1", Model: "Noop NVMe", Serial: DataSerial(i), SizeBytes: 3840e9, Type: "physical",
			})
		}
		for i := range disks {
			if disks[i].ID == m.rootOn {
				disks[i].MountPoints = []string{"/", "/boot/efi"}
			}
		}
	})
	return disks, err
}

// SetBootDisk implements providers.MAAS.
func (r *Region) SetBootDisk(_ context.Context, systemID string, deviceID int) error {
	return r.with(systemID, func(m *machine) { m.BootDiskID = deviceID })
}

// SetStorageLayout implements providers.MAAS.
func (r *Region) SetStorageLayout(_ context.Context, systemID, _ string, rootDeviceID int) error {
	if err := r.refuse(OpLayout, r.host(systemID)); err != nil {
		return err
	}
	return r.with(systemID, func(m *machine) { m.rootOn = rootDeviceID })
}

// Interfaces implements providers.MAAS.
func (r *Region) Interfaces(_ context.Context, systemID string) (ports []providers.MAASInterface, err error) {
	err = r.with(systemID, func(m *machine) {
		boot := providers.MAASInterface{ID: bootPort, Name: "ens1", Type: "physical", Enabled: true, VLANID: bootNet, MTU: 1500, LinkConnected: true}
		if m.linked {
			boot.Links = []providers.MAASLink{{ID: 1, Mode: "auto", SubnetID: bootNet}}
		}
		ports = append(ports, boot)
		for i, name := range FastPorts() {
			id := bootPort + 1 + i
			f := providers.MAASInterface{ID: id, Name: name, Type: "physical", Enabled: true, VLANID: fastNet, MTU: 1500, LinkConnected: true}
			if p, ok := m.ports[id]; ok {
				f.MTU, f.Tags = max(f.MTU, p.mtu), p.tags
				if p.ip != "" {
					f.Links = []providers.MAASLink{{ID: 10 + id, Mode: "static", SubnetID: fastNet, IP: p.ip}}
				}
			}
			ports = append(ports, f)
		}
	})
	return ports, err
}

// LinkSubnet implements providers.MAAS.
func (r *Region) LinkSubnet(_ context.Context, systemID string, _, _ int, _ string) error {
	return r.with(systemID, func(m *machine) { m.linked = true })
}

// UnlinkSubnet implements providers.MAAS.
func (r *Region) UnlinkSubnet(_ context.Context, systemID string, _, _ int) error {
	return r.with(systemID, func(m *machine) { m.linked = false })
}

// UpdateInterface implements providers.MAAS.
func (r *Region) UpdateInterface(_ context.Context, systemID string, ifaceID, mtu int, addTags []string) error {
	return r.with(systemID, func(m *machine) {
		p := m.ports[ifaceID]
		p.mtu, p.tags = mtu, append(p.tags[:len(p.tags):len(p.tags)], addTags...)
		m.ports[ifaceID] = p
	})
}

// LinkStatic implements providers.MAAS.
func (r *Region) LinkStatic(_ context.Context, systemID string, ifaceID, _ int, ip string) error {
	return r.with(systemID, func(m *machine) {
		p := m.ports[ifaceID]
		p.ip = ip
		m.ports[ifaceID] = p
	})
}

// Subnets implements providers.MAAS.
func (r *Region) Subnets(context.Context) ([]providers.MAASSubnet, error) {
	return []providers.MAASSubnet{
		{ID: bootNet, CIDR: "127.10.0.0/16", Name: "boot", VLANID: bootNet}, {ID: fastNet, CIDR: FastCIDR, Name: "fast", VLANID: fastNet},
	}, nil
}
