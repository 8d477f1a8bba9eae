package maassim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// constraintOptions are the parameters of allocate that constrain nothing.
var constraintOptions = [...]string{"agent_name", "comment", "dry_run", "verbose", "bridge_all", "bridge_type", "bridge_stp", "bridge_fd"}

// unsimulatedConstraints are the ones that MAAS knows and this region does not.
var unsimulatedConstraints = [...]string{
	"not_tags", "not_in_zone", "not_in_pool", "subnets", "not_subnets", "networks", "not_networks", "storage", "interfaces", "vlans", "not_vlans",
	"fabrics", "not_fabrics", "fabric_classes", "not_fabric_classes", "connected_to", "not_connected_to", "devices", "pod", "not_pod", "pod_type", "not_pod_type",
}

// allocate takes one Ready machine that fits the constraints. MAAS checks the constraints first. A
// wrong one is answered with 400; only valid ones that no machine meets with 409.
func (c *call) allocate() *reply {
	s := c.s
	if bad := c.checkConstraints(); bad != nil {
		return bad
	}
	dry, bad := c.boolParam("dry_run", false)
	if bad != nil {
		return bad
	}
	for _, m := range s.machines {
		if m.status != Ready || m.locked || !c.fits(m) {
			continue
		}
		if !dry {
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
	input, resolved := c.constraints()
	switch id := c.form.Get("system_id"); {
	case resolved == "":
		return stateConflict("No machine available.")
	case id != "":
		return stateConflict("No machine with system ID %s available.", id)
	}
	return stateConflict("No available machine matches constraints: %s (resolved to \"%s\")", input, resolved)
}

// checkConstraints refuses what the form of MAAS refuses, and what is not simulated.
func (c *call) checkConstraints() *reply {
	for _, key := range slices.Sorted(maps.Keys(c.form)) {
		v := c.form.Get(key)
		switch key {
		case "system_id", "name":
		case "zone", "pool":
			if v != "" && !c.s.placed(key, v) {
				return field(key, "No such %s: '%s'.", key, v)
			}
		case "tags":
			if unknown := c.tagNames(); len(unknown) > 0 { // no tag is simulated, so none exists
				return field(key, "No such tag(s): '%s'.", strings.Join(unknown, "', '"))
			}
		case "arch":
			if v != "" && v != "amd64" && v != "arm64" && v != "amd64/generic" && v != "arm64/generic" {
				return field(key, "Architecture not recognised.")
			}
		case "cpu_count":
			if _, err := strconv.ParseFloat(v, 64); v != "" && err != nil {
				return field(key, "Invalid CPU count: number required.")
			}
		case "mem":
			if _, err := strconv.ParseFloat(v, 64); v != "" && err != nil {
				return field(key, "Invalid memory: number of MiB required.")
			}
		default:
			switch {
			case slices.Contains(unsimulatedConstraints[:], key) || strings.HasPrefix(key, "bridge_"):
				return notSimulated("allocate with " + key)
			case !slices.Contains(constraintOptions[:], key):
				return field(key, "No such constraint.")
			}
		}
	}
	return nil
}

func (c *call) tagNames() []string {
	var out []string
	for _, v := range c.form["tags"] {
		out = append(out, splitList(v)...)
	}
	return out
}

// constraints holds the request's parameters as Python prints them, and their meaning.
func (c *call) constraints() (input, resolved string) {
	var in, out []string
	for _, k := range slices.Sorted(maps.Keys(c.form)) {
		in = append(in, fmt.Sprintf("('%s', ['%s'])", k, strings.Join(c.form[k], "', '")))
		if v := c.form.Get(k); v != "" && !slices.Contains(constraintOptions[:], k) {
			out = append(out, k+"="+v)
		}
	}
	return "[" + strings.Join(in, ", ") + "]", strings.Join(out, " ")
}

func (c *call) fits(m *machine) bool {
	eq := func(key, have string) bool { v := c.form.Get(key); return v == "" || strings.EqualFold(v, have) }
	most := func(key string, have float64) bool {
		v, err := strconv.ParseFloat(c.form.Get(key), 64)
		return err != nil || v <= have
	}
	name, arch := c.form.Get("name"), c.form.Get("arch")
	return eq("system_id", m.id) && eq("zone", m.zone) && eq("pool", m.pool) && most("cpu_count", float64(m.cpus)) && most("mem", float64(m.memoryMiB)) &&
		(arch == "" || m.arch == arch || strings.HasPrefix(m.arch, arch+"/")) &&
		(name == "" || strings.EqualFold(name, m.hostname) || strings.EqualFold(name, m.fqdn()))
}
