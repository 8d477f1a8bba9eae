package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestOnboardingEveryVendor takes one bare server of every personality to an
// active node: all sixteen stages, each effect once.
func TestOnboardingEveryVendor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: len(simhw.Vendors)})
	jobs := map[string]string{}
	for _, m := range w.Sims.Fleet.All() {
		jobs[m.Spec().ID] = w.onboard(t, m).ID
	}
	for _, m := range w.Sims.Fleet.All() {
		j := w.ends(t, jobs[m.Spec().ID], 3*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s %s: %s: %s", m.Spec().Vendor, j.FailedStage, j.FailureClass, j.Message)
		require.Equal(t, 100, j.ProgressPercent)
		stages, err := w.App.Store.JobStages(t.Context(), j.ID)
		require.NoError(t, err)
		require.Len(t, stages, 16)
		for i, s := range stages {
			require.Equal(t, lifecycle.OnboardingStages()[i], s.Name)
		}
		node, err := w.App.Store.Node(t.Context(), *j.NodeID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.NodeActive, node.Status)
		require.Equal(t, m.Spec().Serial, node.Serial)
		require.Equal(t, 1, m.Counters().Installs)
		require.Equal(t, "sda", m.InstalledOS().Disk, "the boot disk is chosen by rule, not by enumeration")
		history, total, err := w.App.Store.NodeHistory(t.Context(), node.ID, 50, 0)
		require.NoError(t, err)
		require.EqualValues(t, 3, total)
		require.Len(t, history, 3)
	}
}
