package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestAudit_KeepsWhatWasStated changes an install workflow, a profile and a site: each audit row
// has the hash of what is stated, and the row of a change the values that differ.
func TestAudit_KeepsWhatWasStated(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	type change struct {
		Path     string
		From, To any
	}
	type row struct {
		Before string `json:"sha256_before"`
		After  string `json:"sha256"`
		Diff   []change
	}
	read := func(kind, id string) (out []row) {
		rows, err := w.store.ResourceTimeline(t.Context(), kind, id, 0, 10)
		require.NoError(t, err)
		for _, r := range rows {
			var one row
			require.NoError(t, json.Unmarshal(r.Metadata, &one))
			out = append(out, one)
		}
		return out
	}
	script := strings.Repeat("x", 5000)
	made := w.post("/api/v1/admin/install-workflows", map[string]any{"name": "base", "spec": installSpec("first")}).want(http.StatusCreated)
	var view rest.InstallWorkflow
	made.into(&view)
	at := "/api/v1/admin/install-workflows/" + view.ID
	w.do("PUT", at, map[string]any{"name": "base", "spec": installSpec("second" + script)}, header{"If-Match": "*"}).want(http.StatusOK)
	w.do("DELETE", at, nil, header{"If-Match": "*"}).want(http.StatusNoContent)
	rows := read("install_workflow", view.ID) // newest first
	require.Len(t, rows, 3)
	require.Equal(t, rows[2].After, rows[1].Before)
	require.Equal(t, rows[1].After, rows[0].Before)
	require.Empty(t, rows[0].After)
	require.Empty(t, rows[2].Before)
	require.Len(t, rows[1].After, 64)
	require.NotEqual(t, rows[1].Before, rows[1].After)
	require.Len(t, rows[1].Diff, 1)
	require.Contains(t, rows[1].Diff[0].From, "first")
	require.Contains(t, rows[1].Diff[0].To, "second")
	require.Less(t, len(rows[1].Diff[0].To.(string)), 300, "a long text is cut")
	require.Contains(t, rows[1].Diff[0].To, "(cut: the value has 5006 bytes)")

	site := "/api/v1/admin/maas-sites/" + w.site.ID
	var stated rest.Site
	w.do("GET", site, nil).want(http.StatusOK).into(&stated)
	w.do("PUT", site, map[string]any{"name": "renamed", "spec": stated.Spec}, header{"If-Match": "*"}).want(http.StatusOK)
	require.Equal(t, []change{{"name", stated.Name, "renamed"}}, read("site", w.site.ID)[0].Diff)
}

// installSpec is an install workflow with this user-data.
func installSpec(userData string) map[string]any {
	return map[string]any{
		"kernel": map[string]any{"url": "http://images.example/vmlinuz", "sha256": strings.Repeat("a", 64)}, "initrds": []map[string]any{},
		"command_line": "autoinstall", "user_data": userData,
	}
}

// TestPutSecret_IsStoredWithItsAuditRow has the audit row of a secret fail: the value and its use
// are not stored either.
func TestPutSecret_IsStoredWithItsAuditRow(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	w := newWorld(t, func(c *httpapi.Config) { c.API.Store, c.REST.Secrets = store, sealed(t, store) })
	token, err := op.CreateToken(t.Context(), store, "an-admin", []string{"admin"}, 0)
	require.NoError(t, err)
	admin := header{"Authorization": "Bearer " + token}
	alter(t, dsn, "ALTER TABLE audit_log ADD CONSTRAINT no_put CHECK (name <> 'put') NOT VALID")
	body := map[string]any{"name": "maas/x", "value": `{"username":"root","password":"v4lue"}`, "use": map[string]any{"kind": "bmc_login", "installation": true}}
	require.NotEqual(t, http.StatusOK, w.do("PUT", "/api/v1/admin/secrets", body, admin).status)
	_, _, _, found, err := store.SecretVersion(t.Context(), "maas/x", 0)
	require.NoError(t, err)
	require.False(t, found, "no value without its audit row")
	_, stated, err := store.SecretUse(t.Context(), "maas/x")
	require.NoError(t, err)
	require.False(t, stated)
	alter(t, dsn, "ALTER TABLE audit_log DROP CONSTRAINT no_put")
	for range 2 {
		require.Contains(t, string(w.do("PUT", "/api/v1/admin/secrets", body, admin).want(http.StatusOK).raw), "maas/x@1", "the same value has its version")
	}
	rows, err := store.ResourceTimeline(t.Context(), "secret", "maas/x", 0, 10)
	require.NoError(t, err)
	require.Len(t, rows, 3, "its use, and twice the value")
}
