package portal_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// attack is a page that makes a browser send what creates a SKU: as a form and by fetch.
const attack = `<!doctype html><title>attack</title><link rel="icon" href="data:,">
<form method="post" enctype="text/plain" target="result" action="%[1]s/api/v1/admin/skus"><input name='{"name":"by-form","spec":{"gpus":8},"x":"' value='"}'></form>
<iframe name="result"></iframe>
<script>
  const send = (type, name) => fetch("%[1]s/api/v1/admin/skus", {method: "POST", mode: "no-cors", credentials: "include", headers: {"content-type": type}, body: JSON.stringify({name, spec: {gpus: 8}})});
  window.attack = () => { document.forms[0].submit(); return Promise.allSettled([send("text/plain", "by-fetch"), send("application/json", "by-json")]).then(() => "sent"); };
</script>`

// A page of another origin acts with the operator's cookie. On another port of the same address the
// browser sends the cookie along, because to it that is the same site.
func TestPortal_RefusesOtherOrigins(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	p := chromium.Open(t, w.url)
	w.signIn(p, "/portal/nodes", "Inventory")
	names := func() (out []string) {
		list, err := w.App.Store.ListSKUs(t.Context(), "", 100)
		require.NoError(t, err)
		for _, s := range list {
			out = append(out, s.Name)
		}
		return out
	}
	var status int
	p.Evaluate(`fetch("/api/v1/admin/skus", {method: "POST", headers: {"content-type": "application/json", "idempotency-key": "k"}, body: JSON.stringify({name: "own", spec: {gpus: 8}})}).then((r) => r.status)`, &status)
	require.Equal(t, http.StatusCreated, status, "the portal itself may")
	require.ElementsMatch(t, []string{skuName, "own"}, names())

	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(rw, attack, w.url)
	}))
	t.Cleanup(srv.Close)
	there, err := url.Parse(srv.URL)
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(there.Host)
	require.NoError(t, err)
	for _, origin := range []string{srv.URL, "http://localhost:" + port} {
		tab := p.OpenTab(t)
		tab.Visit(origin + "/")
		require.Equal(t, "sent", tab.String(`window.attack()`))
		tab.Evaluate(`fetch("`+w.url+`/api/v1/nodes", {credentials: "include"}).then(() => 200, () => 0)`, &status)
		require.Zero(t, status, "a page of %s reads the fleet", origin)
		require.Greater(t, tab.Requests(), 3, "nothing was sent")
		tab.Faults() // refused requests are what this is about
		require.ElementsMatch(t, []string{skuName, "own"}, names(), "a page of %s created a SKU", origin)
	}
}
