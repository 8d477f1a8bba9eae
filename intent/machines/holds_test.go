package machines_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func (w *world) claimable(nodeID string) (free bool) {
	w.t.Helper()
	require.NoError(w.t, w.store.DBTX().QueryRow(w.t.Context(), "SELECT EXISTS (SELECT FROM claimable_nodes WHERE id = $1)", nodeID).Scan(&free))
	return free
}

// held returns what the list of attention says of who holds a node; "" for nothing.
func (w *world) held(nodeID string) string {
	w.t.Helper()
	rows, err := w.store.Attention(w.t.Context(), db.AttentionFilter{Kind: db.AttentionTenantLeft}, db.AttentionPlace{}, 10)
	require.NoError(w.t, err)
	for _, r := range rows {
		if r.NodeID == nodeID {
			return r.Message
		}
	}
	return ""
}

// runSSH starts a run of a command on the machine m-1, and ends it after it began.
func (w *world) runSSH(request, project string) {
	w.t.Helper()
	plan := w.plan(runplan.Step{SSH: &runplan.SSHCommand{Command: "true"}}, "")
	run, err := w.start(machines.Start{RequestID: request, MachineID: "m-1", Type: lifecycle.RunTypeUpgrade, PlanID: plan, AcceptRisk: true})
	require.NoError(w.t, err)
	require.Equal(w.t, project, *run.ProjectID)
	_, err = w.store.DBTX().Exec(w.t.Context(), "UPDATE runs SET started_at = now() WHERE id = $1", run.ID)
	require.NoError(w.t, err)
	w.endUnstarted(run)
}

// holds are the ways in which a machine of a project is the node, with what attention says of each.
var holds = map[string]struct {
	spec   spec.MachineSpec
	access func(n db.Node) machines.Access
	says   string
}{
	"linked": {spec.MachineSpec{}, func(n db.Node) machines.Access { return machines.Access{NodeID: n.ID} }, "is linked to the node"},
	"serial": {spec.MachineSpec{Serial: "sn-7"}, nil, "has its serial number"},
	"MAC":    {spec.MachineSpec{MACAddresses: []string{"02:00:00:00:00:02"}}, nil, "has one of its MAC addresses"},
	"host key": {spec.MachineSpec{SSHEndpoint: "10.0.0.9:22"}, func(n db.Node) machines.Access {
		return machines.Access{SiteID: n.SiteID, HostKey: dbtest.Key}
	}, "has its SSH host key"},
	"SSH address": {spec.MachineSpec{SSHEndpoint: "10.0.0.7:22"}, func(n db.Node) machines.Access { return machines.Access{SiteID: n.SiteID} }, "has its SSH address"},
}

// freeMetal makes a free node whose keys are those that holds name.
func (w *world) freeMetal() db.Node {
	w.t.Helper()
	n := dbtest.FreeNode(w.t, w.store, dbtest.Of(dbtest.SKU(w.t, w.store).ID))
	require.NoError(w.t, w.store.SetNodeHostKey(w.t.Context(), n.ID, dbtest.Key))
	_, err := w.store.DBTX().Exec(w.t.Context(),
		"UPDATE nodes SET serial = 'SN-7', macs = '{02:00:00:00:00:01,02:00:00:00:00:02}', ssh_address = '10.0.0.7:22' WHERE id = $1", n.ID)
	require.NoError(w.t, err)
	return n
}

// TestHold_KeepsNodeFromClaims: nobody is given a node whose hardware a project has as a machine.
// It can be claimed again when the project has lost the machine, if no run has changed it;
// otherwise it has to be sanitized first.
func TestHold_KeepsNodeFromClaims(t *testing.T) {
	t.Parallel()
	for name, h := range holds {
		for _, ran := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " after a run"}[ran], func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				n, project := w.freeMetal(), dbtest.Project(t, w.store)
				h.spec.Provider = "ssh"
				require.True(t, w.claimable(n.ID))
				_, err := w.register(machines.Registration{ID: "m-1", ProjectID: project.ID, Spec: h.spec})
				require.NoError(t, err)
				if h.access != nil {
					require.NoError(t, w.access("m-1", h.access(n)))
				}
				require.False(t, w.claimable(n.ID), "the project may be on the node")
				require.Equal(t, "the node is given to nobody: machine m-1 of project "+project.ID+" "+h.says, w.held(n.ID))
				if ran {
					w.runSSH("a", project.ID)
				}
				require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
					_, err := machines.SetPhase(t.Context(), tx, "m-1", lifecycle.MachineRetired, "the project gives it back", admin)
					return err
				}))
				require.Equal(t, !ran, w.claimable(n.ID))
				now, err := w.store.Node(t.Context(), n.ID)
				require.NoError(t, err)
				require.Equal(t, ran, now.TenantLeftAt != nil)
				root, err := w.store.HoldsRootTenant(t.Context(), n.ID)
				require.NoError(t, err)
				require.Equal(t, ran, root, "a run may do everything")
			})
		}
	}
}

// TestHold_CleanProof: a node that was proven clean after the last run on its machine is not marked
// when the project loses the machine.
func TestHold_CleanProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, project := w.freeMetal(), dbtest.Project(t, w.store)
	_, err := w.register(machines.Registration{ID: "m-1", ProjectID: project.ID, Spec: spec.MachineSpec{Provider: "ssh"}})
	require.NoError(t, err)
	require.NoError(t, w.access("m-1", machines.Access{NodeID: n.ID}))
	w.runSSH("a", project.ID)
	root, err := w.store.HoldsRootTenant(t.Context(), n.ID)
	require.NoError(t, err)
	require.True(t, root, "what the system says of itself proves nothing while the project has it")
	dbtest.Certificate(t, w.store, n.ID, "clean", time.Now().Add(time.Second))
	require.NoError(t, w.access("m-1", machines.Access{}))
	require.True(t, w.claimable(n.ID))
}

// TestHoldsRootTenant_ClusterNode: pods of a cluster may be root on the node whose machine joined
// it.
func TestHoldsRootTenant_ClusterNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.linked(dbtest.Active())
	require.NoError(t, dbtest.SetTenantRoot(t.Context(), w.store, false))
	holds := func() bool {
		root, err := w.store.HoldsRootTenant(t.Context(), n.ID)
		require.NoError(t, err)
		return root
	}
	require.False(t, holds())
	_, err := w.store.DBTX().Exec(t.Context(), "INSERT INTO machine_clusters (machine_id, node_name, system_uuid, joined_at) VALUES ('m-1', 'gpu-1', '4c4c4544-0042-3510-8054-b7c04f503031', now())")
	require.NoError(t, err)
	require.True(t, holds())
	dbtest.Certificate(t, w.store, n.ID, "clean", time.Now().Add(time.Second))
	require.False(t, holds(), "proven clean since")
}
