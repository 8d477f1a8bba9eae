package tenancy_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/stripeaccount"
)

const returnURL = "https://portal.example.com/portal/"

// checkout asks for a payment page as the owner of a tenant's project.
func (w *world) checkout(v tenant, minor int64, headers ...header) answer {
	w.t.Helper()
	return w.do(v.owner, "POST", "/projects/"+v.project+"/payments/checkout-session",
		map[string]any{"amount_minor": minor, "success_url": returnURL, "cancel_url": returnURL}, headers...)
}

func (a answer) number(name string) int64 {
	a.t.Helper()
	var body map[string]any
	require.NoError(a.t, json.Unmarshal(a.raw, &body), string(a.raw))
	n, _ := body[name].(float64)
	return int64(n)
}

func (w *world) balance(v tenant) int64 {
	w.t.Helper()
	return w.do(v.owner, "GET", "/projects/"+v.project+"/balance", nil).want(http.StatusOK).number("balance_minor")
}

// runPayments runs the jobs of payments, which a worker does otherwise.
func (w *world) runPayments() {
	w.t.Helper()
	require.NoError(w.t, stripeaccount.Jobs(w.pay).Due(w.t.Context()))
}

// The payer pays on the page, lands, and reads the payment: no webhook and no pass is needed. The
// handler starts a job, which credits.
func TestCheckout_TopsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	key := header{"Idempotency-Key": "top-up-1"}
	var mu sync.Mutex
	var wg sync.WaitGroup
	made := map[string]int{}
	for range 4 { // an impatient browser
		wg.Go(func() {
			got := w.checkout(v, 2500, key)
			mu.Lock()
			defer mu.Unlock()
			made[got.field("id")]++
		})
	}
	wg.Wait()
	require.Len(t, made, 1)
	first := w.checkout(v, 2500, key).want(http.StatusCreated)
	require.Equal(t, "initiated", first.field("status"))
	require.True(t, strings.HasPrefix(first.field("url"), "http://127."), first.field("url"))
	require.NotContains(t, string(first.raw), "v-owner", "who asked is for operators")
	at := "/projects/" + v.project + "/payments/sessions/" + first.field("id")
	require.Equal(t, op.Prefix+at, first.header.Get("Location"))
	w.do(v.owner, "GET", at, nil).want(http.StatusOK)
	require.NoError(t, w.stripe.Pay(first.field("stripe_checkout_session_id")))
	require.Zero(t, w.balance(v))
	w.exec("UPDATE payment_sessions SET looked_at = NULL")
	require.Equal(t, "checkout_completed", w.do(v.owner, "GET", at, nil).want(http.StatusOK).field("status"))
	require.Zero(t, w.balance(v), "no handler credits")
	w.runPayments()
	after := w.do(v.owner, "GET", at, nil).want(http.StatusOK)
	require.Equal(t, "credited", after.field("status"))
	require.Empty(t, after.field("url"), "the page is closed")
	require.Equal(t, int64(2500), w.balance(v))
	again := w.checkout(v, 2500, key).want(http.StatusCreated)
	require.Equal(t, first.field("id"), again.field("id"))
	require.Equal(t, "credited", again.field("status"))
	require.Equal(t, 2, w.stripe.Counters().Sessions, "one for the tenant, and one")
	list := string(w.do(v.owner, "GET", "/projects/"+v.project+"/payments/sessions?status=credited", nil).want(http.StatusOK).raw)
	require.Contains(t, list, first.field("id"))
	require.NotContains(t, list, v.ids["payment_id"], "which is initiated")
}

func TestCheckout_Refusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	path := "/projects/" + v.project + "/payments/checkout-session"
	w.checkout(v, 2500, header{"Idempotency-Key": ""}).want(http.StatusBadRequest)
	for amount, says := range map[int64]string{499: "5.00 to 10000.00 USD", 1_000_001: "5.00 to 10000.00 USD", 0: "amount_minor", -5: "amount_minor", 1 << 50: "amount_minor"} {
		require.Contains(t, string(w.checkout(v, amount).want(http.StatusUnprocessableEntity).raw), says)
	}
	for _, to := range []string{"https://evil.example/", "http://portal.example.com/", "javascript:alert(1)", "https://portal.example.com@evil.example/", "//portal.example.com", "https://portal.example.com.evil.example/"} {
		got := w.do(v.owner, "POST", path, map[string]any{"amount_minor": 2500, "success_url": returnURL, "cancel_url": to}).want(http.StatusUnprocessableEntity)
		require.Contains(t, string(got.raw), "cancel_url", to)
	}
	w.checkout(v, 2500, header{"Idempotency-Key": "one"}).want(http.StatusCreated)
	require.Contains(t, string(w.checkout(v, 2600, header{"Idempotency-Key": "one"}).want(http.StatusConflict).raw), "new key")
	require.Equal(t, 2, w.stripe.Counters().Sessions)
	w.pay.Policy.SessionsPerHour = 2
	w.checkout(v, 2500).want(http.StatusTooManyRequests)
	w.checkout(v, 2500, header{"Idempotency-Key": "one"}).want(http.StatusCreated)
}

