package paymentsync_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// TestCheckout_CreditsOnce: whoever looks first, and however many workers run the job of a session
// at once, as after a lost answer or in a rolling upgrade, there is one page, one payment and one
// credit, and the same request gets the same session afterwards too.
func TestCheckout_CreditsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	asked := r.sim.Counters().Requests
	again := r.open("k")
	require.Equal(t, s.ID, again.ID)
	require.Equal(t, s.URL, again.URL)
	require.Equal(t, 1, r.sim.Counters().Sessions)
	require.Equal(t, asked, r.sim.Counters().Requests, "the provider is not asked a second time")
	require.Empty(t, r.balances(), "nothing is credited before it is paid")

	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	r.receive(r.events()...)
	ref := contract.JobRef{JobID: r.jobOf(s.ID).ID, ResourceID: s.ID}
	var group sync.WaitGroup
	credits := make([]error, 8)
	for i := range credits {
		group.Go(func() {
			if i%4 == 3 {
				_, credits[i] = r.sync.ProcessEvents(t.Context())
				return
			}
			acts := r.jobs.Acts
			for _, act := range []func(context.Context, contract.JobRef) (contract.PaymentFacts, error){acts.ReadPayment, acts.MatchPayment, acts.CreditPayment, acts.ConfirmPayment} {
				if _, err := act(t.Context(), ref); err != nil {
					credits[i] = err
				}
			}
		})
	}
	group.Wait()
	for _, err := range credits {
		require.NoError(t, err)
	}
	require.Equal(t, int64(1), r.topups(s.ID))
	require.NoError(t, r.deliver(r.events()...))
	s = r.get(s.ID)
	require.Equal(t, lifecycle.PaymentCredited, s.Status)
	require.Equal(t, int64(paid), *s.CreditedAmountMinor)
	require.Equal(t, map[string]int64{"prepaid": paid, "clearing": -paid}, r.balances())
	require.Equal(t, int64(1), r.topups(s.ID))
	require.Equal(t, int64(3), r.count("SELECT count(*) FROM audit_log WHERE resource_kind = 'payment_session' AND resource_id = $1", s.ID),
		"created, completed and credited")
	after, err := r.sync.CreateCheckout(t.Context(), r.request("k"))
	require.NoError(t, err)
	require.Equal(t, s.ID, after.ID)
	require.Equal(t, 1, r.sim.Counters().Sessions)
	require.Empty(t, r.compare())
}

// TestCheckout_Refusals: nothing is written and Stripe is not asked for what is refused.
func TestCheckout_Refusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.open("taken")
	for name, c := range map[string]struct {
		change func(*payments.Request)
		says   string
	}{
		"too little":            {func(q *payments.Request) { q.AmountMinor = 499 }, "must be 500 to 1000000: 5.00 to 10000.00 USD"},
		"too much":              {func(q *payments.Request) { q.AmountMinor = 1000001 }, "must be 500 to 1000000"},
		"negative":              {func(q *payments.Request) { q.AmountMinor = -paid }, "must be 500 to 1000000"},
		"no key":                {func(q *payments.Request) { q.Key = "" }, "must be 1 to 255 bytes"},
		"another host":          {func(q *payments.Request) { q.SuccessURL = "https://evil.example/" }, "is on a host that is not allowed"},
		"a host that begins so": {func(q *payments.Request) { q.CancelURL = "https://" + host + ".evil.example/" }, "is on a host that is not allowed"},
		"a user name":           {func(q *payments.Request) { q.SuccessURL = "https://" + host + "@evil.example/" }, "without a user name"},
		"a backslash":           {func(q *payments.Request) { q.SuccessURL = `https://` + host + `\@evil.example/` }, "must be an address"},
		"a script":              {func(q *payments.Request) { q.CancelURL = "javascript:alert(1)" }, "must be an address"},
		"no TLS":                {func(q *payments.Request) { q.CancelURL = "http://" + host + "/" }, "must begin with https://"},
		"another use of a key":  {func(q *payments.Request) { q.Key, q.AmountMinor = "taken", 3000 }, "use a new key"},
	} {
		q := r.request("new")
		c.change(&q)
		_, err := r.sync.CreateCheckout(t.Context(), q)
		require.NotNil(t, intent.AsRefusal(err), "%s: %v", name, err)
		require.Contains(t, err.Error(), c.says, name)
	}
	require.Equal(t, 1, r.sim.Counters().Sessions)
	for i := range 9 {
		r.open(fmt.Sprint(i))
	}
	_, err := r.sync.CreateCheckout(t.Context(), r.request("eleventh"))
	require.Equal(t, intent.RateLimited, intent.AsRefusal(err).Kind)
	colleague := r.request("11")
	colleague.Actor.ID = "oidc:colleague"
	for _, key := range []string{"11", "12"} {
		colleague.Key = key
		_, err = r.sync.CreateCheckout(t.Context(), colleague)
		require.NoError(t, err)
	}
	colleague.Key = "13"
	_, err = r.sync.CreateCheckout(t.Context(), colleague)
	require.Equal(t, intent.RateLimited, intent.AsRefusal(err).Kind, "many users of an account are no way around its limit")
	require.Contains(t, err.Error(), "12 payments were asked for within an hour for this billing account")
	r.sync.Policy.Enabled = false
	_, err = r.sync.CreateCheckout(t.Context(), r.request("off"))
	require.Contains(t, err.Error(), "payments are off")
	require.Equal(t, int64(12), r.count("SELECT count(*) FROM payment_sessions"))
}

