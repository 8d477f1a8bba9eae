package cloudsim

import (
	"net/http"
	"slices"
	"time"
)

// The times of a server's way, by recordings.
const (
	allocates = 5 * time.Second
	boots     = 21 * time.Second
	settles   = 40 * time.Second
	stops     = 20 * time.Second
	ends      = 16 * time.Second
)

// machine is a server. Its way is the states that it takes by itself, with their times.
type machine struct {
	id, name, kind, image string
	tags                  []string
	state, detail         string
	created, modified     time.Time
	listed                time.Time // when lists show it
	volumes               []string
	groupID               string
	address               bool
	userData              map[string]string
	locked                bool
	way                   []step
}

type step struct {
	at            time.Time
	state, detail string
	do            func()
}

func serverRoutes() []route {
	const base = "/instance/v1/zones/{zone}/servers"
	return []route{
		{"POST " + base, "create_server", (*Server).createServer},
		{"GET " + base, "list_servers", (*Server).listServers},
		{"GET " + base + "/{id}", "get_server", (*Server).getServer},
		{"DELETE " + base + "/{id}", "delete_server", (*Server).deleteServer},
		{"POST " + base + "/{id}/action", "server_action", (*Server).actOnServer},
		{"PATCH " + base + "/{id}/user_data/{key}", "set_user_data", (*Server).setUserData},
	}
}

// advance has every server go the part of its way that is over.
func (s *Server) advance() {
	now := s.clock.Now()
	for _, m := range slices.Clone(s.servers) {
		for len(m.way) > 0 && !m.way[0].at.After(now) {
			next := m.way[0]
			m.way = m.way[1:]
			if next.state != "" {
				m.state, m.detail, m.modified = next.state, next.detail, next.at
			}
			if next.do != nil {
				next.do()
			}
		}
	}
	for _, v := range s.volumes {
		if v.grows != nil && !v.grows.After(now) {
			v.size, v.grows = v.wanted, nil
		}
	}
}

func (s *Server) find(r *request) (*machine, error) {
	id := r.PathValue("id")
	for _, m := range s.servers {
		if m.id == id && r.PathValue("zone") == Zone {
			return m, nil
		}
	}
	return nil, notFound("instance_server", id)
}

func (s *Server) createServer(r *request) (answer, error) {
	kind, known := catalogue()[r.text("commercial_type")]
	switch {
	case r.PathValue("zone") != Zone:
		return answer{}, badArgument("zone", "the zone is not simulated")
	case r.text("project") != s.opt.ProjectID:
		return answer{}, &refusal{http.StatusForbidden, object{"type": "permissions_denied", "message": "insufficient permissions", "details": []object{{"action": "write", "resource": "instance"}}}}
	case !known:
		return answer{}, badArgument("commercial_type", "is not a valid type")
	case r.text("image") != imageID:
		return answer{}, badArgument("image", "the image does not exist")
	case r.text("name") == "":
		return answer{}, badArgument("name", "is required")
	}
	if f := s.takeState(FaultQuota, r); f != nil {
		return answer{}, quotaExceeded(f, r.text("commercial_type"))
	}
	groupID := r.text("security_group")
	if groupID != "" && s.group(groupID) == nil {
		return answer{}, notFound("instance_security_group", groupID)
	}
	now := s.clock.Now()
	m := &machine{
		id: newID(), name: r.text("name"), kind: r.text("commercial_type"), image: r.text("image"), tags: r.texts("tags"), state: "stopped",
		created: now, modified: now, listed: now, groupID: groupID, userData: map[string]string{},
	}
	if f := s.takeState(FaultListLag, r); f != nil {
		m.listed = now.Add(f.Duration("delay", time.Minute))
	}
	root := &volume{id: newID(), name: "Ubuntu Noble GPU OS 12_sbs_volume_0", size: kind.imageSize, created: now, tags: []string{}, server: m.id}
	m.volumes = []string{root.id}
	s.volumes = append(s.volumes, root)
	s.servers = append(s.servers, m)
	s.counts.ServersMade++
	for _, tag := range m.tags {
		s.made[tag]++
	}
	s.counts.MostServers = max(s.counts.MostServers, len(s.servers))
	return ok(http.StatusCreated, object{"server": s.serverView(m)}), nil
}

func (s *Server) serverView(m *machine) object {
	volumes := object{}
	for i, id := range m.volumes {
		volumes[string(rune('0'+i))] = object{"boot": false, "volume_type": "sbs_volume", "id": id, "state": "available", "zone": Zone}
	}
	ips := []object{}
	if m.address {
		ips = append(ips, object{
			"id": newID(), "address": s.opt.Address, "dynamic": true, "gateway": "62.210.0.1", "netmask": "32", "family": "inet", "provisioning_mode": "dhcp",
			"tags": []string{}, "state": "pending", "ipam_id": newID(),
		})
	}
	actions := map[string][]string{
		"stopped": {"poweron", "backup"}, "starting": {"stop_in_place", "backup"}, "running": {"poweroff", "terminate", "reboot", "stop_in_place", "backup"},
	}[m.state]
	if actions == nil {
		actions = []string{}
	}
	v := object{
		"id": m.id, "name": m.name, "arch": "x86_64", "commercial_type": m.kind, "boot_type": "local", "organization": organizationID, "project": s.opt.ProjectID,
		"hostname": m.name, "image": object{"id": m.image, "name": "Ubuntu Noble GPU OS 12", "zone": Zone}, "volumes": volumes, "tags": m.tags, "state": m.state,
		"protected": false, "state_detail": m.detail, "public_ip": nil, "public_ips": ips, "mac_address": "de:00:00:00:00:01", "routed_ip_enabled": true,
		"extra_networks": []any{}, "dynamic_ip_required": true, "enable_ipv6": false, "private_ip": nil, "creation_date": stamp(m.created),
		"modification_date": stamp(m.modified), "bootscript": nil, "security_group": nil, "location": nil, "maintenances": []any{}, "allowed_actions": actions,
		"placement_group": nil, "private_nics": []any{}, "zone": Zone, "dns": m.id + ".pub.instances.scw.cloud",
	}
	if g := s.group(m.groupID); g != nil {
		v["security_group"] = object{"id": g.id, "name": g.name}
	}
	return v
}

