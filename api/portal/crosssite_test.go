package portal_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// takesSignedToken is the one write that another site sends: the identity provider's server does,
// without a cookie.
const takesSignedToken = "POST /portal/oidc/logout"

// takesSignedBody reads no session either: the signature of the payment provider is its proof.
const takesSignedBody = "POST /api/v1/webhooks/stripe"

// readsSession are the routes outside the API's operations that read a session.
var readsSession = []string{"GET /portal/session", "GET /portal/oidc/step-up"}

// takesBearerToken reports whether a route is one of the gRPC API that reads no cookie.
func takesBearerToken(path string) bool { return strings.HasPrefix(path, "/grpc.") }

// Every route of the server that is no operation refuses another site too, or answers it as it
// answers a browser without the cookie. TestCSRF_EveryRoute does the same with the operations.
func TestCSRF_EveryOtherRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, signedOut := w.signedIn(), w.browser()
	seen := 0
	require.NoError(t, chi.Walk(w.api.Router(), func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		route := method + " " + path
		if _, operation := w.api.Routes()[route]; operation || route == takesSignedToken {
			return nil
		}
		seen++
		path = strings.NewReplacer("{mac}", "52:54:00:00:00:01", "{token}", "t", "{number}", "0", "{file}", "x.js", "*", "").Replace(path)
		if method == http.MethodGet || method == http.MethodHead {
			b.headers = map[string]string{"Sec-Fetch-Site": "cross-site", "Accept": "text/html"}
			signedOut.headers = b.headers
			a := b.do(method, path, nil)
			if slices.Contains(readsSession, route) {
				assert.Equal(t, http.StatusForbidden, a.StatusCode, route)
				return nil
			}
			same := signedOut.do(method, path, nil)
			assert.Equal(t, same.StatusCode, a.StatusCode, "%s knows the cookie", route)
			assert.Empty(t, a.Header.Get("Access-Control-Allow-Origin"), route)
			assert.Empty(t, a.Cookies(), "%s changes the session", route)
			return nil
		}
		for name, headers := range map[string]map[string]string{
			"cross-site": {"Sec-Fetch-Site": "cross-site"}, "form of another site": {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"},
			"sibling": {"Sec-Fetch-Site": "same-site"}, "other origin": {"Origin": "https://evil.example"}, "null origin": {"Origin": "null"},
			"no browser": {}, "form": {"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"},
		} {
			b.headers, signedOut.headers = headers, headers
			a := b.do(method, path, map[string]string{"token": w.token})
			if route == takesSignedBody || takesBearerToken(path) {
				assert.Equal(t, signedOut.do(method, path, map[string]string{"token": w.token}).StatusCode, a.StatusCode, "%s knows the cookie", route)
				assert.GreaterOrEqual(t, a.StatusCode, 400, "%s: %s", route, name)
				assert.Empty(t, a.Cookies(), "%s: %s changes the session", route, name)
				continue
			}
			assert.Contains(t, []int{http.StatusForbidden, http.StatusUnsupportedMediaType}, a.StatusCode, "%s: %s: %s", route, name, a.raw)
			assert.Empty(t, a.Cookies(), "%s: %s changes the session", route, name)
		}
		return nil
	}))
	require.Greater(t, seen, 15)
	b.headers = map[string]string{"Sec-Fetch-Site": "same-origin"}
	require.Equal(t, http.StatusOK, b.status(), "the session is not what it was")
}
