package portal_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The id of a job's workflow contains a slash; the link of the job's page opens that workflow in
// Temporal's Web UI.
func TestPortal_LinksToTemporal(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorldWithTemporalUI(t, stack.Options{Count: 1})
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/onboard", "Onboard a node")
	w.onboardInForm(t, p, w.Sims.Fleet.All()[0])
	p.Find("link", "Open in the Temporal Web UI...")
	link := p.String(`[...document.querySelectorAll("main a")].find((a) => a.textContent.startsWith("Open in the Temporal Web UI")).href`)
	job := w.mustCall(t, http.MethodGet, "/api/v1/admin/jobs"+strings.TrimPrefix(p.Path(), "/portal/jobs"), nil)
	workflow, ok := job["temporal_workflow_id"].(string)
	require.True(t, ok)
	require.Contains(t, workflow, "/")
	require.True(t, strings.HasPrefix(link, w.Temporal.UI()+"/"), link)

	tab := chromium.Open(t, w.Temporal.UI())
	tab.Resize(1280, 900)
	tab.Visit(link)
	tab.AwaitTextWithin(workflow, time.Minute)
	// Each world has a task queue of its own, so that no other workflow shows it.
	tab.AwaitTextWithin(w.Options.TaskQueue, time.Minute)
	tab.AwaitText("Onboarding")
	tab.Faults() // of Temporal's own page
}
