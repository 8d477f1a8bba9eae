package cloudsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// group is a security group.
type group struct {
	id, name          string
	tags              []string
	inbound, outbound string
	rules             []object
	settled           time.Time // when its rules are in force
	stuck             bool
}

// address is a flexible address.
type address struct {
	id, ip string
	tags   []string
}

func networkRoutes() []route {
	const groups = "/instance/v1/zones/{zone}/security_groups"
	return []route{
		{"POST " + groups, "create_group", (*Server).createGroup},
		{"GET " + groups, "list_groups", (*Server).listGroups},
		{"DELETE " + groups + "/{id}", "delete_group", (*Server).deleteGroup},
		{"GET " + groups + "/{id}/rules", "list_rules", (*Server).listRules},
		{"PUT " + groups + "/{id}/rules", "set_rules", (*Server).setRules},
		{"GET /instance/v1/zones/{zone}/ips", "list_ips", (*Server).listAddresses},
		{"DELETE /instance/v1/zones/{zone}/ips/{id}", "delete_ip", (*Server).deleteAddress},
	}
}

func (s *Server) group(id string) *group {
	i := slices.IndexFunc(s.groups, func(g *group) bool { return g.id == id })
	if i < 0 {
		return nil
	}
	return s.groups[i]
}

func (s *Server) groupView(g *group) object {
	state := "available"
	if g.stuck || g.settled.After(s.clock.Now()) {
		state = "syncing"
	}
	servers := []object{}
	for _, m := range s.servers {
		if m.groupID == g.id {
			servers = append(servers, object{"id": m.id, "name": m.name})
		}
	}
	return object{
		"id": g.id, "name": g.name, "description": "", "enable_default_security": true, "inbound_default_policy": g.inbound, "outbound_default_policy": g.outbound,
		"organization": organizationID, "project": s.opt.ProjectID, "tags": g.tags, "project_default": false, "servers": servers, "stateful": true,
		"state": state, "zone": Zone,
	}
}

func (s *Server) createGroup(r *request) (answer, error) {
	if r.text("project") != s.opt.ProjectID {
		return answer{}, &refusal{http.StatusForbidden, object{"type": "permissions_denied", "message": "insufficient permissions", "details": []object{{"action": "write", "resource": "security_group"}}}}
	}
	g := &group{
		id: newID(), name: r.text("name"), tags: r.texts("tags"), inbound: r.text("inbound_default_policy"), outbound: r.text("outbound_default_policy"),
		stuck: s.takeState(FaultGroupSyncing, r) != nil,
	}
	if g.inbound == "" || g.outbound == "" {
		return answer{}, badArgument("inbound_default_policy", "is required")
	}
	s.groups = append(s.groups, g)
	return ok(http.StatusCreated, object{"security_group": s.groupView(g)}), nil
}

func (s *Server) listGroups(r *request) (answer, error) {
	out := []object{}
	for _, g := range s.groups {
		if s.ofProject(r, "project") && r.PathValue("zone") == Zone && hasTags(g.tags, r.URL.Query().Get("tags")) {
			out = append(out, s.groupView(g))
		}
	}
	return page(r, "security_groups", out), nil
}

func (s *Server) groupOf(r *request) (*group, error) {
	if g := s.group(r.PathValue("id")); g != nil {
		return g, nil
	}
	return nil, notFound("instance_security_group", r.PathValue("id"))
}

func (s *Server) deleteGroup(r *request) (answer, error) {
	g, err := s.groupOf(r)
	if err != nil {
		return answer{}, err
	}
	if slices.ContainsFunc(s.servers, func(m *machine) bool { return m.groupID == g.id }) {
		return answer{}, inUse("the security group has servers")
	}
	s.groups = slices.DeleteFunc(s.groups, func(o *group) bool { return o == g })
	return ok(http.StatusNoContent, nil), nil
}

// systemRule is one of Scaleway's own, which every group has.
func systemRule() object {
	return object{
		"id": "10000000-0000-0000-0000-000000000001", "action": "drop", "protocol": "TCP", "direction": "outbound", "ip_range": "0.0.0.0/0",
		"dest_port_from": 25, "dest_port_to": nil, "position": 0, "editable": false, "zone": Zone,
	}
}

func (s *Server) listRules(r *request) (answer, error) {
	g, err := s.groupOf(r)
	if err != nil {
		return answer{}, err
	}
	return page(r, "rules", append([]object{systemRule()}, g.rules...)), nil
}

func (s *Server) setRules(r *request) (answer, error) {
	g, err := s.groupOf(r)
	if err != nil {
		return answer{}, err
	}
	rules := []object{}
	if json.Unmarshal(r.body["rules"], &rules) != nil {
		return answer{}, badArgument("rules", "is required")
	}
	for _, rule := range rules {
		rule["id"], rule["editable"], rule["zone"] = newID(), true, Zone
	}
	g.rules, g.settled = rules, s.clock.Now().Add(2*time.Second)
	return ok(http.StatusOK, object{"rules": append([]object{systemRule()}, rules...)}), nil
}

func (s *Server) listAddresses(r *request) (answer, error) {
	out := []object{}
	for _, a := range s.addresses {
		if s.ofProject(r, "project") && hasTags(a.tags, r.URL.Query().Get("tags")) {
			out = append(out, object{"id": a.id, "address": a.ip, "tags": a.tags, "project": s.opt.ProjectID, "organization": organizationID, "type": "routed_ipv4", "state": "detached", "zone": Zone})
		}
	}
	return page(r, "ips", out), nil
}

func (s *Server) deleteAddress(r *request) (answer, error) {
	before := len(s.addresses)
	s.addresses = slices.DeleteFunc(s.addresses, func(a *address) bool { return a.id == r.PathValue("id") })
	if len(s.addresses) == before {
		return answer{}, notFound("instance_ip", r.PathValue("id"))
	}
	return ok(http.StatusNoContent, nil), nil
}
