package stripesim_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const completed = "checkout.session.completed"

// sessions are the deliveries about sessions alone.
func sessionKinds(kinds []string) []string {
	return slices.DeleteFunc(kinds, func(kind string) bool { return !strings.HasPrefix(kind, "checkout.session") })
}

// Each way to pay sends Stripe's events, in the order of their making when nothing disturbs it.
func TestEvents_OfEachWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		acts []string
		want []string
	}{
		"pay":     {[]string{"pay"}, []string{"payment_intent.created", "charge.succeeded", "payment_intent.succeeded", completed}},
		"decline": {[]string{"decline"}, []string{"payment_intent.created", "charge.failed", "payment_intent.payment_failed"}},
		"expire":  {[]string{"expire"}, []string{"checkout.session.expired"}},
		"later, arrived": {[]string{"pay_later", "settle"}, []string{
			"payment_intent.created", "charge.pending", "payment_intent.processing", completed,
			"charge.succeeded", "payment_intent.succeeded", "checkout.session.async_payment_succeeded",
		}},
		"later, failed": {[]string{"pay_later", "settle_failed"}, []string{
			"payment_intent.created", "charge.pending", "payment_intent.processing", completed,
			"charge.failed", "payment_intent.payment_failed", "checkout.session.async_payment_failed",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			id := l.session(2500)
			for _, act := range c.acts {
				_, err := l.Do(stripesim.Act{Act: act, ID: id})
				require.NoError(t, err)
			}
			l.deliveries(len(c.want))
			require.Equal(t, c.want, l.kinds())
			l.delivered()
			require.Empty(t, l.get("/v1/events?delivery_success=false").body["data"])
		})
	}
}

func TestEvents_OfReversals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.session(2500)
	require.NoError(t, l.Pay(id))
	refund, err := l.RefundInDashboard(id, 500)
	require.NoError(t, err)
	require.NoError(t, l.SettleRefund(refund, false))
	dispute, err := l.OpenDispute(id)
	require.NoError(t, err)
	require.NoError(t, l.CloseDispute(dispute, true))
	l.deliveries(12)
	require.Equal(t, []string{
		"refund.created", "charge.refunded", "refund.updated", "refund.failed", "charge.dispute.created", "charge.dispute.funds_withdrawn",
		"charge.dispute.funds_reinstated", "charge.dispute.closed",
	}, l.kinds()[4:])
}

