package paymentsync_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

func (r *rig) refund(s paymentsdb.Session, key string, minor int64) (paymentsdb.Refund, error) {
	return r.sync.RequestRefund(r.ctx, payments.RefundRequest{SessionID: s.ID, AmountMinor: minor, Reason: "asked for by the customer", Key: key, Actor: operator})
}

// TestRefund_OfABalance: a refund is taken from the balance before Stripe is asked, once, and never
// more than is there; one that fails days later is in the balance again.
func TestRefund_OfABalance(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	first, err := r.refund(s, "a", 1000)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundSucceeded, first.State)
	again, err := r.refund(s, "a", 1000)
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, 1, r.sim.Counters().Refunds)
	require.Equal(t, map[string]int64{"prepaid": 1500, "clearing": -1500}, r.balances())
	for name, c := range map[string]struct {
		minor int64
		key   string
		says  string
	}{
		"more than is left":    {1501, "b", "15.00 USD of the payment is left to refund"},
		"another with its key": {999, "a", "use a new key"},
		"nothing":              {0, "c", "must be at least 1"},
		"less than nothing":    {-5, "d", "must be at least 1"},
	} {
		_, err := r.refund(s, c.key, c.minor)
		require.NotNil(t, intent.AsRefusal(err), name)
		require.Contains(t, err.Error(), c.says, name)
	}
	require.NoError(t, r.sim.SettleRefund(*first.StripeRefundID, false))
	require.NoError(t, r.deliver(r.events()...))
	require.Equal(t, map[string]int64{"prepaid": paid, "clearing": -paid}, r.balances())
	require.Zero(t, r.get(s.ID).RefundedMinor)
	require.NoError(t, r.deliver(r.events()...))
	require.Empty(t, r.compare())
}

// TestLive_AfterTestMode: what was paid in test mode is no money. In live mode it is not refunded,
// and operators are told of the balance that it has given.
func TestLive_AfterTestMode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	odd := r.mismatched()
	s := r.credited("another")
	require.NoError(t, r.sync.CompareTotals(t.Context()))
	require.Zero(t, r.count("SELECT count(*) FROM payment_differences WHERE subject LIKE 'test_mode:%'"), "it is in test mode itself")
	r.sync.Policy.Live = true
	_, err := r.refund(s, "a", 1000)
	require.NotNil(t, intent.AsRefusal(err))
	require.ErrorContains(t, err, "in test mode of the payment provider")
	require.ErrorContains(t, r.resolve(odd, lifecycle.ResolveRefund), "in test mode of the payment provider")
	require.Equal(t, int64(paid), r.balances()["prepaid"])
	require.NoError(t, r.sync.CompareTotals(t.Context()))
	require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_attention WHERE kind = 'payment_difference' AND message LIKE 'payments of test mode (1) have credited 2500 %'"))
	require.NoError(t, r.resolve(odd, lifecycle.ResolveWriteOff))
}

// TestRefund_OfWhatWasSpent: what is held back for allocations, or was spent, is not refunded.
func TestRefund_OfWhatWasSpent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	r.spend(2000)
	_, err := r.refund(s, "a", 600)
	require.Contains(t, err.Error(), "5.00 USD of the balance are neither spent nor held back")
	_, err = r.refund(s, "a", 500)
	require.NoError(t, err)
}

// TestRefund_AgainstCreate: refunds and requests for nodes want the same balance at once. As many
// get it as it covers, whoever they are, and it is never given twice.
func TestRefund_AgainstCreate(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	sku, site := dbtest.SKU(t, store), dbtest.Site(t, store)
	profile := dbtest.Profile(t, store, dbtest.At(site.ID))
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tenancydb.PutOffer(t.Context(), tx, tenancydb.Offer{SKUID: sku.ID, ProfileID: profile.ID, Title: "a node", Isolation: "shared_network"})
		return err
	}))
	dbtest.SetPrices(t, dsn, sku.ID, "USD", dbtest.Rate{From: time.Now().Add(-48 * time.Hour), RateMinorPerHour: 1000})
	const each, rounds = 4, 5
	won := map[string]int64{}
	for range rounds {
		r := openRig(t, t, store, owner)
		require.NoError(t, r.tx(func(tx *db.Tx) error { _, _, err := dbtest.ProjectKey(t.Context(), tx, r.project.ID); return err }))
		for range each {
			dbtest.FreeNode(t, store, dbtest.Of(sku.ID), dbtest.At(site.ID))
		}
		s := r.credited("k-" + r.project.ID) // 25.00; each of them wants 10.00
		var group sync.WaitGroup
		var refunded, held atomic.Int64
		for i := range each {
			group.Go(func() {
				if _, err := r.refund(s, fmt.Sprint(i), 1000); err == nil {
					refunded.Add(1)
				} else {
					assert.NotNil(t, intent.AsRefusal(err), "%v", err)
				}
			})
			group.Go(func() {
				err := r.tx(func(tx *db.Tx) error {
					_, err := allocation.Create(t.Context(), tx, allocation.Request{ProjectID: r.project.ID, SKUID: sku.ID, Actor: customer})
					return err
				})
				if err == nil {
					held.Add(1)
				} else {
					assert.NotNil(t, intent.AsRefusal(err), "%v", err)
				}
			})
		}
		group.Wait()
		won["refunds"], won["requests"] = won["refunds"]+refunded.Load(), won["requests"]+held.Load()
		require.Equal(t, int64(2), refunded.Load()+held.Load())
		b, err := ledgerdb.ReadBalance(t.Context(), store, r.project.BillingAccountID)
		require.NoError(t, err)
		require.Equal(t, []int64{paid - 1000*refunded.Load(), 1000 * held.Load(), 500}, []int64{b.BalanceMinor, b.HeldMinor, b.AvailableMinor()})
		require.Equal(t, 1000*refunded.Load(), r.sim.Totals()["usd"].Refunded)
	}
	t.Logf("%v", won)
}

