package portal_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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
	placeholder = regexp.MustCompile(`\{([^}]+)\}`)
	ofRequest   = regexp.MustCompile(`"(request_id|exported_at|last_used_at|since)":"[^"]*"`)
	retryAfter  = regexp.MustCompile(`"(retry_after_seconds)":\d+`) // random, so that not all come back at once
	nowInStats  = regexp.MustCompile(`"(at)":"[^"]*\.\d+Z"`)
	signedHead  = regexp.MustCompile(`"head":\{[^}]*\}`)
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
	body := retryAfter.ReplaceAllString(ofRequest.ReplaceAllString(string(raw), `"$1":""`), `"$1":0`)
	if strings.HasPrefix(path, "/api/v1/stats/") { // their last point is the moment of the request
		body = nowInStats.ReplaceAllString(body, `"$1":""`)
	}
	if strings.HasSuffix(path, "/certificates") { // the head is signed with the time of the request
		body = signedHead.ReplaceAllString(body, `"head":{}`)
	}
	return seen{res.StatusCode, body}
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

// namesOfRows finds the names of rows for the placeholders of paths: those of the first row of the
// list above, as the caller sees it.
type namesOfRows struct {
	caller *browser
	known  map[string]map[string]any
}

// otherLists are the lists of rows that no route above theirs lists.
func otherLists() map[string]string {
	return map[string]string{
		"/api/v1/tasks": "/api/v1/nodes/{id}/tasks", "/api/v1/admin/payments/sessions": "/api/v1/admin/payments/sessions?stuck=false",
	}
}

// fillPath puts the names of rows into the placeholders of a path, and "none" where there is no
// row.
func (n namesOfRows) fillPath(path string) string {
	for at := placeholder.FindStringIndex(path); at != nil; at = placeholder.FindStringIndex(path) {
		list, name := strings.TrimSuffix(path[:at[0]], "/"), path[at[0]+1:at[1]-1]
		row := n.firstOf(list)
		value := "none"
		for _, field := range []string{name, "id", "ref"} {
			if text, ok := row[field].(string); ok && text != "" {
				value = text
				break
			}
		}
		if name == "month" {
			value = time.Now().UTC().Format("2006-01")
		}
		path = path[:at[0]] + value + path[at[1]:]
	}
	return path
}

// firstOf returns the first row of a list.
func (n namesOfRows) firstOf(list string) map[string]any {
	if row, found := n.known[list]; found {
		return row
	}
	at := list
	if other := otherLists()[list]; other != "" {
		at = n.fillPath(other)
	}
	var rows struct{ Data []map[string]any }
	_ = json.Unmarshal([]byte(n.caller.lookAt(at).body), &rows) // an answer that is no list has no rows
	if len(rows.Data) == 0 {
		rows.Data = []map[string]any{nil}
	}
	n.known[list] = rows.Data[0]
	return rows.Data[0]
}

// unanswered are the routes for which the test has no row, with the reason. Their refusals are
// compared.
func unanswered() map[string]string {
	const noPlans = "the worker makes plans, and none runs here"
	return map[string]string{
		"/api/v1/admin/clusters/{ref}":                              "the test has no cluster",
		"/api/v1/admin/decommissions/{id}/plan":                     noPlans,
		"/api/v1/admin/jobs/{id}/plan":                              noPlans,
		"/api/v1/admin/onboardings/{id}/plan":                       noPlans,
		"/api/v1/admin/maas-sites/{id}/roce-assignments/{hostname}": "the test has no network for GPUs",
		"/api/v1/admin/secrets":                                     "it takes the name of a secret as a parameter",
		"/api/v1/nodes/{id}/bmc-log":                                "the node has no BMC",
		"/api/v1/sign-in":                                           "the test has no client for programs, and the answer is the same for everybody",
	}
}

// getRoutes returns the paths of all GET routes, in order.
func (w *world) getRoutes() []string {
	var paths []string
	for _, route := range slices.Sorted(maps.Keys(w.api.Routes())) {
		if path, isGet := strings.CutPrefix(route, "GET "); isGet {
			paths = append(paths, path)
		}
	}
	return paths
}

