package portal_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/db"
)

// seen is what a caller gets for a route.
type seen struct {
	status int
	body   string
}

var (
	placeholder = regexp.MustCompile(`\{[^}]+\}`)
	ofRequest   = regexp.MustCompile(`"(request_id|exported_at)":"[^"]*"`)
)

// lookAt sends a GET request as a browser or program, and reads no stream.
func (b *browser) lookAt(path string) seen {
	b.w.t.Helper()
	res, err := http.DefaultClient.Do(b.request(http.MethodGet, path, nil)) //nolint:bodyclose // it is closed below
	require.NoError(b.w.t, err)
	defer func() { _ = res.Body.Close() }()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return seen{res.StatusCode, "a stream"}
	}
	raw, err := io.ReadAll(res.Body)
	require.NoError(b.w.t, err)
	return seen{res.StatusCode, ofRequest.ReplaceAllString(string(raw), "")}
}

// program is a caller with a bearer token.
func (w *world) program(token string) *browser {
	b := w.browser()
	b.headers = map[string]string{"Authorization": "Bearer " + token}
	return b
}

// notForTokens are the GET routes that a token of a project answers otherwise than its member, with
// the reason.
func notForTokens() map[string]string {
	const ofPeople = "it is about a user who signs in, and a token is no user"
	return map[string]string{
		"GET /api/v1/whoami":      "a token is a principal of its own",
		"GET /api/v1/invitations": ofPeople,
	}
}

// The same user sees the same by a session of the portal, by a bearer token of the identity
// provider, and, where a route has no reason to differ, by a token of the project.
func TestEveryReadIsTheSame_BySessionBearerAndToken(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	ada := w.user(p, identity.Ada)
	account := w.asAdmin("POST", "/api/v1/admin/billing-accounts", map[string]any{"name": "acme"})["id"]
	project := w.asAdmin("POST", "/api/v1/admin/projects", map[string]any{"name": "training", "billing_account_id": account, "owner_email": ada.self.Email})["id"]
	ada.signIn()
	bearer, err := p.BearerToken(t.Context(), identity.Ada)
	require.NoError(t, err)
	invited := ada.lookAt("/api/v1/invitations")
	require.Contains(t, invited.body, `"inv_`, "a session sees the invitation of its user")
	accept := regexp.MustCompile(`inv_[a-z0-9-]+`).FindString(invited.body)
	require.Equal(t, http.StatusOK, ada.do("POST", "/api/v1/invitations/"+accept+"/accept", map[string]any{}).StatusCode, "and accepts it")

	ada.stepUp()
	ada.headers["Idempotency-Key"] = db.NewID("key")
	made := ada.do("POST", fmt.Sprintf("/api/v1/projects/%s/tokens", project), map[string]any{"name": "ci", "role": "owner"})
	require.Equal(t, http.StatusCreated, made.StatusCode, string(made.raw))
	delete(ada.headers, "Idempotency-Key")
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(string(made.raw))[1]

	w.asAdmin("POST", "/api/v1/admin/projects", map[string]any{"name": "serving", "billing_account_id": account, "owner_email": ada.self.Email})

	differs := notForTokens()
	compared := 0
	for _, route := range slices.Sorted(maps.Keys(w.api.Routes())) {
		path, isGet := strings.CutPrefix(route, "GET ")
		if !isGet {
			continue
		}
		path = strings.Replace(path, "/projects/{id}", fmt.Sprintf("/projects/%s", project), 1)
		path = placeholder.ReplaceAllString(path, "none")
		bySession, byBearer, byToken := ada.lookAt(path), w.program(bearer).lookAt(path), w.program(token).lookAt(path)
		byToken.body = strings.ReplaceAll(byToken.body, " ci has none", " "+ada.self.Email+" has none") // refusals name the caller
		assert.Equal(t, byBearer, bySession, "%s by session", route)
		if reason := differs[route]; reason == "" {
			assert.Equal(t, byBearer, byToken, "%s by a token of the project", route)
		} else {
			assert.NotEqual(t, byBearer, byToken, "%s does not differ: %s", route, reason)
			delete(differs, route)
		}
		compared++
	}
	require.Greater(t, compared, 100)
	require.Empty(t, differs, "routes that are gone")
}
