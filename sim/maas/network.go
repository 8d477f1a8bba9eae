package maassim

import (
	"fmt"
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

// changeable refuses interface work outside the states where MAAS allows it.
func (c *call) changeable(word string) *reply {
	if !in(c.rec.status, StatusNew, Ready, FailedTesting, Allocated, Broken) {
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

func (c *call) readInterface() *reply {
	n, bad := c.nic()
	if bad != nil {
		return bad
	}
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func (c *call) updateInterface() *reply {
	n, bad := c.nic()
	if bad != nil {
		return bad
	}
	if bad := c.changeable("update"); bad != nil {
		return bad
	}
	if bad := c.applyNIC(n); bad != nil {
		return bad
	}
	return jsonReply(c.s.nicJSON(c.rec, n))
}

// applyNIC reads the fields that creation and PUT share.
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

func (c *call) deleteInterface() *reply {
	n, bad := c.nic()
	if bad != nil {
		return bad
	}
	if bad := c.changeable("delete"); bad != nil {
		return bad
	}
	m := c.rec
	m.nics = slices.DeleteFunc(m.nics, func(o *nic) bool { return o == n })
	for _, o := range m.nics {
		o.parents = slices.DeleteFunc(o.parents, func(id int) bool { return id == n.id })
	}
	return noContent()
}

func (c *call) createPhysical() *reply {
	if bad := c.changeable("create"); bad != nil {
		return bad
	}
	mac := c.form.Get("mac_address")
	if mac == "" {
		return field("mac_address", "This field is required.")
	}
	for _, m := range c.s.machines {
		if m.nicByMAC(mac) != nil {
			return field("mac_address", "This MAC address is already in use by %s.", m.hostname)
		}
	}
	return c.addNIC(c.s.newNIC("eth"+fmt.Sprint(len(c.rec.nics)), mac))
}

func (c *call) addNIC(n *nic) *reply {
	if bad := c.applyNIC(n); bad != nil {
		return bad
	}
	c.rec.nics = append(c.rec.nics, n)
	return jsonReply(c.s.nicJSON(c.rec, n))
}

// createBond enslaves its parents: their links go.
func (c *call) createBond() *reply {
	if bad := c.changeable("create"); bad != nil {
		return bad
	}
	parents, bad := c.parents("parents")
	if bad != nil {
		return bad
	}
	if c.form.Get("name") == "" {
		return field("name", "This field is required.")
	}
	n := c.s.newNIC("", parents[0].mac)
	n.kind, n.vlan, n.params = "bond", parents[0].vlan, map[string]any{"bond_mode": "balance-rr"}
	for k, v := range c.form {
		if strings.HasPrefix(k, "bond_") {
			n.params[k] = v[0]
		}
	}
	for _, p := range parents {
		if p.vlan != n.vlan {
			return field("parents", "All parents must belong to the same VLAN.")
		}
		n.parents = append(n.parents, p.id)
	}
	out := c.addNIC(n)
	if out.code == 200 {
		for _, p := range parents {
			p.links = nil
		}
		n.links = []*link{c.s.newLink("link_up", 0)}
		out = jsonReply(c.s.nicJSON(c.rec, n))
	}
	return out
}

func (c *call) createVLAN() *reply {
	if bad := c.changeable("create"); bad != nil {
		return bad
	}
	parents, bad := c.parents("parent")
	if bad != nil {
		return bad
	}
	vlan, given, bad := c.intParam("vlan")
	if bad != nil {
		return bad
	}
	if !given {
		return field("vlan", "A VLAN interface must be connected to a tagged VLAN.")
	}
	n := c.s.newNIC(fmt.Sprintf("%s.%d", parents[0].name, vlan-firstVLAN), parents[0].mac)
	n.kind, n.vlan, n.parents = "vlan", vlan, []int{parents[0].id}
	return c.addNIC(n)
}

func (c *call) parents(key string) ([]*nic, *reply) {
	var out []*nic
	for _, v := range append(c.form[key], c.form["parents"]...) {
		for _, id := range splitList(v) {
			i := slices.IndexFunc(c.rec.nics, func(n *nic) bool { return fmt.Sprint(n.id) == id })
			if i < 0 {
				return nil, field(key, "Select a valid choice. %s is not one of the available choices.", id)
			}
			if !slices.Contains(out, c.rec.nics[i]) {
				out = append(out, c.rec.nics[i])
			}
		}
	}
	if len(out) == 0 {
		return nil, field(key, "This field is required.")
	}
	return out, nil
}

func (c *call) addInterfaceTag() *reply    { return c.tagNIC(true) }
func (c *call) removeInterfaceTag() *reply { return c.tagNIC(false) }

func (c *call) tagNIC(add bool) *reply {
	n, bad := c.nic()
	if bad != nil {
		return bad
	}
	n.tags, bad = c.retag(n.tags, add)
	if bad != nil {
		return bad
	}
	return jsonReply(c.s.nicJSON(c.rec, n))
}

func (c *call) restoreNetworking() *reply {
	m := c.rec
	if bad := c.restorable(); bad != nil {
		return bad
	}
	m.nics = slices.DeleteFunc(m.nics, func(n *nic) bool { return n.kind != "physical" })
	m.gateway4 = 0
	if m.hw != nil {
		for _, hw := range m.hw.Spec().NICs {
			if n := m.nicByMAC(hw.MAC); n != nil && c.s.network(hw.VLAN) != nil {
				n.vlan = firstVLAN + hw.VLAN
			}
		}
	}
	c.s.defaultLinks(m)
	return jsonReply(c.s.machineJSON(m))
}
