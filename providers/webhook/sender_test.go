package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"code.dny.dev/ssrf"
	cloudevents "github.com/cloudevents/sdk-go/v2"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/nameserver"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// loopbackRule is the rule of tenants' addresses with the loopback addresses that tests use.
func loopbackRule() spec.AddressRule {
	r := spec.PublicAddresses(nil, nil, nil)
	r.Loopback = true
	return r
}

func newEndpoint(t *testing.T, h http.HandlerFunc) (*httptest.Server, Options) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the server notices the end of a connection only after the body
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		h(w, r)
	}))
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, Options{Rule: loopbackRule(), Roots: roots, Limit: runenv.Patience(5 * time.Second)}
}

func newMessage(url string, secrets ...providers.Secret) Message {
	at := time.Date(2026, 11, 23, 4, 5, 6, 7000, time.UTC)
	return Message{URL: url, Secrets: secrets, Event: NewEvent("proj_1", "evt_1", "member.added", "members/mem_1", at, 42, json.RawMessage(`{"role":"owner"}`))}
}

func send(t *testing.T, o Options, m Message) Result {
	t.Helper()
	s := NewSession(o)
	defer s.Close()
	r, err := s.Send(t.Context(), m)
	require.NoError(t, err)
	return r
}

func TestSend_IsVerifiedByOtherLibraries(t *testing.T) {
	t.Parallel()
	current, previous := NewSecret(), NewSecret()
	received := make(chan error, 1)
	server, o := newEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var found error
		for _, secret := range []providers.Secret{current, previous} {
			verifier, err := standardwebhooks.NewWebhook(secret.Reveal())
			if err == nil {
				err = verifier.Verify(body, r.Header)
			}
			if err != nil {
				found = err
			}
		}
		event, err := cloudevents.NewEventFromHTTPRequest(&http.Request{Header: r.Header, Body: io.NopCloser(strings.NewReader(string(body)))})
		if err == nil {
			err = event.Validate()
		}
		if err == nil && (event.ID() != r.Header.Get(HeaderID) || event.Type() != "cloud.slipway.member.added.v1" || event.Source() != "/projects/proj_1" ||
			event.Subject() != "members/mem_1" || event.Extensions()["sequence"] != "42" || string(event.Data()) != `{"role":"owner"}`) {
			err = io.ErrUnexpectedEOF
		}
		if found == nil {
			found = err
		}
		received <- found
	})
	r := send(t, o, newMessage(server.URL+"/hook", current, previous))
	require.True(t, r.Delivered(), r.Reason)
	require.NoError(t, <-received)
}

func TestSend_BadSecretIsNotSent(t *testing.T) {
	t.Parallel()
	server, o := newEndpoint(t, func(http.ResponseWriter, *http.Request) { t.Error("nothing may be sent") })
	s := NewSession(o)
	defer s.Close()
	_, err := s.Send(t.Context(), newMessage(server.URL, providers.NewSecret("whsec_!!!")))
	require.ErrorContains(t, err, "rotate it")
	require.NotContains(t, err.Error(), "!!!")
}

func TestSend_Answers(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		200: "", 204: "", 302: "redirects are not followed", 307: "redirects are not followed", 410: "answered 410", 429: "answered 429", 500: "answered 500",
	} {
		var calls atomic.Int32
		server, o := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.Header().Set("Location", "https://169.254.169.254/latest/meta-data/")
			w.Header().Set("Retry-After", "99999999")
			w.WriteHeader(status)
		})
		r := send(t, o, newMessage(server.URL, NewSecret()))
		require.Equal(t, status, r.Status)
		require.Equal(t, want == "", r.Delivered())
		require.Contains(t, r.Reason, want)
		require.Equal(t, status == 410, r.Gone())
		require.EqualValues(t, 1, calls.Load(), "a redirect is not followed")
		if !r.Delivered() && status >= 400 {
			require.Equal(t, time.Hour, r.RetryAfter, "an endpoint cannot park its queue for ever")
		}
	}
}

