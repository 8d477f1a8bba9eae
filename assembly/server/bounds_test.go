package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/listener"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/internal/telemetry"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// The bounds of the servers under test: a body that drips is over after the grace.
const (
	testGrace  = 200 * time.Millisecond
	mostGrowth = 64 << 20
	// mostKept is for what a server keeps after its first requests: pages, statements, connections.
	mostKept = 24 << 20
	// answerLimit is how long an answer may take. Nothing here needs a second by itself.
	answerLimit = 30 * time.Second
)

// callsVar overrides how many calls are walked.
const callsVar = "SLIPWAY_BOUNDS_CALLS"

// slowBody comes byte by byte.
const slowBody = "a slow body"

// hostileCall is a route as it is called, and by whom.
type hostileCall struct {
	base, method, path, token string
	grpc                      bool
}

func (c hostileCall) String() string {
	who := "nobody"
	if c.token != "" {
		who = "an admin"
	}
	return fmt.Sprintf("%s %s as %s", c.method, c.path, who)
}

// hostileBody is what is sent: a type, an encoding, and the body itself. A size of -1 is not told.
type hostileBody struct {
	name, kind, encoding string
	size                 int64
	body                 func() io.Reader
}

// zeros has n bytes.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

// drip gives its text byte by byte, with a pause before each.
type drip struct {
	ctx  context.Context
	text []byte
}

func (d *drip) Read(p []byte) (int, error) {
	if len(d.text) == 0 {
		return 0, io.EOF
	}
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(time.Second):
	}
	n := copy(p, d.text[:1])
	d.text = d.text[n:]
	return n, nil
}

// bomb is as many zeros as are noticed if one server unpacks them.
func bomb(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.Copy(w, &zeros{mostGrowth + 32<<20})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func enveloped(flags byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message))), message...)
}

func hostileBodies(ctx context.Context, zipped []byte) []hostileBody {
	nested := []byte(strings.Repeat(`{"a":[`, 150_000))
	fixed := func(b []byte) func() io.Reader { return func() io.Reader { return bytes.NewReader(b) } }
	return []hostileBody{
		{"100 MB", "application/json", "", 100 << 20, func() io.Reader { return &zeros{100 << 20} }},
		{"100 MB without a length", "application/json", "", -1, func() io.Reader { return &zeros{100 << 20} }},
		{"a bomb", "application/json", "gzip", int64(len(zipped)), fixed(zipped)},
		{"a nested body", "application/json", "", int64(len(nested)), fixed(nested)},
		{slowBody, "application/json", "", 40, func() io.Reader { return &drip{ctx, bytes.Repeat([]byte(" "), 40)} }},
	}
}

func hostileMessages(ctx context.Context, zipped []byte) []hostileBody {
	framed := enveloped(1, zipped)
	large := binary.BigEndian.AppendUint32([]byte{0}, 100<<20)
	return []hostileBody{
		{"100 MB", "application/grpc", "", -1, func() io.Reader { return io.MultiReader(bytes.NewReader(large), &zeros{100 << 20}) }},
		{"a bomb", "application/grpc", "gzip", -1, func() io.Reader { return bytes.NewReader(framed) }},
		{"a bomb in a page", "application/proto", "gzip", int64(len(zipped)), func() io.Reader { return bytes.NewReader(zipped) }},
		{"a bomb in a stream", "application/connect+proto", "gzip", int64(len(framed)), func() io.Reader { return bytes.NewReader(framed) }},
		{slowBody, "application/grpc", "", -1, func() io.Reader { return &drip{ctx, enveloped(0, make([]byte, 40))} }},
	}
}

// send sends a body and returns the status, "" for a connection that was closed.
func (c hostileCall) send(ctx context.Context, to *http.Client, b hostileBody) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, c.method, c.base+c.path, b.body())
	if err != nil {
		return nil, err
	}
	req.ContentLength = b.size
	req.Header.Set("Content-Type", b.kind)
	for _, name := range []string{"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding"} {
		if b.encoding != "" {
			req.Header.Set(name, b.encoding)
		}
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := to.Do(req)
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // the server has closed the connection, which is an answer
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	return res, nil
}

// serveBounded serves h with the short bounds and returns its URL.
func serveBounded(t *testing.T, h http.Handler) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := listener.Bounds{BodyGrace: testGrace}.Server(h)
	srv.Protocols = protocols()
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + l.Addr().String()
}

// calls are the routes of a router, with the methods of services in place of their wildcards.
func calls(t *testing.T, base string, r chi.Router) []hostileCall {
	t.Helper()
	var out []hostileCall
	require.NoError(t, chi.Walk(r, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		service, wildcard := strings.CutSuffix(strings.TrimPrefix(path, "/"), "/*")
		if !wildcard || method != http.MethodPost {
			path = strings.NewReplacer("{mac}", "52-54-00-00-00-01", "{", "", "}", "", "*", "x").Replace(path)
			out = append(out, hostileCall{base: base, method: method, path: path})
			return nil
		}
		for _, name := range methodsOf(t, service) {
			out = append(out, hostileCall{base: base, method: method, path: "/" + service + "/" + name, grpc: true})
		}
		return nil
	}))
	return out
}