// TestCheckout_LostAnswers: whatever becomes of the answer, the same request leads to one page.
func TestCheckout_LostAnswers(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]stripesim.Fault{
		"500 after the effect":  {Name: stripesim.FaultInternalError, Op: "create_session", Count: 3},
		"500 before the effect": {Name: stripesim.FaultInternalError, Op: "create_session", Count: 3, Phase: stripesim.Before},
		"half of an answer":     {Name: stripesim.FaultTruncated, Op: "create_session", Count: 3},
		"cut":                   {Name: stripesim.FaultReset, Op: "create_session", Count: 5},
		"away":                  {Name: stripesim.FaultUnavailable, Op: "create_session", Count: 3, Params: map[string]string{"retry_after": "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.fault(f)
			var s paymentsdb.Session
			tries := 0
			for ; tries < 8; tries++ {
				var err error
				if s, err = r.sync.CreateCheckout(t.Context(), r.request("k")); err == nil {
					break
				}
				require.Nil(t, intent.AsRefusal(err), "it may be tried again: %v", err)
			}
			require.NotNil(t, s.StripeCheckoutSessionID)
			require.NotEmpty(t, s.URL)
			require.Equal(t, 1, r.sim.Counters().Sessions, "the create counter stays 1")
			require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_sessions"))
		})
	}
}

// TestCheckout_NeverMade: a session whose page Stripe does not know ends at its time, and one whose
// page it has all the same is adopted, and credited when it was paid.
func TestCheckout_NeverMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fault(stripesim.Fault{Name: stripesim.FaultUnavailable, Op: "create_session", Count: 3, Params: map[string]string{"retry_after": "0"}})
	_, err := r.sync.CreateCheckout(t.Context(), r.request("none"))
	require.True(t, providers.IsKind(err, providers.KindUnavailable) || providers.IsKind(err, providers.KindUncertain), "%v", err)
	none, err := paymentsdb.FindByRequest(t.Context(), r.store, customer.ID, "none")
	require.NoError(t, err)
	require.NoError(t, r.syncNow())
	require.Equal(t, lifecycle.PaymentInitiated, r.get(none.ID).Status, "it may still be made")
	r.age(none.ID, 25*time.Hour)
	require.NoError(t, r.syncNow())
	none = r.get(none.ID)
	require.Equal(t, lifecycle.PaymentExpired, none.Status)
	require.Equal(t, lifecycle.PaymentCreateFailed, none.FailureCode)
	same, err := r.sync.CreateCheckout(t.Context(), r.request("none"))
	require.NoError(t, err)
	require.Equal(t, lifecycle.PaymentExpired, same.Status, "an expired session is returned as expired")

	// The page exists, and no answer said so: an expired row is completed and credited all the
	// same.
	r.fault(stripesim.Fault{Name: stripesim.FaultTruncated, Op: "create_session", Count: 3})
	_, err = r.sync.CreateCheckout(t.Context(), r.request("lost"))
	require.Error(t, err)
	lost, err := paymentsdb.FindByRequest(t.Context(), r.store, customer.ID, "lost")
	require.NoError(t, err)
	require.NoError(t, r.tx(func(tx *db.Tx) error {
		_, err := payments.Expire(t.Context(), tx, lost.ID, lifecycle.PaymentCreateFailed, "for the test", payments.Actor)
		return err
	}))
	pages, err := r.client.Sessions(t.Context(), providers.PaymentQuery{})
	require.NoError(t, err)
	require.Len(t, pages.Items, 1)
	require.NoError(t, r.sim.Pay(pages.Items[0].ID))
	require.Empty(t, r.compare())
	lost = r.get(lost.ID)
	require.Equal(t, lifecycle.PaymentCredited, lost.Status)
	require.Equal(t, int64(paid), r.balances()["prepaid"])
}

