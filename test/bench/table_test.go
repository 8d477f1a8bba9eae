package bench_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// row is a line of the table that `make bench` prints and docs/develop/performance.md has.
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

// figure is what a benchmark measured for a row, as `make bench` reads it (test/run/bench.go).
type figure struct {
	Benchmark string  `json:"benchmark,omitempty"`
	Row       string  `json:"row"`
	Figure    string  `json:"figure"`
	Aim       string  `json:"aim"`
	Limit     string  `json:"limit"`
	Ratio     float64 `json:"ratio,omitempty"` // of Slipway's speed to the bare engine's; 0 where the row has none
}

// figures are what the benchmarks of this process measured, by row.
type figures struct {
	mu sync.Mutex
	of map[string]figure
}

var measured = figures{of: map[string]figure{}}

// noRatio is the ratio of a row without a bare engine.
const noRatio = 0

// measure records the figure of a row, and the ratio of Slipway's speed to the bare engine's: 0.5
// is half as fast. A row that is not in the table ends the benchmark.
func measure(b *testing.B, name string, ratio float64, format string, args ...any) {
	b.Helper()
	for _, r := range table() {
		if r.name == name {
			measured.mu.Lock()
			defer measured.mu.Unlock()
			measured.of[name] = figure{b.Name(), name, fmt.Sprintf(format, args...), r.aim, r.limit, ratio}
			return
		}
	}
	b.Fatalf("the table has no row %q", name)
}

// write appends the rows that were measured to the file that `make bench` names, a JSON object a
// line.
func (f *figures) write() error {
	path := os.Getenv(runenv.FiguresVar)
	if path == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for _, r := range table() {
		if one, ok := f.of[r.name]; ok {
			err = errors.Join(err, json.NewEncoder(out).Encode(one))
		}
	}
	return errors.Join(err, out.Close())
}

// TestTable_IsRecorded compares rows, aims and limits with the committed figures, of which
// docs/develop/performance.md is made.
func TestTable_IsRecorded(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("figures.json")
	require.NoError(t, err)
	var recorded []figure
	require.NoError(t, json.Unmarshal(raw, &recorded))
	var rows []row
	for _, f := range recorded {
		require.NotEmpty(t, f.Figure, f.Row)
		rows = append(rows, row{f.Row, f.Aim, f.Limit})
	}
	require.Equal(t, table(), rows, "run BENCH_RECORD=1 make bench")
}
