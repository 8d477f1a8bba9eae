package stripe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// requireKind returns the typed error.
func requireKind(t *testing.T, err error, kind providers.Kind) *providers.Error {
	t.Helper()
	var pe *providers.Error
	require.True(t, errors.As(err, &pe), "%v", err)
	require.Equal(t, kind, pe.Kind, "%v", err)
	require.Equal(t, providers.SideStripe, pe.Side())
	return pe
}

// Each failure of a create has a kind that says what to do next. However often it failed and was
// repeated by its key, there is one session at most.
func TestFaultsOfCreate(t *testing.T) {
	t.Parallel()
	always := func(f stripesim.Fault) stripesim.Fault { f.Count = -1; return f }
	for name, c := range map[string]struct {
		fault    stripesim.Fault
		kind     providers.Kind // "" is success
		spent    bool
		sessions int // after the call
		later    int // after one more call without the fault, by the same key
	}{
		"away twice":                {stripesim.Fault{Name: stripesim.FaultUnavailable, Count: 2}, "", false, 1, 1},
		"away":                      {always(stripesim.Fault{Name: stripesim.FaultUnavailable}), providers.KindUncertain, false, 0, 1},
		"500 before the effect":     {always(stripesim.Fault{Name: stripesim.FaultInternalError, Phase: stripesim.Before}), providers.KindUncertain, false, 0, 1},
		"500 after the effect":      {stripesim.Fault{Name: stripesim.FaultInternalError}, providers.KindUncertain, true, 1, 1},
		"cut before the effect":     {always(stripesim.Fault{Name: stripesim.FaultReset}), providers.KindUncertain, false, 0, 1},
		"cut after the effect":      {stripesim.Fault{Name: stripesim.FaultReset, Phase: stripesim.After}, "", false, 1, 1},
		"no answer":                 {always(stripesim.Fault{Name: stripesim.FaultTimeout}), providers.KindUncertain, false, 1, 1},
		"half an answer":            {always(stripesim.Fault{Name: stripesim.FaultTruncated}), providers.KindUncertain, false, 1, 1},
		"a proxy's answer":          {always(stripesim.Fault{Name: stripesim.FaultHTML, Phase: stripesim.After}), providers.KindUncertain, false, 1, 1},
		"too many requests":         {always(stripesim.Fault{Name: stripesim.FaultRateLimited}), providers.KindBusy, false, 0, 1},
		"the key is in use":         {always(stripesim.Fault{Name: stripesim.FaultKeyInUse}), providers.KindBusy, false, 0, 1},
		"the key of the API rolled": {stripesim.Fault{Name: stripesim.FaultUnauthorized}, providers.KindUnauthorized, false, 0, 1},
		"no right":                  {stripesim.Fault{Name: stripesim.FaultForbidden}, providers.KindForbidden, false, 0, 1},
		"redirect":                  {stripesim.Fault{Name: stripesim.FaultRedirect}, providers.KindForeign, false, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, stripesim.Options{})
			r.opt.TryTimeout = runenv.Patience(300 * time.Millisecond)
			c.fault.Op, c.fault.Params = "create_session", map[string]string{"retry_after": "0"}
			r.fault(c.fault)
			_, err := r.client().CreateSession(t.Context(), r.wish("key-1"))
			if c.kind == "" {
				require.NoError(t, err)
			} else {
				requireKind(t, err, c.kind)
			}
			require.Equal(t, c.spent, providers.IsKeySpent(err), "%v", err)
			require.Equal(t, c.sessions, r.Counters().Sessions)
			r.ClearFaults(0)
			_, err = r.client().CreateSession(t.Context(), r.wish("key-1"))
			require.Equal(t, c.spent, err != nil, "%v", err)
			require.Equal(t, c.later, r.Counters().Sessions)
		})
	}
}

// A lost answer whose key is spent: the session is found by its reference, and no second one is
// made.
func TestSpentKey_SessionIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t, stripesim.Options{})
	r.fault(stripesim.Fault{Name: stripesim.FaultInternalError, Op: "create_session"})
	_, err := r.client().CreateSession(t.Context(), r.wish("key-1"))
	require.True(t, providers.IsKeySpent(err), "%v", err)
	page, err := r.client().Sessions(t.Context(), providers.PaymentQuery{From: r.clock.Now().Add(-time.Minute)})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.Equal(t, "pay_1", page.Items[0].Reference)
}

