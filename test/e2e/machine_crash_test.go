package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	intent "github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/sshd"
	"github.com/slipway-cloud/slipway/test/stack"
)

// commandHost is a real SSH server in which several machines of the API for automation live.
type commandHost struct {
	*world
	server *sshd.Server
	site   db.Site
	dir    string // of what the commands leave
}

// newCommandHost starts a stack without a worker, whose workers reach the server.
func newCommandHost(t *testing.T) *commandHost {
	t.Helper()
	_, ca := sshd.NewKey(t)
	h := &commandHost{server: sshd.Start(t, ca), dir: t.TempDir()}
	h.world = newPrivateWorld(t, stack.Options{NoWorker: true, DatabaseEnv: databaseVar})
	h.Config.Machine.StateDir = h.server.StateDir
	const ref = "sim/machines"
	_, err := h.App.Store.SetSecretUse(t.Context(), ref, spec.SecretUse{Kind: spec.SecretSSHKey, Installation: true})
	require.NoError(t, err)
	_, err = h.App.Secrets.Put(t.Context(), ref, h.server.PrivateKeyPEM)
	require.NoError(t, err)
	s := h.SiteSpec()
	s.SSHUser, s.SSHKeyRef = h.server.User, ref
	h.site, err = h.App.Store.CreateSite(t.Context(), "machines", s)
	require.NoError(t, err)
	return h
}

func (h *commandHost) tx(t *testing.T, fn func(context.Context, *db.Tx) error) {
	t.Helper()
	require.NoError(t, h.App.Store.Tx(t.Context(), func(tx *db.Tx) error { return fn(t.Context(), tx) }))
}

