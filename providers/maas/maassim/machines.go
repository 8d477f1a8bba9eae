package maassim

import (
	"net"
	"strings"
)

func (c *call) listMachines() *reply {
	out := []any{}
	for _, mac := range c.form["mac_address"] {
		if _, err := net.ParseMAC(mac); err != nil {
			return field("mac_address", "'%s' is not a valid MAC address.", mac)
		}
	}
	for _, m := range c.s.machines {
		if c.selected(m) {
			out = append(out, c.s.machineJSON(m))
		}
	}
	return jsonReply(out)
}

func (c *call) selected(m *machine) bool {
	any := func(key string, hit func(string) bool) bool {
		vals := c.form[key]
		if len(vals) == 0 {
			return true
		}
		for _, v := range vals {
			if hit(v) {
				return true
			}
		}
		return false
	}
	return any("id", func(v string) bool { return v == m.id }) &&
		any("mac_address", func(v string) bool { return m.nicByMAC(v) != nil }) &&
		any("hostname", func(v string) bool { return strings.EqualFold(v, m.hostname) }) &&
		any("zone", func(v string) bool { return v == m.zone }) && any("pool", func(v string) bool { return v == m.pool }) &&
		any("tags", func(v string) bool { return contains(m.tags, v) }) &&
		any("status", func(v string) bool { st, ok := statusByConstant(v); return ok && st == m.status })
}

func (c *call) listAllocated() *reply {
	out := []any{}
	for _, m := range c.s.machines {
		if m.owner == c.s.opt.User {
			out = append(out, c.s.machineJSON(m))
		}
	}
	return jsonReply(out)
}

func (c *call) isRegistered() *reply {
	return jsonReply(c.s.macTaken(c.form.Get("mac_address")) != nil)
}

// createMachine commissions by default, and keeps the record when the BMC does
// not answer.
func (c *call) createMachine() *reply {
	s := c.s
	macs := []string{}
	for _, v := range c.form["mac_addresses"] {
		macs = append(macs, splitList(v)...)
	}
	powerType := c.form.Get("power_type")
	if bad := c.checkCreate(macs, powerType); bad != nil {
		return bad
	}
	m := s.newMachine(c.form.Get("hostname"), c.form.Get("architecture"))
	for i, mac := range macs {
		m.nics = append(m.nics, s.newNIC("eth"+itoa(i), mac))
	}
	if len(m.nics) > 0 {
		m.bootNIC = m.nics[0].id
	}
	for key, to := range map[string]*string{"domain": &m.domain, "zone": &m.zone, "pool": &m.pool, "description": &m.description} {
		if v := c.form.Get(key); v != "" {
			*to = v
		}
	}
	m.powerType = powerType
	for key := range c.form {
		if name, ok := strings.CutPrefix(key, "power_parameters_"); ok {
			m.power[name] = c.form.Get(key)
		}
	}
	s.count(m, countCreate)
	commission, bad := c.boolParam("commission", !s.opt.Unprivileged)
	if bad != nil {
		return bad
	}
	c.rec = m
	if !commission {
		out := jsonReply(s.machineJSON(m))
		if _, err := s.bmcOf(m, "create"); err != nil && powerType != "" {
			return powerError(m, err)
		}
		return out
	}
	return c.startCommission(m, StatusNew, "create")
}

var powerKeys = map[string][]string{
	"redfish": {"power_address", "power_user", "power_pass", "node_id"},
	"ipmi":    {"power_address", "power_user", "power_pass", "power_driver", "power_boot_type", "k_g", "cipher_suite_id", "privilege_level", "workaround_flags", "mac_address"},
	"manual":  {},
}

