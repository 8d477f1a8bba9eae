package providers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Resolver resolves a host name; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// LookupLimit bounds one question to a name server.
const LookupLimit = 5 * time.Second

// CheckAddress resolves a URL, host or host:port and checks every address that it resolves to.
func CheckAddress(ctx context.Context, resolver Resolver, rule spec.AddressRule, address string) error {
	const op = "secrets.address"
	if err := rule.CheckURL(address); err != nil {
		return refusedAddress(op, err)
	}
	_, host, port := spec.SplitAddress(address)
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, LookupLimit)
	defer cancel()
	found, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(found) == 0 {
		return &Error{Kind: KindUnreachable, Op: op, Message: "the name " + host + " cannot be resolved; correct it, or give an IP address", Err: err}
	}
	for _, ip := range found {
		if err := rule.Check(netip.AddrPortFrom(ip, port)); err != nil {
			return refusedAddress(op, fmt.Errorf("%s resolves to one that is refused: %w", host, err))
		}
	}
	return nil
}

// NewDialer returns a dialer that refuses every address that the rule does not allow, when it
// connects: whatever a name resolved to before. A refusal is an *Error of KindInvalid.
func NewDialer(rule spec.AddressRule, timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err == nil {
			err = rule.Check(to)
		}
		if err != nil {
			return refusedAddress("address.dial", err)
		}
		return nil
	}}
}

func refusedAddress(op string, reason error) error {
	return &Error{Kind: KindInvalid, Op: op, Message: reason.Error(), Err: errRefusedAddress}
}

// errRefusedAddress is the cause of every refused address.
var errRefusedAddress = errors.New("refused address")

// IsRefusedAddress reports whether nothing was sent because the rule does not allow the address.
func IsRefusedAddress(err error) bool { return errors.Is(err, errRefusedAddress) }

// SimulatedAddresses returns the rule of simulated equipment: loopback alone, plain HTTP too.
func SimulatedAddresses() spec.AddressRule {
	return spec.AddressRule{Networks: spec.ParseNetworks([]string{"127.0.0.0/8", "::1/128"}), Loopback: true, PlainHTTP: true}
}
