package portal_test

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	zitadel "github.com/zitadel/oidc/v3/pkg/oidc"

	"github.com/slipway-cloud/slipway/api/portal"
	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
)

// newIdentityWorld is a server whose portal is a client of a real provider.
func newIdentityWorld(t *testing.T, tune ...func(*portal.Config)) (*world, *identity.Provider) {
	t.Helper()
	var p *identity.Provider
	start := func(c *portal.Config) {
		var err error
		p, err = identity.Start(t.Context(), identity.Options{PortalURL: c.PublicURL})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		c.OIDC.Issuer, c.OIDC.ClientID, c.OIDC.ClientSecret = p.Issuer, identity.PortalClient, p.Secret
	}
	return newWorld(t, append([]func(*portal.Config){start}, tune...)...), p
}

// user is somebody with a browser: its half at the portal and its half at the provider.
type user struct {
	*browser
	at   *identity.Browser
	self identity.User
}

func (w *world) user(p *identity.Provider, name string) user {
	w.t.Helper()
	self, err := p.User(name)
	require.NoError(w.t, err)
	return user{w.browser(), p.NewBrowser(), self}
}

// authorize begins at a path of the portal and returns the callback that the provider redirects to.
func (u user) authorize(path string) *url.URL {
	u.w.t.Helper()
	a := u.do("GET", path, nil)
	require.Equal(u.w.t, http.StatusSeeOther, a.StatusCode, string(a.raw))
	back, err := u.at.Authorize(u.w.t.Context(), a.Header.Get("Location"), u.self)
	require.NoError(u.w.t, err)
	return back
}

func (u user) signIn() {
	u.w.t.Helper()
	a := u.do("GET", u.authorize("/portal/oidc/sign-in").RequestURI(), nil)
	require.Equal(u.w.t, http.StatusSeeOther, a.StatusCode, string(a.raw))
}

func TestIdentity_SignsEachUserIn(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	for name, may := range map[string]struct{ nodes, tokens int }{
		identity.Admin: {200, 200}, identity.Operator: {200, 403}, identity.Viewer: {200, 403}, identity.Ada: {403, 403},
	} {
		u := w.user(p, name)
		u.signIn()
		require.Contains(t, string(u.do("GET", "/portal/session", nil).raw), `"id":"oidc:user-`+name+`","name":"`+u.self.Email+`"`)
		require.Equal(t, may.nodes, u.do("GET", "/api/v1/nodes", nil).StatusCode, name)
		require.Equal(t, may.tokens, u.do("GET", "/api/v1/admin/api-tokens", nil).StatusCode, name)
	}
}

// namedBy is an answer of the provider.
func namedBy(p *identity.Provider, code, state string) string {
	return callback(code, state) + "&iss=" + url.QueryEscape(p.Issuer)
}

