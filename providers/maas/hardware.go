package maas

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/canonical/gomaasclient/entity"

	"github.com/slipway-cloud/slipway/providers"
)

// maxTags bounds what UpdateInterface adds in one call: one request a tag.
const maxTags = 16

// BlockDevices lists the disks, physical and virtual.
func (c *client) BlockDevices(ctx context.Context, systemID string) ([]providers.MAASBlockDevice, error) {
	if err := checkID("block_devices", systemID); err != nil {
		return nil, err
	}
	var out []providers.MAASBlockDevice
	err := c.call(ctx, read("block_devices"), func(s *session) error {
		devices, err := s.api.BlockDevices.Get(systemID)
		if err != nil {
			return err
		}
		for i := range devices {
			out = append(out, blockDevice(&devices[i]))
		}
		return nil
	})
	return out, err
}

func blockDevice(d *entity.BlockDevice) providers.MAASBlockDevice {
	out := providers.MAASBlockDevice{
		ID: d.ID, Name: d.Name, Model: d.Model, Serial: d.Serial, IDPath: d.IDPath,
		SizeBytes: d.Size, Type: d.Type, Tags: d.Tags,
	}
	if p := d.Filesystem.MountPoint; p != "" {
		out.MountPoints = append(out.MountPoints, p)
	}
	for _, part := range d.Partitions {
		if p := part.FileSystem.MountPoint; p != "" {
			out.MountPoints = append(out.MountPoints, p)
		}
	}
	return out
}

// SetBootDisk works in Ready only, else KindStateConflict. Setting it again is
// harmless.
func (c *client) SetBootDisk(ctx context.Context, systemID string, deviceID int) error {
	if err := checkIDs("set_boot_disk", systemID, deviceID); err != nil {
		return err
	}
	return c.call(ctx, write("set_boot_disk"), func(s *session) error { return s.api.BlockDevice.SetBootDisk(systemID, deviceID) })
}

// SetStorageLayout replaces the layout of a machine's disks, in status Ready only. rootDeviceID is
// a block device id, not a path; 0 leaves the choice to MAAS, which takes the
// boot disk.
func (c *client) SetStorageLayout(ctx context.Context, systemID, layout string, rootDeviceID int) error {
	if rootDeviceID < 0 {
		return invalid("maas.set_storage_layout", "the root device is the number of a disk, or 0 for the boot disk")
	}
	if !layoutForm.MatchString(layout) {
		return invalid("maas.set_storage_layout", "a storage layout is a word like flat, lvm or blank")
	}
	v := url.Values{"storage_layout": {layout}}
	if rootDeviceID > 0 {
		v.Set("root_device", strconv.Itoa(rootDeviceID))
	}
	_, err := c.machineOp(ctx, "set_storage_layout", systemID, "set_storage_layout", v)
	return err
}

// Interfaces lists the network interfaces with their links.
func (c *client) Interfaces(ctx context.Context, systemID string) ([]providers.MAASInterface, error) {
	if err := checkID("interfaces", systemID); err != nil {
		return nil, err
	}
	var out []providers.MAASInterface
	err := c.call(ctx, read("interfaces"), func(s *session) error {
		nics, err := s.api.NetworkInterfaces.Get(systemID)
		if err != nil {
			return err
		}
		for i := range nics {
			out = append(out, networkInterface(&nics[i]))
		}
		return nil
	})
	return out, err
}

func networkInterface(n *entity.NetworkInterface) providers.MAASInterface {
	out := providers.MAASInterface{
		ID: n.ID, Name: n.Name, MAC: strings.ToLower(n.MACAddress), Type: n.Type, Enabled: n.Enabled,
		VLANID: n.VLAN.ID, MTU: n.EffectiveMTU, Tags: n.Tags, LinkConnected: n.LinkConnected, LinkSpeed: n.LinkSpeed,
	}
	for _, l := range n.Links {
		out.Links = append(out.Links, providers.MAASLink{
			ID: l.ID, Mode: strings.ToLower(l.Mode), SubnetID: l.Subnet.ID, IP: l.IPAddress,
		})
	}
	return out
}