// age moves a session into the past, as if it were older.
func (r *rig) age(id string, by time.Duration) {
	r.Helper()
	r.alter("ALTER TABLE payment_sessions DISABLE TRIGGER payment_sessions_edge_update")
	r.alter("UPDATE payment_sessions SET created_at = created_at - $2::interval, attempt_at = attempt_at - $2::interval, expires_at = expires_at - $2::interval WHERE id = $1",
		id, fmt.Sprintf("%d seconds", int(by.Seconds())))
	r.alter("ALTER TABLE payment_sessions ENABLE TRIGGER payment_sessions_edge_update")
}

// TestSession_Expires: a page that is open at its end is closed at Stripe; one that was paid in the
// last moment is credited.
func TestSession_Expires(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	left, late, told := r.open("left"), r.open("late"), r.open("told")
	require.NoError(t, r.sim.Pay(*late.StripeCheckoutSessionID))
	require.NoError(t, r.sim.Expire(*told.StripeCheckoutSessionID))
	require.NoError(t, r.deliver(r.eventsOf("checkout.session.expired")...))
	require.Equal(t, lifecycle.PaymentExpired, r.get(told.ID).Status)
	for _, id := range []string{left.ID, late.ID} {
		r.age(id, 25*time.Hour)
	}
	require.NoError(t, r.syncNow())
	require.Equal(t, lifecycle.PaymentExpired, r.get(left.ID).Status)
	require.Empty(t, r.get(left.ID).FailureCode)
	require.Error(t, r.sim.Pay(*left.StripeCheckoutSessionID), "nobody pays a page that has ended")
	require.Equal(t, lifecycle.PaymentCredited, r.get(late.ID).Status)
	require.Equal(t, int64(0), r.count("SELECT count(*) FROM payment_sessions WHERE next_look_at IS NOT NULL"))
}

// TestSession_DelayedMethods: a page that is complete and unpaid rests until the money comes, or
// does not.
func TestSession_DelayedMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	good, bad := r.open("good"), r.open("bad")
	for _, s := range []paymentsdb.Session{good, bad} {
		require.NoError(t, r.sim.PayLater(*s.StripeCheckoutSessionID))
	}
	require.NoError(t, r.deliver(r.events()...))
	for _, s := range []paymentsdb.Session{good, bad} {
		s = r.get(s.ID)
		require.Equal(t, lifecycle.PaymentCheckoutCompleted, s.Status)
		require.Equal(t, lifecycle.PaidNot, s.PaymentStatus)
	}
	require.Empty(t, r.balances())
	require.NoError(t, r.sim.Settle(*good.StripeCheckoutSessionID, true))
	require.NoError(t, r.sim.Settle(*bad.StripeCheckoutSessionID, false))
	require.NoError(t, r.deliver(r.events()...))
	require.Equal(t, lifecycle.PaymentCredited, r.get(good.ID).Status)
	require.Equal(t, lifecycle.PaymentCheckoutCompleted, r.get(bad.ID).Status)
	require.Equal(t, lifecycle.PaidFailed, r.get(bad.ID).PaymentStatus)
	require.Equal(t, map[string]int64{"prepaid": paid, "clearing": -paid}, r.balances())
}

