package redfish

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// otherHost stands for the host a hostile BMC points to.
func otherHost(t *testing.T) (string, func() int) {
	t.Helper()
	s := &stub{t: t, hooks: map[string]http.HandlerFunc{}, res: map[string]map[string]any{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL, func() int { return len(s.requests("")) }
}

func TestAddressesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"", "ftp://x", "https://u:" + testPassword + "@x", "https://x/redfish", "x:notaport", "https://", "https://x?y=1"} {
		_, err := Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: a})
		requireKind(t, err, providers.KindInvalid)
	}
	for in, want := range map[string]string{
		"bmc.example:8443": "https://bmc.example:8443", "10.0.0.1": "https://10.0.0.1:443",
		"http://[::1]:80": "http://[::1]:80", "HTTPS://BMC.Example/": "https://bmc.example:443",
	} {
		o, err := parseAddress(in)
		require.NoError(t, err, in)
		require.Equal(t, want, o.String())
	}
	_, err := Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: "x", PinSHA256: "abcd"})
	requireKind(t, err, providers.KindInvalid)
	_, err = Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: "x", CAPEM: "no certificate"})
	requireKind(t, err, providers.KindInvalid)
}

func TestLinksStayOnTheBMC(t *testing.T) {
	t.Parallel()
	o, err := parseAddress("https://bmc.example")
	require.NoError(t, err)
	for in, want := range map[string]string{
		"/redfish/v1/Systems/1": "/redfish/v1/Systems/1", "https://BMC.example:443/a?b=c": "/a?b=c",
		"//bmc.example/a": "/a", "/a#/Fans/0": "/a", "/Drives/Disk.Bay.1:Enclosure 0": "/Drives/Disk.Bay.1:Enclosure%200",
	} {
		got, err := o.path(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got)
	}
	for _, in := range []string{"", "@evil/x", "https://evil/x", "http://bmc.example/a", "https://bmc.example:444/a", "//evil/x",
		"https://u@bmc.example/a", "javascript:x", "relative", ":8080@evil/", "/a\x00b"} {
		_, err := o.path(in)
		requireKind(t, err, providers.KindForeign)
	}
}

func TestRedirectIsRefusedAndNothingLeaves(t *testing.T) {
	t.Parallel()
	evil, visits := otherHost(t)
	s := newStub(t)
	s.on("GET "+sysURI, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, evil+"/x", http.StatusTemporaryRedirect)
	})
	_, err := s.open().Power(t.Context())
	requireKind(t, err, providers.KindForeign)
	require.Zero(t, visits())
}

func TestForeignLinksAreRefused(t *testing.T) {
	t.Parallel()
	evil, visits := otherHost(t)
	for _, link := range []string{"@" + strings.TrimPrefix(evil, "http://") + "/x", evil + "/x"} {
		s := newStub(t)
		s.put("/redfish/v1/Systems", collection(link))
		_, err := s.open().Power(t.Context())
		requireKind(t, err, providers.KindForeign)
	}
	require.Zero(t, visits())
}

// The guard holds the line even if gofish is handed a foreign path itself.
func TestGuardRefusesAnotherHostByItself(t *testing.T) {
	t.Parallel()
	evil, visits := otherHost(t)
	s := newStub(t)
	b := s.open()
	_, err := b.Power(t.Context())
	require.NoError(t, err)
	c := &call{op: newOperation("test", 9)}
	_, err = b.conn.client.WithContext(withCall(t.Context(), c)).Get("@" + strings.TrimPrefix(evil, "http://") + "/x") //nolint:bodyclose // the guard refuses it: there is no body
	requireKind(t, err, providers.KindForeign)
	_, err = b.conn.client.WithContext(t.Context()).Get(sysURI) //nolint:bodyclose // the same
	requireKind(t, err, providers.KindProtocol)
	require.Zero(t, visits())
}

func TestNoProxyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	require.Nil(t, newStub(t).open().conn.guard.transport.Proxy)
}

func TestNextLinkLoopEnds(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	loop := collection(sysURI)
	loop["Members@odata.nextLink"] = "/redfish/v1/Systems"
	s.put("/redfish/v1/Systems", loop)
	_, err := s.open().Power(t.Context())
	requireKind(t, err, providers.KindProtocol)
	require.LessOrEqual(t, len(s.requests("GET /redfish/v1/Systems")), 2)
}

func TestEndlessNewPagesEndByBudget(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("GET /redfish/v1/Systems", func(w http.ResponseWriter, r *http.Request) {
		c := collection(sysURI)
		c["Members@odata.nextLink"] = "/redfish/v1/Systems?p=" + r.URL.RawQuery
		reply(w, http.StatusOK, c)
	})
	o := fast()
	o.MaxRequests = 10
	_, err := openTarget(t, s.target(), o).Power(t.Context())
	requireKind(t, err, providers.KindTooBig)
	require.LessOrEqual(t, len(s.requests("")), 11)
}

func TestBodyCap(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("GET "+sysURI, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 70_000)) })
	o := fast()
	o.MaxBody = 64 << 10
	_, err := openTarget(t, s.target(), o).Power(t.Context())
	requireKind(t, err, providers.KindTooBig)
}

