package portal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// Each page in each theme, with data of every kind, a dialog that asks for a reason and the
// sign-in.
func TestPortal_IsAccessible(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	axe := browser.ReadAxe(t)
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 3})
	further := w.fill(t)
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	p.Allow(401, "/portal/session")
	check := func(what string) {
		for _, theme := range w.themes {
			p.UseTheme(theme)
			assert.Empty(t, p.Violations(axe), "%s, %s", what, theme)
		}
	}
	p.Go("/portal/nodes")
	p.Find("heading", "Sign in to Slipway")
	check("the sign-in")
	w.signIn(p, "/portal/nodes", "Inventory")
	visitPages(t, p, further, check)
	p.Go("/portal/projects/" + w.project)
	p.Find("heading", reasonTitle)
	check("the question for a reason")
	openPage(p, "/portal/nodes/"+w.nodeID(t, hostOf(w.Sims.Fleet.All()[0])))
	p.Click("button", "quarantine")
	p.Find("dialog", "...")
	check("the dialog of an action")
}
