package portal_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/db"
)

// asAdmin sends a request with the admin's token, as a program does.
func (w *world) asAdmin(method, path string, body any) map[string]any {
	w.t.Helper()
	b := w.browser()
	b.headers = map[string]string{"Authorization": "Bearer " + w.token, "Idempotency-Key": db.NewID("key"), "If-Match": "*", "Slipway-Reason": "a test"}
	a := b.do(method, path, body)
	require.Less(w.t, a.StatusCode, 300, "%s %s: %s", method, path, a.raw)
	out := map[string]any{}
	require.NoError(w.t, json.Unmarshal(a.raw, &out), string(a.raw))
	return out
}

// newProject makes a project in which a group has the role viewer. It returns the project's path.
func (w *world) newProject(group string) string {
	w.t.Helper()
	account := w.asAdmin("POST", "/api/v1/admin/billing-accounts", map[string]any{"name": "example"})["id"]
	project := w.asAdmin("POST", "/api/v1/admin/projects", map[string]any{"name": "training", "billing_account_id": account, "owner_subject": "oidc:owner"})["id"]
	at := fmt.Sprintf("/api/v1/projects/%s", project)
	w.asAdmin("PUT", fmt.Sprintf("/api/v1/admin/billing-accounts/%s/groups/%s", account, group), nil)
	w.asAdmin("PUT", at+"/group-roles/"+group, map[string]any{"role": "viewer"})
	return at
}

// stepUp gives the password again.
func (u user) stepUp() {
	u.w.t.Helper()
	a := u.do("GET", u.authorize("/portal/oidc/step-up").RequestURI(), nil)
	require.Equal(u.w.t, http.StatusSeeOther, a.StatusCode, string(a.raw))
}

// A role that a project gives to a group holds in a session too, until a sign-in says otherwise.
func TestGroups_GiveRolesToASession(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	at := w.newProject("acme")
	ada, carol := w.user(p, identity.Ada), w.user(p, identity.Carol)
	ada.signIn()
	carol.signIn()
	require.Equal(t, http.StatusOK, ada.do("GET", at, nil).StatusCode)
	require.Contains(t, string(ada.do("GET", "/api/v1/projects", nil).raw), `"training"`)
	require.Equal(t, http.StatusForbidden, ada.do("PATCH", at, map[string]any{"tags": map[string]any{"a": "b"}}).StatusCode, "a viewer changes nothing")
	require.Equal(t, http.StatusNotFound, carol.do("GET", at, nil).StatusCode, "another group")

	p.SetGroups(identity.Carol, "globex", "acme")
	require.Equal(t, http.StatusNotFound, carol.do("GET", at, nil).StatusCode, "groups are those of the last sign-in")
	carol.signIn()
	require.Equal(t, http.StatusOK, carol.do("GET", at, nil).StatusCode)
}

// A second sign-in that names the group no more ends the access, and the streams that began with
// it.
func TestGroups_AreReadAtEachSignIn(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	at := w.newProject("acme")
	ada := w.user(p, identity.Ada)
	ada.signIn()
	res, err := http.DefaultClient.Do(ada.request("GET", at+"/events", nil))
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := bufio.NewScanner(res.Body)
	require.True(t, lines.Scan())
	p.SetGroups(identity.Ada)
	ada.stepUp()
	require.Equal(t, http.StatusOK, ada.status(), "the session goes on")
	require.Equal(t, http.StatusNotFound, ada.do("GET", at, nil).StatusCode)
	for lines.Scan() { // until the server ends it; the test's own deadline bounds the wait
		continue
	}
	require.NoError(t, lines.Err())
}

// A provider that names many groups, long ones or broken ones fills no row and breaks no sign-in.
func TestGroups_AreBounded(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	at := w.newProject("acme")
	groups := []string{"", "with\x00nul", strings.Repeat("x", 201), "acme", "acme"}
	for i := range 1000 {
		groups = append(groups, fmt.Sprint("group-", i))
	}
	p.SetGroups(identity.Ada, groups...)
	ada := w.user(p, identity.Ada)
	ada.signIn()
	require.Equal(t, http.StatusOK, ada.do("GET", at, nil).StatusCode)
	require.Equal(t, 200, w.count("SELECT cardinality(groups) FROM portal_sessions"))
	require.Zero(t, w.count("SELECT count(*) FROM portal_sessions s, unnest(s.groups) g WHERE g = '' OR char_length(g) > 200"))
	require.Equal(t, 1, w.count("SELECT count(*) FROM portal_sessions s, unnest(s.groups) g WHERE g = 'acme'"))
}

// The provider's answer comes without the strict cookie. The session that the browser had ends all
// the same, and no other one.
func TestIdentity_SignInEndsTheSessionBefore(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	u, elsewhere := w.user(p, identity.Admin), w.user(p, identity.Admin)
	u.signIn()
	elsewhere.signIn()
	before := w.browser()
	before.cookies[cookie] = u.cookies[cookie]
	back := u.authorize("/portal/oidc/sign-in")
	require.Equal(t, http.StatusOK, before.status(), "nobody has signed in yet")
	delete(u.cookies, cookie)
	require.Equal(t, http.StatusSeeOther, u.do("GET", back.RequestURI(), nil).StatusCode)
	require.Equal(t, http.StatusUnauthorized, before.status())
	require.Equal(t, http.StatusOK, u.status())
	require.Equal(t, http.StatusOK, elsewhere.status(), "another browser of the user")
	require.Equal(t, 2, w.count("SELECT count(*) FROM portal_sessions"))

	// A sign-in that is refused ends nothing.
	kept := w.browser()
	kept.cookies[cookie] = u.cookies[cookie]
	back = u.authorize("/portal/oidc/sign-in")
	delete(u.cookies, cookie)
	require.Equal(t, http.StatusUnauthorized, u.do("GET", namedBy(p, "wrong", back.Query().Get("state")), nil).StatusCode)
	require.Equal(t, http.StatusOK, kept.status())
}

// A refusal says which limit it is and when to try again.
func TestLimits_SayWhichAndWhen(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	u := w.user(p, identity.Admin)
	u.signIn()
	flood := func(b *browser, method, path string, body any) answer {
		a := b.do(method, path, body)
		for i := 0; a.StatusCode != http.StatusTooManyRequests && i < 100; i++ {
			a = b.do(method, path, body)
		}
		return a
	}
	for name, tc := range map[string]struct {
		answer answer
		want   string
	}{
		"sign-ins of an address":    {flood(w.browser(), "GET", "/portal/oidc/sign-in", nil), "from your address 127.0.0.1"},
		"second sign-ins of a user": {flood(u.browser, "GET", "/portal/oidc/step-up", nil), "too many second sign-ins"},
		"refusals of an address":    {flood(w.browser(), "POST", "/portal/session", map[string]string{"token": "slp_guess"}), "from your address 127.0.0.1 were refused"},
		"sign-ins of a token":       {flood(w.browser(), "POST", "/portal/session", map[string]string{"token": w.token}), "once in 10 seconds"},
	} {
		require.Equal(t, http.StatusTooManyRequests, tc.answer.StatusCode, name)
		require.NotEmpty(t, tc.answer.Header.Get("Retry-After"), name)
		require.Contains(t, string(tc.answer.raw), tc.want, name)
		require.Contains(t, string(tc.answer.raw), `"retry_after_seconds":`, name)
	}
	page := w.browser()
	page.headers["Accept"] = "text/html"
	a := flood(page, "GET", "/portal/oidc/sign-in", nil)
	require.Contains(t, string(a.raw), "Try again in "+a.Header.Get("Retry-After")+" s.")
}
