package e2e_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestWorkerVersioning_OnlyNewerBuildsTakeOver checks that a job runs on the build that started it,
// a newer build becomes current when its worker starts, and an older one that is started again, to
// finish its own jobs, does not take over.
func TestWorkerVersioning_OnlyNewerBuildsTakeOver(t *testing.T) {
	t.Parallel()
	w := newPrivateWorld(t, stack.Options{BuildID: "1.0.0", DatabaseEnv: databaseVar})
	w.currentBuild(t, "1.0.0")
	job := w.onboard(t, w.Sims.Fleet.All()[0])
	j := w.ends(t, job.ID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
	run, err := w.App.Temporal.DescribeWorkflowExecution(t.Context(), j.WorkflowID, j.RunID)
	require.NoError(t, err)
	require.Equal(t, "1.0.0", run.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId())

	w.startBuild(t, "1.1.0")
	w.currentBuild(t, "1.1.0")
	require.NoError(t, w.StopRole("worker"))
	log := w.startBuild(t, "1.0.0")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "worker runs") }, runenv.Patience(time.Minute), 50*time.Millisecond)
	require.Equal(t, "1.1.0", w.build(t), "a worker that runs has decided whether its build becomes current")
}

// startBuild runs a worker of another build of the same deployment and returns its log.
func (w *world) startBuild(t *testing.T, build string) *safeBuffer {
	t.Helper()
	cfg := w.Config
	cfg.Temporal.BuildID = build
	log := &safeBuffer{}
	app, err := server.Open(t.Context(), cfg, log)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.RunWorker(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("worker of build %s: %v", build, err)
		}
		app.Close()
	})
	return log
}

func (w *world) build(t *testing.T) string {
	t.Helper()
	h := w.App.Temporal.WorkerDeploymentClient().GetHandle(w.Config.Temporal.DeploymentName)
	d, err := h.Describe(t.Context(), client.WorkerDeploymentDescribeOptions{})
	if err != nil || d.Info.RoutingConfig.CurrentVersion == nil {
		return ""
	}
	return d.Info.RoutingConfig.CurrentVersion.BuildID
}

func (w *world) currentBuild(t *testing.T, want string) {
	t.Helper()
	deadline := time.Now().Add(runenv.Patience(time.Minute))
	for w.build(t) != want {
		require.True(t, time.Now().Before(deadline), runenv.Deadline+"build %s did not become current", want)
		wait(t, 100*time.Millisecond)
	}
}