// TestRefund_LostAnswers: whatever becomes of the answer, one refund is made; one that Stripe
// refuses is in the balance again.
func TestRefund_LostAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	r.fault(stripesim.Fault{Name: stripesim.FaultTruncated, Op: "create_refund", Count: 3})
	lost, err := r.refund(s, "a", 1000)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundRequested, lost.State)
	require.Equal(t, map[string]int64{"prepaid": 1500, "refund_pending": 1000, "clearing": -paid}, r.balances())
	require.NoError(t, r.syncNow())
	require.Equal(t, 1, r.sim.Counters().Refunds)
	require.Equal(t, map[string]int64{"prepaid": 1500, "clearing": -1500}, r.balances())

	_, err = r.sim.OpenDispute(*s.StripeCheckoutSessionID)
	require.NoError(t, err)
	refused, err := r.refund(s, "b", 100)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RefundFailed, refused.State, "a disputed charge is not refunded")
	require.Contains(t, refused.LastError, "refuses it")
	require.Equal(t, map[string]int64{"prepaid": 1500, "clearing": -1500}, r.balances())
}

// TestRefund_InTheDashboard: two partial refunds that somebody made at Stripe are booked as they
// are, in any order, also those that came before the credit, and when the balance does not cover
// them.
func TestRefund_InTheDashboard(t *testing.T) {
	t.Parallel()
	for _, isCredited := range []bool{false, true} {
		for _, isReversed := range []bool{false, true} {
			r := newRig(t)
			s := r.open("k")
			page := *s.StripeCheckoutSessionID
			require.NoError(t, r.sim.Pay(page))
			if isCredited {
				require.NoError(t, r.deliver(r.events()...))
				r.spend(2400)
			}
			for _, minor := range []int64{700, 800} {
				_, err := r.sim.RefundInDashboard(page, minor)
				require.NoError(t, err)
			}
			events := r.events()
			if isReversed {
				slices.Reverse(events)
			}
			require.NoError(t, r.deliver(events...))
			require.NoError(t, r.deliver(events...))
			require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
			require.Equal(t, int64(1500), r.get(s.ID).RefundedMinor)
			require.Equal(t, int64(-1000), r.balances()["clearing"])
			spent := int64(0)
			if isCredited {
				spent = 2400
			}
			require.Equal(t, 1000-spent, r.balances()["prepaid"])
			require.Empty(t, r.compare())
		}
	}
}

// TestDispute_FreezesTheAccount: its amount is held while it is open; won, it is in the balance
// again; lost, the account stays frozen until an operator clears it.
func TestDispute_FreezesTheAccount(t *testing.T) {
	t.Parallel()
	for _, won := range []bool{false, true} {
		r := newRig(t)
		s := r.credited("k")
		r.spend(2000)
		id, err := r.sim.OpenDispute(*s.StripeCheckoutSessionID)
		require.NoError(t, err)
		opened := r.eventsOf("charge.dispute.created")
		require.NoError(t, r.deliver(opened...))
		require.Equal(t, map[string]int64{"prepaid": -2000, "dispute_hold": paid, "adjustments": 2000, "clearing": -paid}, r.balances())
		require.True(t, r.isFrozen())
		require.NoError(t, r.tx(func(tx *db.Tx) error {
			_, err := allocation.Admit(t.Context(), tx, allocation.Request{ProjectID: r.project.ID, SKUID: "sku_none"})
			require.Equal(t, intent.Conflict, intent.AsRefusal(err).Kind)
			require.Contains(t, err.Error(), "is disputed by the payer's bank")
			return nil
		}))
		require.Empty(t, r.compare(), "the money has left Stripe too")
		require.NoError(t, r.sim.CloseDispute(id, won))
		require.NoError(t, r.syncNow(), "no webhook told it")
		require.NoError(t, r.deliver(opened...))
		require.Empty(t, r.compare())
		if won {
			require.Equal(t, map[string]int64{"prepaid": 500, "adjustments": 2000, "clearing": -paid}, r.balances())
			require.False(t, r.isFrozen())
			err := r.tx(func(tx *db.Tx) error { return payments.ClearDispute(t.Context(), tx, id, "trusted", operator) })
			require.Contains(t, err.Error(), "only an open or lost dispute")
			continue
		}
		require.Equal(t, map[string]int64{"prepaid": -2000, "adjustments": 2000}, r.balances())
		require.True(t, r.isFrozen())
		require.Equal(t, int64(1), r.count("SELECT count(*) FROM payment_attention WHERE kind = 'payment_dispute'"))
		require.NoError(t, r.tx(func(tx *db.Tx) error { return payments.ClearDispute(t.Context(), tx, id, "paid the invoice", operator) }))
		require.False(t, r.isFrozen())
	}
}

