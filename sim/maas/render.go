package maassim

import (
	"cmp"
	"fmt"
	"time"
)

// machineJSON is a machine with every field that MAAS displays.
func (s *Server) machineJSON(m *machine) map[string]any {
	out := map[string]any{
		"system_id": m.id, "hostname": m.hostname, "fqdn": m.fqdn(), "description": m.description, "architecture": m.arch,
		"status": int(m.status), "status_name": m.status.String(), "status_message": orNull(m.message), "status_action": m.action,
		"error_description": m.errorText, "owner": orNull(m.owner), "owner_data": m.ownerData, "workload_annotations": m.ownerData,
		"locked": m.locked, "osystem": m.osystem, "distro_series": m.series, "hwe_kernel": orNull(m.hweKernel), "min_hwe_kernel": m.minHWE,
		"node_type": 0, "node_type_name": "Machine", "netboot": m.netboot, "ephemeral_deploy": false, "disable_ipv4": false,
		"power_type": m.powerType, "power_state": s.shownPower(m), "bios_boot_method": "uefi", "hardware_uuid": orNull(m.uuid),
		"cpu_count": m.cpus, "cpu_speed": 0, "memory": m.memoryMiB, "storage": m.storageMB(), "swap_size": nil, "address_ttl": nil,
		"enable_hw_sync": m.hwSync, "sync_interval": intOrNull(m.syncInterval), "last_sync": millis(m.lastSync), "next_sync": m.nextSyncAt(),
		"hardware_info": m.hardwareInfo(), "tag_names": []string{}, "parent": nil,
		"domain":       map[string]any{"id": 0, "name": m.domain, "authoritative": true, "ttl": nil, "is_default": true, "resource_record_count": 0, "resource_uri": Prefix + "domains/0/"},
		"zone":         zoneJSON(m.zone),
		"pool":         poolJSON(m.pool),
		"resource_uri": Prefix + "machines/" + m.id + "/",
	}
	if m.swapSize != nil {
		out["swap_size"] = *m.swapSize
	}
	s.addResults(out, m)
	s.addNetwork(out, m)
	s.addStorage(out, m)
	out["enable_kernel_crash_dump"] = false
	if s.opt.Profile == "3.7" {
		out["is_dpu"] = false
	}
	out["pod"], out["virtualmachine_id"] = nil, nil
	return out
}

// shownPower is what MAAS believes, or what a power_state fault makes it say.
func (s *Server) shownPower(m *machine) string {
	if f := s.peek(m, "power_state", "query_power_state"); f != nil {
		return cmp.Or(f.Params["value"], "error")
	}
	return m.powerState
}

func (m *machine) nextSyncAt() any {
	if m.lastSync.IsZero() || m.syncInterval == 0 {
		return nil
	}
	return millis(m.lastSync.Add(time.Duration(m.syncInterval) * time.Second))
}

func (m *machine) storageMB() float64 {
	var sum int64
	for _, d := range m.disks {
		if !d.virtual {
			sum += d.size
		}
	}
	return float64(sum) / 1e6
}

// hardwareInfo always has its 18 keys.
func (m *machine) hardwareInfo() map[string]string {
	out := map[string]string{}
	for _, k := range []string{
		"system_vendor", "system_product", "system_family", "system_version", "system_sku", "system_serial", "cpu_model",
		"mainboard_vendor", "mainboard_product", "mainboard_serial", "mainboard_version", "mainboard_firmware_vendor",
		"mainboard_firmware_date", "mainboard_firmware_version", "chassis_vendor", "chassis_type", "chassis_serial", "chassis_version",
	} {
		out[k] = "Unknown"
		if v := m.info[k]; v != "" {
			out[k] = v
		}
	}
	return out
}

func (s *Server) addResults(out map[string]any, m *machine) {
	for i, word := range []string{"commissioning", "installation", "testing"} {
		out["current_"+word+"_result_id"] = intOrNull(m.current[i])
	}
	commissioning, testing := m.setByID(m.current[typeCommissioning]).status(), m.setByID(m.current[typeTesting]).status()
	pairs := map[string]int{
		"commissioning_status": commissioning, "testing_status": testing, "cpu_test_status": -1, "memory_test_status": -1,
		"network_test_status": testing, "storage_test_status": testing, "interface_test_status": -1, "other_test_status": -1,
	}
	for k, v := range pairs {
		out[k], out[k+"_name"] = v, scriptName(v)
	}
}

func (s *Server) addNetwork(out map[string]any, m *machine) {
	nics, ips := []any{}, []string{}
	gateway := any(map[string]any{"gateway_ip": nil, "link_id": nil})
	for _, n := range m.nics {
		nics = append(nics, s.nicJSON(m, n))
		for _, l := range n.links {
			if l.ip != "" {
				ips = append(ips, l.ip)
			}
			if net := s.network(l.subnet); l.id == m.gateway4 && net != nil {
				gateway = map[string]any{"gateway_ip": net.Gateway, "link_id": l.id}
			}
		}
	}
	out["interface_set"], out["ip_addresses"], out["boot_interface"] = nics, ips, nil
	if b := m.bootInterface(); b != nil {
		out["boot_interface"] = s.nicJSON(m, b)
	}
	out["default_gateways"] = map[string]any{"ipv4": gateway, "ipv6": map[string]any{"gateway_ip": nil, "link_id": nil}}
}