// TestWebhook_ProvesNothing: who has the signing secret can make us ask Stripe, and nothing else.
// An event of the other mode, of another release or of an unknown type is kept.
func TestWebhook_ProvesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	verifier, err := stripe.NewVerifier(stripe.VerifierOptions{Secrets: []providers.Secret{providers.NewSecret("whsec_leaked_secret")}})
	require.NoError(t, err)
	forge := func(id, kind, object, objectID, release string, live bool) string {
		body := fmt.Appendf(nil, `{"id":%q,"object":"event","type":%q,"api_version":%q,"created":%d,"livemode":%t,"data":{"object":{"id":%q,"object":%q,"payment_status":"paid","amount_total":%d,"currency":"usd","client_reference_id":%q,"livemode":%t}}}`,
			id, kind, release, time.Now().Unix(), live, objectID, object, paid, s.ID, live)
		d, err := verifier.Verify(stripesim.SignatureHeader(time.Now(), body, "whsec_leaked_secret"), body)
		require.NoError(t, err)
		require.NoError(t, r.tx(func(tx *db.Tx) error {
			isNew, err := payments.ReceiveEvent(t.Context(), tx, paymentsdb.NewEvent{
				ID: d.Event.ID, Type: d.Event.Type, ObjectKind: d.Event.ObjectKind, ObjectID: d.Event.ObjectID, Live: d.Event.Live, Release: d.Event.Release,
				Source: paymentsdb.FromWebhook, Body: d.Body, At: d.Event.Created,
			}, d.OtherMode)
			require.True(t, isNew)
			return err
		}))
		return id
	}
	const now, old = stripesim.APIVersion, "2025-11-17.clover"
	page := *s.StripeCheckoutSessionID
	states := map[string]string{
		forge("evt_paid", "checkout.session.completed", "checkout.session", page, now, false):              "processed",
		forge("evt_none", "checkout.session.completed", "checkout.session", "cs_test_none", now, false):    "pending",
		forge("evt_path", "checkout.session.completed", "checkout.session", "../refunds", now, false):      "ignored",
		forge("evt_live", "checkout.session.completed", "checkout.session", page, now, true):               "ignored",
		forge("evt_other", "customer.created", "customer", "cus_1", now, false):                            "ignored",
		forge("evt_refund", "refund.created", "refund", "re_none", now, false):                             "pending",
		forge("evt_dispute", "charge.dispute.created", "dispute", "du_none", now, false):                   "pending",
		forge("evt_old", "checkout.session.async_payment_succeeded", "checkout.session", page, old, false): "processed",
		forge("evt_failed", "checkout.session.async_payment_failed", "checkout.session", page, now, false): "processed",
		forge("evt_charge", "charge.refunded", "charge", "ch_none", now, false):                            "pending",
	}
	require.Equal(t, int64(1), r.count("SELECT count(*) FROM jobs WHERE kind = 'payment_reconcile'"), "two events, one job")
	require.NoError(t, r.runJobs(t.Context()))
	require.Equal(t, lifecycle.JobCompleted, r.jobOf(s.ID).Status)
	_, err = r.sync.ProcessEvents(t.Context())
	require.NoError(t, err)
	for id, state := range states {
		require.Equal(t, state, r.eventState(id), id)
	}
	r.alter("UPDATE stripe_events SET attempts = 12, next_at = now() WHERE state = 'pending'")
	_, err = r.sync.ProcessEvents(t.Context())
	require.NoError(t, err)
	for _, id := range []string{"evt_none", "evt_refund", "evt_dispute"} {
		require.Equal(t, "ignored", r.eventState(id), "no such object after the last try: %s", id)
	}
	require.Equal(t, lifecycle.PaymentInitiated, r.get(s.ID).Status)
	require.Empty(t, r.balances())
}