// After 24 hours the same key makes a second session: that is what KeyLife is for.
func TestKeys_EndBeforeStripesDo(t *testing.T) {
	t.Parallel()
	r := newRig(t, stripesim.Options{})
	in := r.wish("key-1")
	first, err := r.client().CreateSession(t.Context(), in)
	require.NoError(t, err)
	r.clock.Step(providers.KeyLife)
	in.Expires = first.Expires // the same parameters
	again, err := r.client().CreateSession(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
	r.clock.Step(24*time.Hour - providers.KeyLife)
	in.Expires = r.clock.Now().Add(time.Hour)
	second, err := r.client().CreateSession(t.Context(), in)
	require.NoError(t, err)
	require.NotEqual(t, first.ID, second.ID)
}

func TestFaultsOfRead(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]providers.Kind{
		stripesim.FaultUnavailable: providers.KindUnavailable, stripesim.FaultReset: providers.KindUnreachable,
		stripesim.FaultTimeout: providers.KindUnreachable, stripesim.FaultTruncated: providers.KindProtocol,
		stripesim.FaultHTML: providers.KindUnavailable, stripesim.FaultRedirect: providers.KindForeign,
		stripesim.FaultUnauthorized: providers.KindUnauthorized, stripesim.FaultForbidden: providers.KindForbidden,
		stripesim.FaultRateLimited: providers.KindBusy, stripesim.FaultInternalError: providers.KindUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, stripesim.Options{})
			r.opt.TryTimeout = runenv.Patience(300 * time.Millisecond)
			made := r.session()
			r.fault(stripesim.Fault{Name: name, Op: "get_session", Count: -1, Params: map[string]string{"retry_after": "0"}})
			_, err := r.client().Session(t.Context(), made.ID)
			requireKind(t, err, want)
			r.fault(stripesim.Fault{Name: name, Op: "list_events", Count: -1, Params: map[string]string{"retry_after": "0"}})
			_, err = r.client().Events(t.Context(), providers.EventQuery{})
			requireKind(t, err, want)
		})
	}
}

// A deadline of the caller ends a call that would be repeated for longer.
func TestDeadline_EndsTheRepetitions(t *testing.T) {
	t.Parallel()
	r := newRig(t, stripesim.Options{})
	r.opt = stripe.Options{Wait: time.Hour, Tries: 100}
	r.fault(stripesim.Fault{Name: stripesim.FaultUnavailable, Count: -1})
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	_, err := r.client().Session(ctx, "cs_test_a1b2")
	pe := requireKind(t, err, providers.KindUnavailable)
	require.Equal(t, 3*time.Second, pe.RetryAfter)
	require.Equal(t, 1, r.Counters().Requests["get_session"], "the next try would come after the deadline")
}

// An object that was changed in Stripe's dashboard, or by an attacker on the way, is not taken for
// the requested one.
func TestAnswers_OtherThanAskedAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		kind providers.Kind
	}{
		"another amount":   {`{"id":"cs_test_a1","object":"checkout.session","status":"open","currency":"usd","amount_total":2400,"client_reference_id":"pay_1"}`, providers.KindUncertain},
		"another currency": {`{"id":"cs_test_a1","object":"checkout.session","status":"open","currency":"eur","amount_total":2500,"client_reference_id":"pay_1"}`, providers.KindUncertain},
		"another object":   {`{"id":"ch_a1","object":"charge","status":"open","currency":"usd","amount_total":2500}`, providers.KindUncertain},
		"an unknown state": {`{"id":"cs_test_a1","object":"checkout.session","status":"frozen","currency":"usd","amount_total":2500,"client_reference_id":"pay_1"}`, providers.KindUncertain},
		"the live mode":    {`{"id":"cs_live_a1","object":"checkout.session","status":"open","currency":"usd","amount_total":2500,"livemode":true}`, providers.KindForeign},
		"too much":         {`{"id":"` + strings.Repeat("x", 2000) + `"}`, providers.KindUncertain},
		"nothing":          {``, providers.KindUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.body)) }))
			t.Cleanup(srv.Close)
			p, err := stripe.Opener{Options: stripe.Options{Tries: 1, MaxBody: 1000}}.OpenPayments(providers.PaymentsAccount{
				Rule: providers.SimulatedAddresses(), URL: srv.URL, Key: providers.NewSecret(apiKey),
			})
			require.NoError(t, err)
			in := providers.SessionCreate{
				Key: "k", Reference: "pay_1", Installation: "i", Amount: 2500, Currency: "USD", Product: "x", SuccessURL: "https://a", CancelURL: "https://b",
				Expires: time.Now().Add(time.Hour),
			}
			_, err = p.CreateSession(t.Context(), in)
			requireKind(t, err, c.kind)
		})
	}
}

