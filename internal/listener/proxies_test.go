package listener_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/listener"
)

// TestProxies_Client: only a trusted proxy says who its client is, and of a chain the right-most
// address that is no trusted proxy counts.
func TestProxies_Client(t *testing.T) {
	t.Parallel()
	trusted := listener.Proxies{netip.MustParsePrefix("10.30.0.0/28"), netip.MustParsePrefix("2001:db8:30::/64")}
	for name, c := range map[string]struct {
		peer   string
		header []string
		want   string
	}{
		"forged by an unknown machine":       {"198.51.100.7:1234", []string{"203.0.113.1"}, "198.51.100.7:1234"},
		"forged by an unknown machine, IPv6": {"[2001:db8:31::7]:1234", []string{"203.0.113.1"}, "[2001:db8:31::7]:1234"},
		"one proxy":                          {"10.30.0.2:1234", []string{"203.0.113.1"}, "203.0.113.1:0"},
		"what the client wrote is left":      {"10.30.0.2:1234", []string{"127.0.0.1, 10.30.0.9, 203.0.113.1"}, "203.0.113.1:0"},
		"a chain of proxies":                 {"10.30.0.2:1234", []string{"192.0.2.1, 203.0.113.1, 10.30.0.3"}, "203.0.113.1:0"},
		"several headers are one list":       {"10.30.0.2:1234", []string{"192.0.2.1", "203.0.113.1", "10.30.0.3"}, "203.0.113.1:0"},
		"IPv6":                               {"[2001:db8:30::1]:1234", []string{"2001:db8:99::5"}, "[2001:db8:99::5]:0"},
		"IPv6 with a port":                   {"10.30.0.2:1234", []string{"[2001:db8:99::5]:4711"}, "[2001:db8:99::5]:0"},
		"IPv6 in brackets":                   {"10.30.0.2:1234", []string{"[2001:db8:99::5]"}, "[2001:db8:99::5]:0"},
		"IPv4 with a port":                   {"10.30.0.2:1234", []string{"203.0.113.1:4711"}, "203.0.113.1:0"},
		"IPv4 as IPv6":                       {"[::ffff:10.30.0.2]:1234", []string{"::ffff:203.0.113.1"}, "203.0.113.1:0"},
		"no header":                          {"10.30.0.2:1234", nil, "10.30.0.2:1234"},
		"no address":                         {"10.30.0.2:1234", []string{"203.0.113.1, unknown"}, "10.30.0.2:1234"},
		"no address before another proxy":    {"10.30.0.2:1234", []string{"203.0.113.1, _hidden, 10.30.0.3"}, "10.30.0.3:0"},
		"proxies alone":                      {"10.30.0.2:1234", []string{"10.30.0.4, 10.30.0.3"}, "10.30.0.4:0"},
		"more proxies than are read":         {"10.30.0.2:1234", []string{"203.0.113.1" + strings.Repeat(", 10.30.0.3", 40)}, "10.30.0.3:0"},
	} {
		var got string
		h := trusted.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("X-Real-Ip", "192.0.2.99")
		r.Header.Set("Forwarded", "for=192.0.2.99")
		for _, h := range c.header {
			r.Header.Add("X-Forwarded-For", h)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, c.want, got, name)
	}
}

// TestBounds_ClientBehindProxy: every server of the package tells its handler the client's address.
func TestBounds_ClientBehindProxy(t *testing.T) {
	t.Parallel()
	for want, proxies := range map[string]listener.Proxies{"203.0.113.1:0": {netip.MustParsePrefix("127.0.0.0/8")}, "127.0.0.1:": nil} {
		address := serve(t, listener.Bounds{Proxies: proxies}, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
		res, err := send(t, address, "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.1\r\n\r\n")
		require.NoError(t, err)
		require.Contains(t, body(t, res), want)
	}
}
