package portal_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/portal"
)

// provider is an identity provider with one client. It signs what the test wants it to sign.
type provider struct {
	t   *testing.T
	key *rsa.PrivateKey
	url string

	mu     sync.Mutex
	claims map[string]any    // added to each token
	codes  map[string]string // challenge by code; a code counts once
	nonces map[string]string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	p := &provider{t: t, key: key, claims: map[string]any{}, codes: map[string]string{}, nonces: map[string]string{}}
	server := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "RS256"}}}
	mux := http.NewServeMux()
	mux.Handle("/", server)
	mux.HandleFunc("/token", p.token)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	server.SetIssuer(srv.URL)
	p.url = srv.URL
	return p
}

// authorize is what the provider does with the browser: it takes the request and gives a code.
func (p *provider) authorize(location string) (code, state string) {
	p.t.Helper()
	u, err := url.Parse(location)
	require.NoError(p.t, err)
	q := u.Query()
	require.Equal(p.t, "code", q.Get("response_type"))
	require.Equal(p.t, "S256", q.Get("code_challenge_method"))
	p.mu.Lock()
	defer p.mu.Unlock()
	code = rand.Text()
	p.codes[code], p.nonces[code] = q.Get("code_challenge"), q.Get("nonce")
	return code, q.Get("state")
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := r.FormValue("code")
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if challenge, known := p.codes[code]; !known || base64.RawURLEncoding.EncodeToString(sum[:]) != challenge {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	delete(p.codes, code)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": "a", "token_type": "Bearer", "id_token": p.sign(map[string]any{"nonce": p.nonces[code], "roles": []string{"operator"}, "sid": "s1"}),
	})
}