// TestSession_Mismatch: what came is in suspense, and each decision of an operator is booked once.
func TestSession_Mismatch(t *testing.T) {
	t.Parallel()
	for resolution, want := range map[lifecycle.Resolution]map[string]int64{
		lifecycle.ResolveCredit:   {"prepaid": paid + 7, "clearing": -paid - 7},
		lifecycle.ResolveRefund:   {"suspense": paid + 7, "clearing": -paid - 7}, // Stripe has less to refund than it says, and refuses
		lifecycle.ResolveWriteOff: {"write_off": paid + 7, "clearing": -paid - 7},
	} {
		t.Run(string(resolution), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open("k")
			require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
			r.fault(stripesim.Fault{Name: stripesim.FaultAmount, Count: 1, Params: map[string]string{"by": "7"}})
			require.NoError(t, r.deliver(r.eventsOf("checkout.session.completed")...))
			s = r.get(s.ID)
			require.Equal(t, lifecycle.PaymentFailedReconcile, s.Status)
			require.Contains(t, s.FailureMessage, "25.00 USD were asked for and 25.07 USD were paid")
			require.Equal(t, map[string]int64{"suspense": paid + 7, "clearing": -paid - 7}, r.balances())
			require.Equal(t, int64(1), r.count("SELECT count(*) FROM attention WHERE kind = 'parked_job' AND failure_class = 'payment_mismatch'"))
			require.Equal(t, int64(1), r.raised(), "the job, and not its session once more")
			stuck, err := paymentsdb.List(t.Context(), r.store, paymentsdb.Filter{Stuck: true, BillingAccountID: s.BillingAccountID}, "", 10)
			require.NoError(t, err)
			require.Len(t, stuck, 1)

			d := payments.Decision{SessionID: s.ID, Resolution: resolution, Reason: "checked with finance", Actor: operator}
			nameless := d
			nameless.Reason = ""
			_, err = r.sync.Resolve(t.Context(), nameless)
			require.Equal(t, intent.Invalid, intent.AsRefusal(err).Kind)
			for range 2 {
				s, err = r.sync.Resolve(t.Context(), d)
				require.NoError(t, err)
			}
			require.Equal(t, resolution, s.Resolution)
			require.Equal(t, resolution == lifecycle.ResolveCredit, s.Status == lifecycle.PaymentCredited)
			require.Equal(t, want, r.balances())
			require.Equal(t, lifecycle.JobFailedManual, r.jobOf(s.ID).Status)
			require.NoError(t, r.syncNow())
			require.Equal(t, lifecycle.JobCompleted, r.jobOf(s.ID).Status, "the next pass has the parked job end")
			d.Resolution = lifecycle.ResolveWriteOff
			switch resolution { //nolint:exhaustive // suspense is none of the cases: a job decides it
			case lifecycle.ResolveCredit:
				_, err = r.sync.Resolve(t.Context(), d)
				require.Contains(t, err.Error(), "was resolved before")
			case lifecycle.ResolveRefund: // it failed, so that an operator is told and may decide again
				require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_attention WHERE message LIKE '%its refund failed'"))
				s, err = r.sync.Resolve(t.Context(), d)
				require.NoError(t, err)
				require.Equal(t, map[string]int64{"write_off": paid + 7, "clearing": -paid - 7}, r.balances())
			case lifecycle.ResolveWriteOff:
			}
			require.Zero(t, r.raised())
		})
	}
}

// TestSession_CreditFails: a credit that fails as often as the policy allows is left to an
// operator, and what came can be refunded from suspense.
func TestSession_CreditFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	require.NoError(t, r.tx(func(tx *db.Tx) error { // whatever makes each posting fail
		_, _, err := ledgerdb.Post(t.Context(), tx, ledgerdb.Posting{
			Key: "topup:" + s.ID, Kind: ledgerdb.KindAdjustment, BillingAccountID: s.BillingAccountID, Reason: "in the way",
			Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: 1}, {Code: ledgerdb.CodeAdjustments, AmountMinor: -1}},
		})
		return err
	}))
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	_, err := r.fulfil(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, 3, r.get(s.ID).CreditAttempts)
	for range 5 { // whoever waits for it uses no tries up, and starts no other job
		r.alter("UPDATE payment_sessions SET looked_at = NULL")
		_, err := r.sync.Show(t.Context(), s.ID)
		require.NoError(t, err)
	}
	require.NoError(t, r.syncNow())
	job := r.jobOf(s.ID)
	require.Equal(t, []any{lifecycle.JobFailedRetryable, lifecycle.FailPaymentCredit, lifecycle.StagePostCredit}, []any{job.Status, job.FailureClass, job.FailedStage})
	require.Contains(t, job.Message, "used for another posting")
	require.Equal(t, int64(1), r.raised(), "the job, and not its session once more")
	require.NoError(t, r.jobs.Run(t.Context(), job.ID), "an operator retries the stage")
	require.Equal(t, 6, r.get(s.ID).CreditAttempts)
	s = r.get(s.ID)
	require.Equal(t, lifecycle.PaymentFailedReconcile, s.Status)
	require.Equal(t, lifecycle.PaymentCreditFailed, s.FailureCode)
	require.Equal(t, "The payment arrived and could not be credited; operators were told.", s.FailureMessage, "members read it")
	require.Contains(t, s.LastError, "used for another posting", "operators read it")
	_, err = r.sync.Resolve(t.Context(), payments.Decision{SessionID: s.ID, Resolution: lifecycle.ResolveRefund, Reason: "cannot be booked", Actor: operator})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"prepaid": 1, "adjustments": -1}, r.balances(), "it came and went")
	require.Equal(t, int64(paid), r.sim.Totals()["USD"].Refunded+r.sim.Totals()["usd"].Refunded)
	require.Empty(t, r.compare())
}

