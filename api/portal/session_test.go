package portal_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/portal/session"
	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	portaldb "github.com/slipway-cloud/slipway/db/portal"
)

func TestSession_BeginsAndEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	require.Equal(t, http.StatusUnauthorized, b.do("GET", "/portal/session", nil).StatusCode)
	require.JSONEq(t, `{"oidc":false,"token":true}`, string(b.do("GET", "/portal/sign-in", nil).raw))
	require.Equal(t, http.StatusUnauthorized, b.do("POST", "/portal/session", map[string]string{"token": "slp_wrong"}).StatusCode)
	require.Equal(t, 1, w.count("SELECT count(*) FROM audit_log WHERE name = 'sign_in_refused'"))

	a := b.do("POST", "/portal/session", map[string]string{"token": w.token})
	require.Equal(t, http.StatusCreated, a.StatusCode, string(a.raw))
	set := a.Header.Get("Set-Cookie")
	require.Contains(t, set, cookie+"=")
	for _, part := range []string{"Path=/", "HttpOnly", "SameSite=Strict"} {
		require.Contains(t, set, part)
	}
	require.NotContains(t, set, "Domain")
	var view map[string]any
	require.NoError(t, json.Unmarshal(a.raw, &view))
	require.Equal(t, "token", view["method"])
	require.Nil(t, view["step_up_until"])
	require.Equal(t, "https://temporal.example", view["temporal_ui"])
	require.Equal(t, "token:the-admin:"+w.id, view["principal"].(map[string]any)["id"])
	require.Equal(t, http.StatusOK, b.status())
	require.Equal(t, 0, w.count("SELECT count(*) FROM portal_sessions s WHERE encode(s.hash, 'escape') LIKE '%' || $1 || '%'", b.cookies[cookie]))

	old := b.cookies[cookie]
	require.Equal(t, http.StatusNoContent, b.do("DELETE", "/portal/session", nil).StatusCode)
	require.Empty(t, b.cookies)
	b.cookies[cookie] = old
	require.Equal(t, http.StatusUnauthorized, b.status(), "the cookie that was kept is of no use")
	require.Equal(t, 2, w.count("SELECT count(*) FROM audit_log WHERE resource_kind = 'portal_session' AND name IN ('sign_in', 'sign_out') AND resource_id <> 'refused'"))
}

// Over TLS or through a proxy the cookie is bound to the host and never sent in plain.
func TestSession_CookieIsSecure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/portal/session", strings.NewReader(`{"token":"`+w.token+`"}`))
	req.Host = "slipway.example"
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	w.api.Handler().ServeHTTP(rec, req)
	require.Equal(t, http.StatusCreated, rec.Code)
	set := rec.Header().Get("Set-Cookie")
	require.True(t, strings.HasPrefix(set, "__Host-slipway_session="), set)
	require.Contains(t, set, "Secure")
}

func TestSession_IsRefused(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"idle":               "UPDATE portal_sessions SET idle_until = now() - interval '1 second'",
		"after its end":      "UPDATE portal_sessions SET ends_at = now() - interval '1 second'",
		"revoked token":      "UPDATE api_tokens SET revoked_at = now()",
		"expired token":      "UPDATE api_tokens SET expires_at = now() - interval '1 second'",
		"clock was set back": "UPDATE portal_sessions SET seen_at = now() + interval '2 minutes'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := w.signedIn()
			require.Equal(t, http.StatusOK, b.status())
			w.exec(sql)
			require.Equal(t, http.StatusUnauthorized, b.status())
			require.Equal(t, http.StatusUnauthorized, b.do("GET", "/portal/session", nil).StatusCode)
		})
	}
}

// Use moves the idle end, and never the absolute one.
func TestSession_UseIsNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signedIn()
	w.exec("UPDATE portal_sessions SET seen_at = now() - interval '2 minutes', idle_until = now() + interval '1 minute', ends_at = now() + interval '10 minutes'")
	require.Equal(t, http.StatusOK, b.status())
	require.Equal(t, 1, w.count("SELECT count(*) FROM portal_sessions WHERE seen_at > now() - interval '1 minute' AND idle_until = ends_at"))
}

