package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// mutant is a deliberate error in a function of the database.
type mutant struct{ name, function, part, instead string }

// mutants are errors that a ledger may have while its rows still look sound.
var mutants = []mutant{
	{
		"each window is rounded by itself", "bill_accounts",
		"usage_cost(s.rate_minor_per_hour, s.started_at, least(p_boundary, s.ended_at)) - s.charged_minor",
		"usage_cost(s.rate_minor_per_hour, s.billed_through, least(p_boundary, s.ended_at))",
	},
	{"a started minor unit is charged", "usage_cost", "floor(", "ceil("},
	{"the end of a charge is ignored", "bill_accounts", "SET ended_at = greatest(r.end_time, s.billed_through)", "SET ended_at = p_boundary"},
	{"a debit is that of one window only", "bill_accounts", "sum(d.amount_minor)::bigint AS amount_minor, max(d.window_end)", "max(d.amount_minor)::bigint AS amount_minor, max(d.window_end)"},
	{"a release that nothing confirms is charged on", "follow_allocation", "interval '300 seconds'", "interval '300 days'"},
	{"a short tenancy is charged for its time only", "least_end", "'00:10:00'::interval", "'00:00:00'::interval"},
	{"an instance that nobody ends is charged on", "follow_instance", "NEW.drain_seconds + 300", "NEW.drain_seconds + 30000000"},
	{"a drain that ends early is charged to its end", "follow_instance", "least(r.end_cap, now() + make_interval", "coalesce(r.end_cap, now() + make_interval"},
	{"an instance is charged after its end", "follow_instance", "greatest(least(now(), r.end_cap), billed)", "greatest(now() + interval '1 hour', billed)"},
	{"an instance has the rate of nothing", "follow_instance", "rate_at(r.item,", "rate_at(r.sku_id,"},
	{"a higher price counts at once", "rate_at", "interval '168 hours'", "interval '0 hours'"},
	{"a price change waits for the next tick", "split_usage", "SET ended_at = d.at", "SET ended_at = d.billed_through"},
	{"a second entry into depleted is not counted", "follow_balance", "s.state <> 'depleted' OR s.depletions = 0", "s.depletions = 0"},
	{"the low threshold is exclusive", "follow_balance", "balance <= t.low_minor", "balance < t.low_minor"},
	{"a warning is armed again at its threshold", "follow_balance", "balance > t.rearm_minor", "balance >= t.rearm_minor"},
}

// TestMutants_AreFound plants some of the errors, in proof all of them, and requires that the walks
// find it. Without an error the same walks find nothing.
func TestMutants_AreFound(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	search := func(walks int) (found error) {
		for seed := range walks {
			if _, found = m.run(t.Context(), plans.Example(seed)); found != nil {
				return found
			}
		}
		return nil
	}
	require.NoError(t, search(3), "without an error")
	for _, x := range runenv.Sample(t, "SLIPWAY_BILLING_MUTANTS", "mutants", mutants, 4) {
		restore := m.mutate(x.function, x.part, x.instead)
		found := search(150)
		restore()
		require.Error(t, found, "the mutant lives: %s", x.name)
		t.Logf("%s: %.300s", x.name, found)
	}
	require.NoError(t, search(3), "every function is restored")
}
