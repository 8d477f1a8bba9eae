package stripesim_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// status is what the API says about a session.
func (l *lab) status3(id string) [3]any {
	a := l.get("/v1/checkout/sessions/" + id)
	return [3]any{a.body["status"], a.body["payment_status"], a.body["url"] != nil}
}

// Each way through a session: its states, and which acts are refused.
func TestSession_States(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		acts    []string
		want    [3]any
		refused []string // acts that have no effect then
	}{
		"open":            {nil, [3]any{"open", "unpaid", true}, []string{"settle", "settle_failed"}},
		"paid":            {[]string{"pay"}, [3]any{"complete", "paid", false}, []string{"pay", "pay_later", "decline", "expire", "settle"}},
		"declined":        {[]string{"decline"}, [3]any{"open", "unpaid", true}, []string{"settle"}},
		"declined, paid":  {[]string{"decline", "decline", "pay"}, [3]any{"complete", "paid", false}, []string{"pay"}},
		"expired":         {[]string{"expire"}, [3]any{"expired", "unpaid", false}, []string{"pay", "pay_later", "decline", "expire"}},
		"under way":       {[]string{"pay_later"}, [3]any{"complete", "unpaid", false}, []string{"pay", "expire"}},
		"arrived":         {[]string{"pay_later", "settle"}, [3]any{"complete", "paid", false}, []string{"settle", "settle_failed"}},
		"did not arrive":  {[]string{"pay_later", "settle_failed"}, [3]any{"complete", "unpaid", false}, []string{"settle", "pay"}},
		"declined, ended": {[]string{"decline", "expire"}, [3]any{"expired", "unpaid", false}, []string{"pay"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			id := l.session(2500)
			for _, act := range c.acts {
				_, err := l.Do(stripesim.Act{Act: act, ID: id})
				require.NoError(t, err, act)
			}
			require.Equal(t, c.want, l.status3(id))
			for _, act := range c.refused {
				_, err := l.Do(stripesim.Act{Act: act, ID: id})
				require.True(t, errors.Is(err, simcontrol.ErrNoEffect), "%s: %v", act, err)
			}
			require.Equal(t, c.want, l.status3(id))
		})
	}
}

// A session ends by the clock, and says so by webhook.
func TestSession_ExpiresByItself(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id, other := l.session(2500), l.session(2500)
	require.NoError(t, l.Pay(other))
	l.clock.Step(24*time.Hour - time.Minute)
	require.Equal(t, [3]any{"open", "unpaid", true}, l.status3(id))
	l.clock.Step(time.Minute)
	require.Eventually(t, func() bool { return l.status3(id)[0] == "expired" }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	require.Equal(t, "complete", l.status3(other)[0])
}

// The balance is what was paid, less what went back. A refund that fails, and a dispute that is
// won, bring the money back.
func TestMoney_AddsUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	balance := func() (sum int64) {
		for _, id := range l.list("/v1/balance_transactions") {
			sum += int64(l.get("/v1/balance_transactions/" + id).body["amount"].(float64))
		}
		return sum
	}
	first, second, third := l.session(2500), l.session(4000), l.session(1000)
	require.NoError(t, l.Pay(first))
	require.NoError(t, l.Pay(second))
	require.NoError(t, l.PayLater(third))
	require.Equal(t, int64(6500), balance(), "what is under way has not arrived")
	require.NoError(t, l.Settle(third, true))
	require.Equal(t, int64(7500), balance())

	part, err := l.RefundInDashboard(first, 700)
	require.NoError(t, err)
	require.Equal(t, int64(6800), balance())
	require.NoError(t, l.SettleRefund(part, false))
	require.Equal(t, int64(7500), balance())
	_, err = l.RefundInDashboard(first, 2501)
	require.ErrorIs(t, err, simcontrol.ErrNoEffect)
	_, err = l.RefundInDashboard(first, 2500)
	require.NoError(t, err)
	_, err = l.OpenDispute(first)
	require.ErrorIs(t, err, simcontrol.ErrNoEffect, "nothing is left to dispute")

	won, err := l.OpenDispute(second)
	require.NoError(t, err)
	require.Equal(t, int64(1000), balance())
	_, err = l.OpenDispute(second)
	require.ErrorIs(t, err, simcontrol.ErrNoEffect)
	require.NoError(t, l.CloseDispute(won, true))
	require.ErrorIs(t, l.CloseDispute(won, false), simcontrol.ErrNoEffect)
	require.Equal(t, int64(5000), balance())
	require.Equal(t, map[string]stripesim.Totals{"usd": {Paid: 7500, Refunded: 2500}}, l.Totals())
}

// The payer's page: its buttons, and what they lead to.
func TestPage(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	noRedirect := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	press := func(page, button string) (int, string, string) {
		res, err := noRedirect.PostForm(page, url.Values{"do": {button}})
		require.NoError(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, res.Header.Get("Location"), string(b)
	}
	open := func() (string, string) {
		a := l.post("/v1/checkout/sessions", wish(2500).with("line_items[0][price_data][product_data][name]", "<script>alert(1)</script>"), "")
		require.Equal(t, 200, a.status, "%s", a.raw)
		return a.text("id"), a.text("url")
	}
	id, page := open()
	require.True(t, strings.HasPrefix(page, l.url))
	res, err := http.Get(page)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	_ = res.Body.Close()
	require.NotContains(t, string(text), "<script>", "a name of a product is text")
	for _, button := range []string{">Pay<", ">Pay later<", ">Decline<", ">Cancel<"} {
		require.Contains(t, string(text), button)
	}

	status, to, _ := press(page, "cancel")
	require.Equal(t, 303, status)
	require.Equal(t, "https://slipway.example/cancelled", to)
	require.Equal(t, "open", l.status3(id)[0])
	status, _, shown := press(page, "decline")
	require.Equal(t, 200, status)
	require.Contains(t, shown, "Your card was declined.")
	status, to, _ = press(page, "pay")
	require.Equal(t, 303, status)
	require.Equal(t, "https://slipway.example/paid?session="+id, to)
	require.Equal(t, [3]any{"complete", "paid", false}, l.status3(id))
	status, _, shown = press(page, "pay")
	require.Equal(t, 409, status)
	require.Contains(t, shown, "can no longer be paid")
	status, _, _ = press(page, "steal")
	require.Equal(t, 400, status)
	status, _, _ = press(l.url+"/c/pay/cs_test_unknown", "pay")
	require.Equal(t, 404, status)

	id, page = open()
	status, _, _ = press(page, "pay_later")
	require.Equal(t, 303, status)
	require.Equal(t, [3]any{"complete", "unpaid", false}, l.status3(id))
}