// A create that a server or a proxy did not see to its end may have taken effect.
func TestStatuses_UnfinishedIsUncertain(t *testing.T) {
	t.Parallel()
	for status, kind := range map[int]providers.Kind{
		408: providers.KindUncertain, 424: providers.KindUncertain, 425: providers.KindUncertain, 499: providers.KindUncertain, 400: providers.KindInvalid,
	} {
		for _, body := range []string{`{"error":{"type":"invalid_request_error","message":"m"}}`, "<html>"} {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			}))
			t.Cleanup(srv.Close)
			p, err := stripe.Opener{Options: stripe.Options{Tries: 1}}.OpenPayments(providers.PaymentsAccount{
				Rule: providers.SimulatedAddresses(), URL: srv.URL, Key: providers.NewSecret(apiKey),
			})
			require.NoError(t, err)
			_, err = p.CreateSession(t.Context(), providers.SessionCreate{
				Key: "k", Reference: "pay_1", Installation: "i", Amount: 2500, Currency: "USD", Product: "x", SuccessURL: "https://a", CancelURL: "https://b",
				Expires: time.Now().Add(time.Hour),
			})
			requireKind(t, err, kind)
		}
	}
}

// Only the status paid of a payment counts, not completion.
func TestSession_CompleteIsNotPaid(t *testing.T) {
	t.Parallel()
	r := newRig(t, stripesim.Options{})
	made := r.session()
	require.NoError(t, r.PayLater(made.ID))
	waiting, err := r.client().Session(t.Context(), made.ID)
	require.NoError(t, err)
	require.Equal(t, providers.SessionComplete, waiting.Status)
	require.False(t, waiting.Paid)
	require.NoError(t, r.Settle(made.ID, true))
	done, err := r.client().Session(t.Context(), made.ID)
	require.NoError(t, err)
	require.True(t, done.Paid)
}

func TestDisputes(t *testing.T) {
	t.Parallel()
	r := newRig(t, stripesim.Options{})
	made := r.session()
	require.NoError(t, r.Pay(made.ID))
	paid, err := r.client().Session(t.Context(), made.ID)
	require.NoError(t, err)
	id, err := r.OpenDispute(made.ID)
	require.NoError(t, err)
	d, err := r.client().Dispute(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, providers.PaymentDispute{
		ID: id, Status: "needs_response", Amount: 2500, Currency: "USD", PaymentID: paid.PaymentID, Created: d.Created,
	}, d)
	_, err = r.client().CreateRefund(t.Context(), providers.RefundCreate{Key: "refund-1", Reference: "refund-1", PaymentID: paid.PaymentID, Amount: 1})
	requireKind(t, err, providers.KindStateConflict)
	require.NoError(t, r.CloseDispute(id, true))
	d, err = r.client().Dispute(t.Context(), id)
	require.NoError(t, err)
	require.True(t, d.Won)
	page, err := r.client().Movements(t.Context(), providers.PaymentQuery{})
	require.NoError(t, err)
	var balance int64
	for _, m := range page.Items {
		balance += m.Amount
	}
	require.Equal(t, int64(2500), balance, "what was withdrawn came back")
}

func TestCreate_ChecksWhatItSends(t *testing.T) {
	t.Parallel()
	r := newRig(t, stripesim.Options{})
	for want, change := range map[string]func(in *providers.SessionCreate){
		"needs a key":         func(in *providers.SessionCreate) { in.Key = "" },
		"of 1 to 255":         func(in *providers.SessionCreate) { in.Key = strings.Repeat("k", 256) },
		"printable":           func(in *providers.SessionCreate) { in.Key = "key " },
		"an installation":     func(in *providers.SessionCreate) { in.Installation = "" },
		"name of a product":   func(in *providers.SessionCreate) { in.Product = "\xff" },
		"must be positive":    func(in *providers.SessionCreate) { in.Amount = 0 },
		"addresses to return": func(in *providers.SessionCreate) { in.CancelURL = "" },
		"three letters":       func(in *providers.SessionCreate) { in.Currency = "US" },
		"another minor unit":  func(in *providers.SessionCreate) { in.Currency = "isk" },
		"last digit is 0":     func(in *providers.SessionCreate) { in.Currency, in.Amount = "KWD", 2501 },
	} {
		in := r.wish("key-1")
		change(&in)
		_, err := r.client().CreateSession(t.Context(), in)
		require.ErrorContains(t, err, want)
		requireKind(t, err, providers.KindInvalid)
	}
	require.Empty(t, r.sent())
}

