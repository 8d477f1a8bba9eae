package portal_test

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// reconnectLimit is more than the longest pause between two tries to follow the event stream again.
const reconnectLimit = 90 * time.Second

// The server goes away and comes back at the same address. The page says so, follows the event
// stream again with the same session, and shows without a reload what happened in between and what
// happens afterwards.
func TestPortal_FollowsAgainAfterRestart(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	w.plantNodes(t, 3)
	api := w.url
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.url = "http://" + listener.Addr().String()
	stop := forward(t, listener, api)
	t.Cleanup(func() { stop() }) // after the page is closed, which would name its stream's end a fault
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/nodes", "Inventory")
	p.AwaitText("fleet-3")
	p.Evaluate(`window.sameDocument = "yes"`, nil)
	w.renameNode(t, 1, "before")
	p.AwaitText("before")

	stop()
	p.AwaitText("Changes do not arrive")
	w.renameNode(t, 2, "meanwhile")
	require.NotContains(t, p.Text(), "meanwhile", "the page reads although there is no server, so that this test proves nothing")
	listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	stop = forward(t, listener, api)
	p.Await("that changes arrive again", reconnectLimit, func() bool { return strings.Contains(p.Text(), "Live") })
	p.AwaitText("meanwhile")
	w.renameNode(t, 3, "afterwards")
	p.AwaitText("afterwards")
	require.Equal(t, "yes", p.String(`window.sameDocument`), "the page was loaded again")
	for _, fault := range p.Faults() {
		// The requests that were open when the server ended, and each try to reach it.
		require.Contains(t, fault, "request failed: "+w.url+"/", "the page has a fault that a restart does not explain")
	}
}

// forward stands before the API at a listener. It returns what ends it with all its connections.
func forward(t *testing.T, listener net.Listener, api string) (stop func()) {
	t.Helper()
	there, err := url.Parse(api)
	require.NoError(t, err)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(there)
		r.Out.Host = r.In.Host
	}}}
	go func() { _ = srv.Serve(listener) }()
	return func() { _ = srv.Close() }
}

// renameNode changes the hostname of a planted node and tells of it.
func (w *world) renameNode(t *testing.T, n int, host string) {
	t.Helper()
	conn := w.owner(t)
	for _, sql := range []string{
		"SET session_replication_role = replica",
		"UPDATE nodes SET hostname = '" + host + "', version = version + 1 WHERE id = '" + plantedID(n) + "'",
		"INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type) VALUES ('event', 'node', '" + plantedID(n) + "', '" + plantedID(n) + "', 'node.changed')",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
}
