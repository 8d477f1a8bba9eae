package tenancy_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGroupRole_NeedsTheGroupsAccount has the owner of a project give a role to another customer's
// group.
func TestGroupRole_NeedsTheGroupsAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hostile, victim := w.newTenant("alpha"), w.newTenant("beta")
	w.addGroup(victim, "beta-staff")
	at := "/projects/" + hostile.project
	var texts []string
	for _, group := range []string{"beta-staff", "of-nobody"} {
		refused := w.do(hostile.owner, "PUT", at+"/group-roles/"+group, map[string]any{"role": "member"}).want(http.StatusForbidden)
		require.Contains(t, string(refused.raw), "an operator of the platform registers it")
		require.NotContains(t, string(refused.raw), victim.account)
		texts = append(texts, refused.field("detail"))
	}
	require.Equal(t, texts[0], texts[1], "it does not tell whether somebody has the group")
	w.do(hostile.owner, "PUT", "/admin/billing-accounts/"+hostile.account+"/groups/beta-staff", nil).want(http.StatusForbidden)
	taken := w.do(w.admin, "PUT", "/admin/billing-accounts/"+hostile.account+"/groups/beta-staff", nil).want(http.StatusConflict)
	require.Contains(t, string(taken.raw), victim.account, "an operator is told")
	w.addGroup(victim, "beta-staff") // again
	var list struct{ Data []struct{ Group string } }
	require.NoError(t, json.Unmarshal(w.do(w.admin, "GET", "/admin/billing-accounts/"+victim.account+"/groups", nil).want(http.StatusOK).raw, &list))
	require.Equal(t, []struct{ Group string }{{"beta-group"}, {"beta-staff"}}, list.Data)
}

// TestGroupRole_OfBefore has a role of a group in the database that was given before groups
// belonged to accounts.
func TestGroupRole_OfBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hostile := w.newTenant("alpha")
	w.exec(`INSERT INTO project_group_roles (project_id, group_name, role) VALUES ($1, 'beta-staff', 'member')`, hostile.project)
	bob := w.signIn("bob", map[string]any{"groups": []string{"beta-staff"}})
	at := "/projects/" + hostile.project
	w.do(bob, "GET", at, nil).want(http.StatusNotFound)
	require.NotContains(t, string(w.do(bob, "GET", "/projects", nil).want(http.StatusOK).raw), hostile.project)
	w.do(bob, "GET", "/allocations", nil).want(http.StatusUnprocessableEntity)

	w.addGroup(hostile, "beta-staff")
	w.do(bob, "GET", at, nil).want(http.StatusOK)
	w.do(w.admin, "DELETE", "/admin/billing-accounts/"+hostile.account+"/groups/beta-staff", nil).want(http.StatusNoContent)
	w.do(bob, "GET", at, nil).want(http.StatusNotFound)
	w.do(w.admin, "DELETE", "/admin/billing-accounts/"+hostile.account+"/groups/beta-staff", nil).want(http.StatusNotFound)
	w.addGroup(hostile, "beta-staff")
	w.do(bob, "GET", at, nil).want(http.StatusNotFound) // its role of before has ended
	w.do(hostile.owner, "PUT", at+"/group-roles/beta-staff", map[string]any{"role": "viewer"}).want(http.StatusOK)
	w.do(bob, "GET", at, nil).want(http.StatusOK)
	bob = w.signIn("bob", map[string]any{"groups": []string{}})
	w.do(bob, "GET", at, nil).want(http.StatusNotFound) // he has left the group
}

// TestAllocations_AreNoGuessByAGroup asks for a node without saying for which project.
func TestAllocations_AreNoGuessByAGroup(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.addGroup(m.tenant, "staff")
	m.do(m.owner, "PUT", "/projects/"+m.project+"/group-roles/staff", map[string]any{"role": "member"}).want(http.StatusOK)
	m.freeNode()
	bob := m.signIn("bob", map[string]any{"groups": []string{"staff"}})
	refused := m.do(bob, "POST", "/allocations", m.request(nil)).want(http.StatusUnprocessableEntity)
	require.Contains(t, string(refused.raw), "query.project_id")
	require.Contains(t, string(refused.raw), m.project, "it lists what to name")
	m.do(bob, "GET", "/allocations", nil).want(http.StatusUnprocessableEntity)

	beta := m.newTenant("beta") // bob's own, in which he is a member
	m.do(beta.owner, "POST", "/projects/"+beta.project+"/invitations", map[string]any{"subject": "oidc:bob", "role": "member"}).want(http.StatusCreated)
	m.accept(bob)
	refused = m.do(bob, "POST", "/allocations", m.request(nil)).want(http.StatusUnprocessableEntity)
	require.Contains(t, string(refused.raw), "body.ssh_key_ids")
	require.Contains(t, string(refused.raw), beta.project)
	made := m.do(bob, "POST", "/allocations", m.request(map[string]any{"ssh_key_ids": []string{beta.ids["key_id"]}})).want(http.StatusAccepted)
	require.Equal(t, beta.project, made.field("project_id"), "the only project of which he is a member")
	m.freeNode()
	named := m.do(bob, "POST", "/allocations?project_id="+m.project, m.request(nil)).want(http.StatusAccepted)
	require.Equal(t, m.project, named.field("project_id"))
	m.freeNode()
	m.do(beta.token, "POST", "/allocations", m.request(nil)).want(http.StatusAccepted) // a token names its project
}
