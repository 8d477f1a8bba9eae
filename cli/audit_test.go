package cli_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestAuditVerify has more chains than a page, and one whose row is changed under it.
func TestAuditVerify(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	w := newWorldOn(t, dbtest.Open(t, dsn))
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("operator")
	node := dbtest.Node(t, w.store, dbtest.Active())
	for range 2 {
		dbtest.Node(t, w.store)
	}
	require.Contains(t, w.run("", "audit", "verify").exits(cli.ExitOK).out, "whole: ")
	require.Contains(t, w.run("", "audit", "verify", "node", node.Hostname).exits(cli.ExitOK).out, "whole: 1 chains")
	require.Contains(t, w.run("", "audit", "verify", "site", "site_none").exits(cli.ExitNotFound).err, "no")
	require.Contains(t, w.run("", "audit", "verify", "node").exits(cli.ExitUsage).err, "with its kind")

	conn := dbtest.Owner(t, dsn)
	for _, statement := range []string{
		"SET session_replication_role = replica", // no triggers
		"UPDATE audit_log SET comment = 'nothing happened' WHERE resource_id = '" + node.ID + "' AND seq = 2",
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	for _, line := range [][]string{{"audit", "verify"}, {"audit", "verify", "node", node.Hostname}} {
		said := w.run("", line...).exits(cli.ExitError)
		require.Regexp(t, `node\s+`+node.ID+`\s+2`, said.out)
		require.Contains(t, said.err, "1 of ")
	}
}

// TestAuditVerify_FailsLater: what was found before an error is printed.
func TestAuditVerify_FailsLater(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("cursor") != "" {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = rw.Write([]byte(`{"checked":200,"data":[{"resource_kind":"node","resource_id":"node_1","first_broken_seq":2}],"next_cursor":"c"}`))
	}))
	t.Cleanup(srv.Close)
	said := runAgainst(t, srv.URL, "audit", "verify")
	require.NotEqual(t, cli.ExitOK, said.code)
	require.Regexp(t, `node\s+node_1\s+2`, said.out)
	require.NotContains(t, said.err, "of 200 chains", "not all were verified")
}
