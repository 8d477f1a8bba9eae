package e2e_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	temporal "go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/contract"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// payer is a project of which somebody tops up the balance.
type payer struct {
	*world
	api     *client.Client
	project string
}

// TestPayments_ThroughTheStack pays on the hosted page twice and reads no payment afterwards: the
// first is credited after its webhook, the second, of which no webhook comes, by a pass.
func TestPayments_ThroughTheStack(t *testing.T) {
	t.Parallel()
	w := newPrivateWorld(t, stack.Options{Count: 1, DatabaseEnv: databaseVar, WithPayments: true})
	p := &payer{world: w, api: w.as(t, "admin")}
	account, err := client.Value(p.api.CreateBillingAccount(t.Context(), client.NewBillingAccountRequest{Name: "acme"}))
	require.NoError(t, err)
	project, err := client.Value(p.api.CreateProjectFor(t.Context(), client.AdminProjectRequest{BillingAccountID: account.ID, Name: "training", OwnerEmail: "ada@example.com"}))
	require.NoError(t, err)
	p.project = project.ID

	first := p.pay(t, 2500)
	require.Eventually(t, func() bool { return w.Stripe.Undelivered() == 0 }, runenv.Patience(2*time.Minute), time.Second)
	p.awaitBalance(t, 2500)
	require.Equal(t, "credited", p.status(t, first))

	_, err = w.Stripe.AddFault(stripesim.Fault{Name: stripesim.FaultDrop, Count: -1})
	require.NoError(t, err)
	second := p.pay(t, 4000)
	require.Equal(t, "initiated", p.status(t, second))
	conn, err := pgx.Connect(t.Context(), w.Postgres.DSN(w.Database))
	require.NoError(t, err)
	defer conn.Close(t.Context())                                                                             //nolint:errcheck // one statement
	_, err = conn.Exec(t.Context(), "UPDATE payment_sessions SET next_look_at = now() WHERE id = $1", second) // which is in a quarter of an hour
	require.NoError(t, err)
	p.awaitBalance(t, 6500)
	require.Equal(t, "credited", p.status(t, second))
	require.Positive(t, w.Stripe.Undelivered(), "no webhook came")
}

// pay asks for a payment page and presses its button.
func (p *payer) pay(t *testing.T, minor int64) string {
	t.Helper()
	back := p.Config.API.PublicURL + "/portal/"
	made, err := client.Value(p.api.CreateCheckoutSession(t.Context(), p.project, client.CheckoutRequest{AmountMinor: minor, SuccessURL: back, CancelURL: back}, client.Because("ticket 4711")))
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, made.URL, strings.NewReader(url.Values{"do": {"pay"}}.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	browser := &http.Client{Timeout: runenv.Patience(requestTimeout), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := browser.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, back, res.Header.Get("Location"))
	return made.ID
}

// status reads a payment as operators do, which asks Stripe nothing.
func (p *payer) status(t *testing.T, id string) string {
	t.Helper()
	got, err := client.Value(p.api.GetAccountPayment(t.Context(), id))
	require.NoError(t, err)
	return string(got.Status)
}

// awaitBalance has the passes run until the balance is as expected.
func (p *payer) awaitBalance(t *testing.T, minor int64) {
	t.Helper()
	passes := p.App.Maintenance.ScheduleClient().GetHandle(t.Context(), p.App.Schedule(contract.PaymentsPass).ID())
	require.Eventually(t, func() bool {
		_ = passes.Trigger(t.Context(), temporal.ScheduleTriggerOptions{}) // the Schedule is made a moment after the start
		got, err := client.Value(p.api.GetBalance(t.Context(), p.project, client.Because("ticket 4711")))
		return err == nil && got.BalanceMinor == minor
	}, runenv.Patience(2*time.Minute), time.Second)
}
