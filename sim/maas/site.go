package maassim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func siteConfig(o Options) map[string]any {
	cfg := map[string]any{
		"maas_name": "simulated", "node_timeout": int(o.Durations.NodeTimeout.Minutes()), "hardware_sync_interval": minutes(o.Durations.SyncInterval) + "m",
		"enable_disk_erasing_on_release": false, "disk_erase_with_secure_erase": true, "disk_erase_with_quick_erase": false,
		"default_storage_layout": "flat", "default_osystem": "ubuntu", "default_distro_series": "jammy",
		"commissioning_osystem": "ubuntu", "commissioning_distro_series": "noble", "default_min_hwe_kernel": "", "kernel_opts": "",
		"completed_intro": true, "enable_http_proxy": true, "ntp_servers": "ntp.ubuntu.com", "upstream_dns": "",
	}
	maps.Copy(cfg, o.Config)
	return cfg
}

func (c *call) version() *reply {
	v := map[string]string{"3.7": "3.7.3", "3.5": "3.5.13"}[c.s.opt.Profile]
	return jsonReply(map[string]any{
		"version": v, "subversion": "simulated",
		"capabilities": []string{"networks-management", "static-ipaddresses", "ipv6-deployment-ubuntu", "devices-management", "storage-deployment-ubuntu",
			"network-deployment-ubuntu", "bridging-interface-ubuntu", "bridging-automatic-ubuntu", "authenticate-api"},
	})
}

func (c *call) me() map[string]any {
	s := c.s
	n := 0
	for _, m := range s.machines {
		if m.owner == s.opt.User {
			n++
		}
	}
	return map[string]any{
		"username": s.opt.User, "email": s.opt.User + "@example.test", "is_superuser": !s.opt.Unprivileged, "is_local": true,
		"sshkeys_count": len(s.opt.SSHKeys), "machines_count": n, "resource_uri": Prefix + "users/" + s.opt.User + "/",
	}
}

func (c *call) whoami() *reply { return jsonReply(c.me()) }
func (c *call) sshKeys() *reply {
	out := []any{}
	for i, k := range c.s.opt.SSHKeys {
		out = append(out, map[string]any{"id": i + 1, "key": k, "keysource": "", "resource_uri": fmt.Sprintf("%saccount/prefs/sshkeys/%d/", Prefix, i+1)})
	}
	return jsonReply(out)
}

func (c *call) getConfig() *reply {
	name := c.form.Get("name")
	if name == "" {
		return field("name", "No provided name!")
	}
	v, ok := c.s.config[name]
	if !ok {
		return field(name, "'%s' is not a valid config setting.", name)
	}
	return jsonReply(v)
}

func (c *call) bootResources() *reply {
	out := []any{}
	for i, image := range c.s.opt.Images {
		out = append(out, imageJSON(i, image))
	}
	return jsonReply(out)
}

func imageJSON(i int, image string) map[string]any {
	_, series, _ := strings.Cut(image, "/")
	return map[string]any{
		"id": i + 1, "type": "Synced", "name": image, "architecture": "amd64/ga-" + series, "subarches": "generic,hwe-p", "title": image,
		"base_image": "", "last_deployed": nil, "resource_uri": fmt.Sprintf("%sboot-resources/%d/", Prefix, i+1),
	}
}

func fabricName(n *Network) string { return fmt.Sprintf("fabric-%d", n.VLAN-1) }

func (s *Server) vlanJSON(n *Network) map[string]any {
	var rack any
	if n.DHCP {
		rack = "4y3h7n"
	}
	return map[string]any{
		"id": firstVLAN + n.VLAN, "vid": 0, "name": "untagged", "mtu": n.MTU, "dhcp_on": n.DHCP, "external_dhcp": nil, "relay_vlan": nil, "description": "",
		"fabric": fabricName(n), "fabric_id": n.VLAN - 1, "primary_rack": rack, "secondary_rack": nil, "space": "undefined",
		"resource_uri": fmt.Sprintf("%svlans/%d/", Prefix, firstVLAN+n.VLAN),
	}
}

func (s *Server) subnetJSON(n *Network) map[string]any {
	return map[string]any{
		"id": n.VLAN, "name": n.Name, "cidr": n.CIDR, "vlan": s.vlanJSON(n), "gateway_ip": orNull(n.Gateway), "dns_servers": []string{}, "description": "",
		"rdns_mode": 2, "allow_dns": true, "allow_proxy": true, "active_discovery": false, "managed": true, "disabled_boot_architectures": []string{},
		"space": "undefined", "resource_uri": fmt.Sprintf("%ssubnets/%d/", Prefix, n.VLAN),
	}
}

func (c *call) eachNetwork(f func(*Network) map[string]any) *reply {
	out := []any{}
	for i := range c.s.opt.Networks {
		out = append(out, f(&c.s.opt.Networks[i]))
	}
	return jsonReply(out)
}

func (c *call) subnets() *reply { return c.eachNetwork(c.s.subnetJSON) }
func zoneJSON(name string) map[string]any {
	return map[string]any{"id": 1, "name": name, "description": "", "resource_uri": Prefix + "zones/" + name + "/"}
}

func poolJSON(name string) map[string]any {
	return map[string]any{"id": 0, "name": name, "description": "", "resource_uri": Prefix + "resourcepool/0/"}
}

func (s *Server) placed(kind, name string) bool {
	if kind == "zone" {
		return name == "default" || slices.Contains(s.opt.Zones, name)
	}
	return name == "default" || slices.Contains(s.opt.Pools, name)
}
