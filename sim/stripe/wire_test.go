package stripesim_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// A request that is not simulated, or wrong, is refused in Stripe's error form, and nothing is
// made.
func TestCreate_RefusesInStripesForm(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	long := map[string]string{}
	for i := range 51 {
		long["metadata[k"+strconv.Itoa(i)+"]"] = "v"
	}
	manyKeys := wish(1000)
	for k, v := range long {
		manyKeys[k] = v
	}
	cases := map[string]struct {
		form        form
		code, param string
	}{
		"no mode":                {wish(1000).with("mode", ""), "parameter_missing", "mode"},
		"a subscription":         {wish(1000).with("mode", "subscription"), "parameter_invalid_not_simulated", "mode"},
		"a made-up parameter":    {wish(1000).with("made_up", "1"), "parameter_unknown", "made_up"},
		"a saved price":          {wish(1000).with("line_items[0][price]", "price_1"), "parameter_unknown", "line_items[0][price]"},
		"tax":                    {wish(1000).with("automatic_tax[enabled]", "true"), "parameter_invalid_not_simulated", "automatic_tax[enabled]"},
		"adaptive pricing":       {wish(1000).with("adaptive_pricing[enabled]", "true"), "parameter_invalid_not_simulated", "adaptive_pricing[enabled]"},
		"promotion codes":        {wish(1000).with("allow_promotion_codes", "true"), "parameter_invalid_not_simulated", "allow_promotion_codes"},
		"no boolean":             {wish(1000).with("allow_promotion_codes", "perhaps"), "", "allow_promotion_codes"},
		"no items":               {wish(1000).with("line_items[0][price_data][currency]", ""), "parameter_missing", "line_items"},
		"no product":             {wish(1000).with("line_items[0][price_data][product_data][name]", ""), "parameter_missing", "line_items[0][price_data][product_data][name]"},
		"a currency in capitals": {wish(1000).with("line_items[0][price_data][currency]", "USD"), "", "line_items[0][price_data][currency]"},
		"too little":             {wish(49), "amount_too_small", ""},
		"negative":               {wish(-5), "parameter_invalid_integer", "line_items[0][price_data][unit_amount]"},
		"too much":               {wish(60_000_000).with("line_items[0][quantity]", "2"), "amount_too_large", ""},
		"much too much":          {wish(99_999_999).with("line_items[0][quantity]", "999999"), "amount_too_large", "line_items[0][price_data][unit_amount]"},
		"no number":              {wish(1000).with("line_items[0][price_data][unit_amount]", "10.00"), "parameter_invalid_integer", "line_items[0][price_data][unit_amount]"},
		"fractions of a dinar":   {wish(1001).with("line_items[0][price_data][currency]", "kwd"), "", "line_items"},
		"no page to return to":   {wish(1000).with("success_url", "javascript:alert(1)"), "url_invalid", "success_url"},
		"an end too soon":        {wish(1000).with("expires_at", strconv.FormatInt(l.clock.Now().Add(29*time.Minute).Unix(), 10)), "", "expires_at"},
		"an end too late":        {wish(1000).with("expires_at", strconv.FormatInt(l.clock.Now().Add(25*time.Hour).Unix(), 10)), "", "expires_at"},
		"a long reference":       {wish(1000).with("client_reference_id", strings.Repeat("x", 201)), "", "client_reference_id"},
		"much metadata":          {manyKeys, "", "metadata"},
		"long metadata":          {wish(1000).with("metadata[k]", strings.Repeat("x", 501)), "", "metadata[k]"},
		"a method of no country": {wish(1000).with("payment_method_types[0]", "oxxo"), "parameter_invalid_not_simulated", "payment_method_types"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := l.post("/v1/checkout/sessions", c.form, "refused-"+name)
			require.Equal(t, 400, a.status, "%s", a.raw)
			e := a.failure(t)
			require.Equal(t, "invalid_request_error", e["type"])
			code, _ := e["code"].(string)
			param, _ := e["param"].(string)
			require.Equal(t, c.code, code, "%s", a.raw)
			require.Equal(t, c.param, param, "%s", a.raw)
			// A refusal of the parameters is not stored: the same key may be used again.
			again := l.post("/v1/checkout/sessions", wish(1000), "refused-"+name)
			require.Equal(t, 200, again.status, "%s", again.raw)
		})
	}
	require.Equal(t, len(cases), l.Counters().Sessions, "only the valid ones were made")
}

func TestRequests_RefusesWhatIsNotStripes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1/customers", 404},
		{"POST", "/v1/payment_intents", 404},
		{"DELETE", "/v1/checkout/sessions/cs_test_1", 404},
		{"GET", "/v2/core/events", 404},
		{"GET", "/", 404},
		{"GET", "/v1/checkout/sessions/cs_test_unknown", 404},
		{"POST", "/v1/checkout/sessions/cs_test_unknown/expire", 404},
		{"GET", "/v1/payment_intents/pi_unknown", 404},
		{"GET", "/v1/charges/ch_unknown", 404},
		{"GET", "/v1/refunds/re_unknown", 404},
		{"GET", "/v1/disputes/du_unknown", 404},
		{"GET", "/v1/balance_transactions/txn_unknown", 404},
		{"GET", "/v1/events/evt_unknown", 404},
		{"GET", "/v1/events?starting_after=evt_unknown", 400},
		{"GET", "/v1/events?limit=101", 400},
		{"GET", "/v1/events?limit=x", 400},
		{"GET", "/v1/events?type=a&types[]=b", 400},
		{"GET", "/v1/events?starting_after=a&ending_before=b", 400},
		{"GET", "/v1/checkout/sessions?expand[]=data.customer", 400},
		{"GET", "/v1/checkout/sessions?status=paid", 400},
	} {
		a := l.send(c.method, c.path, nil, "")
		require.Equal(t, c.status, a.status, "%s %s: %s", c.method, c.path, a.raw)
		require.Equal(t, "invalid_request_error", a.failure(t)["type"])
		require.NotEmpty(t, a.header.Get("Request-Id"))
	}
}

