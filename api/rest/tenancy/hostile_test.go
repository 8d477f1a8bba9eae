package tenancy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMembers_RemovalEndsInvitations removes and demotes owners who have prepared a way back.
func TestMembers_RemovalEndsInvitations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	invite := func(bearer string, identity map[string]any) string {
		identity["role"] = "owner"
		return w.do(bearer, "POST", at+"/invitations", identity).want(http.StatusCreated).field("id")
	}
	w.do(v.owner, "POST", at+"/invitations", map[string]any{"email": "mallory@example.com", "role": "owner"}).want(http.StatusCreated)
	mallory := w.signIn("mallory")
	member := w.accept(mallory)
	ways := map[string]string{ // invitation by who may accept it
		invite(mallory, map[string]any{"subject": "oidc:mallory"}):         mallory,
		invite(v.owner, map[string]any{"email": "mallory@example.com"}):    mallory,
		invite(mallory, map[string]any{"subject": "oidc:mallorys-second"}): w.signIn("mallorys-second"),
	}
	w.do(v.owner, "DELETE", at+"/members/"+member, nil).want(http.StatusNoContent)
	for id, who := range ways {
		w.do(who, "POST", "/invitations/"+id+"/accept", nil).want(http.StatusConflict)
		w.do(who, "GET", at, nil).want(http.StatusNotFound)
	}
	carol, id := w.addMember(v, "carol", "owner")
	own := invite(carol, map[string]any{"subject": "oidc:carol"})
	w.do(v.owner, "PATCH", at+"/members/"+id, map[string]any{"role": "viewer"}).want(http.StatusOK)
	w.do(carol, "DELETE", at+"/members/"+id, nil).want(http.StatusNoContent)
	w.do(carol, "POST", "/invitations/"+own+"/accept", nil).want(http.StatusConflict)
	require.Equal(t, "pending", w.do(v.owner, "GET", at+"/invitations/"+v.ids["invitation_id"], nil).want(http.StatusOK).field("status"), "others stay")
}

// TestMembers_RequestInFlightEndsWithTheMember removes an owner while his request is being read.
func TestMembers_RequestInFlightEndsWithTheMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	mallory, member := w.addMember(v, "mallory", "owner")
	body := `{"subject":"oidc:mallory","role":"owner"}`
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /api/v1/projects/%s/invitations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Idempotency-Key: k\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", v.project, mallory, len(body))
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	begun, err := answers.ReadString('\n') // the server reads the body now: the role has been checked
	require.NoError(t, err)
	require.Contains(t, begun, "100 Continue")
	_, err = answers.ReadString('\n')
	require.NoError(t, err)
	w.do(v.owner, "DELETE", "/projects/"+v.project+"/members/"+member, nil).want(http.StatusNoContent)
	_, err = io.WriteString(conn, body)
	require.NoError(t, err)
	res, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	defer res.Body.Close()
	raw, _ := io.ReadAll(res.Body)
	require.Equal(t, http.StatusNotFound, res.StatusCode, string(raw))
}

// TestOperators_AreNotLockedOut gives the operators' group a role in a project.
func TestOperators_AreNotLockedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	w.addGroup(v, "staff")
	w.do(v.owner, "PUT", at+"/group-roles/staff", map[string]any{"role": "viewer"}).want(http.StatusOK)
	operator := w.signIn("op", map[string]any{"groups": []string{"staff"}, "roles": []string{"operator"}})
	w.do(operator, "DELETE", at+"/tokens/"+v.ids["token_id"], nil, header{"Slipway-Reason": "it has leaked"}).want(http.StatusNoContent)
	log := string(w.do(v.owner, "GET", at+"/audit-log", nil).want(http.StatusOK).raw)
	require.Contains(t, log, "it has leaked")
	w.do(operator, "GET", at+"/members", nil).want(http.StatusOK) // by the group
	w.do(operator, "DELETE", at+"/ssh-keys/"+v.ids["key_id"], nil).want(http.StatusUnprocessableEntity)
}

// TestWebhook_EndsWithItsProject deletes webhooks of a project that is closed.
func TestWebhook_EndsWithItsProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	w.do(v.owner, "POST", at+"/close", nil).want(http.StatusOK)
	got := w.do(v.owner, "DELETE", at, nil).want(http.StatusConflict)
	require.Contains(t, string(got.raw), "webhook alpha-hook")
	w.do(v.owner, "DELETE", at+"/webhooks/"+v.ids["webhook_id"], nil).want(http.StatusNoContent)
	w.do(v.owner, "DELETE", at, nil).want(http.StatusNoContent)
}

// TestOperators_BlankReasonIsNone gives reasons that say nothing.
func TestOperators_BlankReasonIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	for _, reason := range []string{"    ", "\u200b\u200b\u200b", "a\nb c"} {
		w.do(w.admin, "PUT", "/admin/projects/"+v.project+"/quotas/total", map[string]any{"max_nodes": 0, "reason": reason}).want(http.StatusUnprocessableEntity)
		w.do(w.admin, "POST", "/admin/projects/"+v.project+"/close", map[string]any{"reason": reason}).want(http.StatusUnprocessableEntity)
	}
}

// TestOperators_FailedAccessIsAudited has an operator look for what is not there, and change what
// may not be changed. The owners see that too.
func TestOperators_FailedAccessIsAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	w.do(w.admin, "GET", at+"/ssh-keys/key_none", nil, header{"Slipway-Reason": "looking for a key"}).want(http.StatusNotFound)
	w.do(w.admin, "PATCH", at, map[string]any{"name": "x"}, header{"Slipway-Reason": "trying a change", "If-Match": `"99"`}).want(http.StatusPreconditionFailed)
	w.do(w.signIn("nobody"), "GET", at, nil, header{"Slipway-Reason": "none of his business"}).want(http.StatusNotFound)
	w.do(w.admin, "GET", "/projects/prj_none", nil, header{"Slipway-Reason": "a project that is not there"}).want(http.StatusNotFound)
	log := string(w.do(v.owner, "GET", at+"/audit-log", nil).want(http.StatusOK).raw)
	require.Contains(t, log, "looking for a key")
	require.Contains(t, log, "trying a change")
	require.NotContains(t, log, "none of his business")
}
