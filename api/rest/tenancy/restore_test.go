package tenancy_test

import (
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRestore_EndsAccess runs the statements of docs/operations.md with the rights of a serving process:
// tokens, invitations and webhooks of the backup are of no use afterwards, streams of events do not
// continue, and members stay.
func TestRestore_EndsAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	at := "/projects/" + a.project
	w.relay()
	id := regexp.MustCompile(`id: (1-[0-9a-f]{8})`).FindStringSubmatch(w.followUntil(a.owner, at+"/events", "id: 1-"))[1]
	page, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)### Access after a restore.*?```sql\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, found)
	_, err = w.store.DBTX().Exec(t.Context(), string(found[1]))
	require.NoError(t, err)
	w.do(a.token, "GET", at, nil).want(http.StatusUnauthorized)
	w.do(w.admin, "GET", "/admin/projects", nil).want(http.StatusUnauthorized)
	require.NotContains(t, string(w.do(w.signIn("alpha-guest"), "GET", "/invitations", nil).want(http.StatusOK).raw), "inv_")
	w.do(a.owner, "GET", at, nil).want(http.StatusOK)
	w.do(a.owner, "GET", at+"/events", nil, header{"Last-Event-ID": id}).want(http.StatusGone)
	require.Equal(t, "disabled", w.do(a.owner, "GET", at+"/webhooks/"+a.ids["webhook_id"], nil).want(http.StatusOK).field("status"))
	w.do(a.owner, "PATCH", at+"/webhooks/"+a.ids["webhook_id"], map[string]any{"enabled": true}).want(http.StatusOK)
}
