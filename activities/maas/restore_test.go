package maas_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// restored says of the database that it was restored from a backup.
func (w *world) restored() {
	w.t.Helper()
	planned, err := w.store.PlanEndOfAccess(w.t.Context())
	require.NoError(w.t, err)
	_, err = w.store.EndRestoredAccess(w.t.Context(), planned.Hash)
	require.NoError(w.t, err)
}

// deployedByLost has the machine deployed by a job that the database does not have, and returns its
// id.
func (w *world) deployedByLost() string {
	w.t.Helper()
	kept, lost := w.ref.JobID, db.NewID("job")
	w.ref.JobID = lost
	w.deploying()
	require.Equal(w.t, contract.DeployOK, must(w, w.acts.WaitForDeployed, w.waitIn(time.Minute)).Outcome)
	w.ref.JobID = kept
	return lost
}

// TestRestore_OwnDeploymentIsAdopted: a node that a lost job deployed is released by the
// decommission of today, with an audit row. Before a restore, and without the proof of this node
// and deployment, it is left alone.
func TestRestore_OwnDeploymentIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lost := w.deployedByLost()
	refused := func(why string) {
		t.Helper()
		require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.ReadMachineBeforeRelease, w.machine()), "not one of this node", why)
	}
	annotate := func(key, value string) {
		t.Helper()
		require.NoError(t, w.client().SetWorkloadAnnotations(t.Context(), w.id, map[string]string{key: value}))
	}
	got, err := w.client().Machine(t.Context(), w.id)
	require.NoError(t, err)
	proof := got.Annotations["slipway-proof"]
	require.Len(t, proof, 64)
	refused("nothing was restored")
	w.restored()

	annotate("slipway-proof", "")
	refused("no proof, as before this release")
	annotate("slipway-proof", proof)
	annotate("slipway-attempt", "2")
	refused("the proof is of another attempt")
	annotate("slipway-attempt", "1")
	annotate("slipway-job", db.NewID("job"))
	refused("the proof is of another job")
	annotate("slipway-job", lost)
	mine := w.ref.NodeID
	w.ref.NodeID = dbtest.Node(t, w.store, dbtest.At(w.ref.SiteID)).ID
	refused("the proof is of another node")
	w.ref.NodeID = mine

	for range 2 {
		require.Equal(t, "Deployed", must(w, w.acts.ReadMachineBeforeRelease, w.machine()).Status)
	}
	require.True(t, must(w, w.acts.EraseAndRelease, w.eraseIn()).Done)
	audit, err := w.store.ResourceTimeline(t.Context(), "node", mine, 0, 100)
	require.NoError(t, err)
	adopted := 0
	for _, row := range audit {
		if row.Name == "adopt_deployment" {
			adopted++
		}
	}
	require.Equal(t, 1, adopted)
}
