package tenancy_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
)

var parameter = regexp.MustCompile(`\{([a-z_]+)\}`)

// fill puts ids into a path. A parameter without an id fails the test: newTenant must make one.
func fill(t *testing.T, path string, ids map[string]string) string {
	t.Helper()
	return parameter.ReplaceAllStringFunc(path, func(p string) string {
		if p == "{month}" { // which no tenant owns
			return "2026-03"
		}
		id := ids[strings.Trim(p, "{}")]
		require.NotEmpty(t, id, "%s: make what %s names in newTenant, so that another tenant can ask for it", path, p)
		return id
	})
}

// projectRoutes returns the routes that name a project, as method and path below op.Prefix.
func (w *world) projectRoutes() [][2]string {
	var out [][2]string
	for route, role := range w.api.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if strings.HasPrefix(string(role), "project_") {
			out = append(out, [2]string{method, strings.TrimPrefix(path, op.Prefix)})
		}
	}
	return out
}

// missing are ids in the right form that name nothing.
func missing() map[string]string {
	const tail = "_00000000-0000-7000-8000-000000000000"
	return map[string]string{"id": "prj" + tail, "member_id": "mem" + tail, "key_id": "key" + tail, "token_id": "tok" + tail, "invitation_id": "inv" + tail, "group": "no-such-group",
		"webhook_id": "whk" + tail, "event_id": "evt" + tail, "allocation_id": "alc" + tail, "payment_id": "pay" + tail, "instance_id": "inst" + tail}
}

func requestBody(method, path string) any {
	if method == http.MethodGet || method == http.MethodDelete {
		return nil
	}
	if strings.Contains(path, "/webhooks/") || strings.Contains(path, "/allocations/") || strings.Contains(path, "/instances/") {
		return map[string]any{}
	}
	return map[string]any{"role": "viewer"}
}

// withoutIDs returns an answer with the ids of its request put aside, since a refusal says them
// again.
func withoutIDs(raw []byte, ids map[string]string) string {
	text := string(raw)
	for _, id := range ids {
		text = strings.ReplaceAll(text, id, "ID")
	}
	return text
}

// TestTwoTenants calls every route of the access table that names a project as everybody but its
// members, with the ids of another tenant.
func TestTwoTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alpha, beta := w.newTenant("alpha"), w.newTenant("beta")
	w.addAllocation(alpha)
	w.addInstance(alpha)
	routes := w.projectRoutes()
	require.Greater(t, len(routes), 25)
	for who, bearer := range map[string]string{"an owner": beta.owner, "a token": beta.token, "nobody": w.signIn("nobody"), "a group": w.signIn("g", map[string]any{"groups": []string{"beta-group"}})} {
		for _, r := range routes {
			theirs := w.do(bearer, r[0], fill(t, r[1], alpha.ids), requestBody(r[0], r[1])).want(http.StatusNotFound)
			none := w.do(bearer, r[0], fill(t, r[1], missing()), requestBody(r[0], r[1])).want(http.StatusNotFound)
			require.Equal(t, withoutIDs(none.raw, missing()), withoutIDs(theirs.raw, alpha.ids), "%s %s as %s", r[0], r[1], who)
		}
	}
	for _, r := range routes { // what belongs to another tenant, in the caller's own project
		if strings.Count(strings.ReplaceAll(r[1], "{month}", ""), "{") < 2 || r[0] == http.MethodPut {
			continue
		}
		mixed, none := map[string]string{}, missing()
		for name, id := range alpha.ids {
			mixed[name] = id
		}
		mixed["id"], none["id"] = beta.project, beta.project
		got := w.do(beta.owner, r[0], fill(t, r[1], mixed), requestBody(r[0], r[1])).want(http.StatusNotFound)
		unknown := w.do(beta.owner, r[0], fill(t, r[1], none), requestBody(r[0], r[1])).want(http.StatusNotFound)
		require.Equal(t, withoutIDs(unknown.raw, none), withoutIDs(got.raw, mixed), "%s %s", r[0], r[1])
	}
	w.do(alpha.owner, "GET", "/projects/"+alpha.project+"/export", nil).want(http.StatusOK) // nothing of it was changed
	for name, path := range map[string]string{"member_id": "members", "key_id": "ssh-keys", "token_id": "tokens", "invitation_id": "invitations", "instance_id": "instances"} {
		w.do(alpha.owner, "GET", "/projects/"+alpha.project+"/"+path+"/"+alpha.ids[name], nil).want(http.StatusOK)
	}
}

