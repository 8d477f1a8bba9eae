package tenancy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestRoles_AllowWhatTheAccessTableSays calls each route with each role. A call that fails for
// another reason than the role is counted as allowed.
func TestRoles_AllowWhatTheAccessTableSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	callers := map[string]string{"owner": v.owner}
	for _, role := range []string{"member", "billing", "viewer"} {
		callers[role], _ = w.addMember(v, role, role)
	}
	callers["viewer by a group"] = w.signIn("grouped", map[string]any{"groups": []string{"alpha-group"}})
	least := map[string]string{}
	for route, role := range w.api.Routes() {
		least[route] = string(role)
	}
	for who, bearer := range callers {
		for _, r := range w.projectRoutes() {
			ids := missing() // so that nothing is changed
			ids["id"] = v.project
			if strings.HasSuffix(r[1], "{id}") && r[0] == http.MethodDelete || strings.HasSuffix(r[1], "/close") || r[0] == http.MethodPut {
				continue
			}
			got := w.do(bearer, r[0], fill(t, r[1], ids), map[string]any{})
			need := strings.TrimPrefix(least[r[0]+" /api/v1"+r[1]], "project_")
			reads := who == "member" || who == "viewer" || who == "viewer by a group"
			allowed := who == "owner" || need == "any" || need == who || need == "viewer" && reads
			require.Equal(t, allowed, got.status != http.StatusForbidden, "%s %s as %s: %d %s", r[0], r[1], who, got.status, got.raw)
		}
	}
}

// TestOperators_NeedAReason acts on a project with tokens of operators.
func TestOperators_NeedAReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	require.Contains(t, string(w.do(w.admin, "GET", at, nil).want(http.StatusUnprocessableEntity).raw), "Slipway-Reason")
	reason := header{"Slipway-Reason": "ticket 4711"}
	w.do(w.admin, "GET", at, nil, reason).want(http.StatusOK)
	w.do(w.admin, "GET", "/projects/"+missing()["id"], nil, reason).want(http.StatusNotFound)
	w.do(w.admin, "PATCH", at, map[string]any{"name": "renamed"}, reason).want(http.StatusOK)
	w.do(w.admin, "POST", at+"/tokens", map[string]any{"name": "x", "role": "owner"}, reason).want(http.StatusForbidden)
	log := string(w.do(v.owner, "GET", at+"/audit-log", nil).want(http.StatusOK).raw)
	require.Equal(t, 2, strings.Count(log, "operator_access"))
	require.Contains(t, log, "ticket 4711")
	require.NotContains(t, log, "the-admin", "owners learn that it was an operator, not which")
	broken, err := w.store.VerifyAudit(t.Context(), "project", v.project)
	require.NoError(t, err)
	require.Zero(t, broken)
}

// The searches and streams of operators are no way around the reason.
func TestOperators_SeeNothingOfCustomersWithoutAReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	dbtest.Node(t, w.store, dbtest.Active()) // an event that is no project's
	w.relay()
	events := w.followUntil(w.admin, "/events", "node.active")
	require.Contains(t, events, "project.active", "which GET /admin/projects shows too")
	log := string(w.do(w.admin, "GET", "/admin/audit?resource_kind=project&resource_id="+v.project, nil).want(http.StatusOK).raw)
	require.Contains(t, log, "set_quota", "what an operator did")
	for _, theirs := range []string{"alpha-guest", "alpha-key", "alpha-token", "add_ssh_key", "key.added", "member.added"} {
		require.NotContains(t, log, theirs)
		require.NotContains(t, events, theirs)
	}
}

