package bench_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// row is a line of the table that `make bench` prints and docs/performance.md has.
type row struct{ name, aim, limit string }

// The rows of benchmarks of one row.
const (
	rowGetNode    = "GET node, to bare chi and one query of the node"
	rowTransition = "state change of a node, to one bare statement"
	rowOnboarding = "onboarding, to a bare workflow of as many activities"
	rowAllocation = "allocation and release, to two bare workflows of as many activities"
	rowHeartbeats = "heartbeats, to a bare upsert"
	rowFleet      = "100,000 nodes: API and PostgreSQL, cores"
	rowTick       = "tick over 10,000 open usage records, to one bare statement that writes the same rows"
	rowTickGrowth = "tick over 100,000 open usage records, to one over 10,000"
	rowPost       = "posting in the ledger, to one bare statement"
	rowWebhooks   = "Stripe's webhooks over HTTP, to one bare insert"
	rowGetRun     = "GetRun, to a bare connect handler with the same query"
	rowStartRun   = "StartRun, to a bare connect handler with the same statements"
	rowWatchers   = "1,000 watchers of runs on one server: memory, and an event at all of them"
	rowReaders    = "StartRun beside 200 readers of runs, to StartRun alone: p50"
)

// table returns all rows, in the order of the page.
func table() []row {
	rows := []row{
		{rowGetNode, "0.7", "the agent's report, which the bare answer lacks: its bytes, and three more lookups in the query"},
		{rowTransition, "0.5", "three round trips for one; the guards and the hash chain"},
		{rowOnboarding, "0.7", "a local activity with a transaction for each step"},
		{rowAllocation, "0.6, p99 below 3 times", "a local activity with a transaction for each step; the claim and the free node"},
		{rowHeartbeats, "0.9", "the upsert itself"},
		{rowFleet, "1", "TLS and HTTP of the API; the upsert"},
		{rowTick, "1.3", "the hash chain and the balance of each account, the locks, the check of each window"},
		{rowTickGrowth, "10", "the same for each record"},
		{rowPost, "0.5", "seven round trips for one; the guards and the hash chain"},
		{rowWebhooks, "1000 a second, 64 MiB of heap", "three round trips for one; HTTP and the signature"},
		{rowGetRun, "0.5", "the lookup of the token, in a query of its own"},
		{rowStartRun, "0.8", "the lookup of the token; the machine is read before it is locked"},
		{rowWatchers, "100 KiB each, 1 s", "the message to each watcher"},
		{rowReaders, "below 3", "the messages to the readers, which the same cores send"},
	}
	for _, l := range lists() {
		rows = append(rows, row{l.name, l.aim, l.limit})
	}
	return rows
}

// figures are what the benchmarks of this process measured, by row.
type figures struct {
	mu sync.Mutex
	of map[string]string
}

var measured = figures{of: map[string]string{}}

// measure records the figure of a row. A row that is not in the table ends the benchmark.
func measure(b *testing.B, name, format string, args ...any) {
	b.Helper()
	for _, r := range table() {
		if r.name == name {
			measured.mu.Lock()
			defer measured.mu.Unlock()
			measured.of[name] = fmt.Sprintf(format, args...)
			return
		}
	}
	b.Fatalf("the table has no row %q", name)
}

// print writes the rows that were measured, as docs/performance.md has them.
func (f *figures) print(w io.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.of) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| benchmark | figure | aim | limited by |\n|---|---|---|---|")
	for _, r := range table() {
		if figure, ok := f.of[r.name]; ok {
			fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.name, figure, r.aim, r.limit)
		}
	}
}

// TestTable_IsInTheDocument compares rows, aims and limits with docs/performance.md.
func TestTable_IsInTheDocument(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/performance.md")
	require.NoError(t, err)
	page := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 4 {
			page[strings.TrimPrefix(cells[0], "| ")] = cells
		}
	}
	for _, r := range table() {
		cells := page[r.name]
		require.Len(t, cells, 4, "docs/performance.md has no row %q; run make bench", r.name)
		require.NotEmpty(t, cells[1])
		require.Equal(t, r.aim, cells[2], r.name)
		require.Equal(t, r.limit, strings.TrimSuffix(cells[3], " |"), r.name)
	}
}
