package maas_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
)

func TestRedirectIsRefused(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		target := newStub(t, answer(200, "application/json", machineJSON(id, providers.MAASReady)))
		s := newStub(t, answer(status, "text/html", "moved", "Location", target.URL+"/MAAS/api/2.0/machines/"+id+"/?secret=1"))
		m := open(t, s.URL)
		for _, op := range append(allMutations(), allReads()...) {
			before := s.requests.Load()
			pe := requireKind(t, op.run(within(t), m), providers.KindForeign)
			require.Contains(t, pe.Message, target.URL)
			require.NotContains(t, pe.Message, "secret")
			require.Equal(t, int32(1), s.requests.Load()-before, op.name)
		}
		require.Zero(t, target.requests.Load(), "the redirect was followed")
	}
}

func TestRetryAfterIsSurfacedAndNeverWaitedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status      int
		retryAfter  string
		read, write providers.Kind
		want        time.Duration
	}{
		{503, "600", providers.KindUnavailable, providers.KindUncertain, 10 * time.Minute},
		{503, "999999", providers.KindUnavailable, providers.KindUncertain, time.Hour},
		{503, "soon", providers.KindUnavailable, providers.KindUncertain, 0},
		{409, "600", providers.KindBusy, providers.KindBusy, 10 * time.Minute},
		{429, "600", providers.KindUnavailable, providers.KindUnavailable, 10 * time.Minute},
	} {
		s := newStub(t, answer(c.status, "text/plain", "later", "Retry-After", c.retryAfter))
		m := open(t, s.URL)
		for _, op := range allReads() {
			before := s.requests.Load()
			pe := requireKind(t, op.run(within(t), m), c.read)
			require.Equal(t, c.want, pe.RetryAfter)
			require.Equal(t, int32(1), s.requests.Load()-before, "%s sent again by itself", op.name)
		}
		for _, op := range allMutations() {
			before := s.requests.Load()
			pe := requireKind(t, op.run(within(t), m), c.write)
			require.Equal(t, c.want, pe.RetryAfter)
			require.Equal(t, int32(1), s.requests.Load()-before, "%s sent again by itself", op.name)
		}
	}
}

// blocker answers nothing until the client goes away.
func blocker(entered chan<- struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // the server notices a client that left only once the body is read
		entered <- struct{}{}
		<-r.Context().Done()
	}
}

func TestCancelInFlight(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 1)
	s := newStub(t, blocker(entered))
	m := open(t, s.URL)
	check := func(op operation, want providers.Kind) {
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- op.run(ctx, m) }()
		<-entered
		cancel()
		err := <-done
		requireKind(t, err, want)
		require.ErrorIs(t, err, context.Canceled)
	}
	for _, op := range allReads() {
		check(op, providers.KindUnreachable)
	}
	for _, op := range allMutations() {
		check(op, providers.KindUncertain)
	}
}

func TestCancelledBeforeSending(t *testing.T) {
	t.Parallel()
	s := newStub(t, answer(200, "application/json", "{}"))
	m := open(t, s.URL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, op := range append(allMutations(), allReads()...) {
		requireKind(t, op.run(ctx, m), providers.KindUnreachable)
	}
	require.Zero(t, s.requests.Load())
}

func TestDeadlineOfItsOwn(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 2)
	s := newStub(t, blocker(entered))
	m := open(t, s.URL, maas.Options{Timeout: runenv.Patience(500 * time.Millisecond)})
	_, err := m.Machine(t.Context(), id)
	requireKind(t, err, providers.KindUnreachable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	requireKind(t, m.PowerOff(t.Context(), id, true), providers.KindUncertain)
}

func TestBodyCap(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`[{"x":"`))
		page := []byte(strings.Repeat("a", 32<<10))
		for r.Context().Err() == nil {
			if _, err := w.Write(page); err != nil {
				return
			}
		}
	}
	announced := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000000000")
		_, _ = w.Write([]byte(`{"x":"`))
	}
	for _, h := range []http.HandlerFunc{endless, announced} {
		s := newStub(t, h)
		m := open(t, s.URL, maas.Options{MaxBody: 128 << 10, MaxList: 256 << 10})
		for _, op := range allReads() {
			if op.name == "find by serial" {
				continue // a stream is bounded while it is read, see below
			}
			requireKind(t, op.run(within(t), m), providers.KindTooBig)
		}
		for _, op := range allMutations() {
			requireKind(t, op.run(within(t), m), providers.KindUncertain)
		}
	}
	s := newStub(t, endless)
	m := open(t, s.URL, maas.Options{MaxBody: 128 << 10, MaxList: 256 << 10})
	_, err := m.FindMachines(within(t), providers.MAASQuery{Serial: "S1"})
	requireKind(t, err, providers.KindTooBig)
}