func TestInvitation_OnlyTheInvitedAccepts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	id := v.ids["invitation_id"] // for alpha-guest@example.com
	for who, bearer := range map[string]string{
		"another": w.signIn("eve"), "an unverified address": w.signIn("eve", map[string]any{"email": "alpha-guest@example.com", "email_verified": false}),
	} {
		got := w.do(bearer, "POST", "/invitations/"+id+"/accept", nil).want(http.StatusNotFound)
		absent := missing()["invitation_id"]
		of := string(w.do(bearer, "POST", "/invitations/"+absent+"/accept", nil).raw)
		require.Equal(t, strings.ReplaceAll(of, absent, id), string(got.raw), who)
		require.NotContains(t, string(w.do(bearer, "GET", "/invitations", nil).raw), id)
	}
	w.do(v.token, "POST", "/invitations/"+id+"/accept", nil).want(http.StatusForbidden)
	guest := w.signIn("alpha-guest")
	var mu sync.Mutex
	var wg sync.WaitGroup
	results := map[int]int{}
	for range 4 {
		wg.Go(func() {
			got := w.do(guest, "POST", "/invitations/"+id+"/accept", nil)
			mu.Lock()
			defer mu.Unlock()
			results[got.status]++
		})
	}
	wg.Wait()
	require.Equal(t, map[int]int{http.StatusOK: 1, http.StatusConflict: 3}, results)
	w.do(guest, "GET", "/projects/"+v.project, nil).want(http.StatusOK)
	revoked := w.do(v.owner, "POST", "/projects/"+v.project+"/invitations", map[string]any{"subject": "oidc:late", "role": "owner"}).want(http.StatusCreated).field("id")
	w.do(v.owner, "DELETE", "/projects/"+v.project+"/invitations/"+revoked, nil).want(http.StatusNoContent)
	w.do(w.signIn("late"), "POST", "/invitations/"+revoked+"/accept", nil).want(http.StatusConflict)
}

// TestMembers_RemovalEndsAccess removes a member and changes roles.
func TestMembers_RemovalEndsAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	bearer, id := w.addMember(v, "bob", "member")
	key := w.do(bearer, "POST", at+"/ssh-keys", map[string]any{"name": "bobs", "public_key": publicKey(t) + " bob@laptop"}).want(http.StatusCreated)
	require.NotContains(t, string(key.raw), "bob@laptop")
	token := w.do(bearer, "POST", at+"/tokens", map[string]any{"name": "bobs", "role": "member"}).want(http.StatusCreated).field("token")
	w.do(bearer, "POST", at+"/tokens", map[string]any{"name": "more", "role": "owner"}).want(http.StatusForbidden)
	w.do(token, "POST", at+"/tokens", map[string]any{"name": "more", "role": "viewer"}).want(http.StatusForbidden)
	w.do(bearer, "DELETE", at+"/ssh-keys/"+v.ids["key_id"], nil).want(http.StatusForbidden)
	w.do(bearer, "DELETE", at+"/members/"+v.ids["member_id"], nil).want(http.StatusForbidden)

	viewer := w.do(bearer, "POST", at+"/tokens", map[string]any{"name": "reads", "role": "viewer"}).want(http.StatusCreated).field("token")

	w.do(v.owner, "PATCH", at+"/members/"+id, map[string]any{"role": "billing"}).want(http.StatusOK)
	w.do(v.owner, "GET", at+"/ssh-keys/"+key.field("id"), nil).want(http.StatusNotFound)
	w.do(v.owner, "GET", at+"/ssh-keys/"+v.ids["key_id"], nil).want(http.StatusOK)
	w.do(token, "GET", at, nil).want(http.StatusUnauthorized)
	w.do(viewer, "GET", at, nil).want(http.StatusUnauthorized)
	viewer = w.do(bearer, "POST", at+"/tokens", map[string]any{"name": "reads", "role": "billing"}).want(http.StatusCreated).field("token")
	w.do(bearer, "POST", at+"/tokens", map[string]any{"name": "more", "role": "viewer"}).want(http.StatusForbidden)
	w.do(bearer, "POST", at+"/ssh-keys", map[string]any{"name": "x", "public_key": publicKey(t)}).want(http.StatusForbidden)
	others := at + "/tokens/" + v.ids["token_id"]
	for who, sees := range map[string]bool{bearer: false, viewer: false, v.owner: true} {
		list := string(w.do(who, "GET", at+"/tokens", nil).want(http.StatusOK).raw)
		require.Contains(t, list, `"reads"`, "its own")
		require.Equal(t, sees, strings.Contains(list, v.ids["token_id"]), "those of others")
		w.do(who, "GET", others, nil).want(map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[sees])
	}

	w.do(v.owner, "PATCH", at+"/members/"+id, map[string]any{"role": "member"}).want(http.StatusOK)
	key = w.do(bearer, "POST", at+"/ssh-keys", map[string]any{"name": "bobs", "public_key": publicKey(t)}).want(http.StatusCreated)
	// Member does not include billing, so that its token allows only what every role does.
	w.do(viewer, "GET", at, nil).want(http.StatusOK)
	w.do(viewer, "GET", at+"/ssh-keys", nil).want(http.StatusForbidden)
	w.do(viewer, "GET", at+"/export", nil).want(http.StatusForbidden)
	w.do(v.owner, "DELETE", at+"/members/"+id, nil).want(http.StatusNoContent)
	w.do(viewer, "GET", at, nil).want(http.StatusUnauthorized)
	w.do(bearer, "GET", at, nil).want(http.StatusNotFound)
	w.do(v.owner, "GET", at+"/ssh-keys/"+key.field("id"), nil).want(http.StatusNotFound)

	last := v.ids["member_id"]
	require.Contains(t, string(w.do(v.owner, "DELETE", at+"/members/"+last, nil).want(http.StatusConflict).raw), "at least one owner")
	w.do(v.owner, "PATCH", at+"/members/"+last, map[string]any{"role": "viewer"}).want(http.StatusConflict)
	second, secondID := w.addMember(v, "carol", "owner")
	results := make(chan int, 2)
	go func() { results <- w.do(v.owner, "DELETE", at+"/members/"+last, nil).status }()
	go func() { results <- w.do(second, "DELETE", at+"/members/"+secondID, nil).status }()
	require.ElementsMatch(t, []int{http.StatusNoContent, http.StatusConflict}, []int{<-results, <-results}, "of two owners who leave at once one stays")
}