func TestHeaders_AreChecked(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for name, c := range map[string]struct {
		header, value string
		status        int
	}{
		"no key":              {"Authorization", "", 401},
		"another key":         {"Authorization", "Bearer sk_test_another_key", 401},
		"a basic login":       {"Authorization", "Basic c2tfdGVzdF9zaW11bGF0ZWQ6", 200},
		"another release":     {"Stripe-Version", "2025-11-17.clover", 400},
		"the same release":    {"Stripe-Version", "2026-08-26.dahlia", 200},
		"a connected account": {"Stripe-Account", "acct_1", 400},
	} {
		req, err := http.NewRequest("GET", l.url+"/v1/events", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set(c.header, c.value)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = res.Body.Close()
		require.Equal(t, c.status, res.StatusCode, name)
	}
	for _, wrong := range []string{"", "sk_test", "pk_test_12345", "sk_prod_12345"} {
		_, err := stripesim.New(stripesim.Options{Key: wrong})
		require.Error(t, err)
	}
}

// A key makes one session: it replays the first answer, checks the parameters, and ends after a
// day.
func TestIdempotency_KeyMakesOneSession(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	first := l.post("/v1/checkout/sessions", wish(1000), "k1")
	require.Equal(t, 200, first.status)
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	for range 5 {
		again := l.post("/v1/checkout/sessions", wish(1000), "k1")
		require.Equal(t, string(first.raw), string(again.raw))
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		require.Equal(t, first.header.Get("Request-Id"), again.header.Get("Original-Request"))
	}
	other := l.post("/v1/checkout/sessions", wish(1001), "k1")
	require.Equal(t, 400, other.status)
	require.Equal(t, "idempotency_error", other.failure(t)["type"])
	elsewhere := l.post("/v1/refunds", form{"payment_intent": "pi_1"}, "k1")
	require.Equal(t, "idempotency_error", elsewhere.failure(t)["type"])
	require.Equal(t, 1, l.Counters().Sessions)
	long := l.post("/v1/checkout/sessions", wish(1000), strings.Repeat("k", 256))
	require.Equal(t, 400, long.status)

	l.clock.Step(24 * time.Hour)
	late := l.post("/v1/checkout/sessions", wish(1000), "k1")
	require.Equal(t, 200, late.status)
	require.NotEqual(t, first.text("id"), late.text("id"), "a forgotten key makes a second session")
	require.Equal(t, 2, l.Counters().Sessions)
}

// A failure after the endpoint began is stored: status 500 although the session is there, and a
// refusal by the state.
func TestIdempotency_FailuresAreStored(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fault(stripesim.Fault{Name: stripesim.FaultInternalError, Op: "create_session"})
	for range 3 {
		a := l.post("/v1/checkout/sessions", wish(1000), "k1")
		require.Equal(t, 500, a.status)
		require.Equal(t, "api_error", a.failure(t)["type"])
		require.Equal(t, "false", a.header.Get("Stripe-Should-Retry"))
	}
	require.Equal(t, 1, l.Counters().Sessions)

	id := l.session(1000)
	require.NoError(t, l.Pay(id))
	intent := l.get("/v1/checkout/sessions/" + id).text("payment_intent")
	ask := form{"payment_intent": intent, "amount": "900"}
	require.Equal(t, 200, l.post("/v1/refunds", ask, "r1").status)
	refused := l.post("/v1/refunds", ask, "r2")
	require.Equal(t, 400, refused.status)
	again := l.post("/v1/refunds", ask, "r2")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(refused.raw), string(again.raw))
	require.Equal(t, 1, l.Counters().Refunds)
}

func TestLists_PageBothWays(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var ids []string
	for range 11 {
		ids = append([]string{l.session(1000)}, ids...) // the newest first
	}
	require.Equal(t, ids, l.list("/v1/checkout/sessions"))
	page := func(query string) (out []string, more bool) {
		a := l.get("/v1/checkout/sessions?" + query)
		require.Equal(t, 200, a.status, "%s", a.raw)
		for _, item := range a.body["data"].([]any) {
			out = append(out, item.(map[string]any)["id"].(string))
		}
		return out, a.body["has_more"].(bool)
	}
	got, more := page("")
	require.Equal(t, ids[:10], got)
	require.True(t, more)
	got, more = page("limit=3&ending_before=" + ids[8])
	require.Equal(t, ids[5:8], got, "those next to the cursor")
	require.True(t, more)
	got, more = page("limit=3&ending_before=" + ids[2])
	require.Equal(t, ids[:2], got)
	require.False(t, more)
	got, more = page("limit=3&starting_after=" + ids[8])
	require.Equal(t, ids[9:], got)
	require.False(t, more)
	now := l.clock.Now().Unix()
	got, _ = page("limit=100&created[gte]=" + strconv.FormatInt(now-60, 10))
	require.Equal(t, ids, got)
	got, _ = page("limit=100&created[lt]=" + strconv.FormatInt(now-60, 10))
	require.Empty(t, got)
	require.NoError(t, l.Expire(ids[4]))
	got, _ = page("limit=100&status=expired")
	require.Equal(t, []string{ids[4]}, got)
}
