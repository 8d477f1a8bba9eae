package maassim

import "time"

func uri(parts ...string) string {
	out := Prefix
	for _, p := range parts {
		out += p + "/"
	}
	return out
}

func named(kind, name string, id int) map[string]any {
	return map[string]any{"id": id, "name": name, "description": "", "resource_uri": uri(kind, name)}
}

// machineJSON is a machine object with the fields of MAAS 2.0.
func (s *Server) machineJSON(m *machine) map[string]any {
	out := s.identityJSON(m)
	s.stateJSON(m, out)
	s.hardwareJSON(m, out)
	s.syncJSON(m, out)
	return out
}

func (s *Server) identityJSON(m *machine) map[string]any {
	return map[string]any{
		"system_id": m.id, "hostname": m.hostname, "fqdn": m.fqdn(), "description": m.description, "architecture": m.arch,
		"domain": map[string]any{"id": 0, "name": m.domain, "ttl": nil, "authoritative": true, "is_default": true, "resource_record_count": 0, "resource_uri": uri("domains", "0")},
		"zone":   named("zones", m.zone, 1), "pool": named("resourcepool", m.pool, 0), "tag_names": list(m.tags), "owner": orNull(m.owner),
		"owner_data": m.ownerData, "workload_annotations": m.ownerData, "locked": m.locked, "node_type": 0, "node_type_name": "Machine",
		"resource_uri": uri("machines", m.id), "parent": nil, "pod": nil, "virtualmachine_id": nil, "is_dpu": false,
	}
}

func (s *Server) stateJSON(m *machine, out map[string]any) {
	st := func(kind int) (int, string) { v := m.scriptStatus(kind); return v, scriptName(v) }
	c, cn := st(typeCommissioning)
	t, tn := st(typeTesting)
	add := map[string]any{
		"status": int(m.status), "status_name": m.status.String(), "status_message": orNull(m.message), "status_action": m.action,
		"error_description": m.errorText, "power_state": m.powerState, "power_type": m.powerType, "netboot": m.netboot, "ephemeral_deploy": false,
		"osystem": m.osystem, "distro_series": m.series, "hwe_kernel": orNull(m.hweKernel), "min_hwe_kernel": m.minHWE, "swap_size": m.swapSize,
		"commissioning_status": c, "commissioning_status_name": cn, "testing_status": t, "testing_status_name": tn,
		"current_commissioning_result_id": intOrNull(m.current[typeCommissioning]), "current_testing_result_id": intOrNull(m.current[typeTesting]),
		"current_installation_result_id": intOrNull(m.current[typeInstallation]), "disable_ipv4": false, "address_ttl": nil,
		"enable_kernel_crash_dump": false, "interface_test_status": -1, "interface_test_status_name": "Unknown",
	}
	for _, k := range []string{"cpu", "memory", "network", "storage", "other"} {
		add[k+"_test_status"], add[k+"_test_status_name"] = -1, "Unknown"
	}
	for k, v := range add {
		out[k] = v
	}
}

var infoKeys = [...]string{"system_vendor", "system_product", "system_family", "system_version", "system_sku", "system_serial", "cpu_model",
	"mainboard_vendor", "mainboard_product", "mainboard_serial", "mainboard_version", "mainboard_firmware_vendor", "mainboard_firmware_date",
	"mainboard_firmware_version", "chassis_vendor", "chassis_type", "chassis_serial", "chassis_version"}

func (s *Server) hardwareJSON(m *machine, out map[string]any) {
	hwInfo := map[string]string{}
	for _, k := range infoKeys {
		hwInfo[k] = "Unknown"
		if v := m.info[k]; v != "" {
			hwInfo[k] = v
		}
	}
	disks, nics, total, ips := []any{}, []any{}, int64(0), []string{}
	for _, d := range m.disks {
		disks = append(disks, s.diskJSON(m, d))
		total += d.size
	}
	for _, n := range m.nics {
		nics = append(nics, s.nicJSON(m, n))
		for _, l := range n.links {
			if l.ip != "" && (l.mode != "auto" || m.addressed()) {
				ips = append(ips, l.ip)
			}
		}
	}
	var boot, bootDisk any
	if n := m.bootInterface(); n != nil {
		boot = s.nicJSON(m, n)
	}
	if d := m.effectiveBootDisk(); d != nil {
		bootDisk = s.diskJSON(m, d)
	}
	for k, v := range map[string]any{
		"hardware_uuid": orNull(m.uuid), "hardware_info": hwInfo, "cpu_count": m.cpus, "cpu_speed": 2400, "memory": m.memoryMiB,
		"storage": float64(total) / 1e6, "blockdevice_set": disks, "physicalblockdevice_set": disks, "virtualblockdevice_set": []any{},
		"interface_set": nics, "boot_interface": boot, "boot_disk": bootDisk, "ip_addresses": ips, "bios_boot_method": "uefi",
		"volume_groups": []any{}, "raids": []any{}, "bcaches": []any{}, "cache_sets": []any{}, "special_filesystems": []any{},
		"numanode_set":     []any{map[string]any{"index": 0, "memory": m.memoryMiB, "cores": []int{0}, "hugepages_set": []any{}}},
		"default_gateways": map[string]any{"ipv4": map[string]any{"gateway_ip": nil, "link_id": intOrNull(m.gateway4)}, "ipv6": map[string]any{"gateway_ip": nil, "link_id": nil}},
	} {
		out[k] = v
	}
}

