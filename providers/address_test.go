package providers_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// TestNewDialer_ChecksTheAddressThatItConnectsTo: a name that was checked before resolves to
// loopback when the connection is made.
func TestNewDialer_ChecksTheAddressThatItConnectsTo(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	for name, rule := range map[string]spec.AddressRule{"no rule": {}, "anywhere": {Anywhere: true}} {
		for _, network := range []string{"tcp", "udp"} {
			_, err := providers.NewDialer(rule, time.Minute).DialContext(t.Context(), network, "localhost:"+port)
			require.True(t, providers.IsRefusedAddress(err), "%s, %s: %v", name, network, err)
			require.Equal(t, providers.KindInvalid, providers.KindOf(err))
		}
	}
	conn, err := providers.NewDialer(providers.SimulatedAddresses(), time.Minute).DialContext(t.Context(), "tcp", "localhost:"+port)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}