func (p *provider) sign(claims map[string]any) string {
	all := map[string]any{"iss": p.url, "aud": "portal", "sub": "u1", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for _, more := range []map[string]any{claims, p.claims} {
		for k, v := range more {
			all[k] = v
		}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		p.t.Error(err)
	}
	return oidctest.SignIDToken(p.key, "k", "RS256", string(raw))
}

func (p *provider) say(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = claims
}

func newOIDCWorld(t *testing.T) (*world, *provider) {
	t.Helper()
	p := newProvider(t)
	return newWorld(t, func(c *portal.Config) { c.OIDC.Issuer, c.OIDC.ClientID = p.url, "portal" }), p
}

func callback(code, state string) string {
	return "/portal/oidc/callback?" + url.Values{"code": {code}, "state": {state}}.Encode()
}

// signIn signs a browser in and returns the answer to its last request.
func (p *provider) signIn(b *browser, path string) answer {
	p.t.Helper()
	a := b.do("GET", path, nil)
	require.Equal(p.t, http.StatusSeeOther, a.StatusCode, string(a.raw))
	code, state := p.authorize(a.Header.Get("Location"))
	return b.do("GET", callback(code, state), nil)
}

func TestOIDC_SignsIn(t *testing.T) {
	t.Parallel()
	w, p := newOIDCWorld(t)
	b := w.browser()
	require.JSONEq(t, `{"oidc":true,"token":true}`, string(b.do("GET", "/portal/sign-in", nil).raw))
	a := p.signIn(b, "/portal/oidc/sign-in?return=/portal/jobs")
	require.Equal(t, http.StatusSeeOther, a.StatusCode, string(a.raw))
	require.Equal(t, "/portal/jobs", a.Header.Get("Location"))
	require.Contains(t, string(b.do("GET", "/api/v1/whoami", nil).raw), `"id":"oidc:u1"`)
	require.Equal(t, http.StatusForbidden, b.do("GET", "/api/v1/admin/api-tokens", nil).StatusCode)
	require.Equal(t, 0, w.count("SELECT count(*) FROM portal_sign_ins"))
	code, state := p.authorize(b.do("GET", "/portal/oidc/sign-in", nil).Header.Get("Location"))
	named := b.do("GET", callback(code, state)+"&iss="+url.QueryEscape(p.url), nil)
	require.Equal(t, http.StatusSeeOther, named.StatusCode, "a provider may put its name into answers")
}

func TestOIDC_RefusesAnswers(t *testing.T) {
	t.Parallel()
	w, p := newOIDCWorld(t)
	for name, answer := range map[string]func(b *browser, code, state string) answer{
		"wrong state": func(b *browser, code, _ string) answer { return b.do("GET", callback(code, "x"), nil) },
		"another browser": func(_ *browser, code, state string) answer {
			return w.browser().do("GET", callback(code, state), nil)
		},
		"wrong code": func(b *browser, _, state string) answer { return b.do("GET", callback("x", state), nil) },
		"wrong nonce": func(b *browser, code, state string) answer {
			p.mu.Lock()
			p.nonces[code] = "x"
			p.mu.Unlock()
			return b.do("GET", callback(code, state), nil)
		},
		"state used twice": func(b *browser, code, state string) answer {
			kept := b.cookies["slipway_sign_in"]
			require.Equal(t, http.StatusSeeOther, b.do("GET", callback(code, state), nil).StatusCode)
			b.cookies = map[string]string{"slipway_sign_in": kept}
			return b.do("GET", callback(code, state), nil)
		},
		"another provider's name": func(b *browser, code, state string) answer {
			return b.do("GET", callback(code, state)+"&iss=https%3A%2F%2Fevil.example", nil)
		},
		"two names": func(b *browser, code, state string) answer {
			name := "&iss=" + url.QueryEscape(p.url)
			return b.do("GET", callback(code, state)+name+name, nil)
		},
		"too late": func(b *browser, code, state string) answer {
			w.exec("UPDATE portal_sign_ins SET expires_at = now() - interval '1 second'")
			return b.do("GET", callback(code, state), nil)
		},
		"code of another sign-in": func(b *browser, code, _ string) answer { // the verifier is not that of the code
			_, state := p.authorize(b.do("GET", "/portal/oidc/sign-in", nil).Header.Get("Location"))
			return b.do("GET", callback(code, state), nil)
		},
	} {
		b := w.browser()
		code, state := p.authorize(b.do("GET", "/portal/oidc/sign-in", nil).Header.Get("Location"))
		a := answer(b, code, state)
		require.Equal(t, http.StatusUnauthorized, a.StatusCode, "%s: %s", name, a.raw)
		require.Empty(t, b.cookies[cookie], name)
	}
}

func TestOIDC_ReturnsToThePortalOnly(t *testing.T) {
	t.Parallel()
	w, p := newOIDCWorld(t)
	for path, want := range map[string]string{
		"/portal/nodes?q=a": "/portal/nodes?q=a", "": "/portal/",
		"//evil.example": "/portal/", "/portal//evil.example": "/portal/", `/portal/\evil.example`: "/portal/", "https://evil.example/portal/": "/portal/",
		`/\evil.example`: "/portal/", "/api/v1/nodes": "/portal/", "/portal/../api": "/portal/", "javascript:alert(1)": "/portal/",
		"/portal/oidc/sign-in": "/portal/", "/portal/\r\nSet-Cookie: a=b": "/portal/",
	} {
		a := p.signIn(w.browser(), "/portal/oidc/sign-in?return="+url.QueryEscape(path))
		require.Equal(t, http.StatusSeeOther, a.StatusCode)
		require.Equal(t, want, a.Header.Get("Location"), path)
	}
}

func TestOIDC_StepUp(t *testing.T) {
	t.Parallel()
	w, p := newOIDCWorld(t)
	b := w.browser()
	require.Equal(t, http.StatusUnauthorized, b.do("GET", "/portal/oidc/step-up", nil).StatusCode)
	p.signIn(b, "/portal/oidc/sign-in")
	again := func(claims map[string]any) answer {
		p.say(claims)
		a := b.do("GET", "/portal/oidc/step-up?return=/portal/jobs", nil)
		q, err := url.Parse(a.Header.Get("Location"))
		require.NoError(t, err)
		require.Equal(t, "0", q.Query().Get("max_age"))
		require.Equal(t, "login", q.Query().Get("prompt"))
		code, state := p.authorize(a.Header.Get("Location"))
		// The provider's answer comes from another site, without the strict cookie.
		kept := b.cookies[cookie]
		delete(b.cookies, cookie)
		a = b.do("GET", callback(code, state), nil)
		if b.cookies[cookie] == "" {
			b.cookies[cookie] = kept
		}
		return a
	}
	now := time.Now().Unix()
	require.Equal(t, http.StatusUnauthorized, again(nil).StatusCode, "no auth_time")
	require.Equal(t, http.StatusUnauthorized, again(map[string]any{"auth_time": now - 3600}).StatusCode, "was not asked again")
	require.Equal(t, http.StatusUnauthorized, again(map[string]any{"auth_time": now + 3600}).StatusCode, "from the future")
	require.Equal(t, http.StatusForbidden, again(map[string]any{"auth_time": now, "sub": "u2"}).StatusCode, "somebody else")
	require.Contains(t, string(b.do("GET", "/portal/session", nil).raw), `"step_up_until":null`)
	require.Equal(t, http.StatusSeeOther, again(map[string]any{"auth_time": now}).StatusCode)
	require.NotContains(t, string(b.do("GET", "/portal/session", nil).raw), `"step_up_until":null`)
}

// Behind a proxy all browsers share one address: sign-ins that others begin keep no user from the
// second sign-in.
func TestOIDC_BeginsAreLimited(t *testing.T) {
	t.Parallel()
	w, p := newOIDCWorld(t)
	b := w.browser()
	p.signIn(b, "/portal/oidc/sign-in")
	begin := func(b *browser, path string) answer {
		a := b.do("GET", path, nil)
		for range 500 { // a slow machine is given more in the meantime
			if a.StatusCode == http.StatusTooManyRequests {
				break
			}
			a = b.do("GET", path, nil)
		}
		return a
	}
	require.Equal(t, http.StatusTooManyRequests, begin(w.browser(), "/portal/oidc/sign-in").StatusCode)
	require.Equal(t, http.StatusSeeOther, b.do("GET", "/portal/oidc/step-up", nil).StatusCode)
	a := begin(b, "/portal/oidc/step-up")
	require.Equal(t, http.StatusTooManyRequests, a.StatusCode, "each one that begins writes a row")
	require.NotEmpty(t, a.Header.Get("Retry-After"))
}

func TestOIDC_ProviderEndsSessions(t *testing.T) {
	t.Parallel()
	w, p := newOIDCWorld(t)
	b := w.browser()
	p.signIn(b, "/portal/oidc/sign-in")
	send := func(claims map[string]any) int {
		events := map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}
		all := map[string]any{"events": events, "jti": fmt.Sprint(claims["jti"]), "sub": "u1"}
		for k, v := range claims {
			all[k] = v
		}
		p.mu.Lock()
		token := p.sign(all)
		p.mu.Unlock()
		res, err := http.PostForm(w.url+"/portal/oidc/logout", url.Values{"logout_token": {token}})
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
		return res.StatusCode
	}
	require.Equal(t, http.StatusBadRequest, send(map[string]any{"jti": "0", "aud": "another"}))
	require.Equal(t, http.StatusBadRequest, send(map[string]any{"jti": "0", "iat": time.Now().Add(-time.Hour).Unix()}))
	require.Equal(t, http.StatusOK, send(map[string]any{"jti": "1", "sid": "another"}))
	require.Equal(t, http.StatusOK, b.status(), "another session at the provider")
	require.Equal(t, http.StatusOK, send(map[string]any{"jti": "2", "sid": "s1"}))
	require.Equal(t, http.StatusUnauthorized, b.status())
	p.say(map[string]any{"sid": ""})
	p.signIn(b, "/portal/oidc/sign-in")
	p.say(nil)
	require.Equal(t, http.StatusOK, send(map[string]any{"jti": "3", "sid": "s3", "sub": "u2"}))
	require.Equal(t, http.StatusOK, b.status(), "another subject")
	require.Equal(t, http.StatusOK, send(map[string]any{"jti": "4", "sid": "s3"}))
	require.Equal(t, http.StatusUnauthorized, b.status(), "the provider names a session only when it ends it")
	p.signIn(b, "/portal/oidc/sign-in")
	require.Equal(t, http.StatusBadRequest, send(map[string]any{"jti": "2", "sid": "s1"}), "carried out already")
	require.Equal(t, http.StatusOK, b.status())
}
