package e2e_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	slipway "github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The sweeper's interval in this test, and the time within which it finds everything: four
// intervals, as a minute is with the default settings.
const (
	sweepEvery = 3 * time.Second
	sweepLimit = 4 * sweepEvery
)

// TestSweeper_FindsLostWorkflows terminates the workflows of a job in a long stage, of a parked job
// and of a job that has not begun, has a relay that died hold a start, and starts a workflow
// without a job. The sweeper finds all of it within sweepLimit; resume finishes every job, and then
// nothing requires operator action.
func TestSweeper_FindsLostWorkflows(t *testing.T) {
	t.Parallel()
	w := newPrivateWorld(t, stack.Options{
		Count: 4, NoWorker: true, DatabaseEnv: databaseVar, Durations: maassim.Durations{Commission: 20 * time.Minute},
		Configure: func(c *config.Config) {
			c.Sweep = config.Sweep{Every: sweepEvery, Settle: sweepEvery, Quiet: 2 * sweepEvery}
		},
	})
	t.Cleanup(func() { _ = w.App.Schedule(contract.SweepPass).Remove(context.WithoutCancel(t.Context())) })
	t.Cleanup(func() { _ = w.App.Schedule(contract.BillPass).Remove(context.WithoutCancel(t.Context())) })
	token, err := op.CreateToken(t.Context(), w.App.Store, "sweep", []string{"operator"}, time.Hour)
	require.NoError(t, err)
	m := w.Sims.Fleet.All()

	pending, held := w.onboard(t, m[0]), w.onboard(t, m[1])
	claims := w.heldByADeadRelay(t)
	require.Len(t, claims, 2)
	w.startLater(t, pending.WorkflowID, contract.JobInput{JobID: pending.ID, Kind: contract.KindOnboarding, NodeID: *pending.NodeID, SiteID: w.site.ID})
	require.NoError(t, w.App.Store.CompleteOutbox(t.Context(), claims[pending.ID]))
	w.terminate(t, pending.WorkflowID)
	nobody := contract.JobWorkflowID(contract.KindOnboarding, db.NewID("job"))
	w.startLater(t, nobody, contract.JobInput{JobID: db.NewID("job"), Kind: contract.KindOnboarding, NodeID: *held.NodeID, SiteID: w.site.ID})

	w.StartRole("worker", func(ctx context.Context) error { return w.App.RunWorker(ctx) })
	_, err = w.Sims.MAAS.AddFault(maassim.Fault{Name: "image_missing", Machine: m[3].Spec().NICs[0].MAC, Count: 1})
	require.NoError(t, err)
	long, parked := w.onboard(t, m[2]), w.onboard(t, m[3])
	w.reaches(t, long.ID, "a stage that takes long", func(j db.Job) bool { return j.Stage == lifecycle.StageWaitReady })
	w.terminate(t, long.WorkflowID)
	killed := time.Now()

	w.reachesWithin(t, sweepLimit, pending.ID, "lost before it began", lost)
	was := w.reaches(t, parked.ID, "parked by itself", func(j db.Job) bool { return j.Status.Parked() })
	w.terminate(t, parked.WorkflowID)
	found := w.reachesWithin(t, sweepLimit, long.ID, "lost in a stage", lost)
	require.Less(t, found.UpdatedAt.Sub(killed), runenv.Patience(sweepLimit), runenv.Deadline+"the sweeper")
	require.Equal(t, lifecycle.StageWaitReady, found.FailedStage)
	require.Equal(t, lifecycle.JobFailedRetryable, found.Status)
	require.Equal(t, lifecycle.ActionResume, found.RecommendedAction)
	require.Contains(t, found.Message, "terminated by ")
	require.Contains(t, found.Message, "ended by mistake")
	w.audited(t, found)

	w.untilAttention(t, token, "three jobs without a workflow", func(l []rest.Attention) bool {
		gone := map[string]bool{}
		for _, a := range l {
			gone[a.JobID] = a.WorkflowLost && a.Kind == db.AttentionParkedJob && a.NextAction != ""
		}
		return gone[pending.ID] && gone[long.ID] && gone[parked.ID]
	})
	now := w.job(t, parked.ID)
	require.Equal(t, was.FailureClass, now.FailureClass, "a parked job keeps its own failure")
	w.endedBySweeper(t, nobody)

	for _, id := range []string{pending.ID, long.ID, parked.ID} {
		w.resume(t, token, id)
	}
	for _, id := range []string{pending.ID, held.ID, long.ID, parked.ID} {
		j := w.ends(t, id, 2*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
	}
	w.untilAttention(t, token, "nothing is left", func(l []rest.Attention) bool { return len(l) == 0 })
}

func lost(j db.Job) bool { return j.FailureClass == lifecycle.FailWorkflowLost }

// reaches waits for a job for at most a minute.
func (w *world) reaches(t *testing.T, id, what string, ok func(db.Job) bool) db.Job {
	t.Helper()
	return w.reachesWithin(t, time.Minute, id, what, ok)
}

func (w *world) reachesWithin(t *testing.T, limit time.Duration, id, what string, ok func(db.Job) bool) db.Job {
	t.Helper()
	var j db.Job
	require.Eventually(t, func() bool {
		j = w.job(t, id)
		return ok(j)
	}, runenv.Patience(limit), 50*time.Millisecond, "%s", what)
	return j
}

// heldByADeadRelay claims all starts for longer than any relay may, and returns
// their rows by job.
func (w *world) heldByADeadRelay(t *testing.T) map[string]int64 {
	t.Helper()
	rows, err := w.App.Store.ClaimOutbox(t.Context(), "dead/1", 10, 10*time.Minute)
	require.NoError(t, err)
	out := map[string]int64{}
	for _, r := range rows {
		out[r.JobID] = r.ID
	}
	return out
}

// startLater starts an onboarding whose first step is far away.
func (w *world) startLater(t *testing.T, id string, in contract.JobInput) {
	t.Helper()
	_, err := w.App.Temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: w.Config.Temporal.TaskQueue, StartDelay: 10 * time.Minute,
	}, contract.WorkflowOf(contract.KindOnboarding), in)
	require.NoError(t, err)
}

