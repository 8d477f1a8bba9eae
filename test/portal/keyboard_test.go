package portal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// An operator without a mouse onboards a node, on a page that is as narrow as a telephone.
func TestPortal_ByKeyboard(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	m := w.Sims.Fleet.All()[0]
	p := chromium.Open(t, w.url)
	p.Resize(320, 640)
	w.signIn(p, "/portal/onboard", "Onboard a node")
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
}

// requireNarrow fails where the page must be moved sideways to be read. Tables may move in their own
// frame.
func requireNarrow(t *testing.T, p *browser.Page) {
	t.Helper()
	var width int
	p.Evaluate(`document.documentElement.scrollWidth`, &width)
	require.LessOrEqual(t, width, 320, "%s is wider than the window", p.Path())
}
