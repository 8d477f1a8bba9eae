package machines_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// tenancy gives a node to a tenant, and the machine of the node to the tenant's project.
func (w *world) tenancy(nodeID string) allocationdb.Allocation {
	w.t.Helper()
	a := dbtest.Occupy(w.t, w.store, nodeID)
	_, err := w.give(a.ProjectID)
	require.NoError(w.t, err)
	return a
}

// give registers the machine for a project.
func (w *world) give(project string) (machinesdb.Machine, error) {
	return w.register(machines.Registration{ID: "m-1", ProjectID: project, Spec: spec.MachineSpec{Provider: "datacenter", SSHEndpoint: "10.0.0.1:22"}})
}

// clean proves a node clean that a tenant has left, so that the next one may have it.
func (w *world) clean(nodeID string) {
	w.t.Helper()
	_, err := w.store.DBTX().Exec(w.t.Context(), "UPDATE nodes SET tenant_left_at = NULL WHERE id = $1", nodeID)
	require.NoError(w.t, err)
}

func (w *world) release(a allocationdb.Allocation) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, err := allocation.Release(w.t.Context(), tx, a.ID, "done", admin)
		return err
	}))
}

// seenBy reports whether a project sees the machine, by its id and in a list.
func (w *world) seenBy(project string) (byID, listed bool) {
	w.t.Helper()
	require.NoError(w.t, w.store.ForProject(w.t.Context(), project, func(tx *db.ProjectTx) error {
		_, err := machinesdb.Show(w.t.Context(), tx, "m-1")
		byID = err == nil
		rows, err := machinesdb.List(w.t.Context(), tx, machinesdb.Page{Project: project, Limit: 10})
		listed = len(rows) > 0
		return err
	}))
	return byID, listed
}

// TestFormerTenant_HasNoRight follows a node from one tenant to the next. The former tenant neither
// starts a run nor sees the machine from the fence of the release on.
func TestFormerTenant_HasNoRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.linked(dbtest.Active())
	former := w.tenancy(node.ID)
	asks := func(request, project string) error {
		start := reboot(request)
		start.Project = project
		_, err := w.start(start)
		return err
	}
	run, err := w.start(machines.Start{RequestID: "own", MachineID: "m-1", Type: lifecycle.RunTypeReboot, Project: former.ProjectID})
	require.NoError(t, err, "the tenant may reboot")
	w.endUnstarted(run)
	nothing := func(when string) {
		t.Helper()
		require.ErrorIs(t, asks("former "+when, former.ProjectID), db.ErrNotFound, when)
		byID, listed := w.seenBy(former.ProjectID)
		require.False(t, byID || listed, when)
		require.ErrorIs(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			return machines.CheckRun(t.Context(), tx, machines.Start{MachineID: "m-1", Type: lifecycle.RunTypeReboot, Project: former.ProjectID})
		}), db.ErrNotFound, when)
	}
	w.release(former)
	nothing("during the release")
	_, err = w.give(former.ProjectID)
	require.NotNil(t, intent.AsRefusal(err), "a registration of before must not bring the right back: %v", err)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		job, err := tx.LiveJobOfResource(t.Context(), allocationdb.Resource, former.ID)
		if err == nil {
			_, err = tx.TransitionJob(t.Context(), job.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		}
		return err
	}))
	dbtest.EndTenancy(t, w.store, former.ID)
	nothing("on the free node")
	w.clean(node.ID)
	nothing("on the clean node")

	next := dbtest.Occupy(t, w.store, node.ID)
	nothing("under the next tenant")
	_, err = w.give(former.ProjectID)
	require.NotNil(t, intent.AsRefusal(err), "%v", err)
	_, err = w.give(next.ProjectID)
	require.NoError(t, err)
	byID, listed := w.seenBy(next.ProjectID)
	require.True(t, byID && listed)
	require.NoError(t, asks("next", next.ProjectID))
	nothing("beside a run of the next tenant")

	m, err := machinesdb.Get(t.Context(), w.store, "m-1")
	require.NoError(t, err)
	require.Equal(t, node.ID, *m.NodeID, "the machine stays that of the node")
}

