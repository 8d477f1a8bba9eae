package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// TestMachineRun_WorkerKilledInEachStep kills the worker after the effect of each step and before its
// answer. No command runs twice.
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

// TestMachineRun_WorkerKilledInACommand kills the worker while a command runs. The command goes on, and
// the next worker reads its output on from what is stored.
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