// start registers a machine and starts a run of some commands on it.
func (h *commandHost) start(t *testing.T, id string, commands ...string) (run machinesdb.Run) {
	t.Helper()
	var steps []runplan.Step
	for i, c := range commands {
		steps = append(steps, runplan.Step{Name: fmt.Sprintf("step-%d", i+1), SSH: &runplan.SSHCommand{Command: c}})
	}
	h.tx(t, func(ctx context.Context, tx *db.Tx) error {
		if _, err := intent.Register(ctx, tx, intent.Registration{ID: id, Spec: spec.MachineSpec{Provider: "ssh", SSHEndpoint: h.server.Address}}, admin); err != nil {
			return err
		}
		if _, err := intent.SetAccess(ctx, tx, id, intent.Access{SiteID: h.site.ID, HostKey: strings.TrimSpace(h.server.HostKey)}, admin); err != nil {
			return err
		}
		plan, err := intent.CreatePlan(ctx, tx, runplan.Plan{Steps: steps}, false, admin)
		if err != nil {
			return err
		}
		run, err = intent.StartRun(ctx, tx, intent.Start{
			RequestID: "r", MachineID: id, Type: lifecycle.RunTypeUpgrade, PlanID: plan.ID, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, admin)
		return err
	})
	return run
}

// count returns a command that counts in a file, says its name and does the rest.
func (h *commandHost) count(id, name, rest string) string {
	return fmt.Sprintf("echo %s >> %s\necho said-%s\n%s\n", name, filepath.Join(h.dir, id), name, rest)
}

// ranOnce requires that each command of a run has run once, and that its output is stored once.
func (h *commandHost) ranOnce(t *testing.T, run machinesdb.Run, names ...string) {
	t.Helper()
	job := h.ends(t, run.JobID, 5*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, job.Status, "%s: %s", job.FailedStage, job.Message)
	counted, err := os.ReadFile(filepath.Join(h.dir, run.MachineID))
	require.NoError(t, err)
	require.Equal(t, names, strings.Fields(string(counted)), "each command has run once")
	chunks, err := machinesdb.LogsAfter(t.Context(), h.App.Store, run.ID, 0, 1000)
	require.NoError(t, err)
	var said []string
	for _, c := range chunks {
		require.Equal(t, 1, c.Attempt, "a worker that is lost is no attempt")
		if c.Stream == providers.StreamStdout {
			said = append(said, string(c.Data))
		}
	}
	require.Equal(t, "said-"+strings.Join(names, "said-"), strings.Join(strings.Fields(strings.Join(said, "")), ""), "the output is stored once")
	m, err := machinesdb.Get(t.Context(), h.App.Store, run.MachineID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.MachineReady, m.Status)
	require.Nil(t, m.ActiveRunID)
}

// TestMachineRun_WorkerKilledInEachStep kills the worker after the effect of each step and before
// its answer. No command runs twice.
func TestMachineRun_WorkerKilledInEachStep(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	h := newCommandHost(t)
	names := []string{"one", "two", "three"}
	plan, runs := map[string]string{}, []machinesdb.Run{}
	for i := range names {
		id := fmt.Sprintf("m-%d", i+1)
		var commands []string
		for _, name := range names {
			commands = append(commands, h.count(id, name, ""))
		}
		run := h.start(t, id, commands...)
		plan[run.JobID] = fmt.Sprintf("step-%d", i+1)
		runs = append(runs, run)
	}
	sup := superviseWorker(t, h.world, plan)
	for _, run := range runs {
		h.ranOnce(t, run, names...)
		_, err := os.Stat(filepath.Join(sup.dir, "died-"+run.JobID))
		require.NoError(t, err, "the worker never died in %s", plan[run.JobID])
	}
}

// TestMachineRun_WorkerKilledInACommand kills the worker while a command runs. The command goes on,
// and the next worker reads its output on from what is stored.
func TestMachineRun_WorkerKilledInACommand(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	h := newCommandHost(t)
	goOn := filepath.Join(h.dir, "go-on")
	wait := fmt.Sprintf("while ! test -e %s; do sleep 0.1; done", goOn)
	run := h.start(t, "m-1", h.count("m-1", "one", wait)+h.count("m-1", "two", ""))
	sup := superviseWorker(t, h.world, nil)
	require.Eventually(t, func() bool {
		chunks, err := machinesdb.LogsAfter(t.Context(), h.App.Store, run.ID, 0, 10)
		return err == nil && len(chunks) > 0
	}, runenv.Patience(2*time.Minute), 50*time.Millisecond, "the output comes while the command runs")
	sup.kill(t)
	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	h.ranOnce(t, run, "one", "two")
}

// TestMachineRun_SIGTERMOfTheWorkerInEachStep stops the worker with SIGTERM while the command of
// each step runs. A process that stops ends its own attempts, never a run: the commands go on, and
// the next worker reads what they say.
func TestMachineRun_SIGTERMOfTheWorkerInEachStep(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	h := newCommandHost(t)
	names := []string{"one", "two", "three"}
	var commands []string
	goOn := func(name string) string { return filepath.Join(h.dir, "go-on-"+name) }
	for _, name := range names {
		commands = append(commands, h.count("m-1", name, fmt.Sprintf("while ! test -e %s; do sleep 0.1; done", goOn(name))))
	}
	run := h.start(t, "m-1", commands...)
	sup := superviseWorker(t, h.world, nil)
	for _, name := range names {
		require.Eventually(t, func() bool { return strings.Contains(h.said(t, run), "said-"+name) }, runenv.Patience(3*time.Minute), 50*time.Millisecond, name)
		sup.terminate(t)
		now, err := machinesdb.GetRun(t.Context(), h.App.Store, run.ID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.RunRunning, now.Status, "the run goes on without a worker")
		require.NoError(t, os.WriteFile(goOn(name), nil, 0o600))
	}
	h.ranOnce(t, run, names...)
}

// TestMachineRun_CancelInTheMiddle cancels a run whose command ignores SIGTERM: the process is gone
// before the run is CANCELED, and what comes after it never runs.
func TestMachineRun_CancelInTheMiddle(t *testing.T) {
	runenv.ProofOnly(t, "kills")
	t.Parallel()
	h := newCommandHost(t)
	pid := filepath.Join(h.dir, "pid")
	run := h.start(t, "m-1", h.count("m-1", "one", ""), h.count("m-1", "two", fmt.Sprintf("trap '' TERM\necho $$ > %s\nwhile :; do sleep 0.1; done", pid)), h.count("m-1", "three", ""))
	superviseWorker(t, h.world, nil)
	require.Eventually(t, func() bool { raw, err := os.ReadFile(pid); return err == nil && len(raw) > 1 }, runenv.Patience(3*time.Minute), 50*time.Millisecond)
	raw, err := os.ReadFile(pid)
	require.NoError(t, err)
	process, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	require.True(t, isRunning(process))
	require.Equal(t, http.StatusOK, h.act(t, "ops", run.JobID, lifecycle.ActionCancel, "").code)
	job := h.ends(t, run.JobID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCancelled, job.Status, job.Message)
	require.False(t, isRunning(process), "the command is gone")
	ended, err := machinesdb.GetRun(t.Context(), h.App.Store, run.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RunCanceled, ended.Status)
	m, err := machinesdb.Get(t.Context(), h.App.Store, "m-1")
	require.NoError(t, err)
	require.Equal(t, lifecycle.MachineMaintenance, m.Status)
	counted, err := os.ReadFile(filepath.Join(h.dir, "m-1"))
	require.NoError(t, err)
	require.Equal(t, []string{"one", "two"}, strings.Fields(string(counted)))
}

// isRunning reports whether a process runs. A process that has ended is there until its parent has
// asked for its end, which for an orphan is process 1.
func isRunning(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(raw), ") ")
	return err == nil && !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// said returns the standard output of a run that is stored so far.
func (h *commandHost) said(t *testing.T, run machinesdb.Run) string {
	t.Helper()
	chunks, err := machinesdb.LogsAfter(t.Context(), h.App.Store, run.ID, 0, 1000)
	require.NoError(t, err)
	var out strings.Builder
	for _, c := range chunks {
		if c.Stream == providers.StreamStdout {
			_, _ = out.Write(c.Data)
		}
	}
	return out.String()
}
