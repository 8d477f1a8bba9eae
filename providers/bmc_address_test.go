package providers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBMCHost(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "10.0.0.1:443": "10.0.0.1", "https://10.0.0.1:443/redfish/v1": "10.0.0.1",
		"[fd00::1]:443": "fd00::1", "https://[FD00:0::1]/": "fd00::1", "fd00::1": "fd00::1", "::ffff:10.0.0.1": "10.0.0.1",
		"BMC-1.Example.": "bmc-1.example", "https://u:p@bmc/": "bmc", " ": "",
	} {
		host, _ := bmcHost(in)
		require.Equal(t, want, host, in)
	}
}

func TestSameBMC(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{"10.0.0.1", "https://10.0.0.1:443/redfish/v1"}, {"10.0.0.1:8443", "10.0.0.1"}, {"https://10.0.0.1:8443", "10.0.0.1:8443"}, {"[fd00::1]:443", "FD00::1"},
	} {
		require.True(t, SameBMC(same[0], same[1]), same)
		require.True(t, SameBMC(same[1], same[0]), same)
	}
	for _, other := range [][2]string{
		{"10.0.0.1", "10.0.0.2"}, {"127.0.0.1:8001", "127.0.0.1:8002"}, {"qemu:///system", "https://"}, {"", ""},
	} {
		require.False(t, SameBMC(other[0], other[1]), other)
	}
}
