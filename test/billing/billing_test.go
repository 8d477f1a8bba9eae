// Package billing_test holds the ledger against a model of big integers, which test/billing/model
// computes without it.
package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestLedger_EqualsTheModel runs generated walks: ticks that are late, repeated, missing, at once or
// killed, price changes, adjustments and releases. After each step balances, states and notices are
// the model's; at the end each segment and each window is. I1 to I9, I13 and the usage part of I17.
func TestLedger_EqualsTheModel(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	want := runenv.Scale(t, "SLIPWAY_BILLING_STEPS", 5_000, 200_000)
	done := 0
	for done < want && !t.Failed() {
		rapid.Check(t, func(r *rapid.T) {
			if done >= want {
				return
			}
			n, err := m.run(t.Context(), plans.Draw(r, "plan"))
			done += n
			require.NoError(r, err)
		})
	}
	t.Logf("%d steps", done)
}
