package projection_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// TestASoftMoveKeepsNoJobFromEnding: a job that ends cancelled would quarantine
// its node. It may do so with one that it took to enrolling, and a node that an
// operator has put to use meanwhile is left as it is.
func TestASoftMoveKeepsNoJobFromEnding(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	for from, to := range map[lifecycle.NodeStatus]lifecycle.NodeStatus{
		lifecycle.NodeEnrolling: lifecycle.NodeQuarantined, lifecycle.NodeActive: lifecycle.NodeActive,
	} {
		node := dbtest.Node(t, store, dbtest.Status(from))
		job := dbtest.Job(t, store, dbtest.On(node.ID), dbtest.JobStatus(lifecycle.JobCompensating))
		step := contract.Projection{
			JobID: job.ID, Kind: contract.KindOnboarding, NodeID: node.ID, Seq: job.Seq + 1, RunID: "run", Status: lifecycle.JobCancelled,
			Node: &contract.NodeMove{To: lifecycle.NodeQuarantined, Note: "onboarding was cancelled", Soft: true},
		}
		res, err := projection.NewDatabase(store).ProjectJob(t.Context(), step)
		require.NoError(t, err)
		require.True(t, res.Applied)
		got, err := store.Node(t.Context(), node.ID)
		require.NoError(t, err)
		require.Equal(t, to, got.Status)
		step.Node.Soft, step.Seq, step.Status = false, job.Seq+2, lifecycle.JobCancelled
		if from == lifecycle.NodeActive {
			_, err = projection.NewDatabase(store).ProjectJob(t.Context(), step)
			var illegal *lifecycle.IllegalTransitionError
			require.ErrorAs(t, err, &illegal, "one that is not soft is refused aloud")
		}
	}
}