func (s *Server) addStorage(out map[string]any, m *machine) {
	out["blockdevice_set"] = s.disksJSON(m, func(*disk) bool { return true })
	out["physicalblockdevice_set"] = s.disksJSON(m, func(d *disk) bool { return !d.virtual })
	out["virtualblockdevice_set"] = s.disksJSON(m, func(d *disk) bool { return d.virtual })
	out["boot_disk"] = nil
	if d := m.diskByID(m.bootDisk); d != nil {
		out["boot_disk"] = diskJSON(m, d)
	}
	groups := []any{}
	for _, g := range m.groups {
		groups = append(groups, map[string]any{"system_id": m.id, "id": g.id, "__incomplete__": true})
	}
	out["volume_groups"], out["raids"], out["cache_sets"], out["special_filesystems"] = groups, []any{}, []any{}, []any{}
	bcaches := []any{}
	for _, d := range m.disks {
		if d.name == "bcache0" && d.virtual {
			bcaches = append(bcaches, map[string]any{"system_id": m.id, "id": d.id, "__incomplete__": true})
		}
	}
	out["bcaches"] = bcaches
	cores := []int{}
	for i := range m.cpus {
		cores = append(cores, i)
	}
	out["numanode_set"] = []any{map[string]any{"index": 0, "memory": m.memoryMiB, "cores": cores, "hugepages_set": []any{}}}
}

func (s *Server) disksJSON(m *machine, keep func(*disk) bool) []any {
	out := []any{}
	for _, d := range m.disks {
		if keep(d) {
			out = append(out, diskJSON(m, d))
		}
	}
	return out
}

func diskJSON(m *machine, d *disk) map[string]any {
	uri := fmt.Sprintf("%snodes/%s/blockdevices/%d/", Prefix, m.id, d.id)
	parts, used := []any{}, int64(0)
	for _, p := range d.parts {
		used += p.size
		parts = append(parts, map[string]any{
			"id": p.id, "uuid": p.uuid, "size": p.size, "bootable": p.bootable, "tags": list(p.tags), "filesystem": fsJSON(p.fs),
			"path": fmt.Sprintf("/dev/disk/by-dname/%s-part%d", d.name, p.number), "type": "partition", "used_for": p.usedFor,
			"device_id": d.id, "system_id": m.id, "resource_uri": fmt.Sprintf("%spartition/%d", uri, p.id),
		})
	}
	kind, numa, path := "physical", any(0), any(orNull(d.idPath))
	if d.virtual {
		kind, numa, path = "virtual", nil, nil
		used = d.size
	}
	return map[string]any{
		"id": d.id, "name": d.name, "model": orNull(d.model), "serial": orNull(d.serial), "id_path": path, "size": d.size, "block_size": 512,
		"used_size": used, "available_size": d.size - used, "used_for": d.usedFor, "type": kind, "path": "/dev/disk/by-dname/" + d.name,
		"partition_table_type": orNull(d.table), "partitions": parts, "filesystem": fsJSON(d.fs), "tags": list(d.tags),
		"firmware_version": orNull(d.firmware), "storage_pool": nil, "uuid": orNull(d.uuid), "numa_node": numa, "system_id": m.id, "resource_uri": uri,
	}
}

func fsJSON(fs *filesystem) any {
	if fs == nil {
		return nil
	}
	return map[string]any{"fstype": fs.kind, "label": fs.label, "uuid": fs.uuid, "mount_point": fs.mount, "mount_options": nil}
}

func (s *Server) nicJSON(m *machine, n *nic) map[string]any {
	links := []any{}
	for _, l := range n.links {
		j := map[string]any{"id": l.id, "mode": l.mode}
		if net := s.network(l.subnet); net != nil {
			j["subnet"] = s.subnetJSON(net)
		}
		if l.ip != "" {
			j["ip_address"] = l.ip
		}
		links = append(links, j)
	}
	mtu, vlan := n.mtu, any(nil)
	if net := s.network(n.vlan - firstVLAN); n.vlan != 0 && net != nil {
		vlan = s.vlanJSON(net)
		if mtu == 0 {
			mtu = net.MTU
		}
	}
	if mtu == 0 {
		mtu = 1500
	}
	out := map[string]any{
		"id": n.id, "name": n.name, "type": n.kind, "mac_address": n.mac, "system_id": m.id, "vlan": vlan, "enabled": n.enabled,
		"parents": []string{}, "children": []string{}, "tags": list(n.tags), "links": links, "params": "", "discovered": nil, "effective_mtu": mtu,
		"vendor": orNull(n.vendor), "product": orNull(n.product), "firmware_version": nil, "link_connected": n.connected, "interface_speed": n.speed,
		"link_speed": n.speed, "numa_node": nil, "sriov_max_vf": 0, "resource_uri": fmt.Sprintf("%snodes/%s/interfaces/%d/", Prefix, m.id, n.id),
	}
	if n.discovered {
		out["discovered"], out["numa_node"] = []any{}, 0
	}
	return out
}
