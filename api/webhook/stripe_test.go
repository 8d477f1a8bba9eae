package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripehook "github.com/stripe/stripe-go/v85/webhook"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/api/webhook"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	oldSecret = "whsec_the_old_secret"
	newSecret = "whsec_the_new_secret"
)

// endpoint is the route of webhooks on a database of its own.
type endpoint struct {
	testing.TB
	store   *db.Store
	handler http.Handler
	log     *bytes.Buffer
}

func newEndpoint(t testing.TB, secrets ...string) *endpoint {
	t.Helper()
	return openEndpoint(t, runenv.Patience(10*time.Second), secrets...)
}

func openEndpoint(t testing.TB, limit time.Duration, secrets ...string) *endpoint {
	t.Helper()
	e := &endpoint{TB: t, store: dbtest.Store(t), log: &bytes.Buffer{}}
	api, err := op.New(op.Config{Store: e.store, Log: slog.New(slog.NewTextHandler(&lockedWriter{w: e.log}, nil))})
	require.NoError(t, err)
	var verifier *stripe.Verifier
	if len(secrets) > 0 {
		var values []providers.Secret
		for _, s := range secrets {
			values = append(values, providers.NewSecret(s))
		}
		verifier, err = stripe.NewVerifier(stripe.VerifierOptions{Secrets: values})
		require.NoError(t, err)
	}
	webhook.RegisterWithin(api, verifier, limit)
	require.NoError(t, api.Close())
	e.handler = api.Handler()
	return e
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func event(id string, more string) string {
	return fmt.Sprintf(`{"id":%q,"object":"event","type":"checkout.session.completed","api_version":"2026-05-27.dahlia","created":%d,"livemode":false,%s`+
		`"data":{"object":{"id":"cs_test_a1","object":"checkout.session","amount_total":2500}}}`, id, time.Now().Unix(), more)
}

func sign(secret, body string, at time.Time) string {
	return stripehook.GenerateTestSignedPayload(&stripehook.UnsignedPayload{Payload: []byte(body), Secret: secret, Timestamp: at}).Header
}

// send sends a webhook.
func (e *endpoint) send(body io.Reader, signature string, headers ...string) *httptest.ResponseRecorder {
	e.Helper()
	req := httptest.NewRequestWithContext(e.Context(), http.MethodPost, webhook.Path, body)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	if signature != "" {
		req.Header.Set(stripe.SignatureHeader, signature)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	e.handler.ServeHTTP(out, req)
	return out
}

func (e *endpoint) stored() map[paymentsdb.EventState]int64 {
	e.Helper()
	n, err := paymentsdb.CountEvents(e.Context(), e.store)
	require.NoError(e, err)
	return n
}

// Each is stored once, however often it comes, and whatever release or mode it is of.
func TestWebhook_StoresWhatIsSigned(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, newSecret, oldSecret)
	first := event("evt_1", "")
	for range 3 {
		out := e.send(strings.NewReader(first), sign(newSecret, first, time.Now()))
		require.Equal(t, http.StatusOK, out.Code, out.Body.String())
	}
	rolled := event("evt_2", "")
	require.Equal(t, http.StatusOK, e.send(strings.NewReader(rolled), sign(oldSecret, rolled, time.Now())).Code)
	other := strings.ReplaceAll(event("evt_3", ""), "2026-05-27.dahlia", "2031-01-01.zinnia")
	require.Equal(t, http.StatusOK, e.send(strings.NewReader(other), sign(newSecret, other, time.Now())).Code)
	require.Equal(t, map[paymentsdb.EventState]int64{paymentsdb.EventPending: 3}, e.stored())
	live := strings.ReplaceAll(event("evt_4", ""), `"livemode":false`, `"livemode":true`)
	require.Equal(t, http.StatusOK, e.send(strings.NewReader(live), sign(newSecret, live, time.Now())).Code)
	require.Equal(t, map[paymentsdb.EventState]int64{paymentsdb.EventPending: 3, paymentsdb.EventIgnored: 1}, e.stored())
	due, err := paymentsdb.ClaimEvents(t.Context(), e.store, 10, time.Minute)
	require.NoError(t, err)
	require.Contains(t, []string{string(due[0].Body), string(due[1].Body), string(due[2].Body)}, first, "as it came, byte by byte")
}

// An event of a type that nothing reads is stored without its body.
func TestWebhook_KeepsNoBodyOfAnotherType(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, newSecret)
	body := strings.ReplaceAll(event("evt_1", `"padding":"`+strings.Repeat("x", 100_000)+`",`), "checkout.session.completed", "invoice.created")
	for range 2 {
		require.Equal(t, http.StatusOK, e.send(strings.NewReader(body), sign(newSecret, body, time.Now())).Code)
	}
	due, err := paymentsdb.ClaimEvents(t.Context(), e.store, 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Empty(t, due[0].Body)
}

// Nothing of a request without a valid signature is stored, whoever sends it from where.
func TestWebhook_RefusesWhatIsNotSigned(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, newSecret)
	body := event("evt_1", "")
	good := sign(newSecret, body, time.Now())
	large := event("evt_2", `"padding":"`+strings.Repeat("x", stripe.MaxWebhook)+`",`)
	for name, c := range map[string]struct {
		body, signature string
		status          int
		headers         []string
	}{
		"no signature":        {body, "", http.StatusBadRequest, nil},
		"a session":           {body, "", http.StatusBadRequest, []string{"Cookie", "__Host-slipway_session=x", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}},
		"an API token":        {body, "", http.StatusBadRequest, []string{"Authorization", "Bearer slp_x"}},
		"another secret":      {body, sign(oldSecret, body, time.Now()), http.StatusBadRequest, nil},
		"another body":        {event("evt_9", ""), good, http.StatusBadRequest, nil},
		"an old signature":    {body, sign(newSecret, body, time.Now().Add(-stripe.Tolerance-time.Minute)), http.StatusBadRequest, nil},
		"a future signature":  {body, sign(newSecret, body, time.Now().Add(time.Hour)), http.StatusBadRequest, nil},
		"no event":            {"{}", sign(newSecret, "{}", time.Now()), http.StatusBadRequest, nil},
		"too large":           {large, sign(newSecret, large, time.Now()), http.StatusRequestEntityTooLarge, nil},
		"a zero byte":         {strings.ReplaceAll(body, "checkout.session.completed", `a\u0000b`), "", http.StatusBadRequest, nil},
		"a signed zero byte":  {zeroByte, sign(newSecret, zeroByte, time.Now()), http.StatusBadRequest, nil},
		"an id that is long":  {longID, sign(newSecret, longID, time.Now()), http.StatusBadRequest, nil},
		"not UTF-8, unsigned": {"\xff\xfe", "t=1,v1=zz", http.StatusBadRequest, nil},
	} {
		out := e.send(strings.NewReader(c.body), c.signature, c.headers...)
		require.Equal(t, c.status, out.Code, "%s: %s", name, out.Body)
		require.Equal(t, "application/problem+json", out.Header().Get("Content-Type"), name)
		require.NotContains(t, out.Body.String(), "whsec", name)
	}
	require.Empty(t, e.stored())
	require.Contains(t, e.log.String(), "payment.webhook_secret_refs", "a wrong secret shows in the log")
	require.Equal(t, 1, strings.Count(e.log.String(), "webhook: refused"), "which nobody can fill from outside")
	require.NotContains(t, e.log.String(), "whsec")

	unknown := httptest.NewRecorder()
	e.handler.ServeHTTP(unknown, httptest.NewRequestWithContext(t.Context(), http.MethodGet, webhook.Path, nil))
	require.Equal(t, http.StatusMethodNotAllowed, unknown.Code)
}

var (
	zeroByte = strings.ReplaceAll(event("evt_1", ""), "checkout.session.completed", `a\u0000b`)
	longID   = event("evt_"+strings.Repeat("1", 300), "")
)

func TestWebhook_IsNotFoundWithoutPayments(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	body := event("evt_1", "")
	out := e.send(strings.NewReader(body), sign(newSecret, body, time.Now()))
	require.Equal(t, http.StatusNotFound, out.Code)
	require.Contains(t, out.Body.String(), "payment.stripe_key_ref")
	require.Empty(t, e.stored())
}

// Stripe sends again what a database that is away could not store.
func TestWebhook_IsSentAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, newSecret)
	e.store.Close()
	body := event("evt_1", "")
	out := e.send(strings.NewReader(body), sign(newSecret, body, time.Now()))
	require.Equal(t, http.StatusServiceUnavailable, out.Code, out.Body.String())
	require.NotEmpty(t, out.Header().Get("Retry-After"))
}

// Senders that begin large bodies and do not go on keep nobody else out: what they hold is bounded,
// and they lose it.
func TestWebhook_SlowSendersHoldNobodyUp(t *testing.T) {
	t.Parallel()
	e := openEndpoint(t, time.Second, newSecret)
	srv := httptest.NewServer(e.handler)
	t.Cleanup(srv.Close)
	const slow = 200 // bodies of 256 KiB: more than fit at once
	for range slow {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.URL, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s: t=%d,v1=%s\r\nContent-Length: %d\r\n\r\n{", webhook.Path, stripe.SignatureHeader,
			time.Now().Unix(), strings.Repeat("0", 64), stripe.MaxWebhook)
		require.NoError(t, err)
	}
	body := event("evt_1", "")
	require.Eventually(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+webhook.Path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set(stripe.SignatureHeader, sign(newSecret, body, time.Now()))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK // Stripe repeats one that is answered with 503
	}, runenv.Patience(30*time.Second), 100*time.Millisecond)
	require.Equal(t, map[paymentsdb.EventState]int64{paymentsdb.EventPending: 1}, e.stored())
}

// slowBodies counts the requests of one address at a handler, and those whose bodies are read.
type slowBodies struct {
	http.Handler

	address          string
	arrived, reading atomic.Int64
}

// ServeHTTP implements http.Handler.
func (s *slowBodies) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ratelimit.RemoteAddress(r) == s.address {
		s.arrived.Add(1)
		r.Body = &countedBody{ReadCloser: r.Body, first: func() { s.reading.Add(1) }}
	}
	s.Handler.ServeHTTP(w, r)
}

// countedBody is a body that tells of its first read.
type countedBody struct {
	io.ReadCloser

	once  sync.Once
	first func()
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	b.once.Do(b.first)
	return b.ReadCloser.Read(p)
}

// An address that sends more slow bodies than are read at once does not delay other webhooks.
func TestWebhook_SlowAddressDelaysNoOther(t *testing.T) {
	t.Parallel()
	e := openEndpoint(t, runenv.Patience(time.Minute), newSecret)
	slow := &slowBodies{Handler: e.handler, address: "127.0.0.66"}
	srv := httptest.NewUnstartedServer(slow)
	srv.Config.BaseContext = func(net.Listener) context.Context { return t.Context() } // ends those that wait
	srv.Start()
	t.Cleanup(srv.Close)
	const senders = 200 // bodies of 256 KiB: more than fit at once
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(slow.address)}}
	for range senders {
		conn, err := dialer.DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s: t=%d,v1=%s\r\nContent-Length: %d\r\n\r\n{", webhook.Path, stripe.SignatureHeader,
			time.Now().Unix(), strings.Repeat("0", 64), stripe.MaxWebhook) // a request without a signature is refused at once
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return slow.arrived.Load() == senders && slow.reading.Load() >= webhook.OfSource },
		runenv.Patience(20*time.Second), 10*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(20*time.Second))
	defer cancel()
	for i := range 10 {
		body := event(fmt.Sprint("evt_", i), "")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+webhook.Path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set(stripe.SignatureHeader, sign(newSecret, body, time.Now()))
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err, "webhook %d waits for the slow bodies", i)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode, "webhook %d", i)
	}
	require.EqualValues(t, webhook.OfSource, slow.reading.Load())
}

// FuzzWebhook sends anything to the route. There is no panic and no status of 500 or above, and
// nothing is stored without a valid signature.
func FuzzWebhook(f *testing.F) {
	good := event("evt_seed", "")
	f.Add(sign(newSecret, good, time.Now()), []byte(good), false)
	f.Add("", []byte(good), true)
	f.Add("t=1,v1=", []byte("{}"), true)
	f.Add(",=,t=,v1=,v1", []byte{}, false)
	f.Add("t=-1,v1=00", []byte(zeroByte), true)
	f.Add("", []byte(longID), true)
	f.Add("", []byte(`{"id":"evt_1","object":"event","type":"a","created":99999999999999,"data":{"object":{"object":7}}}`), true)
	f.Add("", []byte(`{"id":"evt_2","object":"event","type":"","created":-1,"data":{"object":null}}`), true)
	f.Add("", []byte("{\"id\":\"evt_\xff\",\"object\":\"event\",\"type\":\"\xff\",\"created\":1}"), true)
	e := newEndpoint(f, newSecret)
	f.Fuzz(func(t *testing.T, header string, body []byte, signed bool) {
		e := &endpoint{TB: t, store: e.store, handler: e.handler, log: e.log}
		before := e.stored()
		if signed { // a body of any form with a valid signature
			header = sign(newSecret, string(body), time.Now())
		}
		out := e.send(bytes.NewReader(body), header)
		require.Less(t, out.Code, http.StatusInternalServerError, out.Body.String())
		if stripehook.ValidatePayload(body, header, newSecret) != nil {
			require.GreaterOrEqual(t, out.Code, http.StatusBadRequest)
			require.Equal(t, before, e.stored())
		}
	})
}

// TestWebhook_StartsOneJob: the transaction that stores an event of a page that was finished starts
// the job of its session, whichever of several webhooks comes first; an event of no session of ours
// and a repeated one start none.
func TestWebhook_StartsOneJob(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, newSecret)
	project := dbtest.Project(t, e.store)
	require.NoError(t, e.store.Tx(t.Context(), func(tx *db.Tx) error {
		s, err := paymentsdb.Create(t.Context(), tx, paymentsdb.New{
			ID: "pay_1", BillingAccountID: project.BillingAccountID, ProjectID: project.ID, RequestedBy: "oidc:ada", Key: "k", RequestHash: []byte("h"), AmountMinor: 2500,
			Currency: "USD", ExpiresAt: time.Now().Add(time.Hour), NextLook: time.Now().Add(time.Hour), Actor: db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"},
		})
		if err != nil {
			return err
		}
		return paymentsdb.StorePage(t.Context(), tx, s.ID, "cs_test_a1", "https://pay.example", time.Now().Add(time.Hour))
	}))
	send := func(body string) {
		t.Helper()
		require.Equal(t, http.StatusOK, e.send(strings.NewReader(body), sign(newSecret, body, time.Now())).Code)
	}
	send(strings.ReplaceAll(event("evt_other", ""), "cs_test_a1", "cs_test_b1"))
	send(strings.ReplaceAll(event("evt_expired", ""), "checkout.session.completed", "checkout.session.expired"))
	require.Equal(t, map[paymentsdb.EventState]int64{paymentsdb.EventPending: 2}, e.stored())
	first := event("evt_1", "")
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			body := first
			if i%2 == 0 {
				body = event(fmt.Sprintf("evt_again_%d", i), "")
			}
			send(body)
		})
	}
	group.Wait()
	jobs, err := e.store.ListJobs(t.Context(), db.JobFilter{ResourceKind: paymentsdb.Resource, ResourceID: "pay_1"}, "", 10)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, string(contract.KindPaymentReconcile), jobs[0].Kind)
	starts, err := e.store.ClaimOutbox(t.Context(), "relay", 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, starts, 1)
	require.Equal(t, map[paymentsdb.EventState]int64{paymentsdb.EventPending: 6, paymentsdb.EventProcessed: 1}, e.stored(), "a pass looks at those that found a live job")
}
