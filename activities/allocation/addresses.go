package allocation

import (
	"net/netip"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// addAddresses adds the first address of each kind, and the first MAC.
func addAddresses(doc *spec.InstanceMetadata, addresses, macs []string) {
	for _, text := range addresses {
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case ip.Is6() && !ip.Is4In6():
			setFirst(&doc.IPv6, text)
		case ip.IsPrivate() || ip.IsLoopback():
			setFirst(&doc.LocalIPv4, text)
		default:
			setFirst(&doc.PublicIPv4, text)
		}
	}
	if len(macs) > 0 {
		doc.MAC = macs[0]
	}
}

func setFirst(into *string, text string) {
	if *into == "" {
		*into = text
	}
}
