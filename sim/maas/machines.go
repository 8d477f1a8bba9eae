package maassim

import (
	"fmt"
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

func (c *call) readMachine() *reply { return jsonReply(c.s.machineJSON(c.rec)) }

// releaseMany answers with the ids that were released; one that cannot be refuses all. Ready is
// left alone. Unlike the release of one machine, it refuses a machine that is Releasing.
func (c *call) releaseMany() *reply {
	var chosen []*machine
	var unknown, failed []string
	for _, id := range c.form["machines"] {
		m := c.s.machineByID(id)
		switch {
		case m == nil:
			unknown = append(unknown, id)
		case m.locked:
			return text(403, "")
		case releasable(m.status):
			chosen = append(chosen, m)
		case m.status != Ready:
			failed = append(failed, fmt.Sprintf("%s ('%s')", m.id, m.status))
		}
	}
	switch {
	case len(unknown) > 0:
		return text(400, "Unknown machine(s): %s.", strings.Join(unknown, ", "))
	case len(failed) > 0:
		return stateConflict("Machine(s) cannot be released in their current state: %s.", strings.Join(failed, ", "))
	}
	done := []string{}
	for _, m := range chosen {
		if bad := c.startRelease(m, false); bad != nil {
			return bad
		}
		done = append(done, m.id)
	}
	return jsonReply(done)
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

// getToken gives the machine's own metadata credential: a secret.
func (c *call) getToken() *reply {
	m := c.rec
	return jsonReply(map[string]string{"consumer_key": m.token[:10], "token_key": m.token, "token_secret": m.secret})
}
