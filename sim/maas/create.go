package maassim

import (
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// powerKeys lists the parameters of a power type; the simulator knows three.
func powerKeys(kind string) ([]string, bool) {
	switch kind {
	case "redfish":
		return []string{"power_address", "power_user", "power_pass", "node_id"}, true
	case "ipmi":
		return []string{"power_driver", "power_boot_type", "power_address", "power_user", "power_pass", "k_g",
			"cipher_suite_id", "privilege_level", "workaround_flags", "mac_address"}, true
	case "manual", "":
		return nil, true
	default:
		return nil, false
	}
}

var hostnameForm = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)

// createMachine commissions by default. It keeps the record even if the BMC does not answer
// afterwards.
func (c *call) createMachine() *reply {
	s := c.s
	run, bad := c.boolParam("commission", true)
	if bad != nil {
		return bad
	}
	if s.opt.Unprivileged {
		run = false
	}
	kind := c.form.Get("power_type")
	power, bad := c.powerParams(kind)
	if bad != nil {
		return bad
	}
	macs, bad := c.newMACs(kind)
	if bad != nil {
		return bad
	}
	arch := c.form.Get("architecture")
	if arch == "" && kind != "ipmi" {
		return field("architecture", "This field is required.")
	}
	if arch != "" && !strings.Contains(arch, "/") {
		arch += "/generic"
	}
	if bad := c.checkNames(nil); bad != nil {
		return bad
	}
	m := s.newMachine(c.form.Get("hostname"), arch)
	c.applyNames(m)
	for i, mac := range macs {
		m.nics = append(m.nics, s.newNIC("eth"+strconv.Itoa(i), mac))
	}
	m.powerType, m.power = kind, power
	c.rec = m
	s.count(m, countCreate)
	if run {
		m.noTesting = c.form.Get("testing_scripts") == "none"
		m.skipBMCConfig, _ = c.boolParam("skip_bmc_config", false)
		m.skipNetworking, _ = c.boolParam("skip_networking", false)
		m.skipStorage, _ = c.boolParam("skip_storage", false)
		return c.startCommission(m, StatusNew)
	}
	out := jsonReply(s.machineJSON(m))
	if _, err := s.bmcOf(m, "create"); err != nil { // the region reads the power state of the machine that it has just stored
		return powerError(m, err)
	}
	return out
}

// powerParams reads and validates power_parameters_*.
func (c *call) powerParams(kind string) (map[string]string, *reply) {
	known, ok := powerKeys(kind)
	if !ok {
		return nil, field("power_type", "Select a valid choice. %s is not one of the available choices.", kind)
	}
	skip, bad := c.boolParam("power_parameters_skip_check", false)
	if bad != nil {
		return nil, bad
	}
	out := map[string]string{}
	var unknown []string
	for k, v := range c.form {
		name, ok := strings.CutPrefix(k, "power_parameters_")
		if !ok || name == "skip_check" {
			continue
		}
		if !slices.Contains(known, name) && !skip {
			unknown = append(unknown, name)
		}
		out[name] = v[0]
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, field("power_parameters", "Unknown parameter(s): %s.", strings.Join(unknown, ", "))
	}
	if kind == "redfish" && !skip {
		for _, need := range []string{"power_address", "power_user", "power_pass"} {
			if out[need] == "" {
				return nil, field("power_parameters", "%s: This field is required.", need)
			}
		}
	}
	return out, nil
}

// newMACs reads mac_addresses and refuses what is invalid or in use.
func (c *call) newMACs(kind string) ([]string, *reply) {
	var out []string
	for _, v := range c.form["mac_addresses"] {
		for _, mac := range splitList(v) {
			hw, err := net.ParseMAC(mac)
			if err != nil || len(hw) != 6 {
				return nil, field("mac_addresses", "One or more MAC addresses is invalid. ('%s' is not a valid MAC address.)", mac)
			}
			out = append(out, hw.String())
		}
	}
	if len(out) == 0 && kind != "ipmi" {
		return nil, field("mac_addresses", "At least one MAC address is required.")
	}
	for _, mac := range out {
		for _, m := range c.s.machines {
			if m.nicByMAC(mac) != nil {
				c.s.count(m, countDuplicate)
				return nil, field("mac_addresses", "MAC address %s already in use on %s.", mac, m.hostname)
			}
		}
	}
	return out, nil
}