// A token of an owner that has leaked leaves no access behind, and takes none from other members.
func TestProjectToken_ChangesOnlyItsMembersOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	bob, _ := w.addMember(v, "bob", "member")
	key := w.do(bob, "POST", at+"/ssh-keys", map[string]any{"name": "bobs", "public_key": publicKey(t)}).want(http.StatusCreated).field("id")
	token := w.do(bob, "POST", at+"/tokens", map[string]any{"name": "bobs", "role": "member"}).want(http.StatusCreated).field("id")
	w.do(v.token, "POST", at+"/ssh-keys", map[string]any{"name": "x", "public_key": publicKey(t)}).want(http.StatusForbidden)
	w.do(v.token, "POST", at+"/tokens", map[string]any{"name": "x", "role": "viewer"}).want(http.StatusForbidden)
	w.do(v.token, "DELETE", at+"/ssh-keys/"+key, nil).want(http.StatusForbidden)
	w.do(v.token, "DELETE", at+"/tokens/"+token, nil).want(http.StatusForbidden)
	w.do(v.token, "DELETE", at+"/ssh-keys/"+v.ids["key_id"], nil).want(http.StatusNoContent)
	w.do(v.owner, "DELETE", at+"/tokens/"+token, nil).want(http.StatusNoContent)
	w.do(v.token, "DELETE", at+"/tokens/"+v.ids["token_id"], nil).want(http.StatusNoContent)
}

// A role of a group allows no keys to a member whose own role does not: nothing would end them.
func TestSSHKeys_NeedTheMembersOwnRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	w.addGroup(v, "staff")
	w.do(v.owner, "PUT", at+"/group-roles/staff", map[string]any{"role": "member"}).want(http.StatusOK)
	w.addMember(v, "bob", "viewer")
	grouped := w.signIn("bob", map[string]any{"groups": []string{"staff"}})
	got := w.do(grouped, "POST", at+"/ssh-keys", map[string]any{"name": "x", "public_key": publicKey(t)}).want(http.StatusForbidden)
	require.Contains(t, string(got.raw), "of your own")
}