func (c *call) checkCreate(macs []string, powerType string) *reply {
	s := c.s
	for _, mac := range macs {
		if _, err := net.ParseMAC(mac); err != nil {
			return field("mac_addresses", "One or more MAC addresses is invalid. ('%s')", mac)
		}
		if other := s.macTaken(mac); other != nil {
			s.count(other, countDuplicate)
			return field("mac_addresses", "MAC address %s already in use on %s.", mac, other.hostname)
		}
	}
	if host := c.form.Get("hostname"); host != "" {
		for _, m := range s.machines {
			if strings.EqualFold(m.hostname, host) {
				s.count(m, countDuplicate)
				return field("hostname", "Node with this Hostname already exists.")
			}
		}
	}
	if powerType != "ipmi" {
		if len(macs) == 0 {
			return field("mac_addresses", "This field is required.")
		}
		if c.form.Get("architecture") == "" {
			return field("architecture", "This field is required.")
		}
	}
	keys, known := powerKeys[powerType]
	if powerType != "" && !known {
		return field("power_type", "Select a valid choice. %s is not one of the available choices.", powerType)
	}
	for key := range c.form {
		if name, ok := strings.CutPrefix(key, "power_parameters_"); ok && !contains(keys, name) && name != "skip_check" {
			return field("power_parameters", "Unknown parameter(s): %s.", name)
		}
	}
	return nil
}

func (c *call) readMachine() *reply { return jsonReply(c.s.machineJSON(c.rec)) }

func (c *call) updateMachine() *reply {
	m := c.rec
	for key, to := range map[string]*string{"hostname": &m.hostname, "description": &m.description, "zone": &m.zone, "pool": &m.pool, "domain": &m.domain, "architecture": &m.arch} {
		if _, set := c.form[key]; set {
			*to = c.form.Get(key)
		}
	}
	if _, set := c.form["enable_hw_sync"]; set {
		on, bad := c.boolParam("enable_hw_sync", false)
		if bad != nil {
			return bad
		}
		if on && m.osystem != "" && m.osystem != "ubuntu" && m.osystem != "centos" {
			return field("enable_hw_sync", "Hardware sync is only supported on Linux.")
		}
		m.hwSync = on
		if on {
			m.syncInterval = c.s.syncSeconds()
		}
	}
	if v := c.form.Get("power_type"); v != "" {
		m.powerType = v
	}
	for key := range c.form {
		if name, ok := strings.CutPrefix(key, "power_parameters_"); ok {
			m.power[name] = c.form.Get(key)
		}
	}
	return jsonReply(c.s.machineJSON(m))
}

func (c *call) deleteMachine() *reply {
	c.s.count(c.rec, countDelete)
	c.s.remove(c.rec)
	return noContent()
}

func (c *call) accept() *reply {
	out := []any{}
	for _, id := range c.form["machines"] {
		m := c.s.machineByID(id)
		if m == nil {
			return text(400, "Unknown machine(s): %s.", id)
		}
		if m.status == StatusNew {
			c.startCommission(m, StatusNew, "accept")
			out = append(out, c.s.machineJSON(m))
		}
	}
	return jsonReply(out)
}

func (c *call) acceptAll() *reply {
	out := []any{}
	for _, m := range c.s.machines {
		if m.status == StatusNew {
			c.startCommission(m, StatusNew, "accept_all")
			out = append(out, c.s.machineJSON(m))
		}
	}
	return jsonReply(out)
}

func (c *call) setWorkloadAnnotations() *reply {
	m := c.rec
	if m.owner != c.s.opt.User {
		return stateConflict("Cannot set owner data on a machine that is not owned by you.")
	}
	for key, vals := range c.form {
		if vals[0] == "" {
			delete(m.ownerData, key)
			continue
		}
		m.ownerData[key] = vals[0]
	}
	c.s.count(m, countAnnotate)
	return jsonReply(c.s.machineJSON(m))
}

func (c *call) lock() *reply   { return c.setLock(true) }
func (c *call) unlock() *reply { return c.setLock(false) }

func (c *call) setLock(on bool) *reply {
	if on && !in(c.rec.status, Deployed, Deploying) {
		return text(403, "Machine can't be locked, it must be deployed")
	}
	c.rec.locked = on
	return jsonReply(c.s.machineJSON(c.rec))
}

func (c *call) clearDefaultGateways() *reply {
	c.rec.gateway4 = 0
	return jsonReply(c.s.machineJSON(c.rec))
}

func (c *call) curtinConfig() *reply {
	if !in(c.rec.status, Deploying, Deployed, FailedDeployment) {
		return stateConflict("Machine %s is not in a deployment state.", c.rec.id)
	}
	return raw(200, "text/plain", []byte("#cloud-config\n# simulated\n"))
}

func (c *call) getToken() *reply {
	return jsonReply(map[string]string{"token_key": c.rec.token, "token_secret": c.rec.secret, "consumer_key": c.rec.id})
}
