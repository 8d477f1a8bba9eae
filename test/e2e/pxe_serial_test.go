package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestPXEMigration_OtherMachineParks checks that a migration parks when the firmware of the new
// machine names another serial number than the planned one.
func TestPXEMigration_OtherMachineParks(t *testing.T) {
	t.Parallel()
	machines := pxeMachines(2)
	machines[1].NoDisk = true
	w := newPXEWorld(t, newWorld(t, stack.Options{PXE: machines}))
	old, fresh := w.PXE[0], w.PXE[1]
	id := w.active(t, old)[0]
	planned := w.hardware(fresh)
	planned.SerialNumber = new("ANOTHER-1")
	job := w.begin(t, id, client.StateTransition{State: "migrating", Disks: new(client.StateTransitionDisksMoved), GraceSeconds: new(int64(1)), Hardware: &planned})
	power(t, old, simhw.Off)
	require.NoError(t, pxesim.MoveDisks(old.Server, fresh.Server))
	w.pinned(t, job, id, fresh)

	j := w.ends(t, job, pxePatience)
	require.Equal(t, []string{string(lifecycle.JobFailedManual), lifecycle.StageBootHardware, string(lifecycle.FailStateDisagreement)},
		[]string{string(j.Status), j.FailedStage, string(j.FailureClass)}, j.Message)
	require.Contains(t, j.Message, "its serial number is "+fresh.Hardware.Spec().Serial+", and ANOTHER-1 was planned")
	require.Equal(t, lifecycle.NodeMigrating, w.node(t, id).Status)
	require.Equal(t, "ANOTHER-1", w.node(t, id).Serial, "what the firmware says changes nothing else")
}
