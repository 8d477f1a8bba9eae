package rest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestCluster_DeletedByForce: a cluster in which a bootstrap token may be left is deleted only by an admin who
// says why, which the audit log keeps with the ids of the tokens.
func TestCluster_DeletedByForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pin := "sha256:" + strings.Repeat("a", 64)
	at := "/api/v1/admin/clusters"
	create := func(kubeconfig string) answer {
		return w.do("POST", at, map[string]any{"cluster_ref": "a", "spec": map[string]any{
			"api_url": "https://10.0.0.1:6443", "ca_pins": []string{pin}, "kubeconfig_ref": kubeconfig, "kubernetes_version": "v1.34.1",
		}}, header{"Idempotency-Key": "cluster-a"})
	}
	require.Contains(t, string(create("clusters/a").want(http.StatusUnprocessableEntity).raw), "there is no secret clusters/a")
	put := func(name string, use map[string]any) {
		w.do("PUT", "/api/v1/admin/secrets", map[string]any{"name": name, "value": "x", "use": use}).want(http.StatusOK)
	}
	put("smtp", map[string]any{"kind": "smtp_password", "installation": true})
	require.Contains(t, string(create("smtp").want(http.StatusUnprocessableEntity).raw), "not a kubeconfig")
	put("clusters/a", map[string]any{"kind": "kubeconfig", "installation": true})
	create("clusters/a").want(http.StatusCreated)
	admin := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := machines.Register(t.Context(), tx, machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any"}}, admin); err != nil {
			return err
		}
		run, err := machines.StartRun(t.Context(), tx, machines.Start{
			RequestID: "r", MachineID: "m-1", Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, admin)
		if err != nil {
			return err
		}
		return clusterdb.AddToken(t.Context(), tx, clusterdb.Token{ClusterRef: "a", ID: "aaaaaa", RunID: run.ID, Step: "join", Attempt: 1}, time.Hour)
	}))
	match, why := header{"If-Match": "*"}, header{"Slipway-Reason": "the customer switched it off"}
	w.do("DELETE", at+"/a", nil, match).want(http.StatusConflict)
	require.Contains(t, string(w.do("DELETE", at+"/a?force=true", nil, match).want(http.StatusUnprocessableEntity).raw), "why")
	w.do("DELETE", at+"/a?force=true", nil, match, why, header{"Authorization": "Bearer " + w.tokens["operator"]}).want(http.StatusForbidden)
	w.do("DELETE", at+"/a?force=true", nil, match, why).want(http.StatusNoContent)
	w.do("GET", at+"/a", nil).want(http.StatusNotFound)
	var comment, meta string
	require.NoError(t, w.store.DBTX().QueryRow(t.Context(), `SELECT comment, metadata::text FROM audit_log WHERE resource_kind = 'cluster' AND name = 'force_delete'`).Scan(&comment, &meta))
	require.Equal(t, "the customer switched it off", comment)
	require.Contains(t, meta, "aaaaaa")
}