func TestSession_CookieChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	b.cookies[cookie] = strings.Repeat("A", 43) // one that was planted
	require.Equal(t, http.StatusCreated, b.do("POST", "/portal/session", map[string]string{"token": w.token}).StatusCode)
	first := b.cookies[cookie]
	require.NotEqual(t, strings.Repeat("A", 43), first, "a sign-in takes no cookie over")

	w.exec("UPDATE api_tokens SET roles = '{viewer}'")
	a := b.do("GET", "/api/v1/whoami", nil)
	require.Contains(t, string(a.raw), `"roles":["viewer"]`)
	second := b.cookies[cookie]
	require.NotEqual(t, first, second, "a change of roles")
	require.Equal(t, http.StatusForbidden, b.do("GET", "/api/v1/admin/api-tokens", nil).StatusCode)

	require.Equal(t, http.StatusOK, b.do("POST", "/portal/step-up", map[string]string{"token": w.token}).StatusCode)
	third := b.cookies[cookie]
	require.NotEqual(t, second, third, "a second sign-in")
	b.cookies[cookie] = second
	require.Equal(t, http.StatusOK, b.status(), "a request that was under way")
	w.exec("UPDATE portal_sessions SET previous_until = now() - interval '1 second'")
	require.Equal(t, http.StatusUnauthorized, b.status())
	b.cookies[cookie] = third
	require.Equal(t, http.StatusOK, b.status())

	require.Equal(t, http.StatusCreated, b.do("POST", "/portal/session", map[string]string{"token": w.token}).StatusCode)
	require.Equal(t, 1, w.count("SELECT count(*) FROM portal_sessions"), "a sign-in ends the session before")
}

// A second sign-in counts for the new cookie alone: a copy of the old one gets nothing from it.
func TestStepUp_IsNotOfTheCookieBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, copied := w.signedIn(), w.browser()
	copied.cookies[cookie] = b.cookies[cookie]
	require.Equal(t, http.StatusOK, b.do("POST", "/portal/step-up", map[string]string{"token": w.token}).StatusCode)
	require.Equal(t, http.StatusOK, copied.status(), "a request that was under way")
	require.Equal(t, "urn:slipway:problem:step-up-required", copied.kind(copied.do("DELETE", "/api/v1/admin/skus/x", nil)))
	require.NotEqual(t, "urn:slipway:problem:step-up-required", b.kind(b.do("DELETE", "/api/v1/admin/skus/x", nil)))
}

func TestSession_BoundsForEachPrincipal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.signedIn()
	for range 10 {
		w.signedIn()
	}
	require.Equal(t, 10, w.count("SELECT count(*) FROM portal_sessions"))
	require.Equal(t, http.StatusUnauthorized, first.status())
}

// A client that guesses is slowed down, and keeps nobody with a good token out.
func TestSession_RefusalsAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	codes := map[int]int{}
	for range 60 {
		codes[b.do("POST", "/portal/session", map[string]string{"token": "slp_guess"}).StatusCode]++
	}
	require.Positive(t, codes[http.StatusTooManyRequests])
	require.Less(t, w.count("SELECT count(*) FROM audit_log WHERE name = 'sign_in_refused'"), 40, "the audit log is never pruned")
	w.signedIn()
}

// The audit log is never pruned, so good sign-ins are limited too, for each principal.
func TestSession_SignInsAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signedIn()
	try := func(path, token string) answer { return b.do("POST", path, map[string]string{"token": token}) }
	for _, path := range []string{"/portal/session", "/portal/step-up"} {
		a := try(path, w.token)
		for range 30 {
			a = try(path, w.token)
		}
		require.Equal(t, http.StatusTooManyRequests, a.StatusCode, path)
		require.NotEmpty(t, a.Header.Get("Retry-After"), path)
	}
	require.Less(t, w.count("SELECT count(*) FROM audit_log WHERE resource_kind = 'portal_session'"), 60)
	require.Equal(t, http.StatusNoContent, b.do("DELETE", "/portal/session", nil).StatusCode, "a sign-out is never refused")
	other, _, err := op.IssueToken(t.Context(), w.store, "another", []string{"admin"}, 0)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, try("/portal/session", other).StatusCode, "another principal")
}