// methodsOf are the calls of a service.
func methodsOf(t *testing.T, service string) []string {
	t.Helper()
	switch {
	case service == "grpc.health.v1.Health":
		return []string{"Check", "Watch", "List"}
	case strings.HasPrefix(service, "grpc.reflection."):
		return []string{"ServerReflectionInfo"}
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	require.NoError(t, err, "the calls of %s are not known here", service)
	methods := d.(protoreflect.ServiceDescriptor).Methods() //nolint:errcheck,forcetypeassert // the test fails
	var out []string
	for i := range methods.Len() {
		out = append(out, string(methods.Get(i).Name()))
	}
	return out
}

// boundedWorld is every listener of a process.
type boundedWorld struct {
	calls  []hostileCall
	admin  string
	viewer string
}

func newBoundedWorld(t *testing.T) boundedWorld {
	t.Helper()
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	sealed, err := secrets.Open(t.Context(), &secrets.Memory{}, secrets.Keeper{KeyFile: t.TempDir() + "/key"}, secrets.Options{})
	require.NoError(t, err)
	a := &App{Config: config.Default(), Log: slog.New(slog.DiscardHandler), Store: dbtest.Store(t), Health: telemetry.NewHealth(nil)}
	a.Metrics, err = telemetry.NewRegistry("test", "")
	require.NoError(t, err)
	api, err := httpapi.New(httpapi.Config{
		API: op.Config{Store: a.Store, Version: "v1", PrincipalRate: 100_000, AddressRate: 100_000}, REST: rest.Config{Temporal: temporal, Secrets: sealed},
		Health: a.Health, Metrics: a.Metrics,
	})
	require.NoError(t, err)
	var w boundedWorld
	base, machines := serveBounded(t, a.customerHandler(api)), serveBounded(t, bootOnly(api, a.Config.Boot.Prefixes()))
	w.calls = calls(t, base, api.Router())
	for _, c := range w.calls {
		if boot.IsRoute(c.path) {
			c.base = machines
			w.calls = append(w.calls, c)
		}
	}
	for _, path := range []string{"/codec/encode", "/codec/decode"} {
		w.calls = append(w.calls, hostileCall{base: base, method: http.MethodPost, path: path})
	}
	metrics := serveBounded(t, a.metricsHandler())
	w.calls = append(w.calls, hostileCall{base: metrics, method: http.MethodGet, path: "/metrics"}, hostileCall{base: metrics, method: http.MethodGet, path: "/readyz"})
	ca, err := nodeca.Create()
	require.NoError(t, err)
	agents := agentapi.New(agentapi.Config{
		Store: agentapi.NewStore(a.Store), CA: ca, RequestTimeout: 2 * testGrace, Tasks: a.Store, TaskKeys: &signing.Ring{Store: a.Store, Secrets: sealed},
		Instances: agentapi.NewInstanceStore(a.Store),
	})
	require.NoError(t, agents.Start(t.Context()))
	t.Cleanup(func() { _ = agents.Shutdown(context.WithoutCancel(t.Context())) })
	w.calls = append(w.calls, calls(t, agents.URL(), agents.Routes())...)
	for role, token := range map[string]*string{"admin": &w.admin, "viewer": &w.viewer} {
		*token, err = op.CreateToken(t.Context(), a.Store, "the-"+role, []string{role}, time.Hour)
		require.NoError(t, err)
	}
	return w
}

// clients returns a client for pages and one for gRPC without TLS.
func hostileClients(t *testing.T) (pages, messages *http.Client) {
	t.Helper()
	plain := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a test's own server
	h2c := new(http.Protocols)
	h2c.SetUnencryptedHTTP2(true)
	framed := &http.Transport{Protocols: h2c}
	t.Cleanup(plain.CloseIdleConnections)
	t.Cleanup(framed.CloseIdleConnections)
	noFollow := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: plain, CheckRedirect: noFollow}, &http.Client{Transport: framed, CheckRedirect: noFollow}
}

