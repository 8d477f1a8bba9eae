package stripesim_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/stripespec"
)

// everyState takes payments through all states and returns each object that was seen, by its kind.
func everyState(t *testing.T) map[string][][]byte {
	l := newLab(t)
	seen := map[string][][]byte{}
	look := func(path string) {
		a := l.get(path)
		require.Equal(t, 200, a.status, "%s: %s", path, a.raw)
		seen[a.text("object")] = append(seen[a.text("object")], a.raw)
	}
	var sessions []string
	for _, currency := range []string{"usd", "eur", "jpy"} {
		for _, acts := range [][]string{
			{}, {"Expire"}, {"Pay"}, {"Decline"}, {"Decline", "Expire"}, {"Decline", "Pay"}, {"PayLater"}, {"PayLater", "Settle"}, {"PayLater", "Fail"},
		} {
			a := l.post("/v1/checkout/sessions", wish(2500).with("line_items[0][price_data][currency]", currency).with("metadata[installation]", "inst_1"), "")
			require.Equal(t, 200, a.status, "%s", a.raw)
			seen["checkout.session"] = append(seen["checkout.session"], a.raw)
			id := a.text("id")
			for _, act := range acts {
				require.NoError(t, map[string]func() error{
					"Expire": func() error { return l.Expire(id) }, "Pay": func() error { return l.Pay(id) }, "Decline": func() error { return l.Decline(id) },
					"PayLater": func() error { return l.PayLater(id) }, "Settle": func() error { return l.Settle(id, true) },
					"Fail": func() error { return l.Settle(id, false) },
				}[act](), act)
			}
			sessions = append(sessions, id)
		}
	}
	reverseSome(t, l, sessions)
	for _, id := range sessions {
		look("/v1/checkout/sessions/" + id)
	}
	for kind, path := range map[string]string{
		"charge": "charges", "refund": "refunds", "dispute": "disputes", "balance_transaction": "balance_transactions", "event": "events",
	} {
		if kind == "charge" {
			continue // Stripe lists charges; the simulator reads them one by one, below
		}
		for _, item := range l.list("/v1/" + path) {
			look("/v1/" + path + "/" + item)
		}
	}
	for _, raw := range slices.Concat(seen["event"]) {
		var e struct {
			Data struct{ Object json.RawMessage }
		}
		require.NoError(t, json.Unmarshal(raw, &e))
		var o struct{ Object, ID string }
		require.NoError(t, json.Unmarshal(e.Data.Object, &o))
		seen[o.Object] = append(seen[o.Object], e.Data.Object)
		switch o.Object {
		case "charge":
			look("/v1/charges/" + o.ID)
		case "payment_intent":
			look("/v1/payment_intents/" + o.ID)
		}
	}
	return seen
}

// reverseSome refunds and disputes some of what was paid.
func reverseSome(t *testing.T, l *lab, sessions []string) {
	part, err := l.RefundInDashboard(sessions[2], 500)
	require.NoError(t, err)
	require.NoError(t, l.SettleRefund(part, false))
	later, err := l.RefundInDashboard(sessions[7], 500)
	require.NoError(t, err)
	require.NoError(t, l.SettleRefund(later, true))
	for i, won := range map[int]bool{5: true, 11: false} {
		id, err := l.OpenDispute(sessions[i])
		require.NoError(t, err)
		require.NoError(t, l.CloseDispute(id, won))
	}
	_, err = l.OpenDispute(sessions[2])
	require.NoError(t, err)
}

// list returns the ids of all items of a list, over its pages.
func (l *lab) list(path string) []string {
	l.t.Helper()
	var out []string
	for after := ""; ; {
		a := l.get(path + "?limit=7" + after)
		require.Equal(l.t, 200, a.status, "%s", a.raw)
		items, _ := a.body["data"].([]any)
		for _, item := range items {
			out = append(out, item.(map[string]any)["id"].(string))
		}
		if a.body["has_more"] != true {
			return out
		}
		after = "&starting_after=" + out[len(out)-1]
	}
}

// Every object and event in every state is one of Stripe's own OpenAPI description, with each field
// that Stripe's examples have.
func TestObjects_AreStripes(t *testing.T) {
	t.Parallel()
	seen := everyState(t)
	require.Equal(t, []string{"balance_transaction", "charge", "checkout.session", "dispute", "event", "payment_intent", "refund"}, slices.Sorted(maps.Keys(seen)))
	for kind, objects := range seen {
		want, err := stripespec.FixtureFields(kind)
		require.NoError(t, err)
		for _, raw := range objects {
			require.NoError(t, stripespec.CheckObject(kind, raw), "%s", raw)
			var fields map[string]any
			require.NoError(t, json.Unmarshal(raw, &fields))
			for _, name := range want {
				if kind == "charge" && (name == "refunds" || name == "source") {
					continue // in answers only where a client expands them, or of an older API
				}
				require.Contains(t, fields, name, kind)
			}
		}
	}
}

// The check finds what is wrong: without this, an empty check would pass.
func TestObjects_WrongOnesAreFound(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.session(1000)
	require.NoError(t, l.Pay(id))
	a := l.get("/v1/checkout/sessions/" + id)
	require.NoError(t, stripespec.CheckObject("checkout.session", a.raw))
	for name, change := range map[string]func(o map[string]any){
		"unknown status":          func(o map[string]any) { o["status"] = "paid" },
		"unknown payment status":  func(o map[string]any) { o["payment_status"] = "settled" },
		"a time as a text":        func(o map[string]any) { o["created"] = "2026-01-01" },
		"no id":                   func(o map[string]any) { delete(o, "id") },
		"an amount as a text":     func(o map[string]any) { o["amount_total"] = "1000" },
		"null where none may be":  func(o map[string]any) { o["livemode"] = nil },
		"wrong inside an object":  func(o map[string]any) { o["automatic_tax"] = map[string]any{"enabled": "no"} },
		"another kind of object":  func(o map[string]any) { o["object"] = "charge" },
		"fractions of minor unit": func(o map[string]any) { o["amount_total"] = 10.5 },
	} {
		var o map[string]any
		require.NoError(t, json.Unmarshal(a.raw, &o))
		change(o)
		raw, err := json.Marshal(o)
		require.NoError(t, err)
		require.Error(t, stripespec.CheckObject("checkout.session", raw), name)
	}
	event := l.get("/v1/events/" + l.list("/v1/events")[0])
	require.NoError(t, stripespec.CheckObject("event", event.raw))
	delete(event.body, "pending_webhooks")
	raw, err := json.Marshal(event.body)
	require.NoError(t, err)
	require.Error(t, stripespec.CheckObject("event", raw))
}
