package e2e_test

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// failingStep is one step of a job that does not exist yet: it fails as its
// activities will, until the cause is repaired.
type failingStep struct {
	class    lifecycle.FailureClass
	repaired atomic.Bool
}

// OneStep is the activity.
func (e *failingStep) OneStep(context.Context, string) (string, error) {
	if e.repaired.Load() {
		return "", nil
	}
	return "", fault.New(e.class, "the other side says no")
}

func otherJob(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	var acts *failingStep
	return stage.Run(ctx, stage.Job[struct{}]{
		Kind: in.Kind,
		Stages: []stage.Stage[struct{}]{{Name: "one_step", Weight: 1, Run: func(ctx workflow.Context, _ *struct{}) error {
			_, err := stage.Do(ctx, stage.KindLocalWork, "one step", acts.OneStep, "")
			return err
		}}},
		Init: func(*struct{}, []byte) error { return nil },
	}, in)
}

// TestClassesOfOtherJobs: an activity error of a class that no job meets yet, or
// that the sweeper gives, parks a job in that class, in the database, and the
// recommended action is taken there. It says nothing of who will raise it.
func TestClassesOfOtherJobs(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	classes := classesWithoutProducer()
	maps.Copy(classes, classesRaisedElsewhere())
	for class := range classes {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			info := lifecycle.Failure(class)
			job := dbtest.Job(t, store)
			var suite testsuite.WorkflowTestSuite
			suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
			env := suite.NewTestWorkflowEnvironment()
			env.SetTestTimeout(time.Minute)
			env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // the database is a real one
			step := &failingStep{class: class}
			env.RegisterActivity(&projection.Activities{Store: projection.NewDatabase(store)})
			env.RegisterActivity(step)
			env.RegisterWorkflow(otherJob)
			var parked db.Job
			var refused error
			act := func(a lifecycle.Action) {
				env.UpdateWorkflow(string(a), "", &testsuite.TestUpdateCallback{
					OnAccept: func() {}, OnReject: func(err error) { refused = err }, OnComplete: func(any, error) {},
				}, contract.ActionRequest{Actor: "test", Reason: "the cause is gone"})
			}
			env.RegisterDelayedCallback(func() {
				var err error
				parked, err = store.Job(t.Context(), job.ID)
				require.NoError(t, err)
				step.repaired.Store(true)
				if info.Recommended == lifecycle.ActionAdopt { // the step shows nothing that could be adopted
					act(lifecycle.ActionRetryStage)
				} else {
					act(info.Recommended)
				}
			}, time.Hour)
			if info.Recommended == lifecycle.ActionMarkManual { // it stays an operator's, who ends it
				env.RegisterDelayedCallback(func() { act(lifecycle.ActionCancel) }, 2*time.Hour)
			}
			env.ExecuteWorkflow(otherJob, contract.JobInput{JobID: job.ID, Kind: contract.KindOnboarding, NodeID: *job.NodeID, SiteID: *job.SiteID})
			require.True(t, env.IsWorkflowCompleted())
			require.NoError(t, env.GetWorkflowError())
			require.NoError(t, refused)
			require.Equal(t, info.ParkStatus(), parked.Status)
			require.Equal(t, class, parked.FailureClass)
			require.Equal(t, "one_step", parked.FailedStage)
			require.Equal(t, "the other side says no", parked.Message)
			require.Equal(t, info.Recommended, parked.RecommendedAction)
			require.Equal(t, info.Next, parked.NextStep)
			ended, err := store.Job(t.Context(), job.ID)
			require.NoError(t, err)
			require.True(t, lifecycle.Job.Terminal(ended.Status), ended.Status)
		})
	}
}