// Every route and call of every listener, from the routers themselves, is sent the bodies that cost
// a server most, by a caller without a token. Routes that take a body get them from an admin, too.
// The heap does not grow, and each request is answered or closed. Without `make proof` the seed
// draws the routes: the race detector makes the walk of all of them cost a minute.
func TestBounds_OfEveryRoute(t *testing.T) { //nolint:paralleltest // it measures the heap
	w := newBoundedWorld(t)
	require.Greater(t, len(w.calls), 200)
	calls := runenv.Sample(t, callsVar, "calls", w.calls, 32)
	for _, c := range w.calls {
		if strings.HasPrefix(c.path, "/grpc.") {
			calls = append(calls, c) // a outsider may make some of them
		}
	}
	grew, kept := walk(t, calls, w.admin)
	t.Logf("%d calls; the heap grew by %d KiB and kept %d KiB", len(calls), grew>>10, kept>>10)
	require.Less(t, grew, int64(mostGrowth))
	require.Less(t, kept, int64(mostKept))
}

// The walk notices one route that reads and unpacks what it is sent.
func TestBounds_NoticeOneReadWithoutThem(t *testing.T) { //nolint:paralleltest // it measures the heap
	open := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Encoding") == "" {
			return
		}
		if unpacked, err := gzip.NewReader(r.Body); err == nil {
			_, _ = io.ReadAll(unpacked)
		}
	}))
	t.Cleanup(open.Close)
	grew, _ := walk(t, []hostileCall{{base: open.URL, method: http.MethodGet, path: "/"}}, "")
	require.Greater(t, grew, int64(mostGrowth))
}

// walk sends every hostile body to each of the calls and returns by how much the heap grew
// meanwhile, and by how much it is larger afterwards.
func walk(t *testing.T, calls []hostileCall, admin string) (grew, kept int64) {
	t.Helper()
	pages, messages := hostileClients(t)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(3*time.Minute))
	defer cancel()
	zipped := bomb(t)
	base := heapInUse()
	defer debug.SetGCPercent(debug.SetGCPercent(25)) // garbage is collected before it looks like growth
	var peak atomic.Uint64
	stop := watchHeap(&peak)
	var heavy, slow errgroup.Group
	heavy.SetLimit(24)
	slow.SetLimit(96)
	for _, c := range calls {
		callers := []string{""}
		if c.method != http.MethodGet && c.method != http.MethodHead {
			callers = append(callers, admin)
		}
		bodies, to := hostileBodies(ctx, zipped), pages
		if c.grpc {
			bodies, to = hostileMessages(ctx, zipped), messages
		}
		for _, c.token = range callers {
			for _, b := range bodies {
				call, group := c, &heavy
				if b.name == slowBody {
					group = &slow
				}
				group.Go(func() error { return call.answeredInTime(ctx, to, b) })
			}
		}
	}
	for _, err := range []error{heavy.Wait(), slow.Wait()} {
		require.NoError(t, err)
	}
	stop()
	return int64(peak.Load()) - base, heapInUse() - base
}

// answeredInTime returns an error for a body that takes the server long, or with which it cannot
// cope.
func (c hostileCall) answeredInTime(ctx context.Context, to *http.Client, b hostileBody) error {
	began := time.Now()
	res, err := c.send(ctx, to, b)
	switch took := time.Since(began); {
	case err != nil:
		return err
	case took > runenv.Patience(answerLimit):
		return fmt.Errorf("%s with %s took %s", c, b.name, took)
	case res != nil && res.StatusCode == http.StatusInternalServerError:
		return fmt.Errorf("%s with %s was answered %s", c, b.name, res.Status)
	}
	return nil
}

// heapInUse is the size of what is in use. The second collection frees what pools have held.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// watchHeap keeps the largest size of the heap until stop is called.
func watchHeap(peak *atomic.Uint64) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak.Store(max(peak.Load(), now.HeapAlloc))
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(done); <-ended }
}

// A caller who may not make a call is refused before anything of its message is unpacked: the
// answer is about the role, and not about the message.
func TestBounds_RefusedBeforeUnpacking(t *testing.T) {
	t.Parallel()
	w := newBoundedWorld(t)
	_, messages := hostileClients(t)
	broken := hostileBody{kind: "application/grpc", encoding: "gzip", size: -1, body: func() io.Reader { return bytes.NewReader(enveloped(1, []byte("no gzip"))) }}
	refused := 0
	for _, c := range w.calls {
		if !c.grpc || !strings.HasPrefix(c.path, "/slipway.v1.") {
			continue
		}
		res, err := c.send(t.Context(), messages, broken)
		require.NoError(t, err)
		require.NotNil(t, res, c)
		require.Equal(t, "16", grpcStatus(res), "%s: unauthenticated", c)
		c.token = w.viewer
		res, err = c.send(t.Context(), messages, broken)
		require.NoError(t, err)
		require.NotNil(t, res, c)
		if grpcStatus(res) == "7" {
			refused++
		}
	}
	require.GreaterOrEqual(t, refused, 12, "the calls that a viewer may not make")
}

func grpcStatus(res *http.Response) string {
	if s := res.Trailer.Get("Grpc-Status"); s != "" {
		return s
	}
	return res.Header.Get("Grpc-Status")
}