func (w *world) terminate(t *testing.T, workflowID string) {
	t.Helper()
	require.NoError(t, w.App.Temporal.TerminateWorkflow(t.Context(), workflowID, "", "ended by mistake"))
}

// audited: the change of state says who, why and on which grounds.
func (w *world) audited(t *testing.T, j db.Job) {
	t.Helper()
	rows, err := w.App.Store.ResourceTimeline(t.Context(), "job", j.ID, 0, 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, "park", rows[0].Name)
	require.Equal(t, string(lifecycle.OwnerSystem), rows[0].Owner)
	require.Equal(t, "sweeper", *rows[0].ActorID)
	require.Contains(t, *rows[0].Comment, "ended by mistake")
	broken, err := w.App.Store.VerifyAudit(t.Context(), "job", j.ID)
	require.NoError(t, err)
	require.Zero(t, broken)
}

// endedBySweeper: a workflow without a row is ended at the second look.
func (w *world) endedBySweeper(t *testing.T, workflowID string) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := w.App.Temporal.DescribeWorkflowExecution(t.Context(), workflowID, "")
		return err == nil && d.GetWorkflowExecutionInfo().GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
	}, runenv.Patience(sweepLimit), 200*time.Millisecond)
	rows, err := w.App.Store.ResourceTimeline(t.Context(), "workflow", workflowID, 0, 10)
	require.NoError(t, err)
	require.Len(t, rows, 1, "it was seen, noted and ended once")
}

func (w *world) resume(t *testing.T, token, jobID string) {
	t.Helper()
	_, err := w.client(t, token).ActOnJob(t.Context(), jobID, "resume", slipway.ActionRequest{Reason: new("found by the sweeper")})
	require.NoError(t, err)
}

// untilAttention waits until the list is as it should be. It is always sorted.
func (w *world) untilAttention(t *testing.T, token, what string, ok func([]rest.Attention) bool) {
	t.Helper()
	var last []rest.Attention
	require.Eventually(t, func() bool {
		last = w.attention(t, token)
		return ok(last)
	}, runenv.Patience(sweepLimit), 200*time.Millisecond, "%s", what)
	require.True(t, slices.IsSortedFunc(last, func(a, b rest.Attention) int { return a.Since.Compare(b.Since) }), "oldest first")
}

func (w *world) attention(t *testing.T, token string) []rest.Attention {
	t.Helper()
	r, err := w.client(t, token).ListAttention(t.Context(), nil)
	require.NoError(t, err)
	got := decoded[struct{ Data []rest.Attention }](t, r.Raw)
	return got.Data
}
