package maas

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTransportGoesStraight: a proxy of the environment would see the API key.
func TestTransportGoesStraight(t *testing.T) {
	t.Parallel()
	tr, err := newTransport("")
	require.NoError(t, err)
	require.Nil(t, tr.Proxy)
	require.GreaterOrEqual(t, tr.TLSClientConfig.MinVersion, uint16(tls.VersionTLS12))
	require.False(t, tr.TLSClientConfig.InsecureSkipVerify)
}

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
		require.True(t, sameBMC(same[0], same[1]), same)
		require.True(t, sameBMC(same[1], same[0]), same)
	}
	for _, other := range [][2]string{
		{"10.0.0.1", "10.0.0.2"}, {"127.0.0.1:8001", "127.0.0.1:8002"}, {"qemu:///system", "https://"}, {"", ""},
	} {
		require.False(t, sameBMC(other[0], other[1]), other)
	}
}

func TestRetryAfterForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, " 10 ": 10 * time.Second, "-3": 0, "x": 0, "99999999": time.Hour, "9999999999999999999": 0,
		"Sat, 21 Nov 2026 01:00:30 GMT": 30 * time.Second, "Sat, 21 Nov 2026 00:00:30 GMT": 0,
	} {
		require.Equal(t, want, parseRetryAfter(in, now), in)
	}
}

func TestSyncTime(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 11, 21, 1, 2, 3, 456e6, time.UTC)
	for _, in := range []string{"2026-11-21T01:02:03.456Z", "2026-11-21T01:02:03.456+00:00", "2026-11-21T01:02:03.456", "2026-11-21T03:02:03.456+02:00"} {
		require.Equal(t, want, syncTime(in), in)
	}
	require.True(t, syncTime("").IsZero())
	require.True(t, syncTime("Sat, 21 Nov 2026").IsZero())
}

func TestBoundedKeepsRunesWhole(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a...", bounded("aéé", 2))
	require.Equal(t, "aé", bounded("aé", 3))
}
