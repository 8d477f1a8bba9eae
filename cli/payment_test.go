package cli_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/internal/poll"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/stripeaccount"
)

// TestPayments tops up, watches a payment until it is credited, and decides about one that was not.
func TestPayments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.token("admin")+"\n", "login", "--server", w.url, "--token-stdin", "--name", "dev").exits(0)
	read := func(into any, args ...string) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(w.run("", append([]string{"-o", "json"}, args...)...).exits(0).out), into))
	}
	var account, project struct{ ID string }
	read(&account, "billing-account", "create", "acme")
	read(&project, "project", "create", "training", "--billing-account", account.ID, "--owner-email", "ada@example.com")
	why := []string{"--reason", "ticket 4711"}
	topUp := func(key, amount string, more ...string) []string {
		return append(append([]string{"topup", project.ID, amount, "--idempotency-key", key}, more...), why...)
	}
	type payment struct {
		ID, Status, URL string
		Page            string `json:"stripe_checkout_session_id"`
	}

	require.Contains(t, w.run("", topUp("zero", "25.001")...).exits(cli.ExitUsage).err, "at most 2 digits after the point")
	require.Contains(t, w.run("", topUp("zero", "25.00", "--currency", "EUR")...).exits(cli.ExitUsage).err, "is in USD")
	require.Contains(t, w.run("", topUp("least", "0.01")...).exits(cli.ExitUsage).err, "5.00 to 10000.00 USD")
	require.Contains(t, w.run("", topUp("back", "25.00", "--return-url", "https://evil.example/")...).exits(cli.ExitUsage).err, "payment.redirect_hosts")
	var p payment
	read(&p, topUp("one", "25.00")...)
	require.Contains(t, w.run("", topUp("one", "25.00")...).exits(0).out, p.URL, "the same page")
	require.NoError(t, w.stripe.Pay(p.Page))
	working, stop := context.WithCancel(t.Context())
	var worker sync.WaitGroup
	defer worker.Wait()
	defer stop()
	worker.Go(func() { // what a worker does
		for poll.Sleep(working, 50*time.Millisecond) == nil {
			_ = stripeaccount.Jobs(w.pay).Due(working)
		}
	})
	credited := w.run("", topUp("one", "25.00", "--watch", "--interval", "100ms", "--watch-timeout", "2m")...).exits(0)
	require.Contains(t, credited.out, "credited")
	require.Contains(t, w.run("", append([]string{"balance", project.ID}, why...)...).exits(0).out, "25.00 USD")
	require.Contains(t, w.run("", append([]string{"payment", "list", project.ID, "--status", "credited"}, why...)...).exits(0).out, p.ID)
	require.NotContains(t, w.run("", append([]string{"payment", "list", project.ID, "--status", "expired"}, why...)...).exits(0).out, p.ID)
	require.Contains(t, w.run("", append([]string{"payment", "show", project.ID, p.ID}, why...)...).exits(0).out, "25.00")
	w.run("", append([]string{"payment", "list", project.ID, "--stuck"}, why...)...).exits(cli.ExitUsage)

	var second payment
	read(&second, topUp("two", "30")...)
	_, err := w.stripe.AddFault(stripesim.Fault{Name: stripesim.FaultAmount, Count: -1})
	require.NoError(t, err)
	require.NoError(t, w.stripe.Pay(second.Page))
	failed := w.run("", topUp("two", "30", "-w", "--interval", "100ms", "--watch-timeout", "2m")...).exits(cli.ExitJobFailed)
	require.Contains(t, failed.err, "slipway payment resolve "+second.ID)
	w.stripe.ClearFaults(0)
	var third payment
	read(&third, topUp("three", "35 USD")...)
	require.NoError(t, w.stripe.PayLater(third.Page))
	_, err = w.pay.Look(t.Context(), third.ID)
	require.NoError(t, err)
	require.NoError(t, w.stripe.Settle(third.Page, false))
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error { return paymentsdb.StoreAsyncFailed(t.Context(), tx, third.ID) }))
	unpaid := w.run("", topUp("three", "35 USD", "-w", "--interval", "100ms", "--watch-timeout", "2m")...).exits(cli.ExitJobFailed)
	require.Contains(t, unpaid.err, "the payment method of payment "+third.ID+" failed")
	for _, args := range [][]string{{"--stuck"}, {"--stuck", "--account", "acme"}, {"--status", "failed_reconcile"}} {
		listed := w.run("", append([]string{"payment", "list"}, args...)...).exits(0).out
		require.Contains(t, listed, second.ID)
		require.NotContains(t, listed, p.ID)
	}
	require.Contains(t, w.run("", "payment", "reconcile", second.ID, "--reason", "ticket 12").exits(0).out, "job_", "the job that is parked")
	w.run("", "payment", "resolve", second.ID, "credit").exits(cli.ExitUsage)
	require.Contains(t, w.run("", "payment", "resolve", second.ID, "forget", "--reason", "x y z").exits(cli.ExitUsage).err, "resolution")
	require.Contains(t, w.run("", "payment", "resolve", second.ID, "write_off", "--reason", "a cent, ticket 12").exits(0).out, "write_off")
	require.Contains(t, w.run("", "payment", "resolve", second.ID, "credit", "--reason", "changed my mind").exits(cli.ExitRefused).err, "resolved before")

	require.Contains(t, w.run("", "payment", "refund", p.ID, "10.001", "--reason", "x y z").exits(cli.ExitUsage).err, "at most 2 digits after the point")
	require.Contains(t, w.run("", "payment", "refund", p.ID, "10.00", "--reason", "paid too much").exits(0).out, "10.00 USD")
	require.Contains(t, w.run("", "payment", "refund", p.ID, "20.00", "--reason", "more than is left").exits(cli.ExitRefused).err, "15.00 USD of the payment is left to refund")
	require.Regexp(t, `refunds +amount 10\.00 USD, .*reason paid too much`, w.run("", "payment", "show", p.ID).exits(0).out)

	require.NoError(t, paymentsdb.PutDifference(t.Context(), w.store, paymentsdb.DifferenceTotal, "USD", "5 minor units are not in the ledger", 5))
	require.Contains(t, w.run("", "payment", "difference", "list").exits(0).out, "not in the ledger")
	w.run("", "payment", "difference", "acknowledge", "total", "USD", "--reason", "a fee, ticket 9").exits(0)
	require.NoError(t, paymentsdb.PutForeign(t.Context(), w.store, paymentsdb.Foreign{ID: "cs_other", Installation: "slipway-other", AmountMinor: 7, Currency: "USD", CreatedAt: time.Now()}))
	require.Contains(t, w.run("", "payment", "foreign").exits(0).out, "0.07 USD")
	w.run("", "payment", "clear-dispute", "du_none", "--reason", "there is none").exits(cli.ExitNotFound)

	w.pay.Policy.Enabled = false
	require.Contains(t, w.run("", topUp("off", "25.00")...).exits(cli.ExitRefused).err, "payment.stripe_key_ref")
}
