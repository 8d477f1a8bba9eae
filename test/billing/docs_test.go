package billing_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/billing/model"
)

// TestDocs_WorkedExample plays the example of docs/customers/billing.md in the database and
// requires that the page shows the numbers that come out.
func TestDocs_WorkedExample(t *testing.T) {
	t.Parallel()
	w, err := newMarket(t).newWalk(t.Context())
	require.NoError(t, err)
	p := w.payers[0]
	at := func(text string) time.Time {
		when, err := time.Parse(time.DateTime, "2026-03-"+text)
		require.NoError(t, err)
		return when
	}
	do := func(clock string, s step) {
		w.clock = at(clock)
		require.NoError(t, w.setClock())
		require.NoError(t, w.do(s))
	}
	require.NoError(t, w.adjustTo(p, 400_000))
	do("01 10:00:00", step{Kind: stepCreate})
	do("01 10:00:00", step{Kind: stepActivate})
	do("01 12:00:00", step{Kind: stepPrice, Rate: 1500, Passes: 6*time.Hour + 30*time.Minute})
	do("01 20:00:00", step{Kind: stepPrice, Rate: 2500, Passes: 4 * time.Hour})
	do("04 00:00:00", step{Kind: stepTick}) // one tick for three days, as after an outage
	do("10 08:00:30", step{Kind: stepRelease})
	do("10 08:01:10", step{Kind: stepEndAccess})
	do("10 08:02:00", step{Kind: stepTick})
	require.NoError(t, w.compare())
	require.NoError(t, w.checkLedger())
	require.NoError(t, w.checkUsage())

	segments, err := w.segments(w.allocations[0])
	require.NoError(t, err)
	amount := func(minor int64) string { return lifecycle.FormatMinor(minor, 2) }
	table := "| from | to | rate an hour | charge |\n|---|---|---|---|\n"
	for _, s := range segments {
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", s.From.Format(time.DateTime), s.To.Format(time.DateTime), amount(s.Rate.Int64()),
			amount(model.Charge(s.Rate, s.To.Sub(s.From)).Int64()))
	}
	table += fmt.Sprintf("| | | total | %s |\n", amount(model.Cost(segments, w.clock).Int64()))
	page, err := os.ReadFile("../../docs/customers/billing.md")
	require.NoError(t, err)
	require.Contains(t, string(page), table, "docs/customers/billing.md shows other numbers; the table is\n%s", table)
	require.Contains(t, string(page), "4000.00 falls to "+amount(p.Balance.Int64()))
	require.False(t, strings.Contains(table, "| 0.00 |"))
}