func TestStepUp_Table(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signedIn()
	b.headers["Slipway-Reason"] = "a test"
	routes := w.api.StepUps()
	require.Greater(t, len(routes), 15)
	path := func(u op.StepUp) (string, string) {
		method, path, _ := strings.Cut(u.Route, " ")
		if u.Param != "" {
			path = strings.ReplaceAll(path, "{"+u.Param+"}", u.Values[0])
		}
		return method, strings.NewReplacer("{id}", "x", "{profile_id}", "x", "{hostname}", "x", "{name}", "x", "{sku}", "x", "{version}", "x").Replace(path)
	}
	for _, u := range routes {
		method, path := path(u)
		a := b.do(method, path, map[string]any{})
		require.Equal(t, http.StatusForbidden, a.StatusCode, u.Route)
		require.Equal(t, "urn:slipway:problem:step-up-required", b.kind(a), u.Route)
	}
	for _, same := range []string{"POST /api/v1/nodes/{id}/actions/reissue-agent", "POST /api/v1/admin/nodes/{id}/bootstrap"} {
		require.Contains(t, routes, same, "each issues a token that takes a node's identity over")
	}
	for _, same := range []string{
		"POST /api/v1/admin/bmcs/{id}/actions/approve-pin", "PUT /api/v1/nodes/{id}/bmc", "PUT /api/v1/admin/maas-sites/{id}",
		"POST /api/v1/nodes/{id}/drives/accept", "DELETE /api/v1/admin/billing-accounts/{id}", "DELETE /api/v1/admin/catalogue/{sku}",
		"DELETE /api/v1/admin/projects/{id}/quotas/{sku}",
	} {
		require.Contains(t, routes, same, "each sends a secret elsewhere or ends a limit")
	}
	for _, same := range []string{
		"POST /api/v1/admin/install-workflows", "PUT /api/v1/admin/install-workflows/{id}", "PUT /api/v1/admin/agent-releases/{version}",
		"POST /api/v1/admin/bmcs/{id}/rotations", "PUT /api/v1/admin/catalogue/{sku}",
	} {
		require.Contains(t, routes, same, "each decides what runs on every machine, who reaches it, or what customers get")
	}
	escaped := b.do("POST", "/api/v1/admin/jobs/x/actions/%61dopt_observed_state", map[string]any{})
	require.Equal(t, "urn:slipway:problem:step-up-required", b.kind(escaped), "the same call, escaped")
	for _, same := range []string{"POST /api/v1/admin/projects/{id}/close", "POST /api/v1/projects/{id}/close"} {
		require.Contains(t, routes, same, "a project does not open again")
	}
	other, _, err := op.IssueToken(t.Context(), w.store, "another", []string{"admin"}, 0)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, b.do("POST", "/portal/step-up", map[string]string{"token": other}).StatusCode, "another's token")
	a := b.do("POST", "/portal/step-up", map[string]string{"token": w.token})
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.NotContains(t, string(a.raw), `"step_up_until":null`)
	for _, u := range routes {
		method, path := path(u)
		require.NotContains(t, string(b.do(method, path, map[string]any{}).raw), "step-up-required", u.Route)
	}
	for name, sql := range map[string]string{"over": "now() - interval '1 second'", "clock was set back": "now() + interval '11 minutes'"} {
		w.exec("UPDATE portal_sessions SET step_up_until = " + sql)
		require.Equal(t, "urn:slipway:problem:step-up-required", b.kind(b.do("DELETE", "/api/v1/admin/skus/x", nil)), name)
	}
}

