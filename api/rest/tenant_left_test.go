package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// A node is not migrated with the disks that a tenant's data is on, and a plan
// refuses it as the start does.
func TestATenantsDisksAreNotMoved(t *testing.T) {
	t.Parallel()
	open, dsn := openWorld(t)
	w := &pxeWorld{world: open}
	w.workflow = w.agentWorkflow("live")
	n, path := w.ready(lifecycle.NodeActive)
	enrolled(t, w.store, n.ID)
	reports(t, w.store, n.ID, 0, 0)
	refused := func() {
		t.Helper()
		p := w.set(path, map[string]any{"state": "migrating", "disks": "moved"}).refused(problem.Conflict)
		require.Contains(t, p.Detail, "would move into the new hardware")
		p = w.do("POST", decommissions+"/plan", map[string]any{"mode": "migrate", "disks": "moved", "node_id": n.ID}).refused(problem.Conflict)
		require.Contains(t, p.Detail, "the old ones erased")
	}
	tenant := dbtest.Occupy(t, w.store, n.ID)
	refused()
	dbtest.EndTenancy(t, w.store, tenant.ID)
	refused()
	w.set(path, map[string]any{"state": "migrating"}).want(http.StatusOK)
	alter(t, dsn, "UPDATE nodes SET tenant_left_at = NULL")

	other, path := w.ready(lifecycle.NodeActive)
	enrolled(t, w.store, other.ID)
	reports(t, w.store, other.ID, 0, 0)
	w.set(path, map[string]any{"state": "migrating", "disks": "moved"}).want(http.StatusOK)
}

// Installing a system again erases no disk but its own, so that a node which a
// tenant left is not onboarded again before something proves it clean.
func TestANodeThatATenantLeftIsNotOnboardedAgain(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	w := newWorld(t, func(c *httpapi.Config) { c.API.Store, c.REST.Secrets = store, sealed(t, store) })
	w.sameStore(store)
	w.ready()
	node := dbtest.Node(t, w.store, dbtest.At(w.site.ID), dbtest.Hostname("gpu-1"), dbtest.Status(lifecycle.NodeQuarantined))
	alter(t, dsn, "UPDATE nodes SET tenant_left_at = now() WHERE id = '"+node.ID+"'")
	p := w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).refused(problem.Conflict)
	require.Equal(t, node.ID, p.Existing)
	require.Contains(t, p.Detail, "slipway node decommission gpu-1 --mode reimage")
	alter(t, dsn, "UPDATE nodes SET tenant_left_at = NULL")
	w.post("/api/v1/admin/onboardings", w.onboarding("gpu-1")).want(http.StatusAccepted)
}