// A payer who is told to try again gets one page, whatever became of the first call.
func TestCheckout_GoesOnAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{stripesim.FaultReset, stripesim.FaultTruncated, stripesim.FaultUnauthorized} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			v := w.newTenant("alpha")
			_, err := w.stripe.AddFault(stripesim.Fault{Name: fault, Op: "create_session", Count: -1})
			require.NoError(t, err)
			key := header{"Idempotency-Key": "again"}
			got := w.checkout(v, 2500, key).want(http.StatusServiceUnavailable)
			require.NotEmpty(t, got.header.Get("Retry-After"))
			require.Contains(t, string(got.raw), "same Idempotency-Key")
			require.NotContains(t, string(got.raw), "sk_test", "what Stripe says is for operators")
			w.stripe.ClearFaults(0)
			var last answer
			for range 3 { // a key that is spent costs a try
				if last = w.checkout(v, 2500, key); last.status == http.StatusCreated {
					break
				}
			}
			last.want(http.StatusCreated)
			require.NoError(t, w.stripe.Pay(last.field("stripe_checkout_session_id")))
			w.do(v.owner, "GET", "/projects/"+v.project+"/payments/sessions/"+last.field("id"), nil).want(http.StatusOK)
			w.runPayments()
			require.Equal(t, int64(2500), w.balance(v))
		})
	}
}

// TestPayments_OperatorResolves pays another amount than was asked for, which no program credits.
func TestPayments_OperatorResolves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	operator, err := op.CreateToken(t.Context(), w.store, "the-operator", []string{"operator"}, time.Hour)
	require.NoError(t, err)
	page := w.checkout(v, 2500).want(http.StatusCreated)
	_, err = w.stripe.AddFault(stripesim.Fault{Name: stripesim.FaultAmount, Count: -1})
	require.NoError(t, err)
	require.NoError(t, w.stripe.Pay(page.field("stripe_checkout_session_id")))
	mine, admin := "/projects/"+v.project+"/payments/sessions/"+page.field("id"), "/admin/payments/sessions/"+page.field("id")
	w.do(v.owner, "GET", mine, nil).want(http.StatusOK)
	w.runPayments()
	require.Equal(t, "failed_reconcile", w.do(v.owner, "GET", mine, nil).want(http.StatusOK).field("status"))
	w.stripe.ClearFaults(0)
	stuck := string(w.do(operator, "GET", "/admin/payments/sessions?stuck=true", nil).want(http.StatusOK).raw)
	require.Contains(t, stuck, page.field("id"))
	require.NotContains(t, stuck, v.ids["payment_id"], "which was asked for a moment ago")
	require.Equal(t, stuck, string(w.do(operator, "GET", "/admin/payments/sessions", nil).want(http.StatusOK).raw), "the address alone shows what is stuck")
	require.Contains(t, string(w.do(operator, "GET", "/admin/payments/sessions?stuck=false", nil).want(http.StatusOK).raw), v.ids["payment_id"])
	require.Contains(t, stuck, "oidc:alpha-owner")
	for _, filter := range []string{"billing_account_id=" + v.account, "project_id=" + v.project, "status=failed_reconcile"} {
		require.Contains(t, string(w.do(operator, "GET", "/admin/payments/sessions?"+filter, nil).want(http.StatusOK).raw), page.field("id"))
	}
	require.NotContains(t, string(w.do(operator, "GET", "/admin/payments/sessions?billing_account_id=acc_none", nil).want(http.StatusOK).raw), page.field("id"))

	w.do(operator, "POST", admin+"/resolve", map[string]any{"resolution": "credit", "reason": "  "}).want(http.StatusUnprocessableEntity)
	w.do(operator, "POST", admin+"/resolve", map[string]any{"resolution": "forget", "reason": "x y z"}).want(http.StatusUnprocessableEntity)
	w.do(operator, "POST", admin+"/refunds", map[string]any{"amount_minor": 1, "reason": "too early"}).want(http.StatusConflict)
	decide := map[string]any{"resolution": "credit", "reason": "the payer meant it"}
	require.Equal(t, "credited", w.do(operator, "POST", admin+"/resolve", decide).want(http.StatusOK).field("status"))
	require.Equal(t, int64(2501), w.balance(v), "what was paid")
	w.do(operator, "POST", admin+"/resolve", decide).want(http.StatusOK)
	w.do(operator, "POST", admin+"/resolve", map[string]any{"resolution": "refund", "reason": "changed my mind"}).want(http.StatusConflict)
	require.Equal(t, int64(2501), w.balance(v))
	seen := string(w.do(v.owner, "GET", mine, nil).want(http.StatusOK).raw)
	require.Contains(t, seen, "the payer meant it")
	require.NotContains(t, seen, "the-operator", "payers learn that it was an operator, not which")

	refund := map[string]any{"amount_minor": 1000, "reason": "paid too much"}
	key := header{"Idempotency-Key": "refund-1"}
	first := w.do(operator, "POST", admin+"/refunds", refund, key).want(http.StatusCreated)
	require.Contains(t, []string{"pending", "succeeded"}, first.field("state"))
	require.Equal(t, first.field("id"), w.do(operator, "POST", admin+"/refunds", refund, key).want(http.StatusCreated).field("id"))
	require.Equal(t, int64(1501), w.balance(v))
	w.do(operator, "POST", admin+"/refunds", map[string]any{"amount_minor": 1502, "reason": "more than is left"}).want(http.StatusConflict)
	shown := w.do(operator, "GET", admin, nil).want(http.StatusOK)
	require.Contains(t, string(shown.raw), first.field("id"))
	require.Contains(t, shown.field("resolved_by"), "the-operator")
	w.do(operator, "GET", "/admin/payments/sessions/"+missing()["payment_id"], nil).want(http.StatusNotFound)
}

