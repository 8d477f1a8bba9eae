package sender_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/sender"
)

func TestNetworkText_OfAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::/64", "2001:db8::2": "2001:db8::/64",
		"2001:db8:0:1::1": "2001:db8:0:1::/64", "fe80::1%eth0": "fe80::/64", "": "", "pipe": "pipe",
	} {
		require.Equal(t, want, sender.NetworkText(addr), addr)
	}
}

func TestNetwork_OfAnInvalidAddress(t *testing.T) {
	t.Parallel()
	require.False(t, sender.Network(netip.Addr{}).IsValid())
}
