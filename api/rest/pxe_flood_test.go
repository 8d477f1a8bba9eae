package rest_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// flood reports forged machines, half of them from one address and half from many, and says how
// often each status was answered. A machine that a busy server has refused reports up to again more
// times.
func flood(t *testing.T, server string, from, to, again int) map[int]int {
	t.Helper()
	const senders = 8
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[int]int{}
	for sender := range senders {
		all.Go(func() {
			clients := map[string]*http.Client{}
			for i := from + sender; i < to; i += senders {
				source := "127.0.0.2"
				if i%2 == 1 {
					source = fmt.Sprintf("127.1.%d.%d", sender, 1+i/2%32)
				}
				if clients[source] == nil {
					d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
					clients[source] = &http.Client{Timeout: runenv.Patience(30 * time.Second), Transport: &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 1}}
				}
				m := pxesim.Machine{Server: server, MAC: fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", i>>24&0xff, i>>16&0xff, i>>8&0xff, i&0xff), Client: clients[source]}
				a, err := m.Report(t.Context(), "", pxesim.Report{Vendor: "Forger"})
				for n := 0; n < again && err == nil && a.Status == http.StatusServiceUnavailable; n++ {
					_ = poll.Sleep(t.Context(), 100*time.Millisecond)
					a, err = m.Report(t.Context(), "", pxesim.Report{Vendor: "Forger"})
				}
				if err != nil {
					a.Status = -1
				}
				mu.Lock()
				answers[a.Status]++
				mu.Unlock()
			}
			for _, c := range clients {
				c.CloseIdleConnections()
			}
		})
	}
	all.Wait()
	return answers
}

