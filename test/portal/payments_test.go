package portal_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// An operator tops up the balance of a project, comes back from the payment page, and decides about
// a payment of which another amount came than was asked for.
func TestPortal_TopsUpAndDecides(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	project := "/portal/projects/" + w.fillProject(t)
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/payments", "Payments")
	openPage(p, project+"/payments")
	p.Click("button", "Top up")
	p.Fill("Amount in USD", "25.001")
	p.Click("button", "Top up")
	p.AwaitText("at most 2 digits after the point")
	p.Fill("Amount in USD", "25.00")
	p.Click("button", "Top up")
	p.Find("link", "Open the payment page (opens in a new tab)")
	p.Picture("top-up")
	paid := w.newestPayment(t)
	require.EqualValues(t, 2500, paid["requested_amount_minor"])
	page, _ := paid["stripe_checkout_session_id"].(string)
	require.NoError(t, w.Stripe.Pay(page))
	openPage(p, project+"/payments?page="+page)
	p.AwaitText("25.00 USD are credited.")
	w.decide(t, p)
	p.RequireNoFaults()
}

// decide has another amount paid than was asked for, finds the payment in the list of stuck ones,
// and credits it after a second sign-in and a refund that fails.
func (w *world) decide(t *testing.T, p *browser.Page) {
	t.Helper()
	made := w.topUp(t, 3000)
	_, err := w.Stripe.AddFault(stripesim.Fault{Name: stripesim.FaultAmount, Count: -1})
	require.NoError(t, err)
	page, _ := made["stripe_checkout_session_id"].(string)
	require.NoError(t, w.Stripe.Pay(page))
	id, _ := made["id"].(string)
	require.Eventually(t, func() bool { // its job parks
		return w.mustCall(t, http.MethodGet, "/api/v1/projects/"+w.project+"/payments/sessions/"+id, nil)["status"] == "failed_reconcile"
	}, runenv.Patience(time.Minute), 200*time.Millisecond)
	w.Stripe.ClearFaults(0)
	openPage(p, "/portal/payments?stuck=true")
	p.AwaitText(id)
	p.AwaitText("30.01 USD")
	p.Picture("payments-stuck")
	openPage(p, "/portal/payments/"+id)
	p.Click("button", "Decide")
	p.Choose("Decision", "Refund")
	p.Fill("Reason (required)", "too much came")
	p.Allow(403, "/api/v1/admin/payments/sessions/"+id+"/resolve")
	p.Click("button", "Decide")
	p.Fill("API token", w.token)
	p.Click("button", "Confirm")
	p.AwaitText("refund: too much came")
	p.AwaitText("refuses it") // Stripe has less than it said, so that it is decided about again
	p.Click("button", "Decide")
	p.Choose("Decision", "Credit")
	p.Fill("Reason (required)", "the payer meant it")
	p.Click("button", "Decide")
	p.AwaitText("The decision is carried out.")
	p.AwaitText("credit: the payer meant it")
	p.Picture("payment")
	require.Equal(t, "credited", w.mustCall(t, http.MethodGet, "/api/v1/admin/payments/sessions/"+id, nil)["status"])
}

// topUp asks for a payment page in the project of fillProject.
func (w *world) topUp(t *testing.T, minor int) object {
	t.Helper()
	back := w.url + "/portal/"
	return w.mustCall(t, http.MethodPost, "/api/v1/projects/"+w.project+"/payments/checkout-session", object{"amount_minor": minor, "success_url": back, "cancel_url": back})
}

func (w *world) newestPayment(t *testing.T) object {
	t.Helper()
	list, _ := w.mustCall(t, http.MethodGet, "/api/v1/projects/"+w.project+"/payments/sessions", nil)["data"].([]any)
	require.NotEmpty(t, list)
	first, ok := list[0].(map[string]any)
	require.True(t, ok)
	return first
}