// Faults of events and deliveries: what the receiver sees, and what the list of events says.
func TestFaults_OfDeliveries(t *testing.T) {
	t.Parallel()
	pay := func(l *lab) string {
		id := l.session(2500)
		require.NoError(l.t, l.Pay(id))
		return id
	}
	listed := func(l *lab, query string) int {
		data, _ := l.get("/v1/events?type=" + completed + query).body["data"].([]any)
		return len(data)
	}
	for name, check := range map[string]func(t *testing.T, l *lab){
		stripesim.FaultDrop: func(t *testing.T, l *lab) {
			pay(l)
			l.deliveries(3)
			require.NotContains(t, l.kinds(), completed)
			require.Equal(t, 1, listed(l, "&delivery_success=false"), "it is found among the undelivered ones")
		},
		stripesim.FaultEventNotGenerated: func(t *testing.T, l *lab) {
			pay(l)
			l.deliveries(3)
			require.Zero(t, listed(l, ""))
			require.Equal(t, 1, l.Counters().NotGenerated)
		},
		stripesim.FaultDuplicate: func(t *testing.T, l *lab) {
			pay(l)
			got := l.deliveries(5)
			require.Equal(t, got[3].id, got[4].id)
			require.Equal(t, 1, listed(l, ""))
		},
		stripesim.FaultReorder: func(t *testing.T, l *lab) {
			pay(l)
			l.deliveries(3)
			require.Empty(t, sessionKinds(l.kinds()))
			require.NoError(t, l.Expire(l.session(1000)))
			l.deliveries(5)
			require.Equal(t, []string{"checkout.session.expired", completed}, sessionKinds(l.kinds()))
		},
		stripesim.FaultDelay: func(t *testing.T, l *lab) {
			pay(l)
			l.deliveries(3)
			require.Empty(t, sessionKinds(l.kinds()))
			l.clock.Step(time.Minute)
			require.Equal(t, completed, l.deliveries(4)[3].kind)
		},
		stripesim.FaultBadSignature: func(t *testing.T, l *lab) {
			pay(l)
			got := l.deliveries(4)[3]
			require.NotEqual(t, stripesim.SignatureHeader(headerTime(t, got.header), got.body, secret), got.header)
		},
		stripesim.FaultBody: func(t *testing.T, l *lab) {
			pay(l)
			got := l.deliveries(4)[3]
			require.NotEqual(t, stripesim.SignatureHeader(headerTime(t, got.header), got.body, secret), got.header)
		},
		stripesim.FaultStale: func(t *testing.T, l *lab) {
			pay(l)
			require.WithinDuration(t, l.clock.Now().Add(-24*time.Hour), headerTime(t, l.deliveries(4)[3].header), time.Hour)
		},
		stripesim.FaultFuture: func(t *testing.T, l *lab) {
			pay(l)
			require.WithinDuration(t, l.clock.Now().Add(24*time.Hour), headerTime(t, l.deliveries(4)[3].header), time.Hour)
		},
		stripesim.FaultEventVersion: func(t *testing.T, l *lab) {
			pay(l)
			require.Contains(t, string(l.deliveries(4)[3].body), `"api_version": "2025-11-17.clover"`)
		},
		stripesim.FaultEventAmount: func(t *testing.T, l *lab) {
			id := pay(l)
			got := l.deliveries(4)[3]
			require.Contains(t, string(got.body), `"amount_total": 2501`)
			require.Equal(t, stripesim.SignatureHeader(headerTime(t, got.header), got.body, secret), got.header, "the signature is valid")
			require.Equal(t, 2500.0, l.get("/v1/checkout/sessions/" + id).body["amount_total"], "the session itself says the truth")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.fault(stripesim.Fault{Name: name, Op: completed})
			check(t, l)
			require.Equal(t, 1, l.Faults()[0].Applied)
		})
	}
}

func headerTime(t *testing.T, header string) time.Time {
	t.Helper()
	stamp, _, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	require.NoError(t, err)
	return time.Unix(seconds, 0)
}

// A session that is read can lie too: the client has to compare.
func TestFaults_AmountOfSession(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.session(2500)
	l.fault(stripesim.Fault{Name: stripesim.FaultAmount, Params: map[string]string{"by": "-500"}})
	require.Equal(t, 2000.0, l.get("/v1/checkout/sessions/" + id).body["amount_total"])
	require.Equal(t, 2500.0, l.get("/v1/checkout/sessions/" + id).body["amount_total"])
}

// A refused delivery comes again for three days; an accepted one does not.
func TestDelivery_IsRepeated(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.answerWith(http.StatusInternalServerError)
	require.NoError(t, l.Expire(l.session(1000)))
	l.deliveries(1)
	l.repeat(2)
	l.answerWith(http.StatusOK)
	got := l.repeat(3)
	require.Equal(t, got[0].id, got[2].id)
	l.delivered()
	l.clock.Step(72 * time.Hour)
	attempts := l.Attempts()
	require.Len(t, attempts, 3)
	require.Equal(t, []bool{false, false, true}, []bool{attempts[0].Accepted, attempts[1].Accepted, attempts[2].Accepted})
	require.NoError(t, l.Redeliver(got[0].id))
	l.deliveries(4)
}

// delivered waits until an endpoint has accepted each delivery.
func (l *lab) delivered() {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.Undelivered() == 0 }, runenv.Patience(10*time.Second), 2*time.Millisecond)
}

// repeat steps the clock until there are n deliveries.
func (l *lab) repeat(n int) []received {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		l.clock.Step(6 * time.Minute)
		return len(l.kinds()) >= n
	}, runenv.Patience(10*time.Second), 5*time.Millisecond)
	return l.deliveries(n)
}