// Neither the key nor this host is shown to anybody but Stripe.
func TestRequests_SayLittle(t *testing.T) {
	t.Parallel()
	r := newRig(t, stripesim.Options{})
	made := r.session()
	_, err := r.client().Session(t.Context(), made.ID)
	require.NoError(t, err)
	for _, req := range r.sent() {
		require.Equal(t, "Slipway/1", req.Header.Get("User-Agent"))
		require.Empty(t, req.Header.Get("X-Stripe-Client-User-Agent"))
		require.Empty(t, req.Header.Get("X-Stripe-Client-Telemetry"))
		require.Equal(t, stripesim.APIVersion, req.Header.Get("Stripe-Version"))
	}
	r.fault(stripesim.Fault{Name: stripesim.FaultUnauthorized})
	_, err = r.client().Session(t.Context(), made.ID)
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprint(errors.Unwrap(err))} {
		require.NotContains(t, text, apiKey)
	}
}

func TestOpen_RefusesWrongSettings(t *testing.T) {
	t.Parallel()
	good := providers.PaymentsAccount{Rule: spec.AddressRule{Anywhere: true}, URL: stripe.DefaultURL, Key: providers.NewSecret(apiKey)}
	_, err := stripe.Opener{}.OpenPayments(good)
	require.NoError(t, err)
	for want, change := range map[string]func(a *providers.PaymentsAccount){
		"must be one such as": func(a *providers.PaymentsAccount) { a.URL = "stripe" },
		"plain base":          func(a *providers.PaymentsAccount) { a.URL = "https://api.stripe.com/v1" },
		"must be a plain":     func(a *providers.PaymentsAccount) { a.URL = "https://user@api.stripe.com" },
		"plain http":          func(a *providers.PaymentsAccount) { a.URL = "http://api.stripe.com" },
		"loopback":            func(a *providers.PaymentsAccount) { a.URL = "https://127.0.0.1" },
		"must begin with":     func(a *providers.PaymentsAccount) { a.Key = providers.NewSecret("pk_test_1234567") },
		"moves real money":    func(a *providers.PaymentsAccount) { a.Key = providers.NewSecret("sk_live_1234567") },
		"configured as live":  func(a *providers.PaymentsAccount) { a.Live = true },
		"rk_live_":            func(a *providers.PaymentsAccount) { a.Key = providers.Secret{} },
	} {
		account := good
		change(&account)
		_, err := stripe.Opener{}.OpenPayments(account)
		require.ErrorContains(t, err, want)
		requireKind(t, err, providers.KindInvalid)
	}
}

func TestLists_CheckTheirQuery(t *testing.T) {
	t.Parallel()
	r := newRig(t, stripesim.Options{})
	for want, q := range map[string]providers.PaymentQuery{
		"1 to 100":   {Limit: 101},
		"one cursor": {After: "evt_1", Before: "evt_2"},
		"no id":      {After: "evt 1"},
	} {
		_, err := r.client().Events(t.Context(), providers.EventQuery{PaymentQuery: q})
		require.ErrorContains(t, err, want)
	}
	_, err := r.client().Events(t.Context(), providers.EventQuery{Types: make([]string, 21)})
	require.ErrorContains(t, err, "20 types")
	require.Empty(t, r.sent())
}

// The account may have sessions that others made, in modes and states that are none of ours. They
// are listed, without an installation, and count as paid only for a payment.
func TestSessions_ListsThoseOfOthers(t *testing.T) {
	t.Parallel()
	const page = `{"object":"list","has_more":false,"data":[
		{"id":"cs_test_a1","object":"checkout.session","mode":"subscription","status":"complete","payment_status":"paid","currency":"usd","amount_total":900,"payment_intent":null},
		{"id":"cs_test_a2","object":"checkout.session","mode":"setup","status":null,"payment_status":"no_payment_required","currency":null,"amount_total":null},
		{"id":"cs_test_a3","object":"checkout.session","mode":"payment","status":"complete","payment_status":"paid","currency":"eur","amount_total":700,"payment_intent":"pi_3"}]}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
	t.Cleanup(srv.Close)
	p, err := stripe.Opener{}.OpenPayments(providers.PaymentsAccount{
		Rule: providers.SimulatedAddresses(), URL: srv.URL, Key: providers.NewSecret(apiKey),
	})
	require.NoError(t, err)
	found, err := p.Sessions(t.Context(), providers.PaymentQuery{})
	require.NoError(t, err)
	require.Len(t, found.Items, 3)
	for i, paid := range []bool{false, false, true} {
		require.Empty(t, found.Items[i].Installation)
		require.Equal(t, paid, found.Items[i].Paid)
	}
}
