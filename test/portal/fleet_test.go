package portal_test

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

const (
	fleetNodes  = 100_000
	inventoryBy = 50 // rows of a page of the inventory
	pageRounds  = 21
)

// The last page of an inventory of 100,000 nodes takes at most twice as long as the first. The
// calls are those of the portal, in the same browser, in turns.
func TestPortal_PagesOfLargeFleet(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	w.plantNodes(t, fleetNodes)
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/nodes", "Inventory")
	first := listCall(t, p)
	var page struct {
		Data []struct{ Hostname string }
		Next string `json:"next_cursor"`
	}
	p.Evaluate(`fetch(`+quote(t, first)+`).then((r) => r.json())`, &page)
	require.Len(t, page.Data, inventoryBy)
	require.Equal(t, cursorAfter(inventoryBy), page.Next, "a cursor names the last row; this test makes one")
	p.Go("/portal/nodes?cursor=" + cursorAfter(fleetNodes-inventoryBy))
	p.AwaitText(fmt.Sprintf("fleet-%d", fleetNodes))
	last := listCall(t, p)
	require.NotEqual(t, first, last)
	p.Evaluate(`fetch(`+quote(t, last)+`).then((r) => r.json())`, &page)
	require.Len(t, page.Data, inventoryBy)
	require.Equal(t, fmt.Sprintf("fleet-%d", fleetNodes), page.Data[inventoryBy-1].Hostname)

	var took struct{ First, Last float64 }
	p.Evaluate(fmt.Sprintf(`(async () => {
		const urls = [%s, %s], times = [[], []];
		for (let round = 0; round < %d; round++) for (const i of [0, 1]) {
			const began = performance.now();
			const answer = await fetch(urls[i], { cache: "no-store" });
			if (!answer.ok) throw new Error("answer " + answer.status);
			await answer.json();
			times[i].push(performance.now() - began);
		}
		const [first, last] = times.map((t) => t.sort((a, b) => a - b)[t.length >> 1]);
		return { First: first, Last: last };
	})()`, quote(t, first), quote(t, last), pageRounds), &took)
	t.Logf("%d nodes: the first page takes %.1f ms, the last %.1f ms: %.2f times", fleetNodes, took.First, took.Last, took.Last/took.First)
	require.Less(t, took.Last, 2*took.First)
}

// listCall returns the call by which the portal has read the page of the inventory that it shows.
// The calls with ids read shown rows again after an event.
func listCall(t *testing.T, p *browser.Page) string {
	t.Helper()
	var call string
	p.Await("the call for the inventory", time.Minute, func() bool {
		call = p.String(`performance.getEntriesByType("resource").map((e) => e.name).filter((n) => n.includes("/api/v1/nodes?") && !n.includes("ids=")).at(-1) ?? ""`)
		return call != ""
	})
	return call
}

// cursorAfter returns the cursor of the API that follows the planted node with this number.
func cursorAfter(n int) string {
	return base64.RawURLEncoding.EncodeToString([]byte(plantedID(n)))
}

// plantedID returns the id of the planted node with this number.
func plantedID(n int) string { return fmt.Sprintf("node_fleet-%07d", n) }

// plantNodes writes active nodes past the triggers that would write an audit row for each.
func (w *world) plantNodes(t *testing.T, n int) {
	t.Helper()
	conn := w.owner(t)
	for _, sql := range []string{"SET session_replication_role = replica", fmt.Sprintf(`INSERT INTO nodes (id, lifecycle, status, hostname, site_id)
		SELECT 'node_fleet-' || lpad(i::text, 7, '0'), 'maas', 'active', 'fleet-' || i, '%s' FROM generate_series(1, %d) i`, w.Site.ID, n), "ANALYZE nodes"} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}
