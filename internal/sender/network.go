// Package sender says which addresses count as one sender where a limit is for each sender.
package sender

import "net/netip"

// hostBits is the length of the part of an IPv6 address that a host chooses by itself: within its
// /64 it may have any number of addresses.
const hostBits = 64

// Network returns the network that counts as one sender: an IPv4 address by itself, and the /64 of
// an IPv6 address. It drops a zone, and takes an IPv4 address that is written as IPv6 as IPv4. The
// network of an invalid address is invalid.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits -= hostBits
	}
	return netip.PrefixFrom(addr, bits).Masked()
}

// NetworkText returns the text of the network of an address: an IPv4 address without a length, and
// the /64 of an IPv6 address. A text that is no address is returned as it is.
func NetworkText(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return addr
	}
	n := Network(ip)
	if n.IsSingleIP() {
		return n.Addr().String()
	}
	return n.String()
}
