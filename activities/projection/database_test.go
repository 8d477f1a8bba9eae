package projection_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
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
		}
		move := contract.NodeMove{To: lifecycle.NodeQuarantined, Note: "onboarding was cancelled", Soft: true}
		step.Moves = []contract.Move{*move.Move()}
		res, err := projection.NewDatabase(store).ProjectJob(t.Context(), step)
		require.NoError(t, err)
		require.True(t, res.Applied)
		got, err := store.Node(t.Context(), node.ID)
		require.NoError(t, err)
		require.Equal(t, to, got.Status)
		move.Soft = false
		step.Moves, step.Seq = []contract.Move{*move.Move()}, job.Seq+2
		res, err = projection.NewDatabase(store).ProjectJob(t.Context(), step)
		require.NoError(t, err)
		require.Equal(t, lifecycle.JobCancelled, res.Ended, "the end of a job moves its node once")
		if from == lifecycle.NodeActive {
			other := dbtest.Job(t, store, dbtest.On(node.ID), dbtest.JobStatus(lifecycle.JobCompensating))
			step.JobID, step.Seq = other.ID, other.Seq+1
			_, err = projection.NewDatabase(store).ProjectJob(t.Context(), step)
			var illegal *lifecycle.IllegalTransitionError
			require.ErrorAs(t, err, &illegal, "one that is not soft is refused aloud")
		}
	}
}

// TestALostTaskRepeatsItsSteps: a worker dies after two steps of one workflow task are stored. The
// task runs again, later, and stores both again; or it takes another way, because somebody acted
// meanwhile.
func TestALostTaskRepeatsItsSteps(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	job := dbtest.Job(t, store, dbtest.JobStatus(lifecycle.JobCompensating))
	to := projection.NewDatabase(store)
	write := func(p contract.Projection) contract.ProjectResult {
		later := time.Now().UTC()
		p.JobID, p.Kind, p.At = job.ID, contract.KindOnboarding, &later
		res, err := to.ProjectJob(t.Context(), p)
		require.NoError(t, err)
		return res
	}
	undone := contract.Projection{RunID: "run", Seq: job.Seq + 1, Status: lifecycle.JobCompensating, Attempt: 1}
	ended := contract.Projection{RunID: "run", Seq: job.Seq + 2, Status: lifecycle.JobCancelled, Attempt: 1}
	require.True(t, write(undone).Applied)
	require.True(t, write(ended).Applied)
	stored, err := store.Job(t.Context(), job.ID)
	require.NoError(t, err)

	for range 2 {
		for _, p := range []contract.Projection{undone, ended} {
			res := write(p)
			require.True(t, res.Applied, "step %d is stored", p.Seq)
			require.Equal(t, ended.Seq, res.StoredSeq)
		}
	}
	other := ended
	other.Status, other.Failure = lifecycle.JobFailedManual, &contract.Failure{Class: lifecycle.FailCompensation}
	require.False(t, write(other).Applied, "the task took another way")
	other.Seq++
	require.Equal(t, contract.ProjectResult{StoredSeq: ended.Seq, Pass: 2, Ended: lifecycle.JobCancelled}, write(other), "and finds the job ended")
	reset := undone
	reset.RunID = "a run that Temporal reset"
	require.False(t, write(reset).Applied)
	got, err := store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, stored, got, "nothing of that is written")

	_, err = dbtest.Owner(t, dsn).Exec(t.Context(), `UPDATE jobs SET seq = seq + 1 WHERE id = $1`, job.ID)
	require.NoError(t, err)
	other.Seq = ended.Seq + 1
	require.False(t, write(other).Applied, "the sweeper took the number of this step")
	require.True(t, write(ended).Applied, "and what the run has stored before stays so")
}

// TestAJobRemembersOnlyTheStepsOfItsRun, and not more than 32 of them.
func TestAJobRemembersOnlyTheStepsOfItsRun(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	job := dbtest.Job(t, store, dbtest.JobStatus(lifecycle.JobRunning))
	for i := range int64(40) {
		res, err := projection.NewDatabase(store).ProjectJob(t.Context(), contract.Projection{
			JobID: job.ID, Kind: contract.KindOnboarding, RunID: "first", Seq: job.Seq + 1 + i, Status: lifecycle.JobRunning,
		})
		require.NoError(t, err)
		require.True(t, res.Applied)
	}
	got, err := store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Len(t, got.RecentSteps, 32)
	_, err = projection.NewDatabase(store).ProjectJob(t.Context(), contract.Projection{
		JobID: job.ID, Kind: contract.KindOnboarding, RunID: "second", Seq: got.Seq + 1, Status: lifecycle.JobRunning,
	})
	require.NoError(t, err)
	got, err = store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Len(t, got.RecentSteps, 1)
}
