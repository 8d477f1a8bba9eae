package freeport_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/freeport"
)

// TestFind: a server may listen on the port, and the system gives it to nobody who asks for any
// port.
func TestFind(t *testing.T) {
	t.Parallel()
	port, err := freeport.Find(t.Context())
	require.NoError(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	anyPort, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer anyPort.Close() //nolint:errcheck // the test ends
	require.Greater(t, anyPort.Addr().(*net.TCPAddr).Port, 32000)
	require.Less(t, port, 32000)
}