// TestRight_EndsWithTheFence: where the machine is given to a project before another one claims the
// node, the right rests while that is there and ends with it.
func TestRight_EndsWithTheFence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.linked(dbtest.Active())
	before := dbtest.Project(t, w.store).ID
	_, err := w.give(before)
	require.NoError(t, err)
	byID, _ := w.seenBy(before)
	require.True(t, byID, "an operator gave it the machine of a free node")
	a := dbtest.Occupy(t, w.store, node.ID)
	byID, listed := w.seenBy(before)
	require.False(t, byID || listed)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		rows, err := machinesdb.List(t.Context(), tx, machinesdb.Page{Project: before, Limit: 10})
		require.Empty(t, rows, "a campaign selects for the platform")
		return err
	}))
	dbtest.EndTenancy(t, w.store, a.ID)
	byID, _ = w.seenBy(before)
	require.False(t, byID, "it does not come back when the tenant leaves")
}

// TestRight_EndsWithARequestedRelease: a provision that is to stop is fenced with the request.
func TestRight_EndsWithARequestedRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.linked(dbtest.Active(), dbtest.Of(dbtest.SKU(t, w.store).ID))
	project := dbtest.Project(t, w.store).ID
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		a, err := allocationdb.Create(t.Context(), tx, allocationdb.New{
			ProjectID: project, SKUID: *node.SKUID, RequestedBy: "oidc:ada", Actor: admin, Keys: []allocationdb.PublicKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
		})
		if err != nil {
			return err
		}
		if _, err = tx.DBTX().Exec(t.Context(), "UPDATE nodes SET allocation_id = $1 WHERE id = $2", a.ID, node.ID); err != nil {
			return err
		}
		a, err = allocationdb.ClaimTaken(t.Context(), tx, a, allocationdb.TakenNode{ID: node.ID, SiteID: node.SiteID}, db.Actor{Owner: lifecycle.OwnerJob})
		if err != nil {
			return err
		}
		_, err = machines.Register(t.Context(), tx, machines.Registration{ID: "m-1", ProjectID: project, Spec: spec.MachineSpec{Provider: "datacenter"}}, admin)
		require.NoError(t, err, "of a node that is being provisioned for the project")
		return allocationdb.RequestRelease(t.Context(), tx, a.ID, "done")
	}))
	m, err := machinesdb.Get(t.Context(), w.store, "m-1")
	require.NoError(t, err)
	require.Nil(t, m.ProjectID)
	byID, listed := w.seenBy(project)
	require.False(t, byID || listed)
}

// TestSetAccess_FormerLinkMakesWay links the machine of the next tenant to a node that another
// record, of the former tenant, is linked to.
func TestSetAccess_FormerLinkMakesWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.linked(dbtest.Active())
	former := w.tenancy(node.ID)
	_, err := w.register(machines.Registration{ID: "m-2", Spec: spec.MachineSpec{Provider: "datacenter"}})
	require.NoError(t, err)
	var conflict *db.ConflictError
	require.ErrorAs(t, w.access("m-2", machines.Access{NodeID: node.ID}), &conflict, "the tenant has the machine")
	dbtest.EndTenancy(t, w.store, former.ID)
	w.clean(node.ID)
	next := dbtest.Occupy(t, w.store, node.ID)

	other := dbtest.Project(t, w.store).ID
	_, err = w.register(machines.Registration{ID: "m-2", ProjectID: other, Spec: spec.MachineSpec{Provider: "datacenter"}})
	require.NoError(t, err)
	require.NotNil(t, intent.AsRefusal(w.access("m-2", machines.Access{NodeID: node.ID})), "another project has the node")
	_, err = w.register(machines.Registration{ID: "m-2", ProjectID: next.ProjectID, Spec: spec.MachineSpec{Provider: "datacenter"}})
	require.NoError(t, err)
	require.NoError(t, w.access("m-2", machines.Access{NodeID: node.ID}))
	linked, err := machinesdb.FindOfNode(t.Context(), w.store, node.ID)
	require.NoError(t, err)
	require.Equal(t, "m-2", linked.ID)
	old, err := machinesdb.Get(t.Context(), w.store, "m-1")
	require.NoError(t, err)
	require.Nil(t, old.NodeID)
	require.Nil(t, old.SiteID)
	require.Empty(t, old.Conditions)
}

