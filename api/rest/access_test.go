package rest_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
)

var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// document is what tests read of the OpenAPI document.
type document struct {
	Paths map[string]map[string]struct {
		Description string
		Parameters  []struct{ Name, In string }
	}
}

func (w *world) document() (doc document) {
	w.t.Helper()
	require.NoError(w.t, yaml.Unmarshal(w.do("GET", "/openapi.yaml", nil).raw, &doc))
	return doc
}

// Every operation of the document is asked without a token, with a wrong one
// and with a role that does not suffice.
func TestEveryRouteNeedsItsRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	asked := 0
	for path, item := range w.document().Paths {
		for method, op := range item {
			if slices.Contains([]string{"/api/v1/version", "/api/v1/sign-in", "/api/v1/report"}, path) { // open: the last checks the proof in its body
				continue
			}
			if strings.Contains(op.Description, "in the project") { // TestTwoTenants calls these
				continue
			}
			asked++
			method, at := strings.ToUpper(method), placeholder.ReplaceAllString(path, "x")
			p := w.do(method, at, nil, header{"Authorization": ""})
			p.refused(problem.Unauthenticated)
			require.Contains(t, p.header.Get("WWW-Authenticate"), "Bearer")
			for _, wrong := range []string{"Bearer slp_wrong", "Basic " + w.tokens["admin"]} {
				// An address that sends many wrong tokens is told to wait.
				require.Contains(t, []int{http.StatusUnauthorized, http.StatusTooManyRequests},
					w.do(method, at, nil, header{"Authorization": wrong}).status, "%s %s", method, at)
			}
			for role, lower := range map[string][]string{"operator": {"viewer"}, "admin": {"viewer", "operator"}} {
				for _, l := range lower {
					if strings.Contains(op.Description, "Needs role "+role) {
						w.do(method, at, nil, header{"Authorization": "Bearer " + w.tokens[l]}).refused(problem.Forbidden)
					}
				}
			}
			require.Regexp(t, "Needs role (viewer|operator|admin)|Needs a sign-in and no role", op.Description, path)
			if at != "/api/v1/events" && strings.Contains(op.Description, "Needs role") { // a stream does not end; some sign-ins must be OIDC
				require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, w.do(method, at, nil).status, path)
			}
		}
	}
	require.Greater(t, asked, 40)
}

func TestTokensEndAndAreStoredAsHashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.post("/api/v1/admin/api-tokens", map[string]any{"name": "ci", "roles": []string{"viewer"}, "ttl": "1h"}).want(http.StatusCreated)
	var tok struct{ ID, Token string }
	made.into(&tok)
	require.Regexp(t, `^slp_[A-Za-z0-9_-]{43}$`, tok.Token)
	as := header{"Authorization": "Bearer " + tok.Token}
	w.do("GET", "/api/v1/nodes", nil, as).want(http.StatusOK)
	require.Contains(t, string(w.do("GET", "/api/v1/whoami", nil, as).want(http.StatusOK).raw), `"name":"ci"`)
	listed := string(w.do("GET", "/api/v1/admin/api-tokens", nil).want(http.StatusOK).raw)
	require.Contains(t, listed, tok.ID)
	require.NotContains(t, listed, tok.Token)
	w.do("DELETE", "/api/v1/admin/api-tokens/"+tok.ID, nil).want(http.StatusNoContent)
	w.do("GET", "/api/v1/nodes", nil, as).refused(problem.Unauthenticated)

	short, err := op.CreateToken(t.Context(), w.store, "short", []string{"admin"}, time.Nanosecond)
	require.NoError(t, err)
	w.do("GET", "/api/v1/nodes", nil, header{"Authorization": "Bearer " + short}).refused(problem.Unauthenticated)
	for _, roles := range [][]string{nil, {"root"}, {"none"}} {
		_, err = op.CreateToken(t.Context(), w.store, "bad", roles, 0)
		require.Error(t, err)
	}
	_, err = op.CreateToken(t.Context(), w.store, "", []string{"admin"}, 0)
	require.ErrorContains(t, err, "name")
}
