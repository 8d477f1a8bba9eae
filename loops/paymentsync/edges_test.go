package paymentsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// TestEdges_AreTaken walks every edge of a payment session by what customers, Stripe and operators
// do, and compares what the audit log has with the machine.
func TestEdges_AreTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.credited("credited")
	left := r.open("expired, and paid all the same")
	require.NoError(t, r.tx(func(tx *db.Tx) error {
		_, err := payments.Expire(t.Context(), tx, left.ID, lifecycle.PaymentCreateFailed, "for the test", payments.Actor)
		return err
	}))
	require.NoError(t, r.sim.Pay(*left.StripeCheckoutSessionID))
	require.NoError(t, r.deliver(r.events()...))
	require.Empty(t, r.compare())
	require.Equal(t, lifecycle.PaymentCredited, r.get(left.ID).Status)
	odd := r.open("another amount")
	require.NoError(t, r.sim.Pay(*odd.StripeCheckoutSessionID))
	r.fault(stripesim.Fault{Name: stripesim.FaultAmount, Count: 1, Params: map[string]string{"by": "7"}})
	_, err := r.fulfil(t.Context(), odd.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.PaymentFailedReconcile, r.get(odd.ID).Status)
	_, err = r.sync.Resolve(t.Context(), payments.Decision{SessionID: odd.ID, Resolution: lifecycle.ResolveCredit, Reason: "checked", Actor: operator})
	require.NoError(t, err)

	r.refuseCredits()
	again := r.open("failed and retried")
	require.NoError(t, r.sim.Pay(*again.StripeCheckoutSessionID))
	_, err = r.fulfil(t.Context(), again.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.PaymentFailedReconcile, r.get(again.ID).Status)
	r.alter("DROP TRIGGER refuse_credits ON ledger_transactions")
	require.NoError(t, r.jobs.Run(t.Context(), r.jobOf(again.ID).ID))
	require.Equal(t, lifecycle.PaymentCredited, r.get(again.ID).Status)

	rows, err := r.store.DBTX().Query(t.Context(), "SELECT DISTINCT from_state || '>' || to_state FROM audit_log WHERE resource_kind = $1 AND kind = 'transition'", lifecycle.Payment.Resource)
	require.NoError(t, err)
	walked, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	var all []string
	for _, e := range lifecycle.Payment.Edges() {
		all = append(all, e.From+">"+e.To)
	}
	require.ElementsMatch(t, all, walked)
}

// TestCheckout_OtherCurrencies tops up accounts whose minor unit is a whole yen and a thousandth of
// a dinar: the limits are of whole units, Stripe has the same amount, and each currency has a total
// of its own. An amount that banks would round is refused.
func TestCheckout_OtherCurrencies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.credited("in dollars")
	for currency, c := range map[string]struct {
		minor, tooLittle int64
		says             string
	}{
		"JPY": {2500, 4, "must be 5 to 10000: 5 to 10000 JPY"},
		"KWD": {25_000, 4_990, "must be 5000 to 10000000: 5.000 to 10000.000 KWD"},
	} {
		require.NoError(t, r.tx(func(tx *db.Tx) error {
			a, err := tenancydb.CreateAccountIn(t.Context(), tx, "in "+currency, currency, 1)
			if err == nil {
				r.project, err = tenancydb.CreateProject(t.Context(), tx, a.ID, "in "+currency, nil, operator)
			}
			return err
		}))
		q := r.request("little " + currency)
		q.AmountMinor = c.tooLittle
		_, err := r.sync.CreateCheckout(t.Context(), q)
		require.NotNil(t, intent.AsRefusal(err), "%s: %v", currency, err)
		require.Contains(t, err.Error(), c.says)
		q = r.request("paid " + currency)
		q.AmountMinor = c.minor
		s, err := r.sync.CreateCheckout(t.Context(), q)
		require.NoError(t, err)
		require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
		s, err = r.fulfil(t.Context(), s.ID)
		require.NoError(t, err)
		require.Equal(t, []any{lifecycle.PaymentCredited, currency, c.minor}, []any{s.Status, s.Currency, *s.CreditedAmountMinor})
		require.Equal(t, map[string]int64{"prepaid": c.minor, "clearing": -c.minor}, r.balances(), currency)
		require.Equal(t, c.minor, r.sim.Totals()[strings.ToLower(currency)].Paid)
		require.Equal(t, int64(0), r.count("SELECT count(*) FROM ledger_entries e JOIN ledger_accounts a ON a.id = e.ledger_account_id WHERE a.billing_account_id = $1 AND e.currency <> $2",
			r.project.BillingAccountID, currency))
	}
	require.Empty(t, r.compare(), "three currencies, three totals")
	require.Len(t, r.sim.Totals(), 3, fmt.Sprint(r.sim.Totals()))

	require.NoError(t, r.owner.QueryRow(t.Context(), "SELECT p.id, p.billing_account_id FROM projects p JOIN billing_accounts b ON b.id = p.billing_account_id WHERE b.currency = 'KWD'").
		Scan(&r.project.ID, &r.project.BillingAccountID))
	odd := r.request("odd")
	odd.AmountMinor = 25_001
	_, err := r.sync.CreateCheckout(t.Context(), odd)
	require.Equal(t, intent.Invalid, intent.AsRefusal(err).Kind, "%v", err)
	require.Contains(t, err.Error(), "must end in 0")
	require.Equal(t, int64(3), r.count("SELECT count(*) FROM payment_sessions"), "nothing is written for what is refused")
}

// refuseCredits has the ledger refuse every credit of a payment.
func (r *rig) refuseCredits() {
	r.Helper()
	r.alter(`CREATE FUNCTION refuse_credit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused for the test'; END $$`)
	r.alter("CREATE TRIGGER refuse_credits BEFORE INSERT ON ledger_transactions FOR EACH ROW WHEN (NEW.kind = 'topup') EXECUTE FUNCTION refuse_credit()")
}
