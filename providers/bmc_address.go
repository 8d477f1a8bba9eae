package providers

import (
	"net"
	"net/netip"
	"strings"
)

// SameBMC compares two spellings of a BMC address (URL, host, host:port, IPv6
// in brackets). A port that only one of them names does not tell them apart.
func SameBMC(a, b string) bool {
	hostA, portA := bmcHost(a)
	hostB, portB := bmcHost(b)
	return hostA != "" && hostA == hostB && (portA == portB || portA == "" || portB == "")
}

// bmcHost reduces an address to its bare host and its port, "" when not named.
func bmcHost(v string) (host, port string) {
	v = strings.ToLower(strings.TrimSpace(v))
	if _, rest, ok := strings.Cut(v, "://"); ok {
		v = rest
	}
	v, _, _ = strings.Cut(v, "/")
	if _, after, ok := strings.Cut(v, "@"); ok {
		v = after
	}
	if h, p, err := net.SplitHostPort(v); err == nil {
		v, port = h, p
	}
	v = strings.TrimSuffix(strings.Trim(v, "[]"), ".")
	if a, err := netip.ParseAddr(v); err == nil {
		return a.Unmap().String(), port
	}
	return v, port
}
