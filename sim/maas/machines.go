package maassim

import (
	"net"
	"slices"
	"strings"
)

// listMachines returns everything that all filters match; there is no paging.
func (c *call) listMachines() *reply {
	out := []any{}
	for _, m := range c.s.machines {
		ok, bad := c.filtered(m)
		if bad != nil {
			return bad
		}
		if ok {
			out = append(out, c.s.machineJSON(m))
		}
	}
	if len(c.s.machines) == 0 { // a bad filter is refused also on an empty site
		if _, bad := c.filtered(&machine{}); bad != nil {
			return bad
		}
	}
	return jsonReply(out)
}

func (c *call) filtered(m *machine) (bool, *reply) {
	ok := true
	for _, mac := range c.form["mac_address"] {
		if hw, err := net.ParseMAC(mac); err != nil || len(hw) != 6 {
			return false, field("mac_address", "'%s' is not a valid MAC address.", mac)
		}
	}
	any := func(key string, hit func(string) bool) {
		if v := c.form[key]; len(v) > 0 && !slices.ContainsFunc(v, hit) {
			ok = false
		}
	}
	any("mac_address", func(v string) bool { return m.nicByMAC(v) != nil })
	any("id", func(v string) bool { return m.id == v })
	any("hostname", func(v string) bool { return strings.EqualFold(v, m.hostname) || strings.EqualFold(v, m.fqdn()) })
	any("zone", func(v string) bool { return m.zone == v })
	any("pool", func(v string) bool { return m.pool == v })
	any("domain", func(v string) bool { return m.domain == v })
	any("agent_name", func(v string) bool { return m.agentName == v })
	any("owner", func(v string) bool { return m.owner == v })
	for _, tag := range c.form["tags"] {
		if !slices.Contains(m.tags, tag) {
			ok = false
		}
	}
	var bad *reply
	any("status", func(v string) bool {
		st, known := statusByConstant(v)
		if !known {
			bad = field("status", "'%s' is not a valid status.", v)
		}
		return known && st == m.status
	})
	return ok && bad == nil, bad
}

func (c *call) listAllocated() *reply {
	out := []any{}
	for _, m := range c.s.machines {
		if m.owner == c.s.opt.User && in(m.status, Allocated, Deploying, Deployed) {
			out = append(out, c.s.machineJSON(m))
		}
	}
	return jsonReply(out)
}

func (c *call) isRegistered() *reply {
	mac := c.form.Get("mac_address")
	return jsonReply(slices.ContainsFunc(c.s.machines, func(m *machine) bool { return m.nicByMAC(mac) != nil }))
}

func (c *call) readMachine() *reply { return jsonReply(c.s.machineJSON(c.rec)) }

// allocate takes one Ready machine that fits the constraints.
func (c *call) allocate() *reply {
	s := c.s
	for _, m := range s.machines {
		if m.status != Ready || m.locked || !c.fits(m) {
			continue
		}
		if dry, bad := c.boolParam("dry_run", false); bad != nil {
			return bad
		} else if !dry {
			if bad := s.setStatus(m, Allocated, "allocate"); bad != nil {
				return bad
			}
			m.owner, m.agentName = s.opt.User, c.form.Get("agent_name")
			s.count(m, countAllocate)
		}
		out := s.machineJSON(m)
		out["constraints_by_type"] = map[string]any{}
		return jsonReply(out)
	}
	if id := c.form.Get("system_id"); id != "" {
		return stateConflict("No machine with system ID %s available.", id)
	}
	if name := c.form.Get("name"); name != "" {
		return stateConflict("No machine with name %s available.", name)
	}
	return stateConflict("No available machine matches constraints: %s", c.constraints())
}

func (c *call) constraints() string {
	var out []string
	for _, k := range []string{"pool", "zone", "tags", "arch", "cpu_count", "mem"} {
		if v := c.form.Get(k); v != "" {
			out = append(out, k+"="+v)
		}
	}
	return strings.Join(out, " ")
}

