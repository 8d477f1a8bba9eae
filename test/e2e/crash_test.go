package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func (w *world) systemID(t *testing.T, m *simhw.Machine) string {
	t.Helper()
	node, err := w.App.Store.LiveNodeOfHost(t.Context(), w.site.ID, "gpu-"+m.Spec().ID)
	require.NoError(t, err)
	require.NotNil(t, node.MAASSystemID)
	return *node.MAASSystemID
}

// A worker killed in each stage of an onboarding is test/chaos's; what
// follows kills one where a plan says so.

// supervisor starts a worker process again whenever it dies.
type supervisor struct {
	dir string
	// now has the worker that runs, nil between two of them.
	now atomic.Pointer[os.Process]
}

// kill kills the worker that runs.
func (s *supervisor) kill(t *testing.T) {
	t.Helper()
	p := s.now.Load()
	require.NotNil(t, p, "no worker runs")
	require.NoError(t, p.Kill())
}

// terminate ends the worker that runs with SIGTERM, as a service manager does, and waits until
// another one has taken its place.
func (s *supervisor) terminate(t *testing.T) {
	t.Helper()
	p := s.now.Load()
	require.NotNil(t, p, "no worker runs")
	require.NoError(t, p.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { now := s.now.Load(); return now != nil && now.Pid != p.Pid }, runenv.Patience(2*time.Minute), 20*time.Millisecond,
		"the worker ends, and another one begins")
}

func superviseWorker(t *testing.T, w *world, plan map[string]string, args ...string) *supervisor {
	t.Helper()
	s := &supervisor{dir: t.TempDir()}
	raw, err := json.Marshal(plan)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "plan.json"), raw, 0o600))
	bin := crashworker(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, bin, append([]string{"--plan-dir", s.dir}, args...)...)
			cmd.Env = append(os.Environ(), workerEnv(w)...)
			var tail bytes.Buffer
			cmd.Stderr = &tail
			err := cmd.Start()
			if err == nil {
				s.now.Store(cmd.Process)
				err = cmd.Wait()
				s.now.Store(nil)
			}
			if err != nil && cmd.ProcessState != nil && cmd.ProcessState.ExitCode() > 0 {
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

// crashworker returns the path of the program, which is built once.
func crashworker(t *testing.T) string {
	t.Helper()
	shared.crashworker.Lock()
	defer shared.crashworker.Unlock()
	if shared.crashworker.path != "" {
		return shared.crashworker.path
	}
	dir, err := os.MkdirTemp("", "slipway-crashworker-")
	require.NoError(t, err)
	shared.atEnd(func() { _ = os.RemoveAll(dir) })
	bin := filepath.Join(dir, "crashworker")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./crashworker").CombinedOutput()
	require.NoError(t, err, string(out))
	shared.crashworker.path = bin
	return bin
}

// workerEnv is the stack's configuration for a process of its own.
func workerEnv(w *world) []string {
	c, i := w.Config, w.Config.Instance
	return []string{
		"SLIPWAY_INSTANCE_SCALEWAY_PROJECT_ID=" + i.ScalewayProjectID, "SLIPWAY_INSTANCE_SCALEWAY_ACCESS_KEY=" + i.ScalewayAccessKey,
		"SLIPWAY_INSTANCE_SCALEWAY_KEY_REF=" + i.ScalewayKeyRef, "SLIPWAY_INSTANCE_SCALEWAY_URL=" + i.ScalewayURL,
		"SLIPWAY_INSTANCE_SCALEWAY_IMAGE=" + i.ScalewayImage, "SLIPWAY_INSTANCE_INSTALLATION=" + i.Installation,
		"SLIPWAY_INSTANCE_SSH_SOURCES=" + i.SSHSources, "SLIPWAY_INSTANCE_WORKER_SOURCES=" + i.WorkerSources,
		"SLIPWAY_DATABASE_URL=" + c.Database.URL, "SLIPWAY_TEMPORAL_ADDRESS=" + c.Temporal.Address,
		"SLIPWAY_TEMPORAL_NAMESPACE=" + c.Temporal.Namespace, "SLIPWAY_TEMPORAL_MAINTENANCE_NAMESPACE=" + c.Temporal.PassNamespace(),
		"SLIPWAY_TEMPORAL_TASK_QUEUE=" + c.Temporal.TaskQueue,
		"SLIPWAY_AGENT_CA_DIR=" + c.Agent.CADir, "SLIPWAY_AGENT_PUBLIC_URL=" + c.Agent.PublicURL,
		"SLIPWAY_AGENT_LISTEN=" + c.Agent.Listen, "SLIPWAY_SECRETS_KEY_FILE=" + c.Secrets.KeyFile, "SLIPWAY_METRICS_LISTEN=",
		"SLIPWAY_AGENT_OFFLINE_AFTER=" + c.Agent.OfflineAfter.String(), "SLIPWAY_WORKER_DEADLOCK_TIMEOUT=" + c.Worker.DeadlockTimeout.String(),
		"SLIPWAY_MACHINE_STATE_DIR=" + c.Machine.StateDir,
	}
}
