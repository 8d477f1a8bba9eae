package deliver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/nameserver"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const healthyWebhooks, badWebhooks, loadRounds = 40, 10, 10

// TestDeliver_HealthyAreNotDelayed sends events to 40 healthy webhooks, alone and beside ten that
// are down, slow or hostile, by two deliverers. Every event of a healthy one arrives, none of the
// others is lost, and nothing is sent three times at once to one endpoint. The events come in
// rounds, alone and beside the others in turn, so that both meet the same load of the machine. In
// each round the ten were healthy until then.
func TestDeliver_HealthyAreNotDelayed(t *testing.T) {
	rounds := loadRounds
	events := runenv.Scale(t, "SLIPWAY_WEBHOOK_EVENTS", 1000, 100_000) / (healthyWebhooks + badWebhooks)
	if events < 10*rounds {
		rounds = 2
	}
	alone, beside := newLoad(t, false), newLoad(t, true)
	var tookAlone, tookBeside time.Duration
	var ratios []float64
	for round := range rounds {
		a, b := alone.run(round, events/rounds), beside.run(round, events/rounds)
		tookAlone, tookBeside = tookAlone+a, tookBeside+b
		ratios = append(ratios, b.Seconds()/a.Seconds())
	}
	alone.check(rounds * (events / rounds))
	beside.check(rounds * (events / rounds))
	slices.Sort(ratios)
	middle := ratios[len(ratios)/2]
	t.Logf("%d events each in %d rounds: %d healthy webhooks took %v alone and %v beside %d bad ones, %.2f times as long (median of the rounds %.2f, worst %.2f; %.0f a second); "+
		"oldest event after %v and %v, heap at most %d and %d MiB",
		events, rounds, healthyWebhooks, tookAlone.Round(time.Millisecond), tookBeside.Round(time.Millisecond), badWebhooks, tookBeside.Seconds()/tookAlone.Seconds(),
		middle, ratios[len(ratios)-1], float64(healthyWebhooks*events)/tookBeside.Seconds(), alone.slowest(), beside.slowest(), alone.peak.Load()>>20, beside.peak.Load()>>20)
	if runenv.Proof() {
		require.Less(t, middle, 2.0, "the healthy ones are not delayed")
	}
}

// load is one database with its webhooks, whose endpoints count what they receive.
type load struct {
	*fixture
	bad                  bool
	seen                 sync.Map
	distinct, most, peak atomic.Int64
	inFlight             [healthyWebhooks + badWebhooks + 1]atomic.Int32
}

// newLoad makes the webhooks. Without bad, only the healthy ones are there.
func newLoad(t *testing.T, bad bool) *load {
	t.Helper()
	l := &load{bad: bad}
	l.fixture = newFixture(t, l.serve)
	l.addWebhooks(healthyWebhooks + badWebhooks)
	if !bad {
		l.exec("DELETE FROM webhooks WHERE split_part(project_id, '_', 2)::int <= $1", badWebhooks)
		return l
	}
	refused := []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("10.0.0.1")}
	var asked atomic.Int64
	l.resolver = nameserver.NewResolver(t, func() netip.Addr { return refused[asked.Add(1)%2] })
	l.exec("UPDATE webhooks SET url = 'https://rebinding.example.com/9' WHERE id = 'whk_9'")
	l.exec("UPDATE webhooks SET url = 'https://[::ffff:169.254.169.254]/10' WHERE id = 'whk_10'")
	return l
}

func (l *load) serve(w http.ResponseWriter, r *http.Request) {
	var n int
	_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
	if now := l.inFlight[n].Add(1); n > badWebhooks { // a silent endpoint does not notice at once that its caller has left
		l.most.Store(max(l.most.Load(), int64(now)))
	}
	defer l.inFlight[n].Add(-1)
	var e struct{ ID string }
	_ = json.NewDecoder(r.Body).Decode(&e)
	_, _ = io.Copy(io.Discard, r.Body)
	if n > badWebhooks {
		if _, twice := l.seen.LoadOrStore(e.ID, true); !twice {
			l.distinct.Add(1)
		}
	}
	misbehave(w, r, n)
}

// misbehave answers as webhook n does: the first ten are down, slow or hostile. The ninth and tenth
// are never reached.
func misbehave(w http.ResponseWriter, r *http.Request, n int) {
	switch {
	case n > badWebhooks:
		w.WriteHeader(http.StatusNoContent)
	case n <= 3:
		w.WriteHeader(http.StatusServiceUnavailable)
	case n <= 5:
		<-r.Context().Done()                     // silent
		w.WriteHeader(http.StatusGatewayTimeout) // without it the answer is 200, which a caller that is closing may still read
	case n == 6:
		http.Redirect(w, r, "https://169.254.169.254/latest/", http.StatusFound)
	case n == 7:
		w.WriteHeader(http.StatusInternalServerError)
		block := make([]byte, 32<<10)
		for r.Context().Err() == nil { // endless
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	default:
		panic(http.ErrAbortHandler) // the connection breaks
	}
}

// run sends events to each webhook, and returns how long it took until the healthy ones had theirs.
func (l *load) run(round, events int) time.Duration {
	l.t.Helper()
	const projects = healthyWebhooks + badWebhooks
	l.addEventsFrom(projects, round*events+1, events)
	l.exec("UPDATE webhooks SET failures = 0, slow = false, tried = true, due_at = least(due_at, now()) WHERE split_part(project_id, '_', 2)::int <= $1", badWebhooks)
	stop := make(chan struct{})
	go watchMemory(stop, &l.peak)
	defer close(stop)
	want := int64(healthyWebhooks * (round + 1) * events)
	began := time.Now()
	end := l.start(l.deliverer("one"), l.deliverer("two"))
	defer end()
	deadline := time.After(runenv.Patience(5 * time.Minute))
	for tick := time.NewTicker(2 * time.Millisecond); l.distinct.Load() < want; {
		select {
		case <-tick.C:
		case <-deadline:
			require.Fail(l.t, runenv.Deadline+"the healthy webhooks have not received every event", "%d of %d", l.distinct.Load(), want)
		}
	}
	return time.Since(began)
}

// check requires that nothing was lost, and that each healthy endpoint was asked as often as
// allowed.
func (l *load) check(events int) {
	l.t.Helper()
	want := healthyWebhooks * events
	if l.bad {
		want += badWebhooks * events
	}
	const of = "SELECT count(*) FROM webhook_deliveries WHERE type = 'project.updated'" // not of the notices that the others cause
	require.Equal(l.t, want, l.count(of), "no event is lost: each has its row")
	require.Equal(l.t, healthyWebhooks*events, l.count(of+" AND status = 'delivered'"))
	require.Equal(l.t, want-healthyWebhooks*events, l.count(of+" AND status = 'pending'"))
	require.EqualValues(l.t, healthyWebhooks*events, l.distinct.Load())
	require.LessOrEqual(l.t, l.most.Load(), int64(2), "in flight to one endpoint")
	require.Less(l.t, l.peak.Load(), int64(256<<20), "bytes of heap")
}

// slowest returns the longest time from queueing to delivery.
func (l *load) slowest() time.Duration {
	return time.Duration(l.count("SELECT (1000 * extract(epoch FROM max(ended_at - queued_at)))::int FROM webhook_deliveries WHERE status = 'delivered'")) * time.Millisecond
}

func watchMemory(stop <-chan struct{}, peak *atomic.Int64) {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-stop:
			tick.Stop()
			return
		case <-tick.C:
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), int64(m.HeapInuse))) //nolint:gosec // far from the limit
		}
	}
}
