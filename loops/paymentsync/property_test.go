package paymentsync_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/db/dbtest"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// step is one thing that happens. Session, Amount and Order mean what its name needs.
type step struct {
	Name    string
	Session int
	Amount  int64
	Order   []int
	Fault   string
	Op      string
	Kill    int // a call is killed after so many tenths of a millisecond; 0 lets it end
}

const sessionsInWalk = 3

var steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
	return step{
		Name: rapid.SampledFrom([]string{
			"create", "create", "pay", "pay", "pay", "pay_later", "settle", "settle_failed", "expire", "deliver", "deliver", "deliver", "fulfil", "show", "sync",
			"dashboard_refund", "dashboard_refund", "operator_refund", "operator_refund", "refund_failed", "refund_failed", "dispute", "dispute", "dispute_won", "dispute_lost", "fault", "lose_events", "tamper_events",
		}).Draw(t, "name"),
		Session: rapid.IntRange(0, sessionsInWalk-1).Draw(t, "session"),
		Amount:  rapid.Int64Range(1, paid).Draw(t, "amount"),
		Order:   rapid.SliceOfN(rapid.IntRange(0, 40), 0, 12).Draw(t, "order"),
		Fault: rapid.SampledFrom([]string{
			stripesim.FaultInternalError, stripesim.FaultUnavailable, stripesim.FaultReset, stripesim.FaultTruncated, stripesim.FaultHTML, stripesim.FaultRateLimited,
		}).Draw(t, "fault"),
		Op:   rapid.SampledFrom([]string{"", "create_session", "create_refund", "list_sessions"}).Draw(t, "op"),
		Kill: rapid.SampledFrom([]int{0, 0, 0, 1, 10, 40}).Draw(t, "kill"),
	}
}), 8, 30)

// beginnings are what each session of a walk begins with, so that most walks have something to
// lose.
var beginnings = rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "pay", "pay", "pay", "pay_later"}), sessionsInWalk, sessionsInWalk)

// walk is a rig with what a walk has made.
type walk struct {
	*rig
	ids      [sessionsInWalk]string
	disputes []string
	seen     map[string]int
}

// TestPayments_AnyOrderEndsTheSame runs generated walks: events in any order, lost, repeated,
// tampered with and never made, calls that fail or are killed, refunds and disputes from both
// sides. After it, with nothing but the comparisons, each session has what Stripe says of it. I10
// to I12.
func TestPayments_AnyOrderEndsTheSame(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	want := runenv.Scale(t, "SLIPWAY_PAYMENT_WALKS", 40, 1000)
	done, seen := 0, map[string]int{}
	ends := []string{"credited", "expired", "refunded", "reversed", "disputed", "two refunds"}
	// Few walks may miss an end by chance: more are walked until each was seen.
	enough := func() bool {
		missing := slices.ContainsFunc(ends, func(name string) bool { return seen[name] == 0 })
		return done >= want && !missing || done >= 10*want
	}
	for !enough() && !t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			if enough() {
				return
			}
			done++
			w := &walk{rig: openRig(t, rt, store, owner), seen: seen}
			w.ctx = t.Context()
			for i, name := range beginnings.Draw(rt, "beginnings") {
				if name != "" {
					w.do(step{Name: "create", Session: i})
					w.do(step{Name: name, Session: i})
					w.do(step{Name: "fulfil", Session: i})
				}
			}
			for _, s := range steps.Draw(rt, "steps") {
				w.do(s)
			}
			w.settle()
			w.check()
		})
	}
	t.Logf("%d walks: %v", done, seen)
	for _, name := range ends {
		require.Positive(t, seen[name], "no walk has a session that was %s", name)
	}
}

func (w *walk) page(i int) string {
	if w.ids[i] == "" {
		return ""
	}
	s := w.get(w.ids[i])
	if s.StripeCheckoutSessionID == nil {
		return ""
	}
	return *s.StripeCheckoutSessionID
}

