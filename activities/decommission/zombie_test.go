package decommission_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestAMoveThatWakesLateTakesNothingBack: an execution of retire_gpuaas_node was
// taken for lost, and wakes when the job is removing the node. There is an edge
// from removing to retired, but it is not this step's. Found by the chaos run.
func TestAMoveThatWakesLateTakesNothingBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := decommission.MoveIn{JobRef: w.ref, To: lifecycle.NodeQuarantined, Owner: lifecycle.OwnerDecommission, Note: "tested"}
	in.From = lifecycle.NodeDraining
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.MoveLeaving, in), "this step of the job moves it from draining")
	in.From = lifecycle.NodeActive
	for range 2 { // there already is success
		require.True(t, must(w, w.acts.MoveLeaving, in).Done)
	}
}
