package listener

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of the reverse proxies that a server trusts. The header X-Forwarded-For
// of a request counts only when the connection comes from one of them.
type Proxies []netip.Prefix

// forwardedFor is the header in which a proxy appends the address that it was called from. Other
// headers for it, such as Forwarded and X-Real-IP, are ignored.
const forwardedFor = "X-Forwarded-For"

// maxHops bounds the addresses of the header that are read, from its end.
const maxHops = 32

// Trusts reports whether an address is that of a trusted proxy.
func (p Proxies) Trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// Handler serves next with the address of the client as the RemoteAddr of the request, so that rate
// limits, allowed networks and the audit log see the client and not the proxy.
func (p Proxies) Handler(next http.Handler) http.Handler {
	if len(p) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client, ok := p.client(r); ok {
			r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
		}
		next.ServeHTTP(w, r)
	})
}

// client returns the address of the client of a request that came through a trusted proxy: the
// right-most address of X-Forwarded-For that is no trusted proxy. A client can write what it likes
// to the left of that. It returns false when the request did not come through a trusted proxy, or
// the proxy names no client.
func (p Proxies) client(r *http.Request) (netip.Addr, bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.Trusts(plain(peer.Addr())) {
		return netip.Addr{}, false
	}
	hops := strings.Split(strings.Join(r.Header.Values(forwardedFor), ","), ",")
	client, named := netip.Addr{}, false
	for i, hop := range slices.Backward(hops) {
		addr, ok := parseHop(hop)
		if !ok || len(hops)-i > maxHops {
			break // the last trusted proxy before it is all that is known
		}
		client, named = addr, true
		if !p.Trusts(addr) {
			break
		}
	}
	return client, named
}

// parseHop reads one member of X-Forwarded-For: an address, or an address with a port.
func parseHop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return plain(addr), err == nil
}

// plain returns an address without a zone, and an IPv4 address that is written as IPv6 as IPv4.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }
