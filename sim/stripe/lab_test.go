package stripesim_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	key    = "sk_test_simulated"
	secret = "whsec_simulated"
)

// lab is a started account with a receiver of its webhooks.
type lab struct {
	*stripesim.Server
	t     *testing.T
	url   string
	admin string
	clock *simhw.Clock

	mu       sync.Mutex
	received []received
	status   int // what the receiver answers
}

// received is one delivery.
type received struct {
	id, kind, header string
	body             []byte
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, clock: simhw.NewClock(1), status: http.StatusOK}
	receiver := httptest.NewServer(http.HandlerFunc(l.receive))
	t.Cleanup(receiver.Close)
	srv, err := stripesim.New(stripesim.Options{
		Key: key, Clock: l.clock, Seed: 7, Endpoints: []stripesim.Endpoint{{URL: receiver.URL, Secrets: []string{secret}}},
	})
	require.NoError(t, err)
	at, stop, err := srv.Start(context.WithoutCancel(t.Context()), "127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	l.Server, l.url, l.admin = srv, at.URL(), "http://"+at.Admin+"/_sim/"
	return l
}

func (l *lab) receive(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var e struct{ ID, Type string }
	_ = json.Unmarshal(body, &e)
	l.mu.Lock()
	l.received = append(l.received, received{e.ID, e.Type, r.Header.Get("Stripe-Signature"), body})
	status := l.status
	l.mu.Unlock()
	w.WriteHeader(status)
}

func (l *lab) answerWith(status int) { l.mu.Lock(); defer l.mu.Unlock(); l.status = status }

// kinds are the types of the deliveries so far.
func (l *lab) kinds() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, 0, len(l.received))
	for _, r := range l.received {
		out = append(out, r.kind)
	}
	return out
}

// deliveries waits for n deliveries.
func (l *lab) deliveries(n int) []received {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return len(l.kinds()) >= n }, runenv.Patience(10*time.Second), 2*time.Millisecond, "%d deliveries, not %d", len(l.kinds()), n)
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]received{}, l.received...)
}

// answer is one answer of the API.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	raw    []byte
}

// form are parameters of a request.
type form map[string]string

func (l *lab) get(path string) answer { return l.send("GET", path, nil, "") }

func (l *lab) post(path string, f form, idempotencyKey string) answer {
	return l.send("POST", path, f, idempotencyKey)
}

func (l *lab) send(method, path string, f form, idempotencyKey string) answer {
	l.t.Helper()
	a, err := l.try(method, path, f, idempotencyKey)
	require.NoError(l.t, err)
	return a
}

func (l *lab) try(method, path string, f form, idempotencyKey string) (answer, error) {
	values := url.Values{}
	for name, value := range f {
		values.Set(name, value)
	}
	req, err := http.NewRequest(method, l.url+path, strings.NewReader(values.Encode()))
	require.NoError(l.t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if a.raw, err = io.ReadAll(res.Body); err != nil {
		return a, err
	}
	_ = json.Unmarshal(a.raw, &a.body)
	return a, nil
}

func (a answer) text(name string) string { s, _ := a.body[name].(string); return s }

// failure returns the object of Stripe's error form.
func (a answer) failure(t *testing.T) map[string]any {
	t.Helper()
	e, ok := a.body["error"].(map[string]any)
	require.True(t, ok, "no error in Stripe's form: %s", a.raw)
	require.NotEmpty(t, e["message"])
	return e
}

// wish is a valid session about an amount in US cents.
func wish(amount int) form {
	return form{
		"mode": "payment", "success_url": "https://slipway.example/paid?session={CHECKOUT_SESSION_ID}", "cancel_url": "https://slipway.example/cancelled",
		"client_reference_id": "pay_1", "line_items[0][quantity]": "1", "line_items[0][price_data][currency]": "usd",
		"line_items[0][price_data][unit_amount]": strconv.Itoa(amount), "line_items[0][price_data][product_data][name]": "Prepaid balance",
	}
}

// with returns the form with one parameter changed, or removed by "".
func (f form) with(name, value string) form {
	out := form{}
	for k, v := range f {
		out[k] = v
	}
	out[name] = value
	if value == "" {
		delete(out, name)
	}
	return out
}

func (l *lab) session(amount int) string {
	l.t.Helper()
	a := l.post("/v1/checkout/sessions", wish(amount), "")
	require.Equal(l.t, 200, a.status, "%s", a.raw)
	return a.text("id")
}

func (l *lab) fault(f stripesim.Fault) {
	l.t.Helper()
	_, err := l.AddFault(f)
	require.NoError(l.t, err)
}