func TestIdentity_RefusesReplays(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	kept := func(u user) string { return u.cookies["slipway_sign_in"] }
	for name, attack := range map[string]func() answer{
		"state used twice": func() answer {
			u := w.user(p, identity.Admin)
			back, cookie := u.authorize("/portal/oidc/sign-in"), kept(u)
			require.Equal(t, http.StatusSeeOther, u.do("GET", back.RequestURI(), nil).StatusCode)
			u.cookies = map[string]string{"slipway_sign_in": cookie}
			return u.do("GET", back.RequestURI(), nil)
		},
		"code used twice": func() answer { // a new sign-in of the browser, with the code of the one before
			u := w.user(p, identity.Admin)
			first := u.authorize("/portal/oidc/sign-in")
			require.Equal(t, http.StatusSeeOther, u.do("GET", first.RequestURI(), nil).StatusCode)
			u.cookies = map[string]string{}
			second := u.authorize("/portal/oidc/sign-in")
			return u.do("GET", namedBy(p, first.Query().Get("code"), second.Query().Get("state")), nil)
		},
		"code of another's sign-in": func() answer { // its verifier is in the other's browser
			victim, carol := w.user(p, identity.Admin), w.user(p, identity.Carol)
			stolen := victim.authorize("/portal/oidc/sign-in").Query().Get("code")
			a := carol.do("GET", namedBy(p, stolen, carol.authorize("/portal/oidc/sign-in").Query().Get("state")), nil)
			carol.cookies = map[string]string{}
			return a
		},
		"no name of the provider": func() answer { // which puts its name into each answer, as it says
			u := w.user(p, identity.Admin)
			back := u.authorize("/portal/oidc/sign-in").Query()
			require.Equal(t, p.Issuer, back.Get("iss"))
			return u.do("GET", callback(back.Get("code"), back.Get("state")), nil)
		},
		"another's callback": func() answer { // the victim would be signed in as Carol
			victim, carol := w.user(p, identity.Admin), w.user(p, identity.Carol)
			victim.authorize("/portal/oidc/sign-in")
			return victim.do("GET", carol.authorize("/portal/oidc/sign-in").RequestURI(), nil)
		},
		"token of another sign-in": func() answer { // the nonce in the address is not that of the cookie
			u := w.user(p, identity.Admin)
			address, err := url.Parse(u.do("GET", "/portal/oidc/sign-in", nil).Header.Get("Location"))
			require.NoError(t, err)
			q := address.Query()
			q.Set("nonce", "another")
			address.RawQuery = q.Encode()
			back, err := u.at.Authorize(t.Context(), address.String(), u.self)
			require.NoError(t, err)
			return u.do("GET", back.RequestURI(), nil)
		},
	} {
		a := attack()
		require.Equal(t, http.StatusUnauthorized, a.StatusCode, "%s: %s", name, a.raw)
		require.Equal(t, name == "no name of the provider", strings.Contains(string(a.raw), "not of the identity provider"), "%s: %s", name, a.raw)
		for _, c := range a.Cookies() {
			require.NotEqual(t, cookie, c.Name, name)
		}
	}
}

// The provider must ask for the password again, though it knows the browser.
func TestIdentity_StepUpAsksForThePassword(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	u := w.user(p, identity.Admin)
	u.signIn()
	require.Equal(t, 1, u.at.Forms)
	u.signIn()
	require.Equal(t, 1, u.at.Forms, "the provider knows the browser")
	require.Equal(t, "urn:slipway:problem:step-up-required", u.kind(u.do("DELETE", "/api/v1/admin/skus/x", nil)))
	back := u.authorize("/portal/oidc/step-up?return=/portal/jobs")
	require.Equal(t, 2, u.at.Forms)
	a := u.do("GET", back.RequestURI(), nil)
	require.Equal(t, "/portal/jobs", a.Header.Get("Location"), string(a.raw))
	require.NotContains(t, string(u.do("DELETE", "/api/v1/admin/skus/x", nil).raw), "step-up-required")
}

func TestIdentity_StepUpIsRefused(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	u := w.user(p, identity.Admin)
	u.signIn()
	// A browser that leaves out max_age and prompt gets a token with an old auth_time.
	address, err := url.Parse(u.do("GET", "/portal/oidc/step-up", nil).Header.Get("Location"))
	require.NoError(t, err)
	q := address.Query()
	q.Del("max_age")
	q.Del("prompt")
	address.RawQuery = q.Encode()
	p.AgeLogins(time.Hour)
	back, err := u.at.Authorize(t.Context(), address.String(), u.self)
	require.NoError(t, err)
	require.Equal(t, 1, u.at.Forms, "the password was asked for")
	a := u.do("GET", back.RequestURI(), nil)
	require.Equal(t, http.StatusUnauthorized, a.StatusCode)
	require.Contains(t, string(a.raw), "auth_time")
	// Somebody else gives a password.
	u.self = w.user(p, identity.Operator).self
	a = u.do("GET", u.authorize("/portal/oidc/step-up").RequestURI(), nil)
	require.Equal(t, http.StatusForbidden, a.StatusCode, string(a.raw))
	require.Equal(t, "urn:slipway:problem:step-up-required", u.kind(u.do("DELETE", "/api/v1/admin/skus/x", nil)))
}

// The provider's own sign-out ends the session of the portal, and no other.
func TestIdentity_ProviderSignOutEndsTheSession(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	here, there, other := w.user(p, identity.Admin), w.user(p, identity.Admin), w.user(p, identity.Viewer)
	for _, u := range []user{here, there, other} {
		u.signIn()
	}
	require.NoError(t, here.at.SignOut(t.Context()))
	require.Equal(t, http.StatusUnauthorized, here.status())
	require.Equal(t, http.StatusOK, there.status(), "another browser of the user")
	require.Equal(t, http.StatusOK, other.status())
	here.signIn()
	require.Equal(t, 2, here.at.Forms, "the provider still knows the browser")
}

