package paymentsync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestReconcile_UnpaidSession: no decision of an operator credits what was not paid.
func TestReconcile_UnpaidSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	for _, resolution := range lifecycle.Resolutions {
		_, err := r.sync.Resolve(t.Context(), payments.Decision{SessionID: s.ID, Resolution: resolution, Reason: "the customer says so", Actor: operator})
		require.Contains(t, err.Error(), "only a payment that could not be credited is resolved")
	}
	reconcile := func() (job db.Job, err error) {
		err = r.tx(func(tx *db.Tx) error {
			job, err = payments.Reconcile(t.Context(), tx, r.sync.Policy, s.ID, operator)
			return err
		})
		return job, err
	}
	first, err := reconcile()
	require.NoError(t, err)
	same, err := reconcile()
	require.NoError(t, err)
	require.Equal(t, first.ID, same.ID, "one live job for a session")
	require.NoError(t, r.runJobs(t.Context()))
	require.Equal(t, lifecycle.JobCompleted, r.jobOf(s.ID).Status)
	require.Equal(t, lifecycle.PaymentInitiated, r.get(s.ID).Status)
	require.Empty(t, r.balances())
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	next, err := reconcile()
	require.NoError(t, err)
	require.NotEqual(t, first.ID, next.ID)
	require.Equal(t, operator.ID, next.CreatedBy)
	require.NoError(t, r.runJobs(t.Context()))
	require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status, "a stuck session that is paid")
	_, err = reconcile()
	require.Equal(t, intent.Conflict, intent.AsRefusal(err).Kind)
}

// raised counts what requires an operator: sessions, and parked jobs.
func (r *rig) raised() int64 {
	return r.count(`SELECT (SELECT count(*) FROM attention WHERE kind = 'parked_job' AND job_kind = 'payment_reconcile')
		+ (SELECT count(*) FROM payment_attention WHERE kind = 'payment_mismatch')`)
}