// LinkSubnet adds a link of mode auto, dhcp, static or link_up. Each call adds
// one more, with one more address: read the links first, and again on
// KindUncertain. Only dhcp and link_up may leave the subnet open (0).
func (c *client) LinkSubnet(ctx context.Context, systemID string, ifaceID, subnetID int, mode string) error {
	mode = strings.ToUpper(mode)
	switch mode {
	case "AUTO", "STATIC":
		if subnetID <= 0 {
			return invalid("maas.link_subnet", "a link of mode auto or static needs a subnet")
		}
	case "DHCP", "LINK_UP":
		if subnetID < 0 {
			return invalid("maas.link_subnet", "the number of a subnet cannot be negative")
		}
	default:
		return invalid("maas.link_subnet", "the link mode must be auto, dhcp, static or link_up")
	}
	return c.link(ctx, "link_subnet", systemID, ifaceID, &entity.NetworkInterfaceLinkParams{Mode: mode, Subnet: subnetID})
}

// LinkStatic gives an interface a fixed address on a subnet. The same address
// twice is refused by MAAS as KindInvalid.
func (c *client) LinkStatic(ctx context.Context, systemID string, ifaceID, subnetID int, ip string) error {
	if err := checkIP("link_static", ip); err != nil {
		return err
	}
	if subnetID <= 0 {
		return invalid("maas.link_static", "a static link needs a subnet")
	}
	return c.link(ctx, "link_static", systemID, ifaceID,
		&entity.NetworkInterfaceLinkParams{Mode: "STATIC", Subnet: subnetID, IPAddress: ip})
}

func (c *client) link(ctx context.Context, op, systemID string, ifaceID int, p *entity.NetworkInterfaceLinkParams) error {
	if err := checkIDs(op, systemID, ifaceID); err != nil {
		return err
	}
	return c.call(ctx, write(op), func(s *session) error {
		_, err := s.api.NetworkInterface.LinkSubnet(systemID, ifaceID, p)
		return err
	})
}

// UnlinkSubnet removes one link. A link that is gone is KindInvalid or
// KindNotFound, as MAAS sees fit: read the links first.
func (c *client) UnlinkSubnet(ctx context.Context, systemID string, ifaceID, linkID int) error {
	if err := checkIDs("unlink_subnet", systemID, ifaceID, linkID); err != nil {
		return err
	}
	return c.call(ctx, write("unlink_subnet"), func(s *session) error {
		_, err := s.api.NetworkInterface.UnlinkSubnet(systemID, ifaceID, linkID)
		return err
	})
}

// UpdateInterface sets the MTU (0 = leave) and adds tags, one request each.
// Repeating it is harmless; after an error part of it may be done.
func (c *client) UpdateInterface(ctx context.Context, systemID string, ifaceID, mtu int, addTags []string) error {
	const op = "update_interface"
	if err := checkIDs(op, systemID, ifaceID); err != nil {
		return err
	}
	if mtu != 0 && (mtu < 552 || mtu > 65535) {
		return invalid("maas."+op, "the MTU must be between 552 and 65535, or 0 to leave it")
	}
	if len(addTags) > maxTags {
		return invalid("maas."+op, "more than 16 tags at once")
	}
	for _, t := range addTags {
		if !tagForm.MatchString(t) {
			return invalid("maas."+op, "a tag holds letters, digits, hyphens and underscores")
		}
	}
	if mtu == 0 && len(addTags) == 0 {
		return nil
	}
	shape := write(op)
	shape.requests = 1 + maxTags
	return c.call(ctx, shape, func(s *session) error {
		if mtu != 0 {
			if _, err := s.api.NetworkInterface.Update(systemID, ifaceID, &entity.NetworkInterfaceUpdateParams{MTU: mtu}); err != nil {
				return err
			}
		}
		for _, t := range addTags {
			if _, err := s.api.NetworkInterface.AddTag(systemID, ifaceID, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// Subnets lists every subnet of the region.
func (c *client) Subnets(ctx context.Context) ([]providers.MAASSubnet, error) {
	var out []providers.MAASSubnet
	err := c.call(ctx, read("subnets"), func(s *session) error {
		subnets, err := s.api.Subnets.Get()
		if err != nil {
			return err
		}
		for _, n := range subnets {
			out = append(out, providers.MAASSubnet{ID: n.ID, CIDR: n.CIDR, Name: n.Name, VLANID: n.VLAN.ID})
		}
		return nil
	})
	return out, err
}