func TestSend_EndlessBodyIsCut(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	ended := make(chan struct{})
	server, o := newEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		block := make([]byte, 32<<10)
		for r.Context().Err() == nil {
			n, err := w.Write(block)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	r := send(t, o, newMessage(server.URL, NewSecret()))
	require.True(t, r.Delivered(), "the status decides")
	select {
	case <-ended:
	case <-time.After(runenv.Patience(20 * time.Second)):
		t.Fatal(runenv.Deadline + ": the endless answer was not cut")
	}
	require.Less(t, sent.Load(), int64(64<<20), "what the kernel buffered, and no more")
}

func TestSend_SlowBodyHoldsNobody(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	server, o := newEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	o.Limit = time.Hour
	require.True(t, send(t, o, newMessage(server.URL, NewSecret())).Delivered())
	<-ended
}

func TestSend_SilentEndpointMeetsDeadline(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}) // the request's context ends with the connection, and the answer might still be read then
	server, o := newEndpoint(t, func(http.ResponseWriter, *http.Request) { <-ended })
	t.Cleanup(func() { close(ended) })
	o.Limit = 300 * time.Millisecond
	r := send(t, o, newMessage(server.URL, NewSecret()))
	require.Contains(t, r.Reason, "did not answer within")
}

func TestSend_LargeHeaderIsRefused(t *testing.T) {
	t.Parallel()
	server, o := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeader))
		w.WriteHeader(http.StatusOK)
	})
	require.False(t, send(t, o, newMessage(server.URL, NewSecret())).Delivered())
}

func TestSend_RefusesOldTLSAndUnknownAuthority(t *testing.T) {
	t.Parallel()
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} //nolint:gosec // the server that is refused
	old.StartTLS()
	t.Cleanup(old.Close)
	roots := x509.NewCertPool()
	roots.AddCert(old.Certificate())
	require.Contains(t, send(t, Options{Rule: loopbackRule(), Roots: roots}, newMessage(old.URL, NewSecret())).Reason, "connection")
	server, o := newEndpoint(t, func(http.ResponseWriter, *http.Request) { t.Error("an unknown authority") })
	o.Roots = x509.NewCertPool()
	require.Contains(t, send(t, o, newMessage(server.URL, NewSecret())).Reason, "certificate")
}