// asks times somebody else's reads until done is closed; the median.
func (w *world) asks(done <-chan struct{}) (time.Duration, int) {
	var took []time.Duration
	for {
		began := time.Now()
		if res := w.do("GET", "/api/v1/nodes?limit=1&lifecycle=maas", nil); res.status != http.StatusOK {
			return 0, 0
		}
		took = append(took, time.Since(began))
		select {
		case <-done:
			slices.Sort(took)
			return took[len(took)/2], len(took)
		default:
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// approved is a machine that is to install, and its node.
func (w *world) approved(mac string) (*pxesim.Machine, string) {
	w.t.Helper()
	m := w.machine(mac)
	a, err := m.Report(w.t.Context(), "", pxesim.Report{})
	require.NoError(w.t, err)
	path := "/api/v1/nodes/" + a.NodeID
	w.do("PATCH", path, map[string]any{"install_workflow_id": w.installWorkflow("w-" + a.NodeID)}, anyVersion).want(http.StatusOK)
	w.do("POST", path+"/state", map[string]any{"state": "pending"}, anyVersion).want(http.StatusOK)
	return m, a.NodeID
}

// installs takes a machine through its installation, and says how long it took.
func installs(ctx context.Context, m *pxesim.Machine) (time.Duration, error) {
	began := time.Now()
	b, err := m.Boot(ctx)
	if err != nil || b.Kind != pxesim.Installs {
		return 0, fmt.Errorf("it booted %q: %w", b.Kind, err)
	}
	if _, _, err := m.UserData(ctx, b); err != nil {
		return 0, err
	}
	for _, r := range []struct{ status, effect string }{{"started", "starts"}, {"progress", "advances"}, {"complete", "finishes"}} {
		half := 50
		a, err := m.Report(ctx, b.Token, pxesim.Report{InstallationStatus: r.status, InstallationProgress: &half})
		if err != nil || a.Effect != r.effect {
			return 0, fmt.Errorf("%s was answered %d %q: %w", r.status, a.Status, a.Effect, err)
		}
	}
	return time.Since(began), nil
}

// TestFlood_RowsMemoryAndOtherReads sends 2,000 reports of forged machines, and
// 10,000 in `make proof AREA=fleet`: they make few rows and take little memory,
// others are served, and a machine that was approved before installs.
func TestFlood_RowsMemoryAndOtherReads(t *testing.T) {
	forged := runenv.Scale(t, "SLIPWAY_FLOOD", 2_000, 10_000)
	w := newWorld(t) // not parallel: it measures
	m, honest := w.approved("52:54:ff:00:00:02")
	alone := make(chan struct{})
	time.AfterFunc(2*time.Second, func() { close(alone) })
	before, _ := w.asks(alone)
	used := heap()
	done := make(chan struct{})
	var answers map[int]int
	began := time.Now()
	go func() {
		defer close(done)
		answers = flood(t, w.url, 0, forged, 0)
	}()
	type end struct {
		took time.Duration
		err  error
	}
	installed := make(chan end, 1)
	go func() {
		took, err := installs(t.Context(), m)
		installed <- end{took, err}
	}()
	during, asked := w.asks(done)
	beside := <-installed
	require.NoError(t, beside.err)
	require.Equal(t, "installed", w.pxeNode(honest).Status)
	took := time.Since(began)
	made, err := w.store.ListNodes(t.Context(), db.NodeFilter{Lifecycle: "pxe"}, "", db.MaxDiscovered)
	require.NoError(t, err)
	rows := len(made) - 1 // without the honest one
	grown := (float64(heap()) - float64(used)) / (1 << 20)
	t.Logf("%d forged reports in %.1f s: answers %v, %d rows, heap %+.1f MiB; another's read is slowed down to %.1f times as long meanwhile (%v and %v, median of %d); "+
		"a machine that was approved before installs beside them in %v",
		forged, took.Seconds(), answers, rows, grown, float64(during)/float64(before), during, before, asked, beside.took)
	require.Equal(t, forged, answers[http.StatusOK]+answers[http.StatusTooManyRequests])
	require.EqualValues(t, answers[http.StatusOK], rows, "no more than a discovered row each")
	require.LessOrEqual(t, float64(rows), 256+5*took.Seconds()+1, "what all may make: a burst and a rate")
	require.Less(t, grown, 12.0, "what 2,000 reports leave must not be six kilobytes each")
	require.Positive(t, asked)
	require.Less(t, during, 5*before+5*time.Millisecond, runenv.Deadline+"another's reads")

	require.JSONEq(t, fmt.Sprintf(`{"purged":%d}`, rows), string(w.do("POST", "/api/v1/admin/discovered-nodes/purge", map[string]any{}).want(http.StatusOK).raw))
	left, err := w.store.ListNodes(t.Context(), db.NodeFilter{Lifecycle: "pxe"}, "", 0)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// However fast they come, and from wherever, the list has an end. The address that has the most
// gives way to others, and what is in the list goes on being served.
func TestTheListOfDiscoveredNodesHasAnEnd(t *testing.T) {
	t.Parallel()
	open := boot.Limits{RequestRate: 1e6, RequestBurst: 1e6, DiscoveryRate: 1e6, DiscoveryBurst: 1e6, AllDiscoveryRate: 1e6, AllDiscoveryBurst: 1e6, AtOnce: 8}
	w := newWorld(t, func(c *httpapi.Config) { c.Boot.Limits = open })
	answers := flood(t, w.url, 0, db.MaxDiscovered+200, 100)
	require.Equal(t, db.MaxDiscovered+200, answers[http.StatusOK]+answers[http.StatusTooManyRequests], "%v", answers)
	require.Positive(t, answers[http.StatusTooManyRequests], "of the address that has the most")
	listed, err := w.store.ListNodes(t.Context(), db.NodeFilter{Lifecycle: "pxe"}, "", 2*db.MaxDiscovered)
	require.NoError(t, err)
	require.Len(t, listed, db.MaxDiscovered)
	var first struct{ Data []struct{ MACs []string } }
	w.do("GET", "/api/v1/nodes?status=discovered&limit=1", nil).want(http.StatusOK).into(&first)
	known := w.machine(first.Data[0].MACs[0])
	b, err := known.Boot(t.Context())
	require.NoError(t, err)
	require.Contains(t, b.Said[0], "registered as node_")
	b, err = w.machine("52:54:ff:00:00:02").Boot(t.Context())
	require.NoError(t, err)
	require.Contains(t, b.Said[0], "registered as node_", "an address without any gets its place")
	late := w.machine("52:54:ff:00:00:01")
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	late.Client = &http.Client{Timeout: runenv.Patience(30 * time.Second), Transport: &http.Transport{DialContext: d.DialContext}}
	b, err = late.Boot(t.Context())
	require.NoError(t, err)
	require.Equal(t, pxesim.Waits, b.Kind)
	require.Contains(t, strings.Join(b.Said, " "), "list of new machines is full")
	w.do("POST", "/api/v1/admin/discovered-nodes/purge", map[string]any{"unseen_minutes": 60}).want(http.StatusOK)
	var gone struct{ Purged int }
	w.do("POST", "/api/v1/admin/discovered-nodes/purge", map[string]any{"source": "127.0.0.2"}).want(http.StatusOK).into(&gone)
	const others = (db.MaxDiscovered + 200) / 2
	require.InDelta(t, db.MaxDiscovered-others, gone.Purged, 100, "those of one address only")
	b, err = late.Boot(t.Context())
	require.NoError(t, err)
	require.Contains(t, b.Said[0], "registered as node_")
}
