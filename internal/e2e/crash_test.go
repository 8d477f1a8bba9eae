package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/devstack"
	"github.com/slipway-cloud/slipway/internal/simhw"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/maas/maassim"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// TestKillTheWorkerInEveryStage kills the worker with SIGKILL in the middle of
// each of the sixteen stages, after the stage's effect and before its answer,
// and starts it again. Every node ends active and nothing outside happened
// twice.
func TestKillTheWorkerInEveryStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devstack.Options{Count: len(contract.OnboardingStages), NoWorker: true, Speed: 400})
	plan, stageOf := map[string]string{}, map[string]string{}
	for i, m := range w.Sims.Fleet.All() {
		stage := contract.OnboardingStages[i]
		if stage == contract.StageClassifyFailure || stage == contract.StageRecoverDatasource {
			// These run only after a deployment that failed.
			w.failFirstDeployment(t, m)
		}
		job := w.onboard(t, m)
		plan[job.ID], stageOf[m.Spec().ID] = stage, stage
	}
	sup := superviseWorker(t, w, plan)
	for _, m := range w.Sims.Fleet.All() {
		node, err := w.App.Store.LiveNodeOfHost(t.Context(), w.site.ID, "gpu-"+m.Spec().ID)
		require.NoError(t, err)
		jobs, err := w.App.Store.ListJobs(t.Context(), dbJobsOf(node.ID), "", 10)
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		j := w.ends(t, jobs[0].ID, 6*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "killed in %s: %s %s: %s", stageOf[m.Spec().ID], j.FailedStage, j.FailureClass, j.Message)
		node, err = w.App.Store.Node(t.Context(), node.ID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.NodeActive, node.Status)
		w.effectsOnce(t, m, stageOf[m.Spec().ID])
	}
	for id, stage := range plan {
		_, err := os.Stat(filepath.Join(sup.dir, "died-"+id))
		require.NoError(t, err, "the worker never died in %s", stage)
	}
	t.Logf("the worker was killed %d times in %d stages", sup.starts()-1, len(plan))
}

// failFirstDeployment makes cloud-init find no datasource, once.
func (w *world) failFirstDeployment(t *testing.T, m *simhw.Machine) {
	t.Helper()
	_, err := w.Sims.MAAS.AddFault(maassim.Fault{Name: "deploy_datasource_none", Machine: m.Spec().NICs[0].MAC, Count: 1})
	require.NoError(t, err)
}

// effectsOnce counts what happened outside for one machine.
func (w *world) effectsOnce(t *testing.T, m *simhw.Machine, stage string) {
	t.Helper()
	deploys := 1
	if stage == contract.StageClassifyFailure || stage == contract.StageRecoverDatasource {
		deploys = 2 // one failed by the fault, one by recovery
	}
	c := w.Sims.MAAS.Counters().Machines[w.systemID(t, m)]
	require.Equal(t, 1, c["creates"], "creates, killed in %s", stage)
	require.Equal(t, 1, c["commissions"], "commissions, killed in %s", stage)
	require.Equal(t, deploys, c["deploys"], "deploys, killed in %s", stage)
	require.LessOrEqual(t, c["links"], 1+2, "links (one AUTO at most, two RoCE), killed in %s", stage)
	require.Equal(t, deploys, m.Counters().Installs, "installations, killed in %s", stage)
	b := w.Sims.BMCs[m.Spec().ID].Counters()
	require.Zero(t, b.PowerCycles, "power cycles by Slipway, killed in %s", stage)
	require.Empty(t, b.Resets, "resets by Slipway, killed in %s", stage)
}

func (w *world) systemID(t *testing.T, m *simhw.Machine) string {
	t.Helper()
	node, err := w.App.Store.LiveNodeOfHost(t.Context(), w.site.ID, "gpu-"+m.Spec().ID)
	require.NoError(t, err)
	require.NotNil(t, node.MAASSystemID)
	return *node.MAASSystemID
}

// supervisor starts a worker process again whenever it dies.
type supervisor struct {
	dir string
	mu  sync.Mutex
	n   int
}

func (s *supervisor) starts() int { s.mu.Lock(); defer s.mu.Unlock(); return s.n }

func superviseWorker(t *testing.T, w *world, plan map[string]string) *supervisor {
	t.Helper()
	s := &supervisor{dir: t.TempDir()}
	raw, err := json.Marshal(plan)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "plan.json"), raw, 0o600))
	bin := filepath.Join(s.dir, "crashworker")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./crashworker").CombinedOutput()
	require.NoError(t, err, string(out))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.mu.Lock()
			s.n++
			s.mu.Unlock()
			cmd := exec.CommandContext(ctx, bin, "--plan-dir", s.dir)
			cmd.Env = append(os.Environ(), workerEnv(w)...)
			var tail bytes.Buffer
			cmd.Stderr = &tail
			if err := cmd.Run(); err != nil && cmd.ProcessState != nil && cmd.ProcessState.ExitCode() > 0 {
				t.Logf("worker ended by itself: %v\n%s", err, tail.String())
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// workerEnv is the stack's configuration for a process of its own.
func workerEnv(w *world) []string {
	c := w.Config
	return []string{
		"SLIPWAY_DATABASE_URL=" + c.Database.URL, "SLIPWAY_TEMPORAL_ADDRESS=" + c.Temporal.Address,
		"SLIPWAY_TEMPORAL_NAMESPACE=" + c.Temporal.Namespace, "SLIPWAY_TEMPORAL_TASK_QUEUE=" + c.Temporal.TaskQueue,
		"SLIPWAY_AGENT_CA_DIR=" + c.Agent.CADir, "SLIPWAY_AGENT_PUBLIC_URL=" + c.Agent.PublicURL,
		"SLIPWAY_AGENT_LISTEN=" + c.Agent.Listen, "SLIPWAY_SECRETS_KEY_FILE=" + c.Secrets.KeyFile, "SLIPWAY_METRICS_LISTEN=",
	}
}