// TestDispute_ThatIsAWarning: an inquiry takes no money, so that nothing is held and nobody is
// frozen; one that ends so releases what is held.
func TestDispute_ThatIsAWarning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.credited("k")
	follow := func(o payments.ObservedDispute) {
		t.Helper()
		o.ID, o.AmountMinor, o.Currency = "du_1", 900, "USD"
		require.NoError(t, r.tx(func(tx *db.Tx) error {
			done, err := payments.FollowDispute(t.Context(), tx, s.ID, o, payments.Actor)
			require.True(t, done)
			return err
		}))
	}
	free := map[string]int64{"prepaid": paid, "clearing": -paid}
	for _, o := range []payments.ObservedDispute{{Warning: true}, {Warning: true, Won: true}} {
		follow(o)
		require.Equal(t, free, r.balances())
		require.False(t, r.isFrozen())
	}
	follow(payments.ObservedDispute{})
	follow(payments.ObservedDispute{Warning: true})
	require.Equal(t, map[string]int64{"prepaid": paid - 900, "dispute_hold": 900, "clearing": -paid}, r.balances())
	require.True(t, r.isFrozen())
	require.NoError(t, r.tx(func(tx *db.Tx) error { return payments.ClearDispute(t.Context(), tx, "du_1", "trusted", operator) }))
	require.False(t, r.isFrozen(), "an operator clears an open dispute too")
	follow(payments.ObservedDispute{Warning: true, Won: true})
	require.Equal(t, free, r.balances())
}

// TestDispute_BeforeTheCredit: a dispute that is known first waits for the credit.
func TestDispute_BeforeTheCredit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	_, err := r.sim.OpenDispute(*s.StripeCheckoutSessionID)
	require.NoError(t, err)
	disputed := r.eventsOf("charge.dispute.created")
	require.NoError(t, r.deliver(disputed...))
	require.Equal(t, "pending", r.eventState(disputed[0].ID))
	require.NoError(t, r.deliver(r.events()...))
	require.NoError(t, r.deliver(disputed...))
	require.Equal(t, "processed", r.eventState(disputed[0].ID))
	require.Equal(t, map[string]int64{"dispute_hold": paid, "clearing": -paid}, r.balances())
}

func (r *rig) isFrozen() bool {
	r.Helper()
	frozen, err := paymentsdb.IsFrozen(r.ctx, r.store, r.project.BillingAccountID)
	require.NoError(r, err)
	return frozen
}

// TestEvents_AProviderThatIsAway: nothing is lost while Stripe does not answer; what failed is
// tried again later and the rest of the batch is not asked for.
func TestEvents_AProviderThatIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var pages []paymentsdb.Session
	for _, key := range []string{"1", "2", "3", "4", "5"} {
		s := r.open(key)
		require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
		pages = append(pages, s)
	}
	r.receive(r.eventsOf("checkout.session.completed")...)
	r.alter("UPDATE stripe_events SET state = 'pending', processed_at = NULL") // as events that have found a live job
	r.fault(stripesim.Fault{Name: stripesim.FaultUnavailable, Count: -1, Params: map[string]string{"retry_after": "0"}})
	_, err := r.sync.ProcessEvents(t.Context())
	require.True(t, providers.IsKind(err, providers.KindUnavailable), "%v", err)
	require.Equal(t, int64(3), r.count("SELECT count(*) FROM stripe_events WHERE attempts = 1"))
	require.Equal(t, int64(5), r.count("SELECT count(*) FROM stripe_events WHERE state = 'pending'"))
	const raised = "SELECT count(*) FROM payment_attention WHERE id LIKE 'payment_difference:event:%'"
	require.Zero(t, r.count(raised))
	r.alter("UPDATE stripe_events SET attempts = 13 WHERE attempts = 1")
	require.Equal(t, int64(3), r.count(raised), "what fails for hours requires an operator")
	r.sim.ClearFaults(0)
	r.alter("UPDATE stripe_events SET next_at = now()")
	n, err := r.sync.ProcessEvents(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.NoError(t, r.runJobs(t.Context()))
	for _, s := range pages {
		require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
	}
}
