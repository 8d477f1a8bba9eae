package portal_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// An administrator deletes what was configured. A resource that something refers to stays, and the
// page says so.
func TestPortal_DeletesWhatNothingRefersTo(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	spec := object{"maas_url": maasURL, "maas_api_key_ref": w.SiteSpec().MAASAPIKeyRef, "simulated": true}
	site := w.creates(t, "/api/v1/admin/maas-sites", object{"name": "left-site", "spec": spec})
	profile := w.creates(t, "/api/v1/admin/maas-sites/"+site+"/profiles", object{"name": "left-profile", "spec": object{}})
	sku := w.creates(t, "/api/v1/admin/skus", object{"name": "left-sku", "spec": object{"gpus": 8}})
	kernel := object{"url": "https://images.example/vmlinuz"}
	workflow := w.creates(t, "/api/v1/admin/install-workflows", object{"name": "left-workflow", "spec": object{"kernel": kernel}})

	p := chromium.Open(t, w.url)
	w.signIn(p, "/portal/skus/"+sku, "SKU: left-sku")
	p.Allow(http.StatusForbidden, "/api/v1/admin/skus/"+sku)
	p.Allow(http.StatusNotFound, "/api/v1/admin/")
	remove := func(name string) {
		p.PressOn("button", "Delete")
		p.Find("dialog", "...")
		p.Type("Type "+name+" to confirm", name)
		p.PressOn("button", "Delete")
	}
	remove("left-sku")
	p.Find("textbox", "API token")
	p.Press(w.token)
	p.PressOn("button", "Confirm")
	p.Find("heading", "SKUs")

	p.Go("/portal/install-workflows/" + workflow)
	p.Find("heading", "Install workflow: left-workflow")
	remove("left-workflow")
	p.Find("heading", "Install workflows")

	p.Go("/portal/sites/" + site)
	p.Find("heading", "left-site")
	p.Allow(http.StatusConflict, "/api/v1/admin/maas-sites/"+site)
	remove("left-site") // it has a profile
	p.Find("alert", "...")

	p.Go("/portal/sites/" + site + "/profiles/" + profile)
	p.Find("heading", "Profile: left-profile")
	remove("left-profile")
	p.Find("heading", "left-site")
	remove("left-site")
	p.Find("heading", "Sites")
	for _, path := range []string{"maas-sites/" + site, "skus/" + sku, "install-workflows/" + workflow} {
		status, _ := w.call(t, http.MethodGet, "/api/v1/admin/"+path, nil)
		require.Equal(t, http.StatusNotFound, status, path)
	}
	p.RequireNoFaults()
}

// creates creates something and returns its id.
func (w *world) creates(t *testing.T, path string, body object) string {
	t.Helper()
	id, ok := w.mustCall(t, http.MethodPost, path, body)["id"].(string)
	require.True(t, ok)
	return id
}