// TestLists_FindWhatNoWebhookTold: with all webhooks dropped the list of events has them, and what
// is in no list either is found by comparing the sessions.
func TestLists_FindWhatNoWebhookTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(endpoint.Close)
	require.NoError(t, r.sim.AddEndpoint(stripesim.Endpoint{URL: endpoint.URL, Secrets: []string{"whsec_simulated"}}))
	r.fault(stripesim.Fault{Name: stripesim.FaultDrop, Count: -1})
	listed, silent := r.open("listed"), r.open("silent")
	require.NoError(t, r.sim.Pay(*listed.StripeCheckoutSessionID))
	r.fault(stripesim.Fault{Name: stripesim.FaultEventNotGenerated, Count: -1})
	require.NoError(t, r.sim.Pay(*silent.StripeCheckoutSessionID))
	n, err := r.sync.ListEvents(t.Context())
	require.NoError(t, err)
	require.Positive(t, n)
	_, err = r.sync.ProcessEvents(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.runJobs(t.Context()))
	require.Equal(t, lifecycle.PaymentCredited, r.get(listed.ID).Status)
	require.Equal(t, lifecycle.PaymentInitiated, r.get(silent.ID).Status)
	require.Empty(t, r.compare())
	require.Equal(t, lifecycle.PaymentCredited, r.get(silent.ID).Status)
	n, err = r.sync.ListEvents(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "what is known is not stored again")
}

// TestCompare_ReportsWhatDiffers: a page of somebody else is listed and in no total; one of ours
// without a row, as after a restore, and a charge that is in no ledger, are told until an operator
// knows.
func TestCompare_ReportsWhatDiffers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.credited("k")
	control, err := paymentsdb.ReadControl(t.Context(), r.store)
	require.NoError(t, err)
	foreign := r.page("theirs", "another-installation")
	require.NoError(t, r.deliver(r.eventsOf("checkout.session.completed")...))
	require.Empty(t, r.compare(), "what is not ours is in no total")
	others, err := paymentsdb.ListForeign(t.Context(), r.store, "", 10)
	require.NoError(t, err)
	require.Len(t, others, 1)
	require.Equal(t, foreign, others[0].ID)

	lost := r.page("lost", control.Installation)
	found := r.compare()
	require.Len(t, found, 2, "the page, and the total that lacks it")
	require.Equal(t, lost, found[0].Subject)
	require.Contains(t, found[0].Message, "there is no such session")
	require.Equal(t, int64(900), found[1].AmountMinor)
	const raised = "SELECT count(*) FROM payment_attention WHERE kind = 'payment_difference'"
	require.Equal(t, int64(1), r.count(raised), "a total may differ for a moment")
	r.compare()
	require.Equal(t, int64(2), r.count(raised))
	require.NoError(t, r.tx(func(tx *db.Tx) error {
		return payments.Acknowledge(t.Context(), tx, paymentsdb.DifferenceTotal, "USD", "booked by an adjustment", operator)
	}))
	r.compare()
	require.Equal(t, int64(1), r.count(raised))
	r.page("lost2", control.Installation)
	r.compare()
	r.compare()
	require.Equal(t, int64(3), r.count(raised), "another amount is told again")
}