// TestStartRun_RestoredTenancy: in a restored database a node is still that of a tenant who has
// given it back. He reboots it when the reconciler has found that MAAS names nobody else.
func TestStartRun_RestoredTenancy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.linked(dbtest.Active(), dbtest.At(dbtest.Site(t, w.store).ID))
	require.NoError(t, w.store.SetNodeMachine(t.Context(), node.ID, db.NodeMachine{SystemID: "abc123"}))
	a := w.tenancy(node.ID)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := w.store.DBTX().Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	ask := func(request string) (machinesdb.Run, error) {
		start := reboot(request)
		start.Project = a.ProjectID
		return w.start(start)
	}
	exec("INSERT INTO restores DEFAULT VALUES")
	_, err := ask("before a pass")
	require.NotNil(t, intent.AsRefusal(err), "%v", err)
	exec("INSERT INTO drift_passes (site_id, finished_at) VALUES ($1, now() + interval '1 second')", node.SiteID)
	run, err := ask("after a pass")
	require.NoError(t, err)
	w.endUnstarted(run)
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftMAASOccupant)
	_, err = driftdb.ObserveFindings(t.Context(), w.store, node.SiteID, []driftdb.Observation{{
		Detector: d, Subject: node.ID, NodeID: node.ID, Message: "another", Evidence: map[string]any{"held_for": "alc_of-the-next-tenant"},
	}})
	require.NoError(t, err)
	_, err = ask("another tenant has it")
	require.NotNil(t, intent.AsRefusal(err), "%v", err)
	require.NotContains(t, err.Error(), "alc_of-the-next-tenant")
}

// joined has a run had the machine join a cluster of its project.
func (w *world) joined(project string) {
	w.t.Helper()
	_, err := clusterdb.Create(w.t.Context(), w.store, "a", project, spec.ClusterSpec{APIURL: "https://10.0.0.1:6443"})
	require.NoError(w.t, err)
	require.NoError(w.t, clusterdb.PutMember(w.t.Context(), w.store, clusterdb.Member{
		MachineID: "m-1", ClusterRef: new("a"), NodeName: "m-1", SystemUUID: "4c4c4544-0042-3510-8054-b7c04f503031",
	}))
	require.NoError(w.t, clusterdb.NoteJoined(w.t.Context(), w.store, "m-1"))
}

// TestSetAccess_ClusterStaysWithItsNode: the link of a machine that joined a cluster is all that
// says what lies on the disks of its node. It ends when the node was proven clean.
func TestSetAccess_ClusterStaysWithItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.linked(dbtest.Active())
	project := dbtest.Project(t, w.store).ID
	_, err := w.give(project)
	require.NoError(t, err)
	w.joined(project)
	other := dbtest.Node(t, w.store)
	for _, to := range []machines.Access{{}, {NodeID: other.ID}} {
		refusal := intent.AsRefusal(w.access("m-1", to))
		require.NotNil(t, refusal, to)
		require.Contains(t, refusal.Detail, node.ID)
	}
	require.NoError(t, w.access("m-1", machines.Access{NodeID: node.ID}), "it stays")

	// Without a project the machine would make way for that of the next one.
	_, err = w.store.DBTX().Exec(t.Context(), "UPDATE machines SET project_id = NULL WHERE id = 'm-1'")
	require.NoError(t, err)
	_, err = w.register(machines.Registration{ID: "m-2", ProjectID: project, Spec: spec.MachineSpec{Provider: "datacenter"}})
	require.NoError(t, err)
	var conflict *db.ConflictError
	require.ErrorAs(t, w.access("m-2", machines.Access{NodeID: node.ID}), &conflict)

	dbtest.Certificate(t, w.store, node.ID, "clean", time.Now().Add(time.Minute))
	require.NoError(t, w.access("m-2", machines.Access{NodeID: node.ID}))
	require.NoError(t, w.access("m-1", machines.Access{NodeID: other.ID}))
}