// Every operation refuses the cookie to another site, whatever it would do.
func TestCSRF_EveryRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signedIn()
	require.Greater(t, len(w.api.Routes()), 80)
	for route, role := range w.api.Routes() {
		if role == op.RoleNone {
			continue
		}
		method, path, _ := strings.Cut(route, " ")
		cases := map[string]map[string]string{"cross-site": {"Sec-Fetch-Site": "cross-site"}}
		if method != http.MethodGet {
			cases["form of another site"] = map[string]string{"Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"}
			cases["sibling"] = map[string]string{"Sec-Fetch-Site": "same-site"}
			cases["other origin"] = map[string]string{"Origin": "https://evil.example"}
			cases["null origin"] = map[string]string{"Origin": "null"}
			cases["no browser"] = map[string]string{}
			cases["form"] = map[string]string{"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"}
		}
		for name, headers := range cases {
			b.headers = headers
			a := b.do(method, path, map[string]any{})
			require.Contains(t, []int{http.StatusForbidden, http.StatusUnsupportedMediaType}, a.StatusCode, "%s: %s: %s", route, name, a.raw)
			require.Empty(t, a.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	b.headers = map[string]string{"Origin": "https://evil.example"}
	for method, path := range map[string]string{"POST": "/portal/session", "DELETE": "/portal/session"} {
		require.Equal(t, http.StatusForbidden, b.do(method, path, map[string]string{"token": w.token}).StatusCode)
	}
	require.Equal(t, http.StatusForbidden, b.do("POST", "/portal/step-up", map[string]string{"token": w.token}).StatusCode)
	b.headers = map[string]string{"Authorization": "Bearer slp_wrong", "Sec-Fetch-Site": "same-origin"}
	require.Equal(t, http.StatusUnauthorized, b.status(), "a bearer token wins")
}

// A stream ends by itself when what began it has ended.
func TestEvents_EndWithSessionAndToken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bearer bool
		end    func(w *world, b *browser)
	}{
		"sign-out":       {end: func(_ *world, b *browser) { b.do("DELETE", "/portal/session", nil) }},
		"revoked token":  {end: func(w *world, _ *browser) { w.exec("UPDATE api_tokens SET revoked_at = now()") }},
		"revoked bearer": {bearer: true, end: func(w *world, _ *browser) { w.exec("UPDATE api_tokens SET revoked_at = now()") }},
		"lost role":      {end: func(w *world, _ *browser) { w.exec("UPDATE api_tokens SET roles = '{}'") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := w.signedIn()
			req := b.request("GET", "/api/v1/events", nil)
			if tc.bearer {
				req.Header.Del("Cookie")
				req.Header.Set("Authorization", "Bearer "+w.token)
			}
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			require.Equal(t, http.StatusOK, res.StatusCode)
			lines := bufio.NewScanner(res.Body)
			require.True(t, lines.Scan())
			tc.end(w, b)
			for lines.Scan() { // until the server ends it; the test's own deadline bounds the wait
				continue
			}
			require.NoError(t, lines.Err())
		})
	}
}

func TestSession_PruneDeletesWhatEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.signedIn()
	live := w.browser()
	live.do("POST", "/portal/session", map[string]string{"token": w.token})
	w.exec("UPDATE portal_sessions SET idle_until = now() - interval '1 second' WHERE id = (SELECT min(id) FROM portal_sessions)")
	w.exec("INSERT INTO portal_logouts (hash, expires_at) VALUES (sha256('x'), now() - interval '1 second')")
	n, err := portaldb.Prune(t.Context(), w.store)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Equal(t, http.StatusOK, live.status())
}

// A restored backup has sessions that were ended after it was made, and sign-ins under way.
func TestEndAll_EndsWhatARestoreBroughtBack(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	byToken, byProvider, stepping := w.signedIn(), w.user(p, identity.Admin), w.user(p, identity.Viewer)
	byProvider.signIn()
	stepping.signIn()
	w.user(p, identity.Ada).authorize("/portal/oidc/sign-in")
	back := stepping.authorize("/portal/oidc/step-up")
	w.exec("CREATE TABLE kept AS SELECT * FROM portal_sessions") // the backup
	n, err := session.EndAll(t.Context(), w.store)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 3, w.count(`SELECT count(*) FROM audit_log WHERE name = 'sign_out'`))
	w.exec("INSERT INTO portal_sessions SELECT * FROM kept") // the restore
	require.Equal(t, http.StatusOK, byToken.status(), "the restore brings no session back, so the test shows nothing")
	_, err = session.EndAll(t.Context(), w.store)
	require.NoError(t, err)
	for _, b := range []*browser{byToken, byProvider.browser, stepping.browser} {
		require.Equal(t, http.StatusUnauthorized, b.status())
	}
	require.Equal(t, http.StatusUnauthorized, stepping.do("GET", back.RequestURI(), nil).StatusCode)
	require.Zero(t, w.count("SELECT count(*) FROM portal_sign_ins"))
	n, err = session.EndAll(t.Context(), w.store)
	require.NoError(t, err)
	require.Zero(t, n)
}
