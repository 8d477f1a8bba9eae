package replay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/bench/rig"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// paidFacts is what the activities of a payment find that is paid and credited.
func paidFacts() contract.PaymentFacts {
	return contract.PaymentFacts{SessionID: "pay_1", Status: lifecycle.PaymentCredited, Paid: true, Received: 2500, Currency: "USD", Settled: true, CreditAttempts: 3}
}

// paymentJobs are the jobs of payments: one that is paid, and one of which nothing came yet.
func paymentJobs() []scriptedJob {
	paid := paidFacts()
	all := answers{
		"ReadPayment": paid, "MatchPayment": paid, "CreditPayment": paid, "ConfirmPayment": paid, "DecidePayment": paid,
		"ObservePayment": contract.PaymentObservation{State: contract.PaymentOtherAmount},
	}
	return []scriptedJob{{
		kind: contract.KindPaymentReconcile, last: "ConfirmPayment", start: startReconcile, answers: all,
		asks: [3]counts{{Activities: 4, Local: 7, Timers: 4, Upserts: 2}, {Activities: 5, Local: 10, Timers: 5, Upserts: 4, Updates: 1},
			{Activities: 4, Local: 9, Timers: 4, Upserts: 4, Updates: 1}},
	}}
}

// startReconcile writes a payment session and the job that reconciles it.
func startReconcile(t *testing.T, p *play, _ answers) {
	t.Helper()
	project := dbtest.Project(t, p.rig.Store)
	require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error {
		s, err := paymentsdb.Create(t.Context(), tx, paymentsdb.New{
			ID: db.NewID("pay"), BillingAccountID: project.BillingAccountID, ProjectID: project.ID, RequestedBy: "oidc:ada", Key: "k", RequestHash: []byte("h"),
			AmountMinor: 2500, Currency: "USD", SuccessURL: "https://portal.example.com/", CancelURL: "https://portal.example.com/",
			ExpiresAt: time.Now().Add(time.Hour), NextLook: time.Now().Add(time.Hour), Actor: admin,
		})
		if err != nil {
			return err
		}
		job, _, err := payments.StartReconcile(t.Context(), tx, s, admin)
		p.job = job.ID
		return err
	}))
	p.started(t, contract.JobWorkflowID(contract.KindPaymentReconcile, p.job))
}

// TestScriptedJobsDo_OtherEndsOfPayments: a payment of another amount that an operator adopts, and
// one that is not paid, end and replay as they should.
func TestScriptedJobsDo_OtherEndsOfPayments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse string
		change func(answers)
		end    lifecycle.JobStatus
		asks   counts
	}{
		"adopted": {"MatchPayment", func(answers) {}, lifecycle.JobReconciled, counts{Activities: 5, Local: 8, Timers: 3, Upserts: 4, Updates: 1}},
		"unpaid": {"", func(a answers) {
			a["ReadPayment"] = contract.PaymentFacts{SessionID: "pay_1", Status: lifecycle.PaymentInitiated}
		}, lifecycle.JobCompleted,
			counts{Activities: 1, Local: 4, Timers: 1, Upserts: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := paymentJobs()[0].answers
			c.change(all)
			p := &play{rig: rig.NewScripted(t, all.script(c.refuse, stagetest.Failure(lifecycle.FailPaymentMismatch), true))}
			startReconcile(t, p, all)
			if c.refuse != "" {
				p.parks(t, lifecycle.FailPaymentMismatch)
				request := ask()
				request.Resolution = lifecycle.ResolveCredit
				p.updateWith(t, lifecycle.ActionAdopt, request)
			}
			require.NoError(t, p.ends(t))
			require.Equal(t, c.end, p.state(t).Status)
			require.Equal(t, c.asks, count(p.keep(t, contract.WorkflowOf(contract.KindPaymentReconcile), name)), "if the change is meant, correct the table above")
		})
	}
}
