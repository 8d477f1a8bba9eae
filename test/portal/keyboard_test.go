package portal_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// An operator without a mouse signs in, onboards a node and decommissions it, on a page that is as
// narrow as a telephone.
func TestPortal_ByKeyboard(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	m := w.Sims.Fleet.All()[0]
	p := chromium.Open(t, w.url)
	p.Resize(320, 640)
	p.Allow(401, "/portal/session")
	p.Go("/portal/onboard")
	p.Type("API token", w.token)
	requireNarrow(t, p)
	p.PressOn("button", "Sign in")
	p.Find("heading", "Onboard a node")
	p.Find("combobox", "Site")
	p.Pick("Site", siteName)
	p.Pick("Profile", profileName)
	p.Pick("SKU", skuName)
	p.Type("Hostname", hostOf(m))
	p.Type("Address", m.Spec().BMCAddress)
	p.Type("Login", stack.BMCSecret(m.Spec().ID))
	p.PressOn("button", "Make the plan")
	p.Find("button", "Start the onboarding")
	requireNarrow(t, p)
	p.PressOn("button", "Start the onboarding")
	p.AwaitTextWithin("completed", jobEnd)
	requireNarrow(t, p)
	for _, path := range []string{"/portal/nodes", "/portal/jobs", "/portal/attention", "/portal/drift", "/portal/batches", "/portal/nodes/" + w.nodeID(t, hostOf(m))} {
		p.Go(path)
		p.Find("heading", "...")
		requireNarrow(t, p)
	}
	p.Picture("narrow")
	w.decommissionByKeyboard(t, p, hostOf(m))
}

// decommissionByKeyboard goes from the page of a node to the end of its decommission. It leaves the
// question before the job once: the focus has to be where it was.
func (w *world) decommissionByKeyboard(t *testing.T, p *browser.Page, host string) {
	t.Helper()
	const start = "Start the decommission"
	p.Allow(403, "/api/v1/admin/decommissions")
	p.PressOn("link", "Decommission")
	p.Find("heading", "Decommission · "+host)
	p.Pick("Mode", "full")
	p.PressOn("button", "Make the plan")
	p.AwaitText("Plan hash")
	requireNarrow(t, p)
	p.PressOn("button", start)
	p.Find("dialog", "...")
	p.AwaitFocus("textbox", "Reason (required)") // a dialog begins at its first field
	requireNarrow(t, p)
	p.Press(kb.Escape)
	p.Await("no dialog", time.Minute, func() bool { return !p.Has("dialog", "...") })
	p.AwaitFocus("button", start) // where it was before the dialog
	p.Press(kb.Enter)
	p.AwaitFocus("textbox", "Reason (required)")
	p.Press("end of life")
	p.Type("Type "+host+" to confirm", host)
	p.PressOn("button", start)
	p.AwaitFocus("textbox", "API token") // the second sign-in begins at its field
	p.Press(w.token)
	requireNarrow(t, p)
	p.PressOn("button", "Confirm")
	p.Find("heading", "Job: decommission · "+host)
	p.AwaitTextWithin("completed", jobEnd)
}

// requireNarrow fails where the page must be moved sideways to be read. Tables may move in their
// own frame.
func requireNarrow(t *testing.T, p *browser.Page) {
	t.Helper()
	var width int
	p.Evaluate(`document.documentElement.scrollWidth`, &width)
	require.LessOrEqual(t, width, 320, "%s is wider than the window", p.Path())
}
