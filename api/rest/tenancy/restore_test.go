package tenancy_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
)

// TestRestore_EndsAccess ends what a backup brought back, with the rights of a serving process:
// tokens, invitations and webhooks of it are of no use afterwards, streams of events do not
// continue, and members stay.
func TestRestore_EndsAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.newTenant("alpha"), w.newTenant("beta")
	at := "/projects/" + a.project
	w.relay()
	id := regexp.MustCompile(`id: (1-[0-9a-f]{8})`).FindStringSubmatch(w.followUntil(a.owner, at+"/events", "id: 1-"))[1]
	planned, err := w.store.PlanEndOfAccess(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{"api_token": 1, "project_token": 2, "invitation": 2, "webhook": 2}, planned.Counts)
	w.do(a.token, "GET", at, nil).want(http.StatusOK)
	// A process that still serves the database gives new access: what was shown is not all any
	// more.
	fresh := w.do(b.owner, "POST", "/projects/"+b.project+"/tokens", map[string]any{"name": "fresh", "role": "viewer"}).want(http.StatusCreated).field("token")
	_, err = w.store.EndRestoredAccess(t.Context(), planned.Hash)
	require.ErrorIs(t, err, db.ErrAccessChanged)
	w.do(a.token, "GET", at, nil).want(http.StatusOK)
	planned, err = w.store.PlanEndOfAccess(t.Context())
	require.NoError(t, err)
	ended, err := w.store.EndRestoredAccess(t.Context(), planned.Hash)
	require.NoError(t, err)
	require.Equal(t, planned, ended)
	w.do(a.token, "GET", at, nil).want(http.StatusUnauthorized)
	w.do(fresh, "GET", "/projects/"+b.project, nil).want(http.StatusUnauthorized)
	w.do(w.admin, "GET", "/admin/projects", nil).want(http.StatusUnauthorized)
	require.NotContains(t, string(w.do(w.signIn("alpha-guest"), "GET", "/invitations", nil).want(http.StatusOK).raw), "inv_")
	w.do(a.owner, "GET", at, nil).want(http.StatusOK)
	w.do(a.owner, "GET", at+"/events", nil, header{"Last-Event-ID": id}).want(http.StatusGone)
	require.Contains(t, string(w.do(a.owner, "GET", at+"/audit-log", nil).want(http.StatusOK).raw), "end_restored_access")
	require.Equal(t, "disabled", w.do(a.owner, "GET", at+"/webhooks/"+a.ids["webhook_id"], nil).want(http.StatusOK).field("status"))
	w.do(a.owner, "PATCH", at+"/webhooks/"+a.ids["webhook_id"], map[string]any{"enabled": true}).want(http.StatusOK)
	again, err := w.store.PlanEndOfAccess(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{"webhook": 1}, again.Counts, "what has ended is not ended again")
	broken, err := w.store.VerifyAudit(t.Context(), "project", a.project)
	require.NoError(t, err)
	require.Zero(t, broken)
}