// addressed reports whether AUTO links hold their address now.
func (m *machine) addressed() bool {
	return in(m.status, Deploying, Deployed, FailedDeployment, Releasing)
}

func (s *Server) syncJSON(m *machine, out map[string]any) {
	var next time.Time
	if m.hwSync && !m.lastSync.IsZero() {
		next = m.lastSync.Add(time.Duration(m.syncInterval) * time.Second)
	}
	out["enable_hw_sync"], out["sync_interval"] = m.hwSync, intOrNull(m.syncInterval)
	out["last_sync"], out["next_sync"] = millis(m.lastSync), millis(next)
}

func (s *Server) fsJSON(f *filesystem) any {
	if f == nil {
		return nil
	}
	return map[string]any{"fstype": f.kind, "label": f.label, "uuid": f.uuid, "mount_point": orNull(f.mount), "mount_options": nil}
}

func (s *Server) diskJSON(m *machine, d *disk) map[string]any {
	parts, used := []any{}, int64(0)
	for _, p := range d.parts {
		used += p.size
		parts = append(parts, map[string]any{
			"id": p.id, "uuid": p.uuid, "path": "/dev/disk/by-dname/" + d.name + "-part" + itoa(p.number), "type": "partition", "bootable": p.bootable,
			"size": p.size, "tags": list(p.tags), "used_for": "", "filesystem": s.fsJSON(p.fs), "system_id": m.id, "device_id": d.id,
			"resource_uri": uri("nodes", m.id, "blockdevices", itoa(d.id), "partition", itoa(p.id)),
		})
	}
	return map[string]any{
		"id": d.id, "name": d.name, "model": d.model, "serial": d.serial, "id_path": d.idPath, "size": d.size, "block_size": 512,
		"used_size": used, "available_size": d.size - used, "used_for": d.usedFor, "type": "physical", "path": "/dev/disk/by-dname/" + d.name,
		"partition_table_type": orNull(d.table), "partitions": parts, "filesystem": s.fsJSON(d.fs), "tags": list(d.tags), "firmware_version": d.firmware,
		"storage_pool": nil, "uuid": d.uuid, "numa_node": 0, "system_id": m.id, "resource_uri": uri("nodes", m.id, "blockdevices", itoa(d.id)),
	}
}

func (s *Server) vlanJSON(id int) any {
	n := s.network(id)
	if n == nil {
		return nil
	}
	return map[string]any{
		"id": 5000 + n.VLAN, "vid": 0, "name": "untagged", "mtu": n.MTU, "dhcp_on": n.DHCP, "fabric": "fabric-" + itoa(n.VLAN), "fabric_id": n.VLAN,
		"primary_rack": nil, "secondary_rack": nil, "external_dhcp": nil, "relay_vlan": nil, "space": "undefined",
		"resource_uri": uri("vlans", itoa(5000+n.VLAN)),
	}
}

func (s *Server) subnetJSON(n *Network) map[string]any {
	return map[string]any{
		"id": n.VLAN, "name": n.CIDR, "cidr": n.CIDR, "vlan": s.vlanJSON(n.VLAN), "gateway_ip": orNull(n.Gateway), "dns_servers": []string{},
		"rdns_mode": 2, "allow_dns": true, "allow_proxy": true, "active_discovery": false, "managed": true, "space": "undefined",
		"description": n.Name, "resource_uri": uri("subnets", itoa(n.VLAN)),
	}
}

func (s *Server) nicJSON(m *machine, n *nic) map[string]any {
	links := []any{}
	for _, l := range n.links {
		row := map[string]any{"id": l.id, "mode": l.mode}
		if net := s.network(l.subnet); net != nil {
			row["subnet"] = s.subnetJSON(net)
		}
		if l.ip != "" && (l.mode != "auto" || m.addressed()) {
			row["ip_address"] = l.ip
		}
		links = append(links, row)
	}
	mtu := n.mtu
	if mtu == 0 {
		mtu = 1500
		if net := s.network(n.vlan); net != nil {
			mtu = net.MTU
		}
	}
	var params any = ""
	if n.mtu != 0 {
		params = map[string]any{"mtu": n.mtu}
	}
	return map[string]any{
		"id": n.id, "name": n.name, "type": n.kind, "mac_address": n.mac, "system_id": m.id, "vlan": s.vlanJSON(n.vlan), "enabled": n.enabled,
		"parents": []string{}, "children": []string{}, "tags": list(n.tags), "links": links, "params": params, "discovered": nil, "effective_mtu": mtu,
		"vendor": orNull(n.vendor), "product": orNull(n.product), "firmware_version": nil, "link_connected": n.connected, "interface_speed": n.speed,
		"link_speed": n.speed, "numa_node": 0, "sriov_max_vf": 0, "resource_uri": uri("nodes", m.id, "interfaces", itoa(n.id)),
	}
}