// TestRemoval_OfAClusterMember: a node that is removed while nothing proves that its machine has
// left a cluster is dirty, also as the node that its machine becomes next.
func TestRemoval_OfAClusterMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	remove := func(id string) {
		t.Helper()
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.TransitionNode(t.Context(), id, lifecycle.NodeDelete, lifecycle.NodeDelete.Needs, db.Actor{Owner: lifecycle.OwnerDecommission})
			return err
		}))
	}
	node := w.linked(dbtest.Status(lifecycle.NodeRemoving))
	keys := db.NodeMachine{Serial: "SN-1", MACs: []string{"02:00:00:00:09:98"}}
	require.NoError(t, w.store.SetNodeMachine(t.Context(), node.ID, keys))
	project := dbtest.Project(t, w.store).ID
	_, err := w.give(project)
	require.NoError(t, err)
	w.joined(project)
	remove(node.ID)
	again := dbtest.Node(t, w.store)
	require.NoError(t, w.store.SetNodeMachine(t.Context(), again.ID, keys))
	again, err = w.store.Node(t.Context(), again.ID)
	require.NoError(t, err)
	require.NotEmpty(t, db.SanitizeRequired(again))

	unused := dbtest.Node(t, w.store, dbtest.Status(lifecycle.NodeRemoving))
	remove(unused.ID)
	unused, err = w.store.Node(t.Context(), unused.ID)
	require.NoError(t, err)
	require.Nil(t, unused.TenantLeftAt)
}

// TestRight_GivenAsTheNodeIsReleased: a machine is given to the project of a tenant while the
// release of its node is being fenced. The one waits for the other, so that the right ends.
func TestRight_GivenAsTheNodeIsReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.linked(dbtest.Active())
	a := dbtest.Occupy(t, w.store, node.ID)
	released := make(chan error, 1)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := machines.Register(t.Context(), tx, machines.Registration{ID: "m-1", ProjectID: a.ProjectID, Spec: spec.MachineSpec{Provider: "datacenter"}}, admin)
		require.NoError(t, err)
		go func() {
			released <- w.store.Tx(t.Context(), func(tx *db.Tx) error {
				_, err := allocation.Release(t.Context(), tx, a.ID, "done", admin)
				return err
			})
		}()
		require.Eventually(t, func() bool {
			var waits bool
			require.NoError(t, tx.DBTX().QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks l WHERE NOT l.granted AND pg_backend_pid() = ANY (pg_blocking_pids(l.pid)))").Scan(&waits))
			return waits || len(released) > 0
		}, time.Minute, 10*time.Millisecond)
		return nil
	}))
	require.NoError(t, <-released)
	m, err := machinesdb.Get(t.Context(), w.store, "m-1")
	require.NoError(t, err)
	require.Nil(t, m.ProjectID)

	// The other way round the gift is refused, and waits for nobody.
	b := dbtest.Occupy(t, w.store, w.another("m-2").ID)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := allocation.Release(t.Context(), tx, b.ID, "done", admin)
		require.NoError(t, err)
		_, err = w.register(machines.Registration{ID: "m-2", ProjectID: b.ProjectID, Spec: spec.MachineSpec{Provider: "datacenter"}})
		require.NotNil(t, intent.AsRefusal(err), "%v", err)
		return nil
	}))
}

// another links a further machine to a node of its own.
func (w *world) another(id string) db.Node {
	w.t.Helper()
	node := dbtest.Node(w.t, w.store, dbtest.Active())
	_, err := w.register(machines.Registration{ID: id, Spec: spec.MachineSpec{Provider: "datacenter"}})
	require.NoError(w.t, err)
	require.NoError(w.t, w.access(id, machines.Access{NodeID: node.ID}))
	return node
}