// An operator who is told that somebody has paid cannot credit what Stripe does not have.
func TestPayments_UnpaidIsNeverCredited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	admin := "/admin/payments/sessions/" + v.ids["payment_id"]
	w.do(w.admin, "POST", admin+"/resolve", map[string]any{"resolution": "credit", "reason": "she says she paid"}).want(http.StatusConflict)
	first := w.do(w.admin, "POST", admin+"/reconcile", map[string]any{"reason": "she says she paid"}).want(http.StatusAccepted)
	require.Equal(t, first.field("job_id"), w.do(w.admin, "POST", admin+"/reconcile", nil).want(http.StatusAccepted).field("job_id"), "one live job")
	require.Equal(t, op.Prefix+"/admin/jobs/"+first.field("job_id"), first.header.Get("Location"))
	w.runPayments()
	require.Zero(t, w.balance(v))
	w.exec("ALTER TABLE payment_sessions DISABLE TRIGGER USER")
	w.exec("UPDATE payment_sessions SET created_at = created_at - interval '2 hours'")
	w.exec("ALTER TABLE payment_sessions ENABLE TRIGGER USER")
	require.Contains(t, string(w.do(w.admin, "GET", "/admin/payments/sessions?stuck=true", nil).want(http.StatusOK).raw), v.ids["payment_id"])
	require.NoError(t, w.stripe.Pay(w.do(w.admin, "GET", admin, nil).want(http.StatusOK).field("stripe_checkout_session_id")))
	next := w.do(w.admin, "POST", admin+"/reconcile", nil).want(http.StatusAccepted)
	require.NotEqual(t, first.field("job_id"), next.field("job_id"))
	w.runPayments()
	require.Equal(t, int64(1000), w.balance(v))
	w.do(w.admin, "POST", admin+"/reconcile", nil).want(http.StatusConflict)
	w.do(v.owner, "POST", admin+"/reconcile", nil).want(http.StatusForbidden)
}

