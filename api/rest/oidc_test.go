package rest_test

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/portal/session"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
)

func TestOIDCTokens(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	forged, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	issuer := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "RS256"}}}
	srv := httptest.NewServer(issuer)
	t.Cleanup(srv.Close)
	issuer.SetIssuer(srv.URL)
	w := newWorld(t, func(c *httpapi.Config) {
		c.API.Auth = op.AuthConfig{Issuer: srv.URL, Audience: "slipway", RolesClaim: "groups"}
	})
	ask := func(k *rsa.PrivateKey, alg, claims string) answer {
		return w.do("GET", "/api/v1/whoami", nil, header{"Authorization": "Bearer " + oidctest.SignIDToken(k, "k", alg, claims)})
	}
	claims := func(aud string, expires time.Time, groups string) string {
		return fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"u1","email":"alice@example.com","email_verified":true,"exp":%d,"groups":%s}`, srv.URL, aud, expires.Unix(), groups)
	}
	soon := time.Now().Add(time.Hour)
	a := ask(key, "RS256", claims("slipway", soon, `["operator","unknown"]`)).want(http.StatusOK)
	require.JSONEq(t, `{"id":"oidc:u1","name":"alice@example.com","roles":["operator"]}`, string(a.raw))
	ask(key, "RS256", claims("slipway", soon, `"viewer"`)).want(http.StatusOK)
	ask(key, "RS256", claims("slipway", soon, `[]`)).want(http.StatusOK)
	w.do("GET", "/api/v1/nodes", nil, header{"Authorization": "Bearer " + oidctest.SignIDToken(key, "k", "RS256", claims("slipway", soon, `[]`))}).refused(problem.Forbidden)
	ask(key, "RS256", claims("another", soon, `["admin"]`)).refused(problem.Unauthenticated)
	ask(key, "RS256", claims("slipway", time.Now().Add(-time.Hour), `["admin"]`)).refused(problem.Unauthenticated)
	ask(forged, "RS256", claims("slipway", soon, `["admin"]`)).refused(problem.Unauthenticated)
	ask(key, "RS512", claims("slipway", soon, `["admin"]`)).refused(problem.Unauthenticated)

	away := newWorld(t, func(c *httpapi.Config) { c.API.Auth = op.AuthConfig{Issuer: "http://127.0.0.1:1", Audience: "slipway"} })
	away.do("GET", "/api/v1/whoami", nil, header{"Authorization": "Bearer a.b.c"}).refused(problem.Unavailable)
	away.do("GET", "/api/v1/whoami", nil).want(http.StatusOK)
}

// TestOIDC_ForgedTokensAreCountedAndLimited sends tokens of an unknown key by REST, by gRPC and as
// a sign-out of the provider: the provider gets one request for its keys, the refusals are counted,
// and an address that sends many is told to wait. A valid token is accepted all the same.
func TestOIDC_ForgedTokensAreCountedAndLimited(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	forged, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	issuer := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "RS256"}}}
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "well-known") {
			asked.Add(1)
		}
		issuer.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	issuer.SetIssuer(srv.URL)
	metrics := prometheus.NewRegistry()
	w := newWorld(t, func(c *httpapi.Config) {
		c.API.Auth = op.AuthConfig{Issuer: srv.URL, Audience: "slipway"}
		c.Portal.OIDC = session.OIDC{Issuer: srv.URL, ClientID: "slipway"}
		c.Metrics = metrics
	})
	claims := fmt.Sprintf(`{"iss":%q,"aud":"slipway","sub":"u1","exp":%d,"roles":["viewer"]}`, srv.URL, time.Now().Add(time.Hour).Unix())
	bearer := func(k *rsa.PrivateKey, id string) header {
		return header{"Authorization": "Bearer " + oidctest.SignIDToken(k, id, "RS256", claims)}
	}
	limited := 0
	for i := range 100 {
		path, method := "/api/v1/whoami", "GET"
		if i%2 == 1 {
			path, method = "/slipway.v1.RunService/ListRuns", "POST"
		}
		if a := w.do(method, path, nil, bearer(forged, fmt.Sprint("forged-", i))); a.status == http.StatusTooManyRequests {
			limited++
		}
	}
	require.Greater(t, limited, 20)
	w.do("GET", "/api/v1/whoami", nil, bearer(key, "k")).want(http.StatusOK)
	res, err := http.PostForm(w.url+"/portal/oidc/logout", url.Values{"logout_token": {oidctest.SignIDToken(forged, "other", "RS256", claims)}}) //nolint:noctx // of a test
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.EqualValues(t, 1, asked.Load(), "requests for the keys")
	families, err := metrics.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "slipway_sign_ins_refused_total" {
			for _, m := range f.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{"bearer": 100, "provider_logout": 1}, counts)
}

// Forged tokens of projects are counted and limited, too, where the address leads to the project of
// the token.
func TestProjectTokens_ForgedAtAShortAddressAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limited := 0
	for i := range 100 {
		if w.do("POST", "/api/v1/payments/checkout-session", nil, header{"Authorization": fmt.Sprint("Bearer slpp_forged", i)}).status == http.StatusTooManyRequests {
			limited++
		}
	}
	require.Greater(t, limited, 20)
}