func TestHugeRefusalKeepsItsStatus(t *testing.T) {
	t.Parallel()
	s := newStub(t, answer(403, "text/plain", strings.Repeat("no ", 1<<20)))
	_, err := open(t, s.URL).Machine(within(t), id)
	pe := requireKind(t, err, providers.KindForbidden)
	require.Less(t, len(pe.Message), 600)
}

func TestUnreadableAnswer(t *testing.T) {
	t.Parallel()
	whole := machineJSON(id, providers.MAASDeploying)
	for name, h := range map[string]http.HandlerFunc{
		"truncated": answer(200, "application/json", whole[:len(whole)/2]),
		"page":      answer(200, "text/html", "<html>sign in</html>"),
		"empty":     answer(200, "application/json", ""),
	} {
		s := newStub(t, h)
		m := open(t, s.URL)
		for _, op := range allReads() {
			requireKind(t, op.run(within(t), m), providers.KindProtocol)
		}
		for _, op := range allMutations() {
			if op.name == "delete" || op.name == "boot disk" {
				continue // MAAS answers 204 and a bare OK there
			}
			pe := requireKind(t, op.run(within(t), m), providers.KindUncertain)
			require.Equal(t, 200, pe.Status, name)
		}
	}
}

func TestAnswerAboutAnotherMachine(t *testing.T) {
	t.Parallel()
	s := newStub(t, answer(200, "application/json", machineJSON("zzz9zz", providers.MAASAllocated)))
	m := open(t, s.URL)
	_, err := m.Machine(within(t), id)
	requireKind(t, err, providers.KindProtocol)
	got, err := m.Allocate(within(t), id, "a", "")
	requireKind(t, err, providers.KindUncertain)
	require.Empty(t, got)
}

// hangUp takes the request, may write some of an answer, and closes the line.
func hangUp(partial string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte(partial))
		_ = conn.Close()
	}
}

func TestConnectionLostAfterSending(t *testing.T) {
	t.Parallel()
	for _, partial := range []string{
		"",
		"HTTP/1.1 200 OK\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n[",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[",
	} {
		s := newStub(t, hangUp(partial))
		m := open(t, s.URL)
		for _, op := range allReads() {
			before := s.requests.Load()
			requireKind(t, op.run(within(t), m), providers.KindUnreachable)
			require.Equal(t, int32(1), s.requests.Load()-before, op.name)
		}
		for _, op := range allMutations() {
			before := s.requests.Load()
			requireKind(t, op.run(within(t), m), providers.KindUncertain)
			require.Equal(t, int32(1), s.requests.Load()-before, op.name)
		}
	}
}

func TestNothingListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	base := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	m := open(t, base)
	for _, op := range append(allMutations(), allReads()...) {
		requireKind(t, op.run(within(t), m), providers.KindUnreachable)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	serve := func(conf *tls.Config) *httptest.Server {
		s := httptest.NewUnstartedServer(answer(200, "application/json", machineJSON(id, providers.MAASReady)))
		s.TLS = conf
		s.Config.ErrorLog = quiet()
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	pemOf := func(s *httptest.Server) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	}
	ask := func(base, ca string) error {
		m, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: base + "/MAAS", APIKey: providers.NewSecret(apiKey), CAPEM: ca})
		require.NoError(t, err)
		return m.PowerOn(within(t), id)
	}
	good := serve(nil)
	require.NoError(t, ask(good.URL, pemOf(good)))
	requireKind(t, ask(good.URL, ""), providers.KindPinMismatch)
	requireKind(t, ask(strings.Replace(good.URL, "127.0.0.1", "localhost", 1), pemOf(good)), providers.KindPinMismatch)

	old := serve(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}) //nolint:gosec // the old server is the test
	requireKind(t, ask(old.URL, pemOf(old)), providers.KindUnreachable)

	clear := newStub(t, answer(200, "application/json", "{}"))
	requireKind(t, ask(strings.Replace(clear.URL, "http:", "https:", 1), ""), providers.KindProtocol)
}
