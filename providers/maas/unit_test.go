package maas

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// TestTransportGoesStraight: a proxy of the environment would see the API key.
func TestTransportGoesStraight(t *testing.T) {
	t.Parallel()
	tr, err := newTransport("", providers.SimulatedAddresses())
	require.NoError(t, err)
	require.Nil(t, tr.Proxy)
	require.GreaterOrEqual(t, tr.TLSClientConfig.MinVersion, uint16(tls.VersionTLS12))
	require.False(t, tr.TLSClientConfig.InsecureSkipVerify)
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