func TestHangInBodyAndWrongJSON(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	s.on("GET "+sysURI, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("{"))
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	o := fast()
	o.RequestTimeout = 50 * time.Millisecond
	started := time.Now()
	_, err := openTarget(t, s.target(), o).Power(t.Context())
	requireKind(t, err, providers.KindUnreachable)
	require.Less(t, time.Since(started), runenv.Patience(5*time.Second), runenv.Deadline+"it took too long")

	s.on("GET "+sysURI, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>" + testPassword)) })
	_, err = s.open().Power(t.Context())
	requireKind(t, err, providers.KindProtocol)
}

func TestRootThatIsNotRedfish(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"<html>", "[]", "{}", `"x"`} {
		s := newStub(t)
		s.on("GET /redfish/v1", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		_, err := s.open().Probe(t.Context())
		requireKind(t, err, providers.KindProtocol)
	}
}

func TestPinMismatchStopsBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	address, pin := s.tls()
	target := s.target()
	target.Address = address
	target.PinSHA256 = strings.Repeat("ab", 32)
	b := openTarget(t, target, fast())
	_, err := b.Power(t.Context())
	pe := requireError(t, err, providers.KindPinMismatch)
	require.Contains(t, pe.Message, pin, "the operator must see the new pin")
	require.Empty(t, s.requests(""), "nothing may leave on a connection that is not trusted")

	// A probe still tells what is there now, without a login.
	ident, err := b.Probe(t.Context())
	require.NoError(t, err)
	require.Equal(t, pin, ident.PinSHA256)
	require.Equal(t, "Testco", ident.Vendor)
	for _, r := range s.requests("") {
		require.False(t, r.credential(), r.Path)
	}

	target.PinSHA256 = strings.ToUpper(pin)
	state, err := openTarget(t, target, fast()).Power(t.Context())
	require.NoError(t, err)
	require.Equal(t, providers.PowerOn, state)
}

func TestWithoutPinOnlyProbeAnswers(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	target := s.target()
	target.Address, _ = s.tls()
	b := openTarget(t, target, fast())
	_, err := b.Power(t.Context())
	requireKind(t, err, providers.KindPinMismatch)
	require.Empty(t, s.requests(""))
	_, err = b.Probe(t.Context())
	require.NoError(t, err)
}

func TestCABundle(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	srv := quietTLS(s)
	t.Cleanup(srv.Close)
	target := s.target()
	target.Address = srv.URL
	target.CAPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	_, err := openTarget(t, target, fast()).Power(t.Context())
	require.NoError(t, err)

	target.Address = strings.Replace(srv.URL, "127.0.0.1", "localhost", 1) // not a name of that certificate
	_, err = openTarget(t, target, fast()).Power(t.Context())
	requireKind(t, err, providers.KindPinMismatch)
}

func TestErrorsNeverRepeatTheRequest(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		headers, _ := json.Marshal(r.Header)
		reply(w, http.StatusBadRequest, obj{"error": obj{"code": "Base.1.8." + testPassword, "message": string(body) + string(headers),
			"@Message.ExtendedInfo": []any{obj{"MessageId": "Base.1.8.PropertyUnknown", "Message": string(body)}}}})
	}
	s := newStub(t)
	s.on("POST "+sessionsURI, echo)
	_, err := s.open().Power(t.Context())
	pe := requireError(t, err, providers.KindInvalid)
	require.Contains(t, pe.Message, "Base.1.8.PropertyUnknown", "the message id is kept for the operator")

	s = newStub(t)
	s.on("PATCH "+sysURI, echo)
	_, err = s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
	requireKind(t, err, providers.KindInvalid)

	// A token that comes back as part of a link stays out as well.
	s = newStub(t)
	s.put("/redfish/v1/Systems", collection("/redfish/v1/Systems/"+testToken, "/redfish/v1/Systems/2"))
	s.put("/redfish/v1/Systems/"+testToken, obj{})
	s.put("/redfish/v1/Systems/2", obj{})
	_, err = s.open().Power(t.Context())
	requireKind(t, err, providers.KindUnsupported)
}

func TestRedactorWithholdsEveryForm(t *testing.T) {
	t.Parallel()
	r := newRedactor("root", providers.NewSecret("calvin&1"))
	r.add("sess0token")
	for _, s := range []string{"pw calvin&1", `{"Password":"calvin\u00261"}`, "u=calvin%261", "Basic cm9vdDpjYWx2aW4mMQ==", "X-Auth-Token: sess0token"} {
		require.Equal(t, "[withheld: it repeats a secret]", r.text(s), s)
		require.NotContains(t, r.cause(&url.Error{Op: "Get", URL: "https://x", Err: errors.New(s)}).Error(), "calvin")
	}
	body := `{"error":{"code":"Base.1.8.sess0token","@Message.ExtendedInfo":[{"MessageId":"Base.1.8.GeneralError","Message":"calvin&1"}]}}`
	require.Equal(t, " [Base.1.8.GeneralError]", r.ids([]byte(body)))
	require.ErrorIs(t, r.cause(&url.Error{Err: context.Canceled}), context.Canceled)
	full := r.cause(&url.Error{Err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}})
	require.ErrorIs(t, full, syscall.EMFILE)
	require.Equal(t, "dial tcp: socket: too many open files", full.Error())
	require.Equal(t, "a b", newRedactor("", providers.Secret{}).text("a\nb"))
	require.Less(t, len(r.text(strings.Repeat("x", 5000))), 300)
}

func TestMalformedAnswerIsNotQuoted(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.on("GET "+sysURI, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		require.NoError(t, err)
		_, _ = io.WriteString(conn, r.Header.Get("X-Auth-Token")+"\r\n\r\n")
		_ = conn.Close()
	})
	_, err := s.open().Power(t.Context())
	requireKind(t, err, providers.KindUnreachable)
}

func TestIdentify_HidesSecretsThatTheBMCRepeats(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	s.res[sysURI]["SerialNumber"] = testPassword
	s.res[sysURI]["Model"] = "made for " + testPassword
	got, err := s.open().Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, providers.Hidden, got.Serial)
	require.Equal(t, "made for "+providers.Hidden, got.Model)
}
