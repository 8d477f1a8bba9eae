package machines_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// A cluster that is not there and one of another project are refused in the same words.
func TestStartRun_NeedsTheClusterOfItsProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	project := dbtest.Project(t, w.store).ID
	s := spec.ClusterSpec{APIURL: "https://10.0.0.1:6443"}
	_, err := clusterdb.Create(t.Context(), w.store, "own", "", s)
	require.NoError(t, err)
	_, err = clusterdb.Create(t.Context(), w.store, "theirs", project, s)
	require.NoError(t, err)
	details := map[string]string{}
	for _, ref := range []string{"own", "theirs", "none"} {
		_, err := w.register(machines.Registration{ID: "m-" + ref, Spec: spec.MachineSpec{Provider: "any", TargetClusterRef: ref}})
		require.NoError(t, err)
		err = w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := machines.StartRun(t.Context(), tx, machines.Start{
				RequestID: "r", MachineID: "m-" + ref, Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
			}, admin)
			return err
		})
		if ref == "own" {
			require.NoError(t, err)
			continue
		}
		var refusal *intent.Refusal
		require.ErrorAs(t, err, &refusal, ref)
		details[ref] = refusal.Detail
	}
	require.Equal(t, len(details["theirs"])-len("theirs"), len(details["none"])-len("none"))
}

// TestRegister_ChangeOfProject: a machine that a run had join a cluster changes its project only
// when something proves that it has left, and then nothing of the cluster goes with it.
func TestRegister_ChangeOfProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	from, to := dbtest.Project(t, w.store).ID, dbtest.Project(t, w.store).ID
	s := spec.MachineSpec{Provider: "any"}
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := w.store.DBTX().Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	node := dbtest.Node(t, w.store)
	_, err := clusterdb.Create(t.Context(), w.store, "a", from, spec.ClusterSpec{APIURL: "https://10.0.0.1:6443"})
	require.NoError(t, err)
	for i, id := range []string{"m-linked", "m-alone", "m-deleted", "m-prepared"} {
		_, err := w.register(machines.Registration{ID: id, ProjectID: from, Spec: s})
		require.NoError(t, err)
		require.NoError(t, clusterdb.PutMember(t.Context(), w.store, clusterdb.Member{
			MachineID: id, ClusterRef: new("a"), NodeName: id, SystemUUID: fmt.Sprintf("4c4c4544-0042-3510-8054-b7c04f50303%d", i),
		}))
		if id != "m-prepared" {
			require.NoError(t, clusterdb.NoteJoined(t.Context(), w.store, id))
		}
	}
	require.NoError(t, w.access("m-linked", machines.Access{NodeID: node.ID}))
	moves := func(id string) error {
		_, err := w.register(machines.Registration{ID: id, ProjectID: to, Spec: s})
		return err
	}
	var refusal *intent.Refusal
	for _, id := range []string{"m-linked", "m-alone", "m-deleted"} {
		require.ErrorAs(t, moves(id), &refusal, id)
		require.Contains(t, refusal.Detail, "nothing proves that it has left")
		_, err := w.register(machines.Registration{ID: id, ProjectID: from, Labels: map[string]string{"rack": "r1"}, Spec: s})
		require.NoError(t, err, "everything else may change")
	}
	require.NoError(t, moves("m-prepared"), "no run had it join")

	notJoined := `UPDATE machines SET conditions = '[{"type": "InCustomerCluster", "status": false, "reason": "NotJoined"}, {"type": "Drained", "status": true}, {"type": "Reachable", "status": true}]' WHERE id = $1`
	exec(notJoined, "m-alone")
	exec(notJoined, "m-linked")
	require.NoError(t, moves("m-alone"), "its cluster says that it has left")
	alone, err := machinesdb.Get(t.Context(), w.store, "m-alone")
	require.NoError(t, err)
	require.Len(t, alone.Conditions, 1, "what the cluster said of it stays behind")
	require.True(t, alone.Conditions.Known(lifecycle.ReachableCondition))
	require.Error(t, moves("m-linked"), "its disks may hold the project's data")
	exec(`INSERT INTO signing_keys (id, purpose, public, secret_ref) VALUES ('key_1', 'certificate', decode(repeat('00', 32), 'hex'), 'x')`)
	exec(`INSERT INTO certificates (id, node_id, run_id, sequence, verdict, simulated, payload, hash, previous_hash, key_id, signature, issued_at)
		VALUES ('cert_1', $1, 'run_1', 1, 'clean', true, '{}', repeat('0', 64), '', 'key_1', decode(repeat('00', 64), 'hex'), now() + interval '1 second')`, node.ID)
	require.NoError(t, moves("m-linked"), "it was proven clean")
	version, err := clusterdb.Get(t.Context(), w.store, "a")
	require.NoError(t, err)
	require.NoError(t, clusterdb.Delete(t.Context(), w.store, "a", version.Version))
	require.NoError(t, moves("m-deleted"), "the cluster was deleted, and answers nothing")
	for _, id := range []string{"m-linked", "m-alone", "m-deleted", "m-prepared"} {
		_, err := clusterdb.GetMember(t.Context(), w.store, id)
		require.ErrorIs(t, err, db.ErrNotFound, id)
	}
}
