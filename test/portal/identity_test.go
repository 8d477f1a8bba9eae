package portal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/stack"
)

// An operator signs in at the identity provider, signs in a second time, meets a refusal, and signs
// out at the provider.
func TestPortal_SignsInAtTheProvider(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1, NoWorker: true, WithIdentity: true})
	self, err := w.Identity.User(identity.Operator)
	require.NoError(t, err)
	p := chromium.Open(t, w.url, w.Identity.Issuer)
	p.Resize(1280, 900)
	password := func(text string) {
		p.Fill("User name", self.Name)
		p.Fill("Password", text)
		p.Click("button", "Sign in")
	}

	p.Allow(401, "/portal/session")
	p.Allow(401, "/login")
	p.Go("/portal/nodes?status=active")
	p.Click("link", "Sign in with your organisation")
	password("wrong")
	p.Find("alert", "...")
	password(self.Password)
	p.Find("heading", "Inventory")
	require.Equal(t, "/portal/nodes?status=active", p.Path())
	require.Empty(t, p.String(`document.cookie`), "a script can read a cookie")

	p.Go("/portal/oidc/step-up?return=/portal/jobs")
	password(self.Password) // though the provider knows the browser
	p.Find("heading", "Jobs")
	require.Contains(t, p.String(`fetch("/portal/session").then((r) => r.json()).then((s) => s.step_up_until ?? "none")`), "T", "a second sign-in counts until a time")

	p.Allow(401, "/portal/oidc/callback")
	p.Go("/portal/oidc/callback?code=a&state=b")
	p.Find("heading", "Not signed in")
	p.AwaitText("begin again at /portal/")
	p.Picture("sign-in-refused")
	p.Click("link", "Back to the portal")
	p.Await("the portal with the session of before", jobEnd, func() bool { return p.Has("link", "Inventory") })

	p.Allow(401, "/api/v1/") // what the page that is left reads last
	p.Visit(w.Identity.Issuer + "/end_session")
	p.Find("heading", "You are signed out")
	p.Go("/portal/nodes")
	p.Find("heading", "Sign in to Slipway")
}
