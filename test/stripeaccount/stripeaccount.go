// Package stripeaccount opens simulated accounts at Stripe for tests of what customers and
// operators see of payments.
package stripeaccount

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	paymentsact "github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/paymentjobs"
)

const key = "sk_test_simulated"

// Open starts an account without webhooks that ends with the test, and returns it with what asks it
// for the payments of a database. Payers may be sent to the hosts.
func Open(t testing.TB, store *db.Store, hosts ...string) (*stripesim.Server, *paymentsync.Syncer) {
	t.Helper()
	account, err := stripesim.New(stripesim.Options{Key: key})
	require.NoError(t, err)
	at, stop, err := account.Start(context.WithoutCancel(t.Context()), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	client, err := stripe.Opener{Options: stripe.Options{Wait: time.Millisecond}}.OpenPayments(providers.PaymentsAccount{
		Rule: providers.SimulatedAddresses(), URL: at.URL(), Key: providers.NewSecret(key),
	})
	require.NoError(t, err)
	return account, &paymentsync.Syncer{
		Store: store, Connect: func(context.Context) (providers.Payments, error) { return client, nil }, Log: slog.New(slog.DiscardHandler),
		Policy: payments.Policy{
			Enabled: true, SessionTTL: 24 * time.Hour, CreditMaxAttempts: 3, MinAmount: 5, MaxAmount: 10000, SessionsPerHour: 50, AccountSessionsPerHour: 100, RedirectHosts: hosts,
		},
	}
}

// Jobs returns what runs the jobs of payments in a test that has no Temporal.
func Jobs(sync *paymentsync.Syncer) paymentjobs.Runner {
	return paymentjobs.Runner{Store: sync.Store, Acts: &paymentsact.Activities{Sync: sync, Log: sync.Log}}
}
