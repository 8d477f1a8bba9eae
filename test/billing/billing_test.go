// Package billing_test holds the ledger against a model of big integers, which test/billing/model
// computes without it.
package billing_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestLedger_EqualsTheModel runs generated walks: ticks that are late, repeated, missing, at once
// or killed, price changes, adjustments and releases. After each step balances, states and notices
// are the model's; at the end each segment and each window is. I1 to I9, I13 and the usage part of
// I17.
//
// A walk waits for the database most of the time, so that many steps are walked in markets side by
// side.
func TestLedger_EqualsTheModel(t *testing.T) {
	t.Parallel()
	want := runenv.Scale(t, "SLIPWAY_BILLING_STEPS", 2_000, 200_000)
	markets := min(1+want/20_000, 4)
	for i := range markets {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			walkMarket(t, (want+markets-1)/markets)
		})
	}
}

func walkMarket(t *testing.T, want int) {
	t.Helper()
	m := newMarket(t)
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