// TestProject_DeleteAndClose deletes an empty project and closes one that is not.
func TestProject_DeleteAndClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	_, err := clusterdb.Create(t.Context(), w.store, "alpha-cluster", v.project, spec.ClusterSpec{APIURL: "https://10.0.0.1:6443"})
	require.NoError(t, err)
	refused := string(w.do(v.owner, "DELETE", at, nil).want(http.StatusConflict).raw)
	for _, part := range []string{"cluster alpha-cluster", "ssh key alpha-key", "token alpha-token", "invitation alpha-guest@example.com"} {
		require.Contains(t, refused, part)
	}
	w.do(v.token, "POST", at+"/close", nil).want(http.StatusForbidden)
	w.do(v.owner, "POST", at+"/close", nil, header{"If-Match": `"99"`}).want(http.StatusPreconditionFailed)
	require.Equal(t, "closed", w.do(v.owner, "POST", at+"/close", nil).want(http.StatusOK).field("status"))
	require.Equal(t, "closed", w.do(v.owner, "POST", at+"/close", nil).want(http.StatusOK).field("status"))
	w.do(v.token, "GET", at, nil).want(http.StatusUnauthorized)
	w.do(v.owner, "GET", at+"/export", nil).want(http.StatusOK)
	w.do(v.owner, "POST", at+"/ssh-keys", map[string]any{"name": "x", "public_key": publicKey(t)}).want(http.StatusConflict)
	w.do(v.owner, "PATCH", at, map[string]any{"name": "x"}).want(http.StatusConflict)

	w.do(v.owner, "POST", "/projects", map[string]any{"billing_account_id": v.account, "name": "next"}).want(http.StatusNotFound) // no active project of his
	beta := w.newTenant("beta")
	w.do(beta.owner, "POST", "/projects", map[string]any{"billing_account_id": v.account, "name": "next"}).want(http.StatusNotFound)
	next := w.do(beta.owner, "POST", "/projects", map[string]any{"billing_account_id": beta.account, "name": "next"}).want(http.StatusCreated).field("id")
	w.do(beta.owner, "DELETE", "/projects/"+next, nil).want(http.StatusNoContent)
	w.do(beta.owner, "GET", "/projects/"+next, nil).want(http.StatusNotFound)
	w.do(w.admin, "PUT", "/admin/billing-accounts/"+beta.account, map[string]any{"name": "beta-account", "max_projects": 1}).want(http.StatusOK)
	require.Contains(t, string(w.do(beta.owner, "POST", "/projects", map[string]any{"billing_account_id": beta.account, "name": "more"}).want(http.StatusConflict).raw), "1 of 1")
}

// TestSSHKeys_AtMostTwenty adds keys at the same time.
func TestSSHKeys_AtMostTwenty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha") // has one
	var wg sync.WaitGroup
	var mu sync.Mutex
	results := map[int]int{}
	for i := range 24 {
		key := publicKey(t)
		wg.Go(func() {
			got := w.do(v.owner, "POST", "/projects/"+v.project+"/ssh-keys", map[string]any{"name": fmt.Sprintf("k%d", i), "public_key": key})
			mu.Lock()
			defer mu.Unlock()
			results[got.status]++
		})
	}
	wg.Wait()
	require.Equal(t, map[int]int{http.StatusCreated: 19, http.StatusConflict: 5}, results)
}

// TestCatalogue_ShowsCoarseSteps offers a SKU and reads it as a customer.
func TestCatalogue_ShowsCoarseSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sku, profile := w.offer("h100x8")
	require.NotContains(t, string(w.do(w.signIn("somebody"), "GET", "/catalogue", nil).want(http.StatusOK).raw), sku)
	w.do(w.admin, "PUT", "/admin/catalogue/"+sku, map[string]any{
		"profile_id": profile, "title": "8 x H100", "isolation": "dedicated_network", "description": "a node",
	}).want(http.StatusOK)
	w.do(w.admin, "PUT", "/admin/catalogue/sku_x", map[string]any{"profile_id": profile, "title": "t", "isolation": "shared_network"}).want(http.StatusNotFound)
	var list struct {
		Data []struct {
			SKU, Availability, Isolation string
			Image                        struct{ OS string }
		}
	}
	require.NoError(t, json.Unmarshal(w.do(w.signIn("somebody"), "GET", "/catalogue", nil).want(http.StatusOK).raw, &list))
	require.Len(t, list.Data, 1)
	require.Equal(t, "none", list.Data[0].Availability)
	require.Equal(t, "dedicated_network", list.Data[0].Isolation)
	require.NotEmpty(t, list.Data[0].Image.OS)
}

func TestTokens_Expire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	w.do(v.token, "GET", "/projects/"+v.project, nil).want(http.StatusOK)
	w.exec("UPDATE project_tokens SET expires_at = $1", time.Now().Add(-time.Second))
	w.do(v.token, "GET", "/projects/"+v.project, nil).want(http.StatusUnauthorized)
}
