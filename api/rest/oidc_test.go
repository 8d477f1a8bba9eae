package rest_test

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/internal/server/httpapi"
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