// A name that resolves to another address later is checked at each connection.
func TestSend_RebindingIsRefused(t *testing.T) {
	t.Parallel()
	var calls, asked atomic.Int32
	server, o := newEndpoint(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	refused := netip.MustParseAddr("127.0.0.9")
	o.Rule.Refused = []netip.Prefix{netip.PrefixFrom(refused, 32)}
	o.Resolver = nameserver.NewResolver(t, func() netip.Addr {
		if asked.Add(1) == 1 {
			return netip.MustParseAddr("127.0.0.1")
		}
		return refused
	})
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	m := newMessage("https://example.com"+port+"/", NewSecret())
	require.True(t, send(t, o, m).Delivered(), "the first answer is allowed")
	r := send(t, o, m)
	require.Equal(t, "the host has no public address that can be used", r.Reason)
	require.NotContains(t, r.Reason, "127.")
	require.EqualValues(t, 1, calls.Load())
}

// The product's rule connects to nothing on this machine, whatever a name says.
func TestSend_PrivateAddressesAreNotConnectedTo(t *testing.T) {
	t.Parallel()
	server, o := newEndpoint(t, func(http.ResponseWriter, *http.Request) { t.Error("a private address was reached") })
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	o.Rule = spec.PublicAddresses(nil, nil, nil)
	for _, address := range []string{"127.0.0.1", "0.0.0.0", "10.0.0.1", "169.254.169.254"} {
		o.Resolver = nameserver.NewResolver(t, func() netip.Addr { return netip.MustParseAddr(address) })
		require.Contains(t, send(t, o, newMessage("https://example.com"+port+"/", NewSecret())).Reason, "no public address", address)
	}
	for _, host := range []string{"[::ffff:127.0.0.1]", "[::1]", "127.0.0.1", "[::ffff:a00:1]", "[64:ff9b::7f00:1]", "localhost"} {
		require.Contains(t, send(t, o, newMessage("https://"+host+port+"/", NewSecret())).Reason, "not allowed", host)
	}
}

func TestRule_OwnAndRefusedAddresses(t *testing.T) {
	t.Parallel()
	own := []netip.AddrPort{netip.MustParseAddrPort("9.9.9.9:5432")}
	rule := spec.PublicAddresses(spec.ParseNetworks([]string{"8.8.8.0/24"}), own, []uint16{443})
	for address, allowed := range map[string]bool{
		"1.1.1.1:443": true, "[2606:4700::1111]:443": true, "1.1.1.1:8443": false, "8.8.8.8:443": false, "9.9.9.9:443": false,
		"[::ffff:8.8.8.8]:443": false, "[::ffff:1.1.1.1]:443": true, "10.1.1.1:443": false, "[fe80::1]:443": false,
	} {
		require.Equal(t, allowed, rule.Check(netip.MustParseAddrPort(address)) == nil, address)
	}
}

// FuzzPublicAddresses compares the rule with another implementation of IANA's registries.
func FuzzPublicAddresses(f *testing.F) {
	for _, text := range []string{
		"8.8.8.8", "100.64.0.1", "192.0.2.1", "198.18.0.1", "240.0.0.1", "255.255.255.255", "0.1.2.3", "169.254.169.254", "224.0.0.1", "::", "::1",
		"::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "fc00::1", "fe80::1", "ff02::1", "100::1",
		"2606:4700::1111", "4000::1", "5f00::1", "192.88.99.1", "2620:4f:8000::1",
	} {
		ip := netip.MustParseAddr(text)
		f.Add(ip.AsSlice())
	}
	oracle := ssrf.New(ssrf.WithAnyPort())
	rule := spec.PublicAddresses(nil, nil, nil)
	f.Fuzz(func(t *testing.T, raw []byte) {
		ip, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		to := netip.AddrPortFrom(ip.Unmap(), 443)
		network := map[bool]string{true: "tcp4", false: "tcp6"}[to.Addr().Is4()]
		ours, theirs := rule.Check(netip.AddrPortFrom(ip, 443)), oracle.Safe(network, to.String(), nil)
		if ours == nil && theirs != nil {
			t.Fatalf("%s is allowed; the other implementation says %v", ip, theirs)
		}
		if ours != nil && theirs == nil && !newerThanOracle(ip.Unmap()) {
			t.Fatalf("%s is refused (%v); the other implementation allows it", ip, ours)
		}
	})
}

// newerThanOracle reports addresses that only our list has: a cloud's metadata service, and the
// documentation addresses of RFC 9637.
func newerThanOracle(ip netip.Addr) bool {
	return ip == netip.MustParseAddr("168.63.129.16") || netip.MustParsePrefix("3fff::/20").Contains(ip)
}

func FuzzWebhookURL(f *testing.F) {
	for _, text := range []string{
		"https://hooks.example.com/x?y=z", "http://example.com", "https://user@example.com", "https://localhost", "https://2130706433", "https://0x7f.0.0.1",
		"https://[::1]", "https://example.com:22", "https://example.com#x", "https://exa\nmple.com", "https://example.com\\@127.0.0.1", "https://xn--bcher-kva.example",
	} {
		f.Add(text)
	}
	rule := spec.PublicAddresses(nil, nil, []uint16{443})
	f.Fuzz(func(t *testing.T, text string) {
		if rule.CheckWebhookURL(text) != nil {
			return
		}
		req, err := http.NewRequest(http.MethodPost, text, nil) //nolint:noctx // it is never sent
		require.NoError(t, err, "what is stored can be sent")
		require.Equal(t, "https", req.URL.Scheme)
		require.Nil(t, req.URL.User)
		require.Contains(t, []string{"", "443"}, req.URL.Port())
		host := strings.TrimSuffix(strings.ToLower(req.URL.Hostname()), ".")
		if ip, err := netip.ParseAddr(host); err == nil {
			require.NoError(t, rule.Check(netip.AddrPortFrom(ip, 443)))
		} else {
			require.Contains(t, host, ".")
			require.NotRegexp(t, `[^a-z0-9._-]`, host)
		}
	})
}
