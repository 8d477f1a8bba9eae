package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestKnownHostsLine_NamesTheHost: the line begins with the pattern by which OpenSSH finds the
// host, with the port where it is not the usual one.
func TestKnownHostsLine_NamesTheHost(t *testing.T) {
	t.Parallel()
	require.Equal(t, "127.0.0.9 ssh-ed25519 AAAA", lifecycle.KnownHostsLine("127.0.0.9", 22, "ssh-ed25519 AAAA"))
	require.Equal(t, "[127.0.0.9]:2222 ssh-ed25519 AAAA", lifecycle.KnownHostsLine("127.0.0.9", 2222, "ssh-ed25519 AAAA"))
}
