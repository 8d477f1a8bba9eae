package maassim

import (
	"net/netip"
	"slices"
	"strings"
)

// editable are the states in which links and interfaces may change.
func (c *call) interfaceEdit() (*nic, *reply) {
	n := c.rec.nicByID(c.num("n"))
	if n == nil {
		return nil, notFound("Interface")
	}
	if !in(c.rec.status, StatusNew, Ready, FailedTesting, Allocated, Broken) {
		return nil, stateConflict("Cannot modify interface %s because the machine is not New, Ready, Allocated, or Broken.", n.name)
	}
	return n, nil
}

func (c *call) listInterfaces() *reply {
	out := []any{}
	for _, n := range c.rec.nics {
		out = append(out, c.s.nicJSON(c.rec, n))
	}
	return jsonReply(out)
}

func (c *call) readInterface() *reply {
	n := c.rec.nicByID(c.num("n"))
	if n == nil {
		return notFound("Interface")
	}
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func (c *call) updateInterface() *reply {
	n, bad := c.interfaceEdit()
	if bad != nil {
		return bad
	}
	if mtu, set, bad := c.intParam("mtu"); bad != nil {
		return bad
	} else if set {
		n.mtu = mtu
	}
	if v := c.form.Get("name"); v != "" {
		n.name = v
	}
	if _, set := c.form["tags"]; set {
		n.tags = splitList(c.form.Get("tags"))
	}
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func (c *call) deleteInterface() *reply {
	n, bad := c.interfaceEdit()
	if bad != nil {
		return bad
	}
	c.rec.nics = slices.DeleteFunc(c.rec.nics, func(x *nic) bool { return x == n })
	return noContent()
}

// linkSubnet always makes a new link when the mode is AUTO, as MAAS does.
func (c *call) linkSubnet() *reply {
	n, bad := c.interfaceEdit()
	if bad != nil {
		return bad
	}
	s, mode := c.s, strings.ToLower(c.form.Get("mode"))
	id, set, bad := c.intParam("subnet")
	if bad != nil {
		return bad
	}
	if !set && (mode == "auto" || mode == "static") {
		return field("subnet", "This field is required.")
	}
	net := s.network(id)
	if set && (net == nil || (n.vlan != 0 && net.VLAN != n.vlan)) {
		return field("subnet", "Select a valid choice. That choice is not one of the available choices.")
	}
	l := &link{id: s.nextID("link"), mode: mode, subnet: id}
	switch mode {
	case "auto":
		n.links = slices.DeleteFunc(n.links, func(o *link) bool { return o.mode == "link_up" || o.mode == "dhcp" })
	case "static":
		ip := c.form.Get("ip_address")
		if ip != "" {
			a, err := netip.ParseAddr(ip)
			p := netip.MustParsePrefix(net.CIDR)
			if err != nil || !p.Contains(a) {
				return field("ip_address", "IP address is not in the given subnet '%s'.", net.CIDR)
			}
			if s.ipTaken(ip) {
				return text(503, "The IP address %s is already in use.", ip)
			}
			l.ip = ip
		} else {
			l.ip = s.pickIP(net)
		}
		n.links = slices.DeleteFunc(n.links, func(o *link) bool { return o.mode == "link_up" })
	case "dhcp", "link_up":
	default:
		return field("mode", "Select a valid choice. %s is not one of the available choices.", c.form.Get("mode"))
	}
	if net != nil && n.vlan == 0 {
		n.vlan = net.VLAN
	}
	n.links = append(n.links, l)
	s.count(c.rec, countLink)
	return jsonReply(s.nicJSON(c.rec, n))
}

func (c *call) unlinkSubnet() *reply {
	n, bad := c.interfaceEdit()
	if bad != nil {
		return bad
	}
	id, set, bad := c.intParam("id")
	if bad != nil {
		return bad
	}
	if !set {
		return field("id", "This field is required.")
	}
	before := len(n.links)
	n.links = slices.DeleteFunc(n.links, func(l *link) bool { return l.id == id })
	if len(n.links) == before {
		return field("id", "'%d' is not a valid id.  It should be one of: .", id)
	}
	c.s.count(c.rec, countUnlink)
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func (c *call) disconnect() *reply {
	n, bad := c.interfaceEdit()
	if bad != nil {
		return bad
	}
	n.links, n.vlan = nil, 0
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func (c *call) setDefaultGateway() *reply {
	n, bad := c.interfaceEdit()
	if bad != nil {
		return bad
	}
	for _, l := range n.links {
		if net := c.s.network(l.subnet); net != nil && net.Gateway != "" {
			c.rec.gateway4 = l.id
			return jsonReply(c.s.nicJSON(c.rec, n))
		}
	}
	return text(400, "This interface has no usable gateways.")
}

func (c *call) addInterfaceTag() *reply    { return c.interfaceTag(true) }
func (c *call) removeInterfaceTag() *reply { return c.interfaceTag(false) }

func (c *call) interfaceTag(add bool) *reply {
	n := c.rec.nicByID(c.num("n"))
	if n == nil {
		return notFound("Interface")
	}
	n.tags = retag(n.tags, c.form.Get("tag"), add)
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func retag(tags []string, tag string, add bool) []string {
	tags = slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return t == tag })
	if add && tag != "" {
		tags = append(tags, tag)
	}
	return tags
}

func (c *call) createPhysical() *reply {
	if bad := c.mayAddNIC(); bad != nil {
		return bad
	}
	n := c.s.newNIC(c.form.Get("name"), c.form.Get("mac_address"))
	if c.s.macTaken(n.mac) != nil {
		return field("mac_address", "This MAC address is already in use by %s.", c.s.macTaken(n.mac).hostname)
	}
	c.rec.nics = append(c.rec.nics, n)
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func (c *call) mayAddNIC() *reply {
	if !in(c.rec.status, StatusNew, Ready, FailedTesting, Allocated, Broken) {
		return stateConflict("Cannot create interfaces because the machine is not New, Ready, Allocated, or Broken.")
	}
	return nil
}

func (c *call) createBond() *reply { return c.createOn("bond") }
func (c *call) createVLAN() *reply { return c.createOn("vlan") }

func (c *call) createOn(kind string) *reply {
	if bad := c.mayAddNIC(); bad != nil {
		return bad
	}
	n := c.s.newNIC(c.form.Get("name"), c.form.Get("mac_address"))
	n.kind = kind
	for _, p := range append(c.form["parents"], c.form["parent"]...) {
		id := 0
		for _, r := range p {
			id = id*10 + int(r-'0')
		}
		parent := c.rec.nicByID(id)
		if parent == nil {
			return field("parents", "Select a valid choice. %s is not one of the available choices.", p)
		}
		n.parents = append(n.parents, id)
		n.vlan = parent.vlan
		if n.mac == "" {
			n.mac = parent.mac
		}
	}
	if len(n.parents) == 0 {
		return field("parents", "A %s interface must have one or more parents.", kind)
	}
	c.rec.nics = append(c.rec.nics, n)
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func (s *Server) macTaken(mac string) *machine {
	for _, m := range s.machines {
		if m.nicByMAC(mac) != nil {
			return m
		}
	}
	return nil
}

func (s *Server) ipTaken(ip string) bool {
	for _, m := range s.machines {
		for _, n := range m.nics {
			for _, l := range n.links {
				if l.ip == ip {
					return true
				}
			}
		}
	}
	return false
}

// pickIP is the first free address of a subnet past the gateway.
func (s *Server) pickIP(n *Network) string {
	p := netip.MustParsePrefix(n.CIDR)
	a := p.Masked().Addr().Next()
	for i := 0; i < 1<<16 && p.Contains(a); i++ {
		a = a.Next()
		if ip := a.String(); ip != n.Gateway && !s.ipTaken(ip) {
			return ip
		}
	}
	return ""
}

// claimAuto gives every AUTO link its address, as a deployment does.
func (s *Server) claimAuto(m *machine) {
	for _, n := range m.nics {
		for _, l := range n.links {
			if net := s.network(l.subnet); l.mode == "auto" && l.ip == "" && net != nil {
				l.ip = s.pickIP(net)
			}
		}
	}
}

func (s *Server) releaseAuto(m *machine) {
	for _, n := range m.nics {
		for _, l := range n.links {
			if l.mode == "auto" {
				l.ip = ""
			}
		}
	}
}