// TestTwoTenants_ListsHoldNothingOfOthers reads every list and every export as one tenant and looks
// for names and ids of the other.
func TestTwoTenants_ListsHoldNothingOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alpha, beta := w.newTenant("alpha"), w.newTenant("beta")
	w.addAllocation(alpha)
	w.addAllocation(beta)
	w.addInstance(alpha)
	w.addInstance(beta)
	w.relay()
	read, seen := 0, ""
	for route, role := range w.api.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if path = strings.TrimPrefix(path, op.Prefix); method != http.MethodGet || role != op.RoleSignedIn && !strings.HasPrefix(string(role), "project_") {
			continue
		}
		for _, bearer := range []string{beta.owner, beta.token} {
			body := ""
			if strings.HasSuffix(path, "/events") {
				body = w.followUntil(bearer, fill(t, path, beta.ids), "token.created")
			} else {
				body = string(w.do(bearer, method, fill(t, path, beta.ids), nil).want(http.StatusOK).raw)
			}
			require.NotContains(t, body, "alpha", "%s", route)
			for _, id := range alpha.ids {
				require.NotContains(t, body, id, "%s", route)
			}
			seen += body
			read++
		}
	}
	require.Greater(t, read, 20)
	for _, own := range []string{"beta-project", "beta-key", "beta-token", "beta-owner", "beta-guest", "beta-group", "beta asked", "beta-allocation", "beta-instance"} {
		require.Contains(t, seen, own, "the walk reads what there is")
	}
	require.NotContains(t, seen, beta.token)
	require.NotContains(t, seen, "slpp_", "no token is shown again")
}

// TestIdempotency_KeysBelongToAProject repeats another tenant's request, key and body, and one's
// own in another project.
func TestIdempotency_KeysBelongToAProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alpha, beta := w.newTenant("alpha"), w.newTenant("beta")
	body, key := map[string]any{"name": "laptop", "public_key": publicKey(t)}, header{"Idempotency-Key": "the-key"}
	first := w.do(alpha.owner, "POST", "/projects/"+alpha.project+"/ssh-keys", body, key).want(http.StatusCreated)
	again := w.do(alpha.owner, "POST", "/projects/"+alpha.project+"/ssh-keys", body, key).want(http.StatusCreated)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, string(first.raw), string(again.raw))
	w.do(beta.owner, "POST", "/projects/"+alpha.project+"/ssh-keys", body, key).want(http.StatusNotFound)
	w.do(beta.owner, "POST", "/projects/"+beta.project+"/invitations", map[string]any{"subject": "oidc:alpha-owner", "role": "member"}).want(http.StatusCreated)
	w.accept(alpha.owner)
	own := w.do(alpha.owner, "POST", "/projects/"+beta.project+"/ssh-keys", body, key).want(http.StatusCreated)
	require.Empty(t, own.header.Get("Idempotency-Replayed"))
	require.NotEqual(t, first.field("id"), own.field("id"))
	token := w.do(alpha.owner, "POST", "/projects/"+alpha.project+"/tokens", map[string]any{"name": "t", "role": "viewer"}, header{"Idempotency-Key": "t"}).want(http.StatusCreated)
	require.Regexp(t, `^slpp_[A-Za-z0-9_-]{43}$`, token.field("token"))
	replayed := w.do(alpha.owner, "POST", "/projects/"+alpha.project+"/tokens", map[string]any{"name": "t", "role": "viewer"}, header{"Idempotency-Key": "t"}).want(http.StatusCreated)
	require.Empty(t, replayed.field("token"))
}
