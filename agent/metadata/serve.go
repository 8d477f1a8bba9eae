package metadata

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Address is where the metadata is served on a real node. cloud-init, and what is made for EC2,
// looks there.
const Address = "169.254.169.254"

// The limits of the server. It serves the programs of a tenant, who may be hostile to the agent.
const (
	maxConnections = 16
	requestTime    = 5 * time.Second
	maxHeader      = 8 << 10
)

// Serve answers requests of this machine until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: requestTime, ReadTimeout: requestTime, WriteTimeout: requestTime, IdleTimeout: requestTime,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err := server.Serve(&localListener{Listener: l, slots: make(chan struct{}, maxConnections)})
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// localListener accepts connections of this machine alone, some at a time. The kernel takes packets
// for an address of the loopback device from any network card, so that a neighbour could connect.
// One connection too many is closed: it must not wait for a tenant who holds the others.
type localListener struct {
	net.Listener
	slots chan struct{}
}

// Accept implements net.Listener.
func (l *localListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if isLocal(c.RemoteAddr()) {
			select {
			case l.slots <- struct{}{}:
				return &slotConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
			default:
			}
		}
		_ = c.Close()
	}
}

type slotConn struct {
	net.Conn
	free func()
}

func (c *slotConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// isLocal reports whether a connection comes from an address of this machine.
func isLocal(a net.Addr) bool {
	from, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return false
	}
	if from.Addr().IsLoopback() {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return contains(own, from.Addr())
}

func contains(all []net.Addr, ip netip.Addr) bool {
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == ip.Unmap() {
			return true
		}
	}
	return false
}

const loopback = "lo"

// SetAddress gives the loopback device the address, or takes it away, and looks whether that is so.
// It changes nothing when it is so already. run starts a program of the node.
func SetAddress(ctx context.Context, run func(ctx context.Context, name string, args ...string) ([]byte, error), on bool) error {
	has, err := hasAddress()
	if err != nil || has == on {
		return err
	}
	verb := "delete"
	if on {
		verb = "replace"
	}
	_, runErr := run(ctx, "ip", "address", verb, Address+"/32", "dev", loopback)
	if has, err = hasAddress(); err == nil && has != on {
		err = fmt.Errorf("the loopback device %s the address %s after `ip address %s`", map[bool]string{true: "still has", false: "has not got"}[has], Address, verb)
	}
	if err != nil {
		return errors.Join(err, runErr)
	}
	return nil
}

func hasAddress() (bool, error) {
	lo, err := net.InterfaceByName(loopback)
	if err != nil {
		return false, fmt.Errorf("look for the loopback device: %w", err)
	}
	all, err := lo.Addrs()
	return contains(all, netip.MustParseAddr(Address)), err
}