func (s *Server) listServers(r *request) (answer, error) {
	out := []object{}
	for _, m := range slices.Backward(s.servers) { // the newest first
		if s.ofProject(r, "project") && r.PathValue("zone") == Zone && !m.listed.After(s.clock.Now()) && hasTags(m.tags, r.URL.Query().Get("tags")) {
			out = append(out, s.serverView(m))
		}
	}
	return page(r, "servers", out), nil
}

func (s *Server) getServer(r *request) (answer, error) {
	m, err := s.find(r)
	if err != nil {
		return answer{}, err
	}
	return ok(http.StatusOK, object{"server": s.serverView(m)}), nil
}

func (s *Server) deleteServer(r *request) (answer, error) {
	m, err := s.find(r)
	switch {
	case err != nil:
		return answer{}, err
	case m.locked:
		return answer{}, &refusal{http.StatusForbidden, object{"type": "locked", "message": "resource is locked", "resource": "instance_server", "resource_id": m.id}}
	case m.state != "stopped":
		return answer{}, inUse("the server must be stopped")
	}
	s.remove(m)
	return ok(http.StatusNoContent, nil), nil
}

// remove takes a server away. Its block volumes stay, detached, and are billed.
func (s *Server) remove(m *machine) {
	for _, v := range s.volumes {
		if v.server == m.id {
			v.server = ""
		}
	}
	s.servers = slices.DeleteFunc(s.servers, func(o *machine) bool { return o == m })
	s.counts.ServersDeleted++
}

func (s *Server) actOnServer(r *request) (answer, error) {
	m, err := s.find(r)
	if err != nil {
		return answer{}, err
	}
	now := s.clock.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	switch action := r.text("action"); {
	case m.locked:
		return answer{}, &refusal{http.StatusForbidden, object{"type": "locked", "message": "resource is locked", "resource": "instance_server", "resource_id": m.id}}
	case action == "poweron" && m.state == "stopped":
		if f := s.takeState(FaultQuota, r); f != nil {
			return answer{}, quotaExceeded(f, m.kind)
		}
		if s.takeState(FaultOutOfStock, r) != nil {
			return answer{}, &refusal{http.StatusServiceUnavailable, object{"type": "out_of_stock", "message": "resource is out of stock", "resource": m.kind}} // not recorded
		}
		m.state, m.detail = "starting", "allocating node"
		if s.takeState(FaultFallsBack, r) != nil {
			m.way = []step{{at: at(allocates), state: "stopped"}}
			break
		}
		m.way = []step{
			{at: at(allocates), state: "starting", detail: "provisioning node"},
			{at: at(boots), state: "running", detail: "booting kernel", do: func() { s.boot(m) }},
			{at: at(settles), state: "running", detail: "booted"},
		}
	case (action == "poweroff" || action == "terminate") && m.state == "running":
		m.state, m.detail, m.address = "stopping", "stopping", false
		if s.takeState(FaultStuckStopping, r) != nil {
			m.way = nil
			break
		}
		m.way = []step{{at: at(stops), state: "stopped"}}
		if action == "terminate" {
			m.detail, m.way = "terminating", []step{{at: at(ends), do: func() { s.remove(m) }}}
		}
	case action == "poweron" || action == "poweroff" || action == "terminate":
		return answer{}, transient(m.id, m.state)
	default:
		return answer{}, badArgument("action", "is not simulated")
	}
	return ok(http.StatusAccepted, object{"task": object{
		"id": "00000000-0000-0000-0000-000000000000", "description": "fake task", "status": "pending", "href_from": "/servers/" + m.id + "/action",
		"href_result": "/servers/" + m.id, "started_at": stamp(now), "terminated_at": nil, "progress": 0, "zone": Zone,
	}}), nil
}

// boot gives a server that has started its address.
func (s *Server) boot(m *machine) {
	m.address = s.takeState(FaultNoAddress, &request{op: "boot", about: m.tags}) == nil
	if s.opt.Booted != nil {
		go s.opt.Booted(m.id, m.userData["cloud-init"])
	}
}

func (s *Server) setUserData(r *request) (answer, error) {
	m, err := s.find(r)
	if err != nil {
		return answer{}, err
	}
	m.userData[r.PathValue("key")] = string(r.raw)
	return ok(http.StatusNoContent, nil), nil
}
