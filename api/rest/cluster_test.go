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

const clusters = "/api/v1/admin/clusters"

func clusterSpec(kubeconfig, version string) map[string]any {
	return map[string]any{"api_url": "https://10.0.0.1:6443", "ca_pins": []string{"sha256:" + strings.Repeat("a", 64)}, "kubeconfig_ref": kubeconfig, "kubernetes_version": version}
}

func (w *world) createCluster(kubeconfig string) answer {
	return w.do("POST", clusters, map[string]any{"cluster_ref": "a", "spec": clusterSpec(kubeconfig, "v1.34.1")}, header{"Idempotency-Key": "cluster-a"})
}

func (w *world) putSecret(name, kind string) {
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"name": name, "value": "x", "use": map[string]any{"kind": kind, "installation": true}}).want(http.StatusOK)
}

// TestCluster_NeedsAStoredKubeconfig: a kubeconfig that is not stored, or of another kind, is
// refused when it is named. A kubeconfig that was deleted since blocks neither other changes nor
// the answer to a repetition.
func TestCluster_NeedsAStoredKubeconfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Contains(t, string(w.createCluster("clusters/a").want(http.StatusUnprocessableEntity).raw), "there is no secret clusters/a")
	w.putSecret("smtp", "smtp_password")
	require.Contains(t, string(w.createCluster("smtp").want(http.StatusUnprocessableEntity).raw), "not a kubeconfig")
	w.putSecret("clusters/a", "kubeconfig")
	w.createCluster("clusters/a").want(http.StatusCreated)
	require.NoError(t, w.store.DeleteSecret(t.Context(), "clusters/a"))
	w.createCluster("clusters/a").want(http.StatusCreated)
	change := func(kubeconfig string) answer {
		return w.do("PUT", clusters+"/a", map[string]any{"spec": clusterSpec(kubeconfig, "v1.34.2")}, header{"If-Match": "*"})
	}
	change("clusters/a").want(http.StatusOK)
	require.Contains(t, string(change("clusters/b").want(http.StatusUnprocessableEntity).raw), "there is no secret clusters/b")
}

// TestCluster_DeletedByForce: a cluster in which a bootstrap token may be left is deleted only by
// an admin who says why, which the audit log keeps with the ids of the tokens.
func TestCluster_DeletedByForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.putSecret("clusters/a", "kubeconfig")
	w.createCluster("clusters/a").want(http.StatusCreated)
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
	w.do("DELETE", clusters+"/a", nil, match).want(http.StatusConflict)
	require.Contains(t, string(w.do("DELETE", clusters+"/a?force=true", nil, match).want(http.StatusUnprocessableEntity).raw), "why")
	w.do("DELETE", clusters+"/a?force=true", nil, match, why, header{"Authorization": "Bearer " + w.tokens["operator"]}).want(http.StatusForbidden)
	w.do("DELETE", clusters+"/a?force=true", nil, match, why).want(http.StatusNoContent)
	w.do("GET", clusters+"/a", nil).want(http.StatusNotFound)
	var comment, meta string
	require.NoError(t, w.store.DBTX().QueryRow(t.Context(), `SELECT comment, metadata::text FROM audit_log WHERE resource_kind = 'cluster' AND name = 'force_delete'`).Scan(&comment, &meta))
	require.Equal(t, "the customer switched it off", comment)
	require.Contains(t, meta, "aaaaaa")
}
