package portal_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

const (
	openTabs     = 8
	eventsSecond = 500
	changedNodes = 50 // a page of the inventory
	busySeconds  = 30
	heapGrowth   = 16 << 20 // bytes that a tab may hold more at the end than at the beginning
)

// streamCounter stands before the API and counts the event streams that browsers hold.
type streamCounter struct {
	mu               sync.Mutex
	open, most, ever int
}

func (c *streamCounter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	c.most, c.ever = max(c.most, c.open), c.ever+max(n, 0)
}

func (c *streamCounter) counts() (most, ever int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most, c.ever
}

// serve passes each request on as it is, the host included.
func (c *streamCounter) serve(t *testing.T, api string) string {
	t.Helper()
	there, err := url.Parse(api)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(there)
		r.Out.Host = r.In.Host
	}}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/events" {
			c.add(1)
			defer c.add(-1)
		}
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// Eight tabs beside a busy fleet share one event stream, draw at most once a second, stay small,
// and answer to a click.
func TestPortal_ManyTabsWithEvents(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	var streams streamCounter
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	w.plantNodes(t, changedNodes)
	w.url = streams.serve(t, w.url)
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/nodes", "Inventory")
	tabs := []*browser.Page{p}
	for len(tabs) < openTabs {
		tab := p.OpenTab(t)
		tab.Resize(1280, 900)
		tab.Go("/portal/nodes")
		tabs = append(tabs, tab)
	}
	for _, tab := range tabs {
		tab.AwaitText("fleet-1")
		tab.AwaitText("Live")
		tab.Evaluate(countDraws, nil)
	}
	var before []float64
	for _, tab := range tabs {
		before = append(before, tab.HeapBytes())
	}
	told, took := w.keepBusy(t, func() {
		tab := tabs[openTabs-1]
		tab.Click("link", "Jobs")
		tab.Find("heading", "Jobs")
		tab.Click("link", "Inventory")
		tab.Find("heading", "Inventory")
	})
	t.Logf("%d events in %.0f s", told, took.Seconds())
	require.GreaterOrEqual(t, float64(told), eventsSecond*took.Seconds()*0.8, "too few events for this test")
	for i, tab := range tabs {
		var draws struct {
			Count   int
			Seconds float64
		}
		tab.Evaluate(`window.draws()`, &draws)
		after := tab.HeapBytes()
		t.Logf("tab %d: %d draws in %.0f s, %.1f MiB, before %.1f MiB", i, draws.Count, draws.Seconds, after/(1<<20), before[i]/(1<<20))
		require.Positive(t, draws.Count, "tab %d shows no change", i)
		require.LessOrEqual(t, draws.Count, int(draws.Seconds)+1, "tab %d draws more than once a second", i)
		require.LessOrEqual(t, after, before[i]+heapGrowth, "tab %d grows", i)
	}
	most, ever := streams.counts()
	require.Equal(t, 1, most, "the tabs hold %d streams at a time, %d in all", most, ever)
	require.Equal(t, 1, ever, "the stream was begun again")
}

// countDraws makes window.draws return how often the table's serial numbers have been drawn.
const countDraws = `(() => {
	const began = performance.now();
	let count = 0;
	new MutationObserver((changes) => {
		const drawn = changes.some((c) => (c.target.nodeType === 1 ? c.target : c.target.parentElement)?.closest("tbody td")?.cellIndex === 5);
		if (drawn) count++;
	}).observe(document.body, { subtree: true, childList: true, characterData: true });
	window.draws = () => ({ Count: count, Seconds: (performance.now() - began) / 1000 });
})()`

// keepBusy has the nodes change for busySeconds, and calls meanwhile in the middle. It returns how
// many events went through the relay, and how long it took.
func (w *world) keepBusy(t *testing.T, meanwhile func()) (told int, took time.Duration) {
	t.Helper()
	conn := w.owner(t)
	_, err := conn.Exec(t.Context(), "SET session_replication_role = replica")
	require.NoError(t, err)
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- changeNodes(ctx, conn) }()
	half := busySeconds * time.Second / 2
	<-time.After(half)
	meanwhile()
	<-time.After(half)
	cancel()
	require.NoError(t, <-done)
	took = time.Since(began)
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM events WHERE type = 'node.changed'").Scan(&told))
	return told, took
}

// changeNodes changes the planted nodes and tells of it, eventsSecond times a second, until ctx
// ends.
func changeNodes(ctx context.Context, conn *pgx.Conn) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began, told := time.Now(), 0
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// A write that has begun is completed, so that the connection can be used again.
		write := context.WithoutCancel(ctx)
		_, err := conn.Exec(write, `UPDATE nodes SET serial = 'serial-' || $1::int, version = version + 1 WHERE id LIKE 'node\_fleet-%'`, n)
		if err != nil {
			return err
		}
		due := int(time.Since(began).Seconds()*eventsSecond) - told // a slow write delays no event for good
		told += due
		if _, err = conn.Exec(write, `INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type)
			SELECT 'event', 'node', id, id, 'node.changed' FROM generate_series(1, $1::int) i
			CROSS JOIN LATERAL (SELECT 'node_fleet-' || lpad((1 + i % $2)::text, 7, '0') AS id) n`, due, changedNodes); err != nil {
			return err
		}
	}
}