func TestPayments_DisputesAndDifferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	w.exec("INSERT INTO payment_disputes (id, session_id, billing_account_id, source, amount_minor, currency, state, closed_at) VALUES ('du_1', $1, $2, 'prepaid', 1000, 'USD', 'lost', now())",
		v.ids["payment_id"], v.account)
	require.Contains(t, string(w.do(w.admin, "GET", "/admin/payments/sessions/"+v.ids["payment_id"], nil).want(http.StatusOK).raw), "du_1")
	w.do(w.admin, "POST", "/admin/payments/disputes/du_1/clear", map[string]any{"reason": "the invoice is paid"}).want(http.StatusNoContent)
	w.do(w.admin, "POST", "/admin/payments/disputes/du_1/clear", map[string]any{"reason": "the invoice is paid"}).want(http.StatusConflict)
	w.do(w.admin, "POST", "/admin/payments/disputes/du_2/clear", map[string]any{"reason": "there is none"}).want(http.StatusNotFound)
	frozen, err := paymentsdb.IsFrozen(t.Context(), w.store, v.account)
	require.NoError(t, err)
	require.False(t, frozen)

	for _, subject := range []string{"EUR", "GBP", "USD"} {
		require.NoError(t, paymentsdb.PutDifference(t.Context(), w.store, paymentsdb.DifferenceTotal, subject, "5 minor units are not in the ledger", 5))
	}
	page := w.do(w.admin, "GET", "/admin/payments/differences?limit=2", nil).want(http.StatusOK)
	require.NotContains(t, string(page.raw), `"USD"`)
	next := w.do(w.admin, "GET", "/admin/payments/differences?limit=2&cursor="+page.field("next_cursor"), nil).want(http.StatusOK)
	require.Contains(t, string(next.raw), `"USD"`)
	require.NotContains(t, string(next.raw), `"GBP"`)
	w.do(w.admin, "GET", "/admin/payments/differences?cursor=eA", nil).want(http.StatusUnprocessableEntity)
	w.do(w.admin, "POST", "/admin/payments/differences/total/USD/acknowledge", map[string]any{"reason": "a fee, ticket 9"}).want(http.StatusNoContent)
	w.do(w.admin, "POST", "/admin/payments/differences/total/CHF/acknowledge", map[string]any{"reason": "there is none"}).want(http.StatusNotFound)
	require.Contains(t, string(w.do(w.admin, "GET", "/admin/payments/differences", nil).want(http.StatusOK).raw), "a fee, ticket 9")

	require.NoError(t, paymentsdb.PutForeign(t.Context(), w.store, paymentsdb.Foreign{ID: "cs_other", Installation: "slipway-other", AmountMinor: 7, Currency: "USD", Paid: true, CreatedAt: time.Now()}))
	require.Contains(t, string(w.do(w.admin, "GET", "/admin/payments/foreign-sessions", nil).want(http.StatusOK).raw), "slipway-other")
}

// TestPayments_OffRefusesWithTheSetting is an installation without an account at Stripe.
func TestPayments_OffRefusesWithTheSetting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	w.pay.Policy.Enabled = false
	require.Contains(t, string(w.checkout(v, 2500).want(http.StatusConflict).raw), "payment.stripe_key_ref")
	w.do(v.owner, "GET", "/projects/"+v.project+"/payments/sessions/"+v.ids["payment_id"], nil).want(http.StatusOK)
	admin := "/admin/payments/sessions/" + v.ids["payment_id"]
	for path, body := range map[string]map[string]any{
		admin + "/reconcile": {"reason": "x y z"}, admin + "/refunds": {"amount_minor": 5, "reason": "x y z"},
	} {
		require.Contains(t, string(w.do(w.admin, "POST", path, body).want(http.StatusConflict).raw), "payment.stripe_key_ref")
	}
}

// TestPayments_AddressWithoutAProject: the address of the source document leads to the project of
// the token, or of the header.
func TestPayments_AddressWithoutAProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	body := map[string]any{"amount_minor": 2500, "success_url": returnURL, "cancel_url": returnURL}
	const at = "/payments/checkout-session"
	first := w.do(v.owner, "POST", at, body, header{"Idempotency-Key": "one", "Slipway-Project": v.project}).want(http.StatusCreated)
	require.Equal(t, v.project, first.field("project_id"))
	require.Equal(t, first.field("id"), w.do(v.owner, "POST", "/projects/"+v.project+at, body, header{"Idempotency-Key": "one"}).want(http.StatusCreated).field("id"))
	require.Contains(t, string(w.do(v.owner, "POST", at, body, header{"Idempotency-Key": "two"}).want(http.StatusUnprocessableEntity).raw), "Slipway-Project")
	w.do(v.owner, "POST", at, body, header{"Idempotency-Key": "two", "Slipway-Project": "../admin"}).want(http.StatusUnprocessableEntity)
	other := w.newTenant("beta")
	w.do(other.owner, "POST", at, body, header{"Idempotency-Key": "two", "Slipway-Project": v.project}).want(http.StatusNotFound)
}

// TestPayments_StuckAfterAnHour: a page that nobody has finished, and a payment that is paid and
// not credited, are listed after more than an hour.
func TestPayments_StuckAfterAnHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	id := v.ids["payment_id"]
	for age, want := range map[string]bool{"59 minutes": false, "61 minutes": true} {
		w.exec("SET session_replication_role = replica; UPDATE payment_sessions SET created_at = now() - interval '" + age + "' WHERE id = '" + id + "'")
		listed := string(w.do(w.admin, "GET", "/admin/payments/sessions", nil).want(http.StatusOK).raw)
		require.Equal(t, want, strings.Contains(listed, id), age)
	}
}
