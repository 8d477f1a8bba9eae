package payments_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/db/dbtest"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	intent "github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	"github.com/slipway-cloud/slipway/providers"
)

// away is a payment provider that does not answer.
type away struct{ providers.Payments }

func (away) Sessions(context.Context, providers.PaymentQuery) (providers.PaymentPage[providers.PaymentSession], error) {
	return providers.PaymentPage[providers.PaymentSession]{}, &providers.Error{Kind: providers.KindUnavailable, Op: "stripe.list_sessions", Message: "503"}
}

func (away) Movements(context.Context, providers.PaymentQuery) (providers.PaymentPage[providers.PaymentMovement], error) {
	return providers.PaymentPage[providers.PaymentMovement]{}, &providers.Error{Kind: providers.KindUnavailable, Op: "stripe.movements", Message: "503"}
}

// TestPass_PlansAndReports: lists and totals are due at their times, a failure has the class of the
// provider's side, and operators are told when no pass came to its end for an hour.
func TestPass_PlansAndReports(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	acts := &payments.Activities{Log: slog.New(slog.DiscardHandler), Sync: &paymentsync.Syncer{
		Store: store, Log: slog.New(slog.DiscardHandler), Connect: func(context.Context) (providers.Payments, error) { return away{}, nil },
	}}
	plan, err := acts.PlanPaymentPass(t.Context())
	require.NoError(t, err)
	require.Equal(t, payments.Plan{Off: true}, plan)
	acts.Sync.Policy = intent.Policy{Enabled: true, CreditMaxAttempts: 3}
	plan, err = acts.PlanPaymentPass(t.Context())
	require.NoError(t, err)
	require.Equal(t, payments.Plan{ListEvents: true, Compare: true}, plan)
	_, err = acts.ComparePayments(t.Context())
	var typed *temporal.ApplicationError
	require.ErrorAs(t, err, &typed)
	require.Equal(t, string(lifecycle.FailPaymentsUnavailable), typed.Type())

	exec := func(sql string) {
		t.Helper()
		_, err := owner.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	silent := func() (n int) {
		t.Helper()
		require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM payment_attention WHERE kind = 'payments_silent'").Scan(&n))
		return n
	}
	now := time.Now()
	require.NoError(t, paymentsdb.StoreTotalsTime(t.Context(), store))
	require.NoError(t, paymentsdb.StoreSessionsPlace(t.Context(), store, paymentsdb.Place{From: now}), "the list that failed is read to its end")
	require.NoError(t, paymentsdb.StoreMovementsPlace(t.Context(), store, paymentsdb.Place{From: now}))
	require.NoError(t, paymentsdb.StoreEventsPlace(t.Context(), store, paymentsdb.Place{From: now}))
	plan, err = acts.PlanPaymentPass(t.Context())
	require.NoError(t, err)
	require.Equal(t, payments.Plan{}, plan)
	exec("UPDATE payment_control SET events_at = now() - interval '61 minutes', totals_at = now() - interval '61 minutes'")
	plan, err = acts.PlanPaymentPass(t.Context())
	require.NoError(t, err)
	require.Equal(t, payments.Plan{ListEvents: true}, plan)
	require.NoError(t, paymentsdb.PutDifference(t.Context(), store, paymentsdb.DifferenceTotal, "USD", "differs", 5))
	plan, err = acts.PlanPaymentPass(t.Context())
	require.NoError(t, err)
	require.True(t, plan.Compare, "a difference is looked at again after an hour")
	require.NoError(t, paymentsdb.PutDifference(t.Context(), store, paymentsdb.DifferenceTotal, "USD", "differs", 5))
	plan, err = acts.PlanPaymentPass(t.Context())
	require.NoError(t, err)
	require.False(t, plan.Compare, "and then at night")

	require.NoError(t, acts.FinishPaymentPass(t.Context(), payments.FinishIn{Problem: "the provider is away"}))
	require.Zero(t, silent(), "nothing waits")
	p := dbtest.Project(t, store)
	exec("SET session_replication_role = replica")
	exec(`INSERT INTO payment_sessions (id, billing_account_id, project_id, requested_by, idempotency_key, request_hash, status, requested_amount_minor, currency, live,
		success_url, cancel_url, expires_at, created_at) VALUES ('pay_1', '` + p.BillingAccountID + `', '` + p.ID + `', 'x', 'k', '', 'initiated', 500, 'USD', false, '', '',
		now(), now() - interval '2 hours')`)
	require.Equal(t, 1, silent())
	require.NoError(t, acts.FinishPaymentPass(t.Context(), payments.FinishIn{}))
	require.Zero(t, silent())
}
