package stripe_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/conformance"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stripespec"
)

const apiKey = "sk_test_simulated"

// rig is a simulated account behind a relay that shows each request of the client to stripe-mock.
type rig struct {
	*stripesim.Server
	t     *testing.T
	clock *simhw.Clock
	url   string // of the relay
	opt   stripe.Options
	began time.Time // a session with the same key has the same end

	mu       sync.Mutex
	requests []*http.Request
	refused  []string // by stripe-mock
}

func newRig(t *testing.T, o stripesim.Options) *rig {
	t.Helper()
	r := &rig{t: t, clock: simhw.NewClock(1), opt: stripe.Options{Wait: time.Millisecond}}
	r.began = r.clock.Now()
	o.Key, o.Clock = apiKey, r.clock
	srv, err := stripesim.New(o)
	require.NoError(t, err)
	// Cleanup of the suite still talks to the account, so it must outlive t.Context.
	at, stop, err := srv.Start(context.WithoutCancel(t.Context()), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	r.Server = srv
	target, err := url.Parse(at.URL())
	require.NoError(t, err)
	mock, err := stripespec.Mock()
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.show(mock, req)
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(relay.Close)
	r.url = relay.URL
	t.Cleanup(func() { require.Empty(t, r.refused, "stripe-mock refused what the client asked") })
	return r
}

// show sends a copy of the request to stripe-mock.
func (r *rig) show(mock http.Handler, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	kept := req.Clone(context.Background())
	kept.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	copied := req.Clone(context.Background())
	copied.Body = io.NopCloser(bytes.NewReader(body))
	mock.ServeHTTP(answer, copied)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, kept)
	if answer.Code != http.StatusOK {
		r.refused = append(r.refused, req.Method+" "+req.URL.String()+": "+answer.Body.String())
	}
}

// sent returns the requests so far.
func (r *rig) sent() []*http.Request { r.mu.Lock(); defer r.mu.Unlock(); return r.requests }

func (r *rig) account() providers.PaymentsAccount {
	return providers.PaymentsAccount{Rule: providers.SimulatedAddresses(), URL: r.url, Key: providers.NewSecret(apiKey)}
}

func (r *rig) client() providers.Payments {
	r.t.Helper()
	p, err := stripe.Opener{Options: r.opt}.OpenPayments(r.account())
	require.NoError(r.t, err)
	return p
}

func (r *rig) fault(f stripesim.Fault) {
	r.t.Helper()
	_, err := r.AddFault(f)
	require.NoError(r.t, err)
}

// wish is a valid session with this key.
func (r *rig) wish(key string) providers.SessionCreate {
	return providers.SessionCreate{
		Key: key, Reference: "pay_1", Installation: "inst_1", Amount: 2500, Currency: "USD", Product: "Prepaid balance",
		SuccessURL: "https://slipway.example/paid", CancelURL: "https://slipway.example/cancelled", Expires: r.began.Add(time.Hour),
	}
}

func (r *rig) session() providers.PaymentSession {
	r.t.Helper()
	made, err := r.client().CreateSession(r.t.Context(), r.wish("session"))
	require.NoError(r.t, err)
	return made
}

func settle(patience, every time.Duration) func(*testing.T, string, func() bool) {
	return func(t *testing.T, what string, cond func() bool) {
		t.Helper()
		for until := time.Now().Add(patience); !cond(); {
			require.True(t, time.Now().Before(until), "waited for %s", what)
			<-time.After(every)
		}
	}
}

// The client and the simulator meet, and stripe-mock sees each request.
func TestSimulator(t *testing.T) {
	t.Parallel()
	conformance.ExercisePayments(t, func(t *testing.T) conformance.PaymentsFixture {
		r := newRig(t, stripesim.Options{})
		return conformance.PaymentsFixture{
			Opener: stripe.Opener{Options: r.opt}, Account: r.account(), WrongKey: providers.NewSecret("sk_test_another"),
			Pay:    func(t *testing.T, id string) { require.NoError(t, r.Pay(id)) },
			Settle: settle(runenv.Patience(10*time.Second), 5*time.Millisecond),
		}
	})
}

// TestStripe runs the conformance suite in Stripe's test mode. It leaves expired sessions there.
//
//	SLIPWAY_TEST_STRIPE_KEY_FILE   file with a key that begins with sk_test_ or rk_test_
//
// Without a file there is no account to test; the simulator stands in always.
func TestStripe(t *testing.T) {
	t.Parallel()
	path := os.Getenv("SLIPWAY_TEST_STRIPE_KEY_FILE")
	if path == "" {
		t.Skip("set SLIPWAY_TEST_STRIPE_KEY_FILE to run in Stripe's test mode")
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	conformance.ExercisePayments(t, func(*testing.T) conformance.PaymentsFixture {
		return conformance.PaymentsFixture{
			Opener: stripe.Opener{}, WrongKey: providers.NewSecret("sk_test_51000000000000000000000000"),
			Account: providers.PaymentsAccount{
				Rule: spec.AddressRule{Anywhere: true}, URL: stripe.DefaultURL, Key: providers.NewSecret(strings.TrimSpace(string(text))),
			},
			Settle: settle(2*time.Minute, time.Second),
		}
	})
}

// stripe-mock refuses what Stripe does not take: without this, one that accepts all would pass.
func TestMock_RefusesWrongRequests(t *testing.T) {
	t.Parallel()
	mock, err := stripespec.Mock()
	require.NoError(t, err)
	for body, want := range map[string]int{
		"mode=payment&line_items[0][quantity]=1": http.StatusOK,
		"mode=bogus":                             http.StatusBadRequest,
		"mode=payment&made_up=1":                 http.StatusBadRequest,
		"mode=payment&expires_at=tomorrow":       http.StatusBadRequest,
	} {
		req := httptest.NewRequest(http.MethodPost, "/v1/checkout/sessions", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+apiKey)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := httptest.NewRecorder()
		mock.ServeHTTP(answer, req)
		require.Equal(t, want, answer.Code, "%s: %s", body, answer.Body)
	}
}
