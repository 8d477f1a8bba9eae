package rest_test

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// Every route answers 503 with Retry-After while the database is away: of routes with a login it is
// the look-up of the API token that answers.
func TestRoutes_DatabaseAwayIs503(t *testing.T) {
	t.Parallel()
	store, cut := dbtest.Cuttable(t)
	w := newWorld(t, func(c *httpapi.Config) { c.API.Store = store })
	doc := w.document()
	cut()
	asked := 0
	for path, item := range doc.Paths {
		for method := range item {
			if path == "/api/v1/version" || path == "/api/v1/sign-in" { // these read no database
				continue
			}
			asked++
			a := w.do(strings.ToUpper(method), placeholder.ReplaceAllString(path, "x"), nil)
			if path == "/api/v1/report" {
				a = w.do("POST", path, map[string]any{"mac_address": "52:54:00:12:34:56"}, header{"Authorization": ""})
			}
			require.Equal(t, http.StatusServiceUnavailable, a.status, "%s %s: %s", method, path, a.raw)
			require.NotEmpty(t, a.header.Get("Retry-After"), path)
			a.refused(problem.Unavailable)
		}
	}
	require.Greater(t, asked, 80)
	for _, path := range []string{"/boot/52-54-00-12-34-56.ipxe", "/boot/pxe_" + strings.Repeat("a", 43) + "/user-data", "/metrics"} {
		a := w.do("GET", path, nil)
		require.Equal(t, http.StatusServiceUnavailable, a.status, "%s: %s", path, a.raw)
		require.NotEmpty(t, a.header.Get("Retry-After"), path)
	}
}

// TestAreas_DatabaseAwayIs503 signs in at an issuer, which takes no database: what answers is the
// operation itself.
func TestAreas_DatabaseAwayIs503(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	issuer := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "RS256"}}}
	srv := httptest.NewServer(issuer)
	t.Cleanup(srv.Close)
	issuer.SetIssuer(srv.URL)
	store, cut := dbtest.Cuttable(t)
	w := newWorld(t, func(c *httpapi.Config) {
		c.API.Store, c.REST.Secrets = store, sealed(t, store)
		c.API.Auth = op.AuthConfig{Issuer: srv.URL, Audience: "slipway"}
	})
	signedIn := header{"If-Match": "*", "Idempotency-Key": "k", "Authorization": "Bearer " + oidctest.SignIDToken(key, "k", "RS256",
		fmt.Sprintf(`{"iss":%q,"aud":"slipway","sub":"u1","exp":%d,"roles":["admin"]}`, srv.URL, time.Now().Add(time.Hour).Unix()))}
	w.do("GET", "/api/v1/nodes", nil, signedIn).want(http.StatusOK)
	doc := w.document()
	cut()
	away := func(method, path string, body any) {
		a := w.do(method, path, body, signedIn)
		require.Equal(t, http.StatusServiceUnavailable, a.status, "%s %s: %s", method, path, a.raw)
		require.NotEmpty(t, a.header.Get("Retry-After"), path)
		a.refused(problem.Unavailable)
	}
	w.do("GET", "/api/v1/whoami", nil, signedIn).want(http.StatusOK)
	for path, item := range doc.Paths {
		for method := range item {
			if method == "get" && !slices.Contains([]string{"/api/v1/version", "/api/v1/sign-in", "/api/v1/whoami", "/api/v1/admin/instance-types", "/api/v1/instance-types"}, path) {
				away("GET", placeholder.ReplaceAllString(path, "x")+map[string]string{"/api/v1/admin/secrets": "?name=bmc/x"}[path], nil)
			}
		}
	}
	reason := map[string]any{"reason": "x"}
	named := map[string]any{"name": "x", "spec": map[string]any{}}
	for path, body := range map[string]any{
		"POST /admin/skus": named, "PUT /admin/skus/x": named, "POST /admin/maas-sites/x/profiles": named,
		"PUT /admin/secrets":     map[string]any{"name": "bmc/x", "value": `{"username":"root"}`, "use": bmcUse},
		"PUT /admin/secret-uses": map[string]any{"name": "bmc/x", "use": bmcUse},
		"POST /admin/api-tokens": map[string]any{"name": "x", "roles": []string{"viewer"}},
		"POST /admin/onboardings": map[string]any{"site_id": "x", "profile_id": "x", "sku_id": "x", "hostname": "x",
			"bmc": map[string]any{"address": "10.0.0.1", "credential_ref": "bmc/a"}},
		"POST /nodes/x/actions/quarantine": reason, "PATCH /nodes/x": map[string]any{"labels": map[string]any{"a": "b"}},
		"POST /nodes/x/state": map[string]any{"state": "pending"}, "POST /admin/jobs/x/actions/cancel": nil,
		"POST /admin/bmcs/x/rotations": reason, "POST /admin/nodes/x/bootstrap": nil,
	} {
		method, at, _ := strings.Cut(path, " ")
		away(method, op.Prefix+at, body)
	}
}

func TestActions_TemporalAwayIs503(t *testing.T) {
	t.Parallel()
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	w := newWorld(t, func(c *httpapi.Config) { c.REST.Temporal, c.REST.Plans = temporal, temporal }).ready()
	job := dbtest.Job(t, w.store)
	for _, a := range []answer{
		w.post("/api/v1/admin/jobs/"+job.ID+"/actions/cancel", nil, header{"Idempotency-Key": db.NewID("key")}),
		w.do("POST", "/api/v1/admin/onboardings/plan", w.onboarding("gpu-1")),
	} {
		p := a.refused(problem.EngineUnavailable)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Regexp(t, "the action was not taken|nothing could be looked at", p.Detail)
	}
}