// checkNames validates hostname, domain, zone and pool of a create or update.
func (c *call) checkNames(self *machine) *reply {
	if h := c.form.Get("hostname"); h != "" {
		if !hostnameForm.MatchString(h) {
			return field("hostname", "Invalid hostname: Name contains disallowed characters or is too long: '%s'.", h)
		}
		for _, m := range c.s.machines {
			if m != self && strings.EqualFold(m.hostname, h) {
				c.s.count(m, countDuplicate)
				return field("hostname", "Node with this Hostname already exists.")
			}
		}
	}
	for _, f := range []string{"zone", "pool"} {
		if v := c.form.Get(f); v != "" && v != "default" && !c.s.placed(f, v) {
			return field(f, "Select a valid choice. That choice is not one of the available choices.")
		}
	}
	return nil
}

func (c *call) applyNames(m *machine) {
	set := func(key string, p *string) {
		if v, ok := c.form[key]; ok && len(v) > 0 && v[0] != "" {
			*p = v[0]
		}
	}
	set("hostname", &m.hostname)
	set("domain", &m.domain)
	set("zone", &m.zone)
	set("pool", &m.pool)
	set("min_hwe_kernel", &m.minHWE)
	if v, ok := c.form["description"]; ok {
		m.description = v[0]
	}
	m.updated = c.s.now()
}

// updateMachine handles PUT. It accepts enable_hw_sync, which installs nothing on a machine that is
// already deployed.
func (c *call) updateMachine() *reply {
	m, s := c.rec, c.s
	if bad := c.checkNames(m); bad != nil {
		return bad
	}
	kind, typed := m.powerType, c.form.Has("power_type")
	if typed {
		kind = c.form.Get("power_type")
	}
	power, touched := m.power, typed
	for k := range c.form {
		touched = touched || strings.HasPrefix(k, "power_parameters_")
	}
	if touched {
		fresh, bad := c.mergedPower(kind)
		if bad != nil {
			return bad
		}
		power = fresh
	}
	sync, bad := c.boolParam("enable_hw_sync", m.hwSync)
	if bad != nil {
		return bad
	}
	if sync && m.osystem != "" && !linux(m.osystem) {
		return field("enable_hw_sync", "Hardware sync is only supported on Linux.")
	}
	size, given, bad := c.intParam("swap_size")
	if bad != nil {
		return bad
	}
	if given {
		n := int64(size)
		m.swapSize = &n
	}
	if touched && (kind != m.powerType || !maps.Equal(power, m.power)) {
		m.powerType, m.power = kind, power
		s.count(m, countPowerSet)
	}
	if a := c.form.Get("architecture"); a != "" {
		m.arch = a
	}
	c.applyNames(m)
	if sync != m.hwSync {
		s.setHWSync(m, sync)
	}
	return jsonReply(s.machineJSON(m))
}

// mergedPower keeps parameters that the request does not name.
func (c *call) mergedPower(kind string) (map[string]string, *reply) {
	if kind == c.rec.powerType {
		for k, v := range c.rec.power {
			if key := "power_parameters_" + k; !c.form.Has(key) {
				c.form.Set(key, v)
			}
		}
	}
	return c.powerParams(kind)
}

// deleteMachine neither powers off nor releases.
func (c *call) deleteMachine() *reply {
	c.s.count(c.rec, countDelete)
	c.s.remove(c.rec)
	return &reply{code: http.StatusNoContent, header: http.Header{}}
}

func linux(os string) bool {
	return os == "ubuntu" || os == "centos" || os == "rhel" || os == "debian" || os == "custom"
}