// A logout token is the provider's, for this client, and counts once.
func TestIdentity_RefusesLogoutTokens(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	u := w.user(p, identity.Admin)
	u.signIn()
	_, another := newIdentityWorld(t)
	send := func(by *identity.Provider, change func(*zitadel.LogoutTokenClaims)) int {
		claims := zitadel.NewLogoutTokenClaims(p.Issuer, u.self.Subject(), zitadel.Audience{identity.PortalClient}, time.Now().Add(time.Minute), rand.Text(), "", 0)
		change(claims)
		token, err := by.Sign(claims)
		require.NoError(t, err)
		res, err := http.PostForm(w.url+"/portal/oidc/logout", url.Values{"logout_token": {token}})
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	for name, change := range map[string]func(*zitadel.LogoutTokenClaims){
		"another client":  func(c *zitadel.LogoutTokenClaims) { c.Audience = zitadel.Audience{identity.ProgramClient} },
		"another issuer":  func(c *zitadel.LogoutTokenClaims) { c.Issuer = another.Issuer },
		"expired":         func(c *zitadel.LogoutTokenClaims) { c.Expiration = zitadel.FromTime(time.Now().Add(-time.Minute)) },
		"no logout event": func(c *zitadel.LogoutTokenClaims) { c.Events = nil },
		"a nonce":         func(c *zitadel.LogoutTokenClaims) { c.Claims = map[string]any{"nonce": "n"} },
		"no id":           func(c *zitadel.LogoutTokenClaims) { c.JWTID = "" },
		"nobody":          func(c *zitadel.LogoutTokenClaims) { c.Subject = "" },
	} {
		require.Equal(t, http.StatusBadRequest, send(p, change), name)
		require.Equal(t, http.StatusOK, u.status(), name)
	}
	same := func(*zitadel.LogoutTokenClaims) {}
	require.Equal(t, http.StatusBadRequest, send(another, same), "another key")
	require.Equal(t, http.StatusOK, u.status())
	once := func(c *zitadel.LogoutTokenClaims) { c.JWTID = "once" }
	require.Equal(t, http.StatusOK, send(p, once))
	require.Equal(t, http.StatusUnauthorized, u.status(), "the provider ended all sessions of the user")
	u.signIn()
	require.Equal(t, http.StatusBadRequest, send(p, once), "carried out already")
	require.Equal(t, http.StatusOK, u.status())
}

// A refused answer of the provider is a page for a browser, and a problem document for a program.
func TestIdentity_RefusalIsAPage(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	u := w.user(p, identity.Admin)
	for name, path := range map[string]func() string{
		"callback": func() string {
			back := u.authorize("/portal/oidc/sign-in")
			return callback(back.Query().Get("code"), `x"><script>alert(1)</script>`)
		},
		"step-up": func() string { return "/portal/oidc/step-up" },
	} {
		at := path()
		u.headers["Accept"] = "text/html,application/xhtml+xml"
		a := u.do("GET", at, nil)
		require.Equal(t, http.StatusUnauthorized, a.StatusCode, name)
		require.Equal(t, "text/html; charset=utf-8", a.Header.Get("Content-Type"), name)
		require.Contains(t, a.Header.Get("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		body := string(a.raw)
		require.Contains(t, body, `href="/portal/"`, name)
		require.Contains(t, body, "/portal/", "what to do")
		require.NotContains(t, body, "<script")
		styles := strings.Split(strings.SplitN(body, `rel="stylesheet" href="`, 2)[1], `"`)[0]
		require.Equal(t, http.StatusOK, u.do("GET", styles, nil).StatusCode, styles)
		delete(u.headers, "Accept")
		require.Equal(t, "application/problem+json", u.do("GET", at, nil).Header.Get("Content-Type"), name)
	}
	// The provider is away: the page says so, and that a token still works.
	away := newWorld(t, func(c *portal.Config) { c.OIDC.Issuer, c.OIDC.ClientID = "http://127.0.0.1:1", "portal" }).browser()
	away.headers["Accept"] = "text/html"
	a := away.do("GET", "/portal/oidc/sign-in", nil)
	require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
	require.Contains(t, string(a.raw), "sign in with an API token")
}
