package maassim

import (
	"net/netip"
	"slices"
	"strings"
)

// linkSubnet always inserts a new link for AUTO: it is not idempotent.
func (c *call) linkSubnet() *reply {
	n, bad := c.nic()
	if bad != nil {
		return bad
	}
	if bad := c.changeable("link subnet"); bad != nil {
		return bad
	}
	force, bad := c.boolParam("force", false)
	if bad != nil {
		return bad
	}
	mode := strings.ToLower(c.form.Get("mode"))
	subnet, bad := c.linkTarget(n, mode, force)
	if bad != nil {
		return bad
	}
	l, bad := c.makeLink(n, mode, subnet, force)
	if bad != nil {
		return bad
	}
	n.links = append(n.links, l)
	if n.vlan == 0 && subnet != nil {
		n.vlan = firstVLAN + subnet.VLAN
	}
	if gw, bad := c.boolParam("default_gateway", false); bad != nil {
		return bad
	} else if gw && subnet != nil && subnet.Gateway != "" {
		c.rec.gateway4 = l.id
	}
	c.s.count(c.rec, countLink)
	return jsonReply(c.s.nicJSON(c.rec, n))
}

// linkTarget validates mode and subnet; the subnet must be on the card's VLAN.
func (c *call) linkTarget(n *nic, mode string, force bool) (*Network, *reply) {
	switch mode {
	case "auto", "static", "dhcp", "link_up":
	case "":
		return nil, field("mode", "This field is required.")
	default:
		return nil, field("mode", "'%s' is not a valid choice.", c.form.Get("mode"))
	}
	id, given, bad := c.intParam("subnet")
	if bad != nil {
		return nil, field("subnet", "Select a valid choice. That choice is not one of the available choices.")
	}
	if !given {
		if mode == "auto" || mode == "static" {
			return nil, field("subnet", "This field is required.")
		}
		return nil, nil
	}
	net := c.s.network(id)
	if net == nil || (n.vlan != 0 && n.vlan != firstVLAN+net.VLAN && !force) {
		return nil, field("subnet", "Select a valid choice. That choice is not one of the available choices.")
	}
	return net, nil
}

func (c *call) makeLink(n *nic, mode string, subnet *Network, force bool) (*link, *reply) {
	l := &link{mode: mode}
	if subnet != nil {
		l.subnet = subnet.VLAN
	}
	busy := slices.ContainsFunc(n.links, func(l *link) bool { return l.mode != "link_up" })
	switch mode {
	case "static":
		ip, bad := c.staticIP(subnet)
		if bad != nil {
			return nil, bad
		}
		l.ip = ip
	case "link_up":
		if busy && !force {
			return nil, field("mode", "Cannot configure interface to link up (with no IP address) while other links are already configured.")
		}
	case "dhcp":
		if slices.ContainsFunc(n.links, func(l *link) bool { return l.mode == "dhcp" }) && !force {
			return nil, field("mode", "Interface is already set to DHCP from '%s'.", c.form.Get("subnet"))
		}
	}
	if force || mode == "link_up" {
		n.links = nil
	} else { // DHCP and addresses push out link_up; AUTO also DHCP, never static or another AUTO
		n.links = slices.DeleteFunc(n.links, func(l *link) bool {
			return l.mode == "link_up" || (mode == "auto" && l.mode == "dhcp")
		})
	}
	l.id = c.s.nextID("link")
	return l, nil
}

func (c *call) staticIP(subnet *Network) (string, *reply) {
	asked := c.form.Get("ip_address")
	if asked == "" {
		ip, ok := c.s.freeIP(subnet.VLAN)
		if !ok {
			return "", text(503, "%s", noAddresses)
		}
		return ip, nil
	}
	ip, err := netip.ParseAddr(asked)
	if err != nil {
		return "", field("ip_address", "Enter a valid IPv4 or IPv6 address.")
	}
	if prefix, err := netip.ParsePrefix(subnet.CIDR); err != nil || !prefix.Contains(ip) {
		return "", field("ip_address", "IP address is not in the given subnet '%s'.", subnet.CIDR)
	}
	if c.s.usedIPs()[ip.String()] {
		return "", field("ip_address", "IP address is already in use.")
	}
	return ip.String(), nil
}

func (c *call) unlinkSubnet() *reply {
	n, bad := c.nic()
	if bad != nil {
		return bad
	}
	if bad := c.changeable("unlink subnet"); bad != nil {
		return bad
	}
	id, given, bad := c.intParam("id")
	if bad != nil {
		return bad
	}
	if !given {
		return field("id", "This field is required.")
	}
	i := slices.IndexFunc(n.links, func(l *link) bool { return l.id == id })
	if i < 0 {
		return field("id", "'%d' is not a valid id.  It should be one of: %s.", id, linkIDs(n))
	}
	n.links = slices.Delete(n.links, i, i+1)
	if len(n.links) == 0 && n.vlan != 0 {
		n.links = []*link{c.s.newLink("link_up", 0)}
	}
	if c.rec.gateway4 == id {
		c.rec.gateway4 = 0
	}
	c.s.count(c.rec, countUnlink)
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func linkIDs(n *nic) string {
	var out []string
	for _, l := range n.links {
		out = append(out, "'"+itoa(l.id)+"'")
	}
	return strings.Join(out, ", ")
}