func (c *call) fits(m *machine) bool {
	eq := func(key, have string) bool { v := c.form.Get(key); return v == "" || strings.EqualFold(v, have) }
	name := c.form.Get("name")
	for _, v := range c.form["tags"] {
		for _, tag := range splitList(v) {
			if !slices.Contains(m.tags, tag) {
				return false
			}
		}
	}
	return eq("system_id", m.id) && eq("zone", m.zone) && eq("pool", m.pool) &&
		(name == "" || strings.EqualFold(name, m.hostname) || strings.EqualFold(name, m.fqdn()))
}

// releaseMany answers with the ids that were released; one that cannot be
// refuses all.
func (c *call) releaseMany() *reply {
	var chosen []*machine
	for _, id := range c.form["machines"] {
		m := c.s.machineByID(id)
		if m == nil {
			return text(400, "Unknown machine(s): %s.", id)
		}
		if m.locked {
			return text(403, "")
		}
		if !releasable(m.status) && !in(m.status, Ready, Releasing) {
			return stateConflict("Machine(s) cannot be released in their current state: %s ('%s').", m.id, m.status)
		}
		chosen = append(chosen, m)
	}
	done := []string{}
	for _, m := range chosen {
		if in(m.status, Ready, Releasing) {
			continue
		}
		if bad := c.startRelease(m, false); bad != nil {
			return bad
		}
		done = append(done, m.id)
	}
	return jsonReply(done)
}

// accept starts commissioning of enlisted machines, which may have no power
// control yet.
func (c *call) accept() *reply {
	var chosen []*machine
	for _, id := range c.form["machines"] {
		m := c.s.machineByID(id)
		if m == nil {
			return text(400, "Unknown machine(s): %s.", id)
		}
		if !in(m.status, StatusNew, Ready, Commissioning) {
			return stateConflict("Cannot accept node enlistment: node %s is in state %s.", m.id, m.status)
		}
		chosen = append(chosen, m)
	}
	return c.acceptThese(chosen)
}

func (c *call) acceptAll() *reply { return c.acceptThese(slices.Clone(c.s.machines)) }

func (c *call) acceptThese(chosen []*machine) *reply {
	out := []any{}
	for _, m := range chosen {
		if m.status != StatusNew {
			continue
		}
		if r := c.startCommission(m, StatusNew, "commission"); r.code != 200 {
			return r
		}
		out = append(out, c.s.machineJSON(m))
	}
	return jsonReply(out)
}

// setWorkloadAnnotations belongs to the owner; an empty value removes a key.
func (c *call) setWorkloadAnnotations() *reply {
	m := c.rec
	if m.owner != c.s.opt.User {
		return stateConflict("Cannot set workload annotations for an unallocated machine.")
	}
	for k, v := range c.form {
		if k == "" || strings.ContainsAny(k, " \t\n") {
			return field(k, "Invalid workload annotation key.")
		}
		if v[0] == "" {
			delete(m.ownerData, k)
			continue
		}
		m.ownerData[k] = v[0]
	}
	c.s.count(m, countAnnotate)
	return jsonReply(c.s.machineJSON(m))
}

func (c *call) lock() *reply {
	m := c.rec
	if m.locked {
		return stateConflict("Machine %s is already locked.", m.id)
	}
	if !in(m.status, Deployed, Deploying) {
		return stateConflict("Can't lock, machine is not deployed.")
	}
	m.locked = true
	c.s.event(m, "Locked", info, c.form.Get("comment"))
	return jsonReply(c.s.machineJSON(m))
}

func (c *call) unlock() *reply {
	m := c.rec
	if !m.locked {
		return stateConflict("Machine %s is not locked.", m.id)
	}
	m.locked = false
	c.s.event(m, "Unlocked", info, c.form.Get("comment"))
	return jsonReply(c.s.machineJSON(m))
}

// getToken gives the machine's own metadata credential: a secret.
func (c *call) getToken() *reply {
	m := c.rec
	return jsonReply(map[string]string{"consumer_key": m.token[:10], "token_key": m.token, "token_secret": m.secret})
}