// do carries a step out. A step that has no effect at this point is refused by the simulator, and
// no error of a step matters: the end does.
func (w *walk) do(s step) {
	page := w.page(s.Session)
	ctx, cancel := w.ctx, context.CancelFunc(func() {})
	if s.Kill > 0 {
		ctx, cancel = context.WithTimeout(w.ctx, time.Duration(s.Kill)*100*time.Microsecond)
	}
	defer cancel()
	switch s.Name {
	case "create":
		request := w.request(fmt.Sprint(s.Session))
		request.Actor.ID = w.project.ID // walks share a database and no user
		made, err := w.sync.CreateCheckout(ctx, request)
		if err == nil {
			w.ids[s.Session] = made.ID
		} else if found, err := paymentsdb.FindByRequest(w.ctx, w.store, w.project.ID, request.Key); err == nil {
			w.ids[s.Session] = found.ID
		}
	case "pay", "pay_later", "settle", "settle_failed", "expire":
		_, _ = w.sim.Do(stripesim.Act{Act: s.Name, ID: page})
	case "dashboard_refund":
		_, _ = w.sim.RefundInDashboard(page, s.Amount)
	case "dispute":
		if id, err := w.sim.OpenDispute(page); err == nil {
			w.disputes = append(w.disputes, id)
		}
	case "dispute_won", "dispute_lost":
		if n := len(w.disputes); n > 0 {
			_ = w.sim.CloseDispute(w.disputes[s.Session%n], s.Name == "dispute_won")
		}
	case "refund_failed":
		if payment := w.paymentOf(s.Session); payment != "" {
			if list, err := w.client.Refunds(w.ctx, payment, providers.PaymentQuery{}); err == nil && len(list.Items) > 0 {
				_ = w.sim.SettleRefund(list.Items[s.Session%len(list.Items)].ID, false)
			}
		}
	case "operator_refund":
		if w.ids[s.Session] != "" {
			_, _ = w.sync.RequestRefund(ctx, payments.RefundRequest{
				SessionID: w.ids[s.Session], AmountMinor: s.Amount, Reason: "walk", Key: fmt.Sprint(s.Amount), Actor: operator,
			})
		}
	case "deliver":
		w.deliverSome(ctx, s.Order)
	case "fulfil", "show":
		if w.ids[s.Session] != "" {
			_, _ = w.fulfil(ctx, w.ids[s.Session])
			_, _ = w.sync.Show(ctx, w.ids[s.Session])
		}
	case "sync":
		_ = w.syncNow()
	case "fault":
		w.fault(stripesim.Fault{Name: s.Fault, Op: s.Op, Count: 1 + s.Session})
	case "lose_events":
		w.fault(stripesim.Fault{Name: stripesim.FaultEventNotGenerated, Count: 1 + s.Session})
	case "tamper_events":
		w.fault(stripesim.Fault{Name: stripesim.FaultEventAmount, Count: 1 + s.Session, Params: map[string]string{"by": "100000"}})
	}
}

func (w *walk) paymentOf(i int) string {
	if w.ids[i] == "" {
		return ""
	}
	if s := w.get(w.ids[i]); s.StripePaymentIntentID != nil {
		return *s.StripePaymentIntentID
	}
	return ""
}

// deliverSome delivers events by their places, in any order and more than once.
func (w *walk) deliverSome(ctx context.Context, order []int) {
	page, err := w.client.Events(w.ctx, providers.EventQuery{})
	if err != nil {
		return
	}
	for _, place := range order {
		if place < len(page.Items) {
			w.receive(page.Items[place])
		}
	}
	w.alter("UPDATE stripe_events SET next_at = now() WHERE state = 'pending'")
	_, _ = w.sync.ProcessEvents(ctx)
	_ = w.runJobs(ctx)
}

// settle lets the passes do what they do, without a single event: as with all webhooks dropped.
func (w *walk) settle() {
	w.sim.ClearFaults(0)
	w.alter("DELETE FROM stripe_events")
	for range 2 {
		require.NoError(w, w.syncNow())
		w.compare()
	}
	require.Empty(w, w.compare())
}

// check compares the end of the walk with the simulated account, which knows nothing of the ledger.
func (w *walk) check() {
	created := int64(0)
	for i, id := range w.ids {
		if id == "" {
			continue
		}
		created++
		s := w.get(id)
		topups := w.topups(id)
		require.LessOrEqual(w, topups, int64(1))
		require.Equal(w, s.Status == lifecycle.PaymentCredited, topups == 1)
		page := w.page(i)
		if page == "" {
			require.NotEqual(w, lifecycle.PaymentCredited, s.Status)
			continue
		}
		said, err := w.client.Session(w.ctx, page)
		require.NoError(w, err)
		require.Equal(w, said.Paid, s.Status == lifecycle.PaymentCredited, "session %s is %s", id, s.Status)
		if said.Paid {
			require.Equal(w, said.Amount, *s.CreditedAmountMinor)
		}
	}
	require.LessOrEqual(w, int64(w.sim.Counters().Sessions), created, "one page for each session")
	t := w.sim.Totals()["usd"]
	w.note()
	b := w.balances()
	require.Zero(w, b["suspense"])
	require.Zero(w, b["refund_pending"])
	require.Equal(w, t.Paid-t.Refunded-t.Disputed, -(b["clearing"] + b["dispute_hold"]), "what Stripe has")
	require.Equal(w, t.Paid-t.Refunded-t.Disputed, b["prepaid"], "what the customer has")
}

// note counts what the walk has led to, so that walks which lead nowhere are no proof.
func (w *walk) note() {
	for _, id := range w.ids {
		if id == "" {
			continue
		}
		w.seen[string(w.get(id).Status)]++
		refunds, err := paymentsdb.ListRefunds(w.ctx, w.store, id)
		require.NoError(w, err)
		for _, r := range refunds {
			if r.State == lifecycle.RefundFailed {
				w.seen["reversed"]++
			} else {
				w.seen["refunded"]++
			}
		}
		if len(refunds) > 1 {
			w.seen["two refunds"]++
		}
		disputes, err := paymentsdb.ListDisputes(w.ctx, w.store, id)
		require.NoError(w, err)
		w.seen["disputed"] += len(disputes)
	}
}