// Events end after 30 days, also as a cursor.
func TestEvents_EndAfter30Days(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	require.NoError(t, l.Expire(l.session(1000)))
	id := l.list("/v1/events")[0]
	l.clock.Step(30*24*time.Hour + time.Minute)
	require.Empty(t, l.list("/v1/events"))
	require.Equal(t, 404, l.get("/v1/events/"+id).status)
	require.Equal(t, 400, l.get("/v1/events?ending_before="+id).status)
}

// Scenario control over HTTP does what the methods do.
func TestAdmin(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	call := func(method, path, body string) (int, map[string]any) {
		req, err := http.NewRequest(method, l.admin+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(res.Body)
		require.NoError(t, err)
		var out map[string]any
		_ = json.Unmarshal(b.Bytes(), &out)
		return res.StatusCode, out
	}
	id := l.session(2500)
	status, out := call("POST", "faults/", `{"name": "unavailable", "op": "get_session"}`)
	require.Equal(t, 201, status)
	require.Equal(t, 1.0, out["id"])
	require.Equal(t, 503, l.get("/v1/checkout/sessions/"+id).status)
	for _, bad := range []string{`{"name": "gremlins"}`, `{"name": "timeout", "params": {"delay": "soon"}}`, `{"name": "timeout", "phase": "never"}`, `{"nam": ""}`, `{"name": "timeout", "machine": "gpu-1"}`, `{"name": "timeout", "tag": "x"}`, `{"name": "timeout", "params": {"x": "1"}}`, `{"name": "delivery_duplicated", "params": {"copies": "0"}}`} {
		status, _ = call("POST", "faults/", bad)
		require.Equal(t, 400, status, bad)
	}
	status, _ = call("DELETE", "faults/1", "")
	require.Equal(t, 204, status)
	require.Empty(t, l.Faults())
	status, _ = call("POST", "acts", `{"act": "pay", "id": "`+id+`"}`)
	require.Equal(t, 200, status)
	status, _ = call("POST", "acts", `{"act": "pay", "id": "`+id+`"}`)
	require.Equal(t, 409, status)
	status, out = call("POST", "acts", `{"act": "refund", "id": "`+id+`", "amount": 500}`)
	require.Equal(t, 200, status)
	require.NotEmpty(t, out["id"])
	for _, bad := range []string{`{"act": "rob", "id": "x"}`, `{"act": "refund", "id": "` + id + `"}`, `{"act": "pay", "id": "x"}`, `{"act": "dispute", "id": "x"}`} {
		status, _ = call("POST", "acts", bad)
		require.Equal(t, 400, status, bad)
	}
	status, out = call("GET", "totals", "")
	require.Equal(t, 200, status)
	require.Equal(t, map[string]any{"paid": 2500.0, "refunded": 500.0, "disputed": 0.0}, out["usd"])
	status, out = call("GET", "counters", "")
	require.Equal(t, 200, status)
	require.Equal(t, 1.0, out["sessions"])
	before := l.clock.Now()
	status, _ = call("POST", "clock/step?by=2h", "")
	require.Equal(t, 200, status)
	require.GreaterOrEqual(t, l.clock.Now().Sub(before), 2*time.Hour)
	status, _ = call("POST", "endpoints", `{"url": "ftp://x", "secrets": ["whsec_x"]}`)
	require.Equal(t, 400, status)
	status, _ = call("POST", "secrets", `{"secrets": ["whsec_rolled", "whsec_simulated"]}`)
	require.Equal(t, 200, status)
	l.delivered() // what was sent with the old signature
	n := len(l.kinds())
	require.NoError(t, l.Expire(l.session(1000)))
	last := l.deliveries(n + 1)[n]
	require.Equal(t, stripesim.SignatureHeader(headerTime(t, last.header), last.body, "whsec_rolled", secret), last.header)
	status, out = call("GET", "fault-names", "")
	require.Equal(t, 200, status)
	require.Contains(t, out, stripesim.FaultDrop)
	require.ErrorIs(t, l.Pay(id), simcontrol.ErrNoEffect)
}
