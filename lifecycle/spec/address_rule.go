package spec

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// AddressRule says to which addresses Slipway may connect for one purpose. The zero value refuses
// every address.
type AddressRule struct {
	// Networks are the networks that an address must be in, unless Anywhere is set.
	Networks []netip.Prefix
	Anywhere bool
	// Loopback allows loopback addresses: for simulated sites.
	Loopback bool
	// PlainHTTP allows addresses that begin with http://.
	PlainHTTP bool
	// Own are the control plane's own listeners, its database and its Temporal server. Port 0
	// stands for every port of the address.
	Own []netip.AddrPort
	// Public allows only addresses that anybody on the Internet may use, with Anywhere, and refuses
	// those of Own on every port: for addresses that a tenant names.
	Public bool
	// Refused are networks that are refused although another field allows them.
	Refused []netip.Prefix
	// Ports are the ports that are allowed; none allows every port.
	Ports []uint16
	// Also are addresses that are allowed whatever the other fields say: for the receiver of a
	// demo.
	Also []netip.AddrPort
	// Where names the networks in errors, such as "bmc_networks of site ber1".
	Where string
}

// specialNetworks returns the networks that are never a BMC, a MAAS region or a node: metadata
// services of clouds, addresses without a host, and those that hide an IPv4 address in an IPv6 one.
func specialNetworks() []netip.Prefix {
	return ParseNetworks([]string{
		"0.0.0.0/8", "240.0.0.0/4", "169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
		"fd00:ec2::254/128", "fd20:ce::254/128", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "fec0::/10",
	})
}

// publicIPv6 is the part of IPv6 that is assigned to networks of the Internet.
var publicIPv6 = netip.MustParsePrefix("2000::/3")

// privateNetworks returns the networks that are not on the Internet, by IANA's registries of
// special-purpose addresses, beside those that package netip names itself.
func privateNetworks() []netip.Prefix {
	return ParseNetworks([]string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
		"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	})
}

// isPublic reports whether anybody on the Internet may have the address.
func isPublic(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !inNetworks(privateNetworks(), ip) && (ip.Is4() || publicIPv6.Contains(ip))
}

// PublicAddresses returns the rule for addresses that a tenant names: public ones outside of the
// refused networks, on the given ports.
func PublicAddresses(refused []netip.Prefix, own []netip.AddrPort, ports []uint16) AddressRule {
	return AddressRule{Anywhere: true, Public: true, Refused: refused, Own: own, Ports: ports}
}

// Check returns an error that says why the address is refused, nil when it is allowed. Port 0
// stands for any port.
func (r AddressRule) Check(to netip.AddrPort) error {
	ip := to.Addr().Unmap()
	refused := func(format string, args ...any) error {
		return fmt.Errorf("address %s "+format, append([]any{ip}, args...)...)
	}
	switch {
	case !ip.IsValid() || ip.Zone() != "":
		return refused("is not one of the network")
	case slices.Contains(r.Also, netip.AddrPortFrom(ip, to.Port())):
		return nil
	case ip.IsLoopback() && !r.Loopback:
		return refused("is the control plane's own (loopback); only a site that is marked simulated may use it")
	case ip.IsLoopback():
	case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), inNetworks(specialNetworks(), ip):
		return refused("is a link-local, multicast, metadata or reserved one, which no equipment of a site has")
	}
	if slices.ContainsFunc(r.Own, func(own netip.AddrPort) bool {
		return own.Addr().Unmap() == ip && (own.Port() == to.Port() || own.Port() == 0 || to.Port() == 0 || r.Public)
	}) {
		return refused("is a service of the control plane itself")
	}
	switch {
	case inNetworks(r.Refused, ip):
		return refused("is in a network that is refused")
	case r.Public && !ip.IsLoopback() && !isPublic(ip):
		return refused("is not a public address of the Internet")
	case len(r.Ports) > 0 && to.Port() != 0 && !slices.Contains(r.Ports, to.Port()):
		return refused("is allowed, but not its port %d", to.Port())
	case r.Anywhere || inNetworks(r.Networks, ip):
		return nil
	case r.Where == "":
		return refused("is not in a network that is allowed")
	}
	return refused("is not in the %s", r.Where)
}

func inNetworks(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// CheckURL checks what can be told of a URL or a host without asking a name server: its scheme, and
// its host where that is an IP address.
func (r AddressRule) CheckURL(address string) error {
	scheme, host, port := SplitAddress(address)
	switch {
	case host == "":
		return fmt.Errorf("%q names no host", address)
	case scheme == "http" && !r.PlainHTTP:
		return fmt.Errorf("address %s is plain http, which shows a login to the network; use https, or mark a simulated site as simulated", host)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil //nolint:nilerr // a name is checked when it is resolved, and again when it is dialed
	}
	return r.Check(netip.AddrPortFrom(ip, port))
}

// SplitAddress splits a URL, host or host:port into its parts. The scheme is "" when the address
// names none, and the port 0 when neither address nor scheme say one.
func SplitAddress(address string) (scheme, host string, port uint16) {
	text := strings.TrimSpace(address)
	if !strings.Contains(text, "://") {
		if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
			return "", ip.String(), 0
		}
		text = "//" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", "", 0
	}
	scheme = strings.ToLower(u.Scheme)
	var n int
	if _, err := fmt.Sscanf(u.Port(), "%d", &n); err != nil || n < 1 || n > 65535 {
		n = map[string]int{"http": 80, "https": 443}[scheme]
	}
	return scheme, strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), uint16(n) //nolint:gosec // checked above
}