// The same user sees the same by a session of the portal, by a bearer token of the identity
// provider, and, where a route has no reason to differ, by a token of the project. A customer and
// an administrator call each GET route, with the names of rows in the path. A route that answers
// neither of them needs a row in seedRows, or a reason in unanswered.
func TestEveryReadIsTheSame_BySessionBearerAndToken(t *testing.T) {
	t.Parallel()
	w, p := newIdentityWorld(t)
	ada, admin := w.user(p, identity.Ada), w.user(p, identity.Admin)
	token := w.seedRows(p, ada)
	admin.signIn()
	differs, answered, paths := notForTokens(), map[string]bool{}, w.getRoutes()
	require.Greater(t, len(paths), 100)
	for _, who := range []struct {
		user
		token string
	}{{ada, token}, {admin, ""}} {
		bearer, err := p.BearerToken(t.Context(), who.self.Name)
		require.NoError(t, err)
		names := namesOfRows{w.program(bearer), map[string]map[string]any{}}
		for _, route := range paths {
			path := names.fillPath(route)
			bySession, byBearer := who.lookAt(path), w.program(bearer).lookAt(path)
			assert.Equal(t, byBearer, bySession, "%s as %s by session", path, who.self.Name)
			answered[route] = answered[route] || byBearer.status < http.StatusBadRequest
			if who.token == "" {
				continue
			}
			byToken := w.program(who.token).lookAt(path)
			byToken.body = strings.ReplaceAll(byToken.body, " ci has none", " "+who.self.Email+" has none") // refusals name the caller
			if reason := differs["GET "+route]; reason == "" {
				assert.Equal(t, byBearer, byToken, "%s by a token of the project", path)
			} else {
				assert.NotEqual(t, byBearer, byToken, "%s does not differ: %s", path, reason)
				delete(differs, "GET "+route)
			}
		}
	}
	require.Empty(t, differs, "routes that are gone")
	without := unanswered()
	for _, route := range paths {
		assert.Equal(t, without[route] == "", answered[route], "%s: a route that answers nobody needs a row in seedRows or a reason in unanswered, and no other has one", route)
		delete(without, route)
	}
	require.Empty(t, without, "routes that are gone")
}

// seedRows makes a project of ada with one of each thing that a customer sees, and one of each that
// an administrator sees. It signs ada in, and returns a token of the project with her role.
func (w *world) seedRows(p *identity.Provider, ada user) (token string) {
	t := w.t
	t.Helper()
	account := w.asAdmin("POST", "/api/v1/admin/billing-accounts", map[string]any{"name": "acme"})["id"]
	project := fmt.Sprint(w.asAdmin("POST", "/api/v1/admin/projects", map[string]any{"name": "training", "billing_account_id": account, "owner_email": ada.self.Email})["id"])
	ada.signIn()
	invited := ada.lookAt("/api/v1/invitations")
	require.Contains(t, invited.body, `"inv_`, "a session sees the invitation of its user")
	accept := regexp.MustCompile(`inv_[a-z0-9-]+`).FindString(invited.body)
	require.Equal(t, http.StatusOK, ada.do("POST", "/api/v1/invitations/"+accept+"/accept", map[string]any{}).StatusCode, "and accepts it")

	ada.stepUp()
	ada.headers["Idempotency-Key"] = db.NewID("key")
	made := ada.do("POST", "/api/v1/projects/"+project+"/tokens", map[string]any{"name": "ci", "role": "owner"})
	require.Equal(t, http.StatusCreated, made.StatusCode, string(made.raw))
	ada.headers["Idempotency-Key"] = db.NewID("key")
	ada.headers["If-Match"] = "*"
	limited := ada.do("PUT", "/api/v1/projects/"+project+"/budget", map[string]any{"limit_minor": 100_000})
	require.Equal(t, http.StatusOK, limited.StatusCode, string(limited.raw))
	delete(ada.headers, "Idempotency-Key")
	delete(ada.headers, "If-Match")

	w.seedProject(project)
	w.seedFleet()
	w.asAdmin("POST", "/api/v1/admin/projects", map[string]any{"name": "serving", "billing_account_id": account, "owner_email": ada.self.Email})
	return regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(string(made.raw))[1]
}
