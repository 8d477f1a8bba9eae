package listener

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/internal/sender"
)

// warnEvery is how often refused connections are logged at most.
const warnEvery = time.Minute

// connections is a net.Listener that bounds the open connections of each address. It closes a
// connection over the bound at once. An IPv6 address counts as its /64.
type connections struct {
	net.Listener

	each    int
	proxies Proxies
	log     *slog.Logger

	mu     sync.Mutex
	open   map[netip.Addr]int
	warned time.Time
}

// Bound bounds the connections that l accepts of one address. Trusted proxies are not bounded: each
// of them carries the connections of many clients.
func (b Bounds) Bound(l net.Listener, log *slog.Logger) net.Listener {
	b = b.withDefaults()
	return &connections{Listener: l, each: b.AddressConns, proxies: b.Proxies, log: log, open: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, bounded := c.boundedAddress(conn)
		if !bounded {
			return conn, nil
		}
		if c.enter(from) {
			return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { c.leave(from) })}, nil
		}
		_ = conn.Close()
	}
}

// boundedAddress returns the address that a connection counts for. It returns false for a trusted
// proxy, and for what has no IP address.
func (c *connections) boundedAddress(conn net.Conn) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	addr := plain(at.Addr())
	if err != nil || c.proxies.Trusts(addr) {
		return addr, false
	}
	return sender.Network(addr).Addr(), true
}

func (c *connections) enter(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[from] >= c.each {
		if now := time.Now(); now.Sub(c.warned) > warnEvery {
			c.warned = now
			c.log.Warn("an address has as many connections as it may; further ones are closed", "address", from, "connections", c.each)
		}
		return false
	}
	c.open[from]++
	return true
}

func (c *connections) leave(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[from]--; c.open[from] <= 0 {
		delete(c.open, from)
	}
}

// countedConn leaves its place when it is closed.
type countedConn struct {
	net.Conn

	leave func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
