package maassim

import (
	"net/netip"
	"slices"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// firstVLAN is added to a network's number to make its MAAS VLAN id.
const firstVLAN = 5000

func (s *Server) newNIC(name, mac string) *nic {
	return &nic{id: s.nextID("nic"), name: name, mac: strings.ToLower(mac), kind: "physical", enabled: true, connected: true}
}

func (s *Server) network(n int) *Network {
	for i := range s.opt.Networks {
		if s.opt.Networks[i].VLAN == n {
			return &s.opt.Networks[i]
		}
	}
	return nil
}

// inventoryNICs matches cards by MAC; links return to the default: AUTO on the
// boot card, link_up on the others.
func (s *Server) inventoryNICs(m *machine, spec simhw.Spec) {
	noVLAN := s.take(m, "boot_nic_no_vlan", "stage:commissioning") != nil // while its MACs still find it
	old := m.nics
	m.nics, m.bootNIC, m.gateway4 = nil, 0, 0
	for _, hw := range spec.NICs {
		n := s.newNIC(hw.Name, hw.MAC)
		for _, o := range old {
			if o.kind == "physical" && strings.EqualFold(o.mac, hw.MAC) {
				n.id, n.tags, n.mtu = o.id, o.tags, o.mtu
			}
		}
		n.speed, n.connected, n.vendor, n.product, n.discovered = hw.SpeedMbps, hw.VLAN != 0, "Simulated", "Network adapter", true
		if s.network(hw.VLAN) != nil && !(hw.Boot && noVLAN) {
			n.vlan = firstVLAN + hw.VLAN
		}
		if hw.Boot {
			m.bootNIC = n.id
		}
		m.nics = append(m.nics, n)
	}
	s.defaultLinks(m)
	if b := m.bootInterface(); b != nil && b.vlan != 0 && s.take(m, "auto_link_duplicate", "stage:commissioning") != nil {
		b.links = append(b.links, s.newLink("auto", b.vlan-firstVLAN))
	}
}

func (s *Server) defaultLinks(m *machine) {
	boot := m.bootInterface()
	for _, n := range m.nics {
		n.links = nil
		switch {
		case n.vlan == 0:
		case n == boot:
			n.links = []*link{s.newLink("auto", n.vlan-firstVLAN)}
		default:
			n.links = []*link{s.newLink("link_up", n.vlan-firstVLAN)}
		}
	}
}

func (s *Server) newLink(mode string, subnet int) *link {
	return &link{id: s.nextID("link"), mode: mode, subnet: subnet}
}

// claimAddresses gives every AUTO link its address at deploy.
func (c *call) claimAddresses(m *machine) *reply {
	s := c.s
	if s.take(m, "ip_exhaustion", "deploy") != nil {
		return text(503, "%s", noAddresses)
	}
	for _, n := range m.nics {
		for _, l := range n.links {
			if l.mode != "auto" || l.ip != "" {
				continue
			}
			ip, ok := s.freeIP(l.subnet)
			if !ok {
				return text(503, "%s", noAddresses)
			}
			l.ip = ip
		}
	}
	return nil
}

// freeAddresses gives AUTO addresses back; the links stay.
func (s *Server) freeAddresses(m *machine) {
	for _, n := range m.nics {
		for _, l := range n.links {
			if l.mode == "auto" {
				l.ip = ""
			}
		}
	}
}

func (s *Server) usedIPs() map[string]bool {
	used := map[string]bool{}
	for _, m := range s.machines {
		for _, n := range m.nics {
			for _, l := range n.links {
				used[l.ip] = true
			}
		}
	}
	for _, n := range s.opt.Networks {
		used[n.Gateway] = true
	}
	return used
}

// freeIP takes the lowest free address after the first 10 of a subnet.
func (s *Server) freeIP(subnet int) (string, bool) {
	net := s.network(subnet)
	if net == nil {
		return "", false
	}
	prefix, err := netip.ParsePrefix(net.CIDR)
	if err != nil {
		return "", false
	}
	used := s.usedIPs()
	ip := prefix.Masked().Addr()
	for range 10 {
		ip = ip.Next()
	}
	for ip = ip.Next(); prefix.Contains(ip); ip = ip.Next() {
		if !prefix.Contains(ip.Next()) {
			break // broadcast
		}
		if !used[ip.String()] {
			return ip.String(), true
		}
	}
	return "", false
}

// changeable refuses interface work outside the states where MAAS allows it. MAAS's text says
// "interface" twice for an update.
func (c *call) changeable(word string, further ...Status) *reply {
	if !in(c.rec.status, append(further, StatusNew, Ready, FailedTesting, Allocated, Broken)...) {
		return stateConflict("Cannot %s interface because the machine is not New, Ready, Allocated, or Broken.", word)
	}
	return nil
}

func (c *call) nic() (*nic, *reply) {
	if n := c.rec.nicByID(c.num("n")); n != nil {
		return n, nil
	}
	for _, n := range c.rec.nics { // MAAS takes the name too
		if n.name == c.vars["n"] {
			return n, nil
		}
	}
	return nil, notFound("Interface")
}

func (c *call) listInterfaces() *reply {
	out := []any{}
	for _, n := range c.rec.nics {
		out = append(out, c.s.nicJSON(c.rec, n))
	}
	return jsonReply(out)
}

func (c *call) updateInterface() *reply {
	n, bad := c.nic()
	if bad != nil {
		return bad
	}
	if bad := c.changeable("update interface", Deployed); bad != nil {
		return bad
	}
	apply := c.applyNIC
	if c.rec.status == Deployed {
		apply = c.applyDeployedNIC
	}
	if bad := apply(n); bad != nil {
		return bad
	}
	return jsonReply(c.s.nicJSON(c.rec, n))
}

// applyDeployedNIC takes the name and the MAC address only, as the form for a Deployed machine
// does; it ignores the rest.
func (c *call) applyDeployedNIC(n *nic) *reply {
	for key := range c.form {
		if key != "name" && key != "mac_address" {
			c.form.Del(key)
		}
	}
	return c.applyNIC(n)
}

// applyNIC reads the fields of a PUT.
func (c *call) applyNIC(n *nic) *reply {
	mtu, hasMTU, bad := c.intParam("mtu")
	if bad != nil {
		return bad
	}
	if hasMTU && (mtu < 552 || mtu > 65535) {
		return field("mtu", "Ensure this value is between 552 and 65535.")
	}
	vlan, hasVLAN, bad := c.intParam("vlan")
	if bad != nil {
		return bad
	}
	if hasVLAN && c.s.network(vlan-firstVLAN) == nil {
		return field("vlan", "Select a valid choice. That choice is not one of the available choices.")
	}
	enabled, bad := c.boolParam("enabled", n.enabled)
	if bad != nil {
		return bad
	}
	if name := c.form.Get("name"); name != "" {
		for _, o := range c.rec.nics {
			if o != n && o.name == name {
				return field("name", "Node '%s' already has an interface named '%s'.", c.rec.hostname, name)
			}
		}
		n.name = name
	}
	if hasMTU {
		n.mtu = mtu
	}
	if hasVLAN {
		n.vlan = vlan
	}
	n.enabled = enabled
	if c.form.Has("tags") {
		n.tags = nil
		for _, v := range c.form["tags"] {
			n.tags = append(n.tags, splitList(v)...)
		}
	}
	if mac := c.form.Get("mac_address"); mac != "" {
		n.mac = strings.ToLower(mac)
	}
	return nil
}

// addInterfaceTag works in every status.
func (c *call) addInterfaceTag() *reply {
	n, bad := c.nic()
	if bad != nil {
		return bad
	}
	tag := c.form.Get("tag")
	if tag == "" {
		return text(400, "No provided tag!")
	}
	if !slices.Contains(n.tags, tag) {
		n.tags = append(n.tags, tag)
	}
	return jsonReply(c.s.nicJSON(c.rec, n))
}
