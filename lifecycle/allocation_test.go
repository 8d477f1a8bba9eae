package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestAllocationState goes through every status and condition.
func TestAllocationState(t *testing.T) {
	t.Parallel()
	whatever := map[lifecycle.AllocationStatus]string{
		lifecycle.AllocationRequested: "pending", lifecycle.AllocationProvisioning: "pending", lifecycle.AllocationReleasing: "terminating",
		lifecycle.AllocationReleaseFailed: "terminating", lifecycle.AllocationReleased: "terminated", lifecycle.AllocationFailed: "terminated",
	}
	active := map[lifecycle.AllocationCondition]string{
		lifecycle.ConditionOK: "running", lifecycle.ConditionStopped: "stopped", lifecycle.ConditionRebooting: "starting",
		lifecycle.ConditionReinstalling: "starting", lifecycle.ConditionDegraded: "degraded",
		lifecycle.ConditionMaintenanceRequired: "maintenance_required", lifecycle.ConditionNodeLost: "maintenance_required",
	}
	require.Len(t, active, len(lifecycle.AllocationConditions))
	for _, s := range lifecycle.Allocation.States {
		for _, c := range lifecycle.AllocationConditions {
			want := whatever[s.State]
			if s.State == lifecycle.AllocationActive {
				want = active[c]
			}
			require.Equal(t, want, lifecycle.AllocationState(s.State, c), "%s, %s", s.State, c)
		}
		require.Equal(t, s.State != lifecycle.AllocationReleased && s.State != lifecycle.AllocationFailed, s.State.Live())
	}
	require.False(t, lifecycle.AllocationStatus("other").Live())
}
