package machine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/fake"
	"github.com/slipway-cloud/slipway/providers/ssh"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/sshd"
)

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "token:test"}

// world is one machine, simulated or a real SSH server, and what carries out its runs.
type world struct {
	t     *testing.T
	store *db.Store
	acts  *machine.Activities
	dir   string
	bootF string // of the boot id
	runs  int
	risk  bool         // an operator accepts it
	sshd  *sshd.Server // nil of a simulated machine
}

func newWorld(t *testing.T, provider string) *world {
	t.Helper()
	w := &world{t: t, store: dbtest.Store(t), dir: t.TempDir()}
	w.bootF = filepath.Join(w.dir, "boot_id")
	w.boot("11111111-aaaa")
	w.acts = &machine.Activities{Store: w.store, Poll: 20 * time.Millisecond, RebootScript: "echo 22222222-bbbb > " + w.bootF + "\necho r >> " + filepath.Join(w.dir, "reboots")}
	s := spec.MachineSpec{Provider: provider}
	access := machines.Access{}
	if provider == "ssh" {
		_, ca := sshd.NewKey(t)
		server := sshd.Start(t, ca)
		w.sshd = server
		s.SSHEndpoint = server.Address
		access = machines.Access{SiteID: dbtest.Site(t, w.store).ID, HostKey: strings.TrimSpace(server.HostKey)}
		w.acts.Login = func(_ context.Context, _ providers.Secrets, _ providers.SecretRef, use providers.Use, to providers.SSHTarget, keyID string) (providers.SSHTarget, error) {
			require.Equal(t, spec.SecretSSHKey, use.Kind)
			require.NotEmpty(t, keyID, "the machine's log names the run")
			to.User, to.PrivateKeyPEM, to.Rule = server.User, server.PrivateKeyPEM, server.Rule
			return to, nil
		}
		w.acts.Adapters = providers.MachineAdapters{"ssh": ssh.New(ssh.WithStateDir(server.StateDir), ssh.WithBootIDFile(w.bootF)).Adapter()}
	} else {
		w.acts.Adapters = providers.MachineAdapters{"fake": fake.New().Adapter()}
	}
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := machines.Register(ctx, tx, machines.Registration{ID: "m-1", Spec: s}, admin); err != nil {
			return err
		}
		_, err := machines.SetAccess(ctx, tx, "m-1", access, admin)
		return err
	})
	return w
}

func (w *world) tx(fn func(context.Context, *db.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error { return fn(w.t.Context(), tx) }))
}

func (w *world) boot(id string) {
	require.NoError(w.t, os.WriteFile(w.bootF, []byte(id+"\n"), 0o600))
}

// step starts a run of one step and returns the input of its activities.
func (w *world) step(s runplan.Step) machine.StepIn {
	w.t.Helper()
	var run machinesdb.Run
	require.NoError(w.t, w.start(s, &run))
	return machine.StepIn{JobRef: contract.JobRef{JobID: run.JobID, Stage: s.Name}, RunID: run.ID, Step: s.Name, Attempt: 1}
}

// start starts a run of one step.
func (w *world) start(s runplan.Step, out *machinesdb.Run) error {
	w.runs++
	return w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		ctx := w.t.Context()
		plan, err := machines.CreatePlan(ctx, tx, runplan.Plan{Steps: []runplan.Step{s}}, false, admin)
		if err != nil {
			return err
		}
		run, err := machines.StartRun(ctx, tx, machines.Start{
			RequestID: fmt.Sprintf("r%d", w.runs), MachineID: "m-1", Type: lifecycle.RunTypeUpgrade, PlanID: plan.ID, AcceptRisk: w.risk,
			Offers: func(p string) []runplan.Capability { return w.acts.Adapters[p].Offers() },
		}, admin)
		if err == nil {
			*out = run
		}
		return err
	})
}

func command(text string) runplan.Step {
	timeout := int(runenv.Patience(20 * time.Second).Seconds())
	return runplan.Step{Name: "work", TimeoutSeconds: &timeout, SSH: &runplan.SSHCommand{Command: text}}
}

// output returns what a run has written.
func (w *world) output(in machine.StepIn) (stdout, stderr string) {
	w.t.Helper()
	chunks, err := machinesdb.LogsAfter(w.t.Context(), w.store, in.RunID, 0, 1000)
	require.NoError(w.t, err)
	for _, c := range chunks {
		if c.Stream == providers.StreamStdout {
			stdout += string(c.Data)
		} else {
			stderr += string(c.Data)
		}
	}
	return stdout, stderr
}

func classOf(err error) lifecycle.FailureClass {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return lifecycle.FailureClass(app.Type())
	}
	return ""
}

// TestRunCommand_OnARealServer runs a command twice under one number, as a worker does that died in
// it: the machine runs it once, and its output is stored once.
func TestRunCommand_OnARealServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	counter := filepath.Join(w.dir, "count")
	in := w.step(command("echo x >> " + counter + "\necho out\necho err >&2\n"))
	for range 2 {
		facts, err := w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: in})
		require.NoError(t, err)
		require.False(t, facts.Simulated)
		require.Equal(t, lifecycle.ActionMetadata{IPAddress: "127.0.0.1", SSHExitStatus: "0"}, facts.ActionMetadata())
	}
	ran, err := os.ReadFile(counter)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(ran))
	stdout, stderr := w.output(in)
	require.Equal(t, []string{"out\n", "err\n"}, []string{stdout, stderr})
	var logins int
	require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE name = 'login' AND resource_id = $1", in.JobID).Scan(&logins))
	require.Equal(t, 2, logins, "started, accepted")
}

func TestRunCommand_Failures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	_, err := w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: w.endRun(w.step(command("echo why; exit 7")))})
	require.Equal(t, lifecycle.FailCommand, classOf(err))
	require.ErrorContains(t, err, "exit status 7")
	require.Equal(t, lifecycle.ActionMetadata{IPAddress: "127.0.0.1", SSHExitStatus: "7"}, fault.DidOf(err))
	require.Equal(t, machine.CommandEnded, machine.EndOf(err))
	short := command("sleep 300")
	one := 1
	short.TimeoutSeconds = &one
	_, err = w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: w.endRun(w.step(short))})
	require.Equal(t, lifecycle.FailCommand, classOf(err))
	require.ErrorContains(t, err, "did not end within 1s")
	in := w.endRun(w.step(command("true")))
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.SetAccess(ctx, tx, "m-1", machines.Access{SiteID: *w.machine().SiteID}, admin)
		return err
	})
	_, err = w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: in})
	require.Equal(t, lifecycle.FailConfiguration, classOf(err), "without a pinned host key nothing is sent")
}

func (w *world) machine() machinesdb.Machine {
	m, err := machinesdb.Get(w.t.Context(), w.store, "m-1")
	require.NoError(w.t, err)
	return m
}

// endRun ends the run in the database, so that the machine takes another one.
func (w *world) endRun(in machine.StepIn) machine.StepIn {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		job, err := tx.LockJob(ctx, in.JobID)
		if err != nil {
			return err
		}
		if _, err := tx.TransitionJob(ctx, job.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
			return err
		}
		return machines.EndUnstarted(ctx, tx, job, admin)
	})
	return in
}

// TestStopCommand_EndsWhatRuns interrupts a command, as a cancelled run does, and stops it.
func TestStopCommand_EndsWhatRuns(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"ssh", "fake"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, provider)
			text := "echo begun; sleep 300"
			if provider == "fake" {
				text = "#fake\nstdout \"begun\"\nhang"
			}
			in := w.step(command(text))
			w.leaveRunning(t, in)
			later := in
			later.Attempt = 2 // which was interrupted before it began anything
			_, err := w.acts.StopCommand(t.Context(), machine.StopIn{StepIn: later, EndsBy: time.Now().Add(time.Hour)})
			require.NoError(t, err)
			_, err = w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: in})
			require.Equal(t, lifecycle.FailCommand, classOf(err), "the command was ended, and does not begin again")
		})
	}
}

// leaveRunning begins a command that says "begun", and gives the activity up while it runs.
func (w *world) leaveRunning(t *testing.T, in machine.StepIn) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.acts.RunCommand(ctx, machine.CommandIn{StepIn: in})
		ended <- err
	}()
	require.Eventually(t, func() bool { out, _ := w.output(in); return strings.Contains(out, "begun") }, runenv.Patience(20*time.Second), 20*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// TestRunCommand_StopsEarlierAttempts begins a third attempt while the first one still runs.
func TestRunCommand_StopsEarlierAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	later := filepath.Join(w.dir, "later")
	in := w.step(command("[ -e " + later + " ] && exit 0\necho begun; sleep 300"))
	w.leaveRunning(t, in)
	require.NoError(t, os.WriteFile(later, nil, 0o600))
	third := in
	third.Attempt = 3
	_, err := w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: third})
	require.NoError(t, err)
	_, err = w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: in})
	require.ErrorContains(t, err, "exit status 143", "the first attempt was ended by SIGTERM")
}

// A machine that does not answer holds a cancellation only until it has ended the command by
// itself.
func TestStopCommand_OfAMachineThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	in := w.step(command("sleep 300"))
	target := sshd.FreeAddress(t)
	login := w.acts.Login
	w.acts.Login = func(ctx context.Context, s providers.Secrets, ref providers.SecretRef, use providers.Use, to providers.SSHTarget, id string) (providers.SSHTarget, error) {
		to, err := login(ctx, s, ref, use, to, id)
		to.Address = target
		return to, err
	}
	facts, err := w.acts.StopCommand(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(100 * time.Millisecond)})
	require.NoError(t, err)
	require.Contains(t, facts.Note, "does not answer")
}

// execs is a provider that answers each command as the test says.
type execs struct {
	answer func(call int) (providers.RemoteResult, error)
	seen   []providers.RemoteCommand
}

// Exec implements providers.RemoteExec.
func (e *execs) Exec(_ context.Context, _ providers.MachineTarget, c providers.RemoteCommand, _ providers.OutputSink) (providers.RemoteResult, error) {
	e.seen = append(e.seen, c)
	return e.answer(len(e.seen))
}

// Stop implements providers.RemoteExec.
func (*execs) Stop(context.Context, providers.MachineTarget, string) error { return nil }

// withExecs returns a world whose provider is e.
func withExecs(t *testing.T, e *execs) *world {
	t.Helper()
	w := newWorld(t, "fake")
	adapter := w.acts.Adapters["fake"]
	adapter.RemoteExec = e
	w.acts.Adapters = providers.MachineAdapters{"fake": adapter}
	return w
}

// A command that reaches the machine late gets the time that is left of its attempt, and no more.
func TestRunCommand_SentLateEndsWithItsAttempt(t *testing.T) {
	t.Parallel()
	const late = 1500 * time.Millisecond
	e := &execs{answer: func(call int) (providers.RemoteResult, error) {
		if call > 1 {
			return providers.RemoteResult{}, nil
		}
		time.Sleep(late) //nolint:forbidigo // the machine does not answer for so long
		return providers.RemoteResult{}, &providers.Error{Kind: providers.KindUnreachable, Op: "test", Message: "no answer"}
	}}
	w := withExecs(t, e)
	c := command("true")
	in := machine.CommandIn{StepIn: w.step(c)}
	_, err := w.acts.RunCommand(t.Context(), in)
	require.NoError(t, err)
	require.LessOrEqual(t, e.seen[1].Timeout, c.Timeout()-late)
	e.seen, in.EndsBy = nil, time.Now().Add(-time.Hour)
	e.answer = func(int) (providers.RemoteResult, error) { return providers.RemoteResult{}, nil }
	_, err = w.acts.RunCommand(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, time.Second, e.seen[0].Timeout, "what became of it is read all the same")
}

// Output that the machine did not keep is reported once, however often the end is read.
func TestRunCommand_StatesWhatWasNotKept(t *testing.T) {
	t.Parallel()
	w := withExecs(t, &execs{answer: func(int) (providers.RemoteResult, error) {
		return providers.RemoteResult{Truncated: true, Output: providers.RemoteOffsets{Stdout: providers.MaxRemoteOutput}}, nil
	}})
	in := w.step(command("true"))
	for range 2 {
		_, err := w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: in})
		require.NoError(t, err)
	}
	_, stderr := w.output(in)
	require.Equal(t, 1, strings.Count(stderr, "was not kept"), stderr)
}

// TestRunCommand_SaysWhetherTheCommandHasEnded: only then a run that failed leaves it alone.
func TestRunCommand_SaysWhetherTheCommandHasEnded(t *testing.T) {
	t.Parallel()
	e := &execs{}
	w := withExecs(t, e)
	for kind, want := range map[providers.Kind]machine.CommandEnd{"": machine.CommandEnded, providers.KindUncertain: "", providers.KindPinMismatch: machine.CommandUnsent} {
		e.answer = func(int) (providers.RemoteResult, error) {
			if kind == "" {
				return providers.RemoteResult{ExitCode: 1}, nil
			}
			return providers.RemoteResult{}, &providers.Error{Kind: kind, Op: "test", Message: "no"}
		}
		_, err := w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: w.endRun(w.step(command("true")))})
		require.Error(t, err)
		require.Equal(t, want, machine.EndOf(err), kind)
	}
	in := w.endRun(w.step(command("true")))
	in.Again = true
	e.answer = func(int) (providers.RemoteResult, error) {
		return providers.RemoteResult{}, &providers.Error{Kind: providers.KindPinMismatch, Op: "test", Message: "no"}
	}
	_, err := w.acts.RunCommand(t.Context(), machine.CommandIn{StepIn: in})
	require.Empty(t, machine.EndOf(err), "a call before may have sent it")
}

// TestScripts_UseSudo runs what restarts and upgrades a machine as another user than root.
func TestScripts_UseSudo(t *testing.T) {
	t.Parallel()
	plans, err := runplan.Defaults()
	require.NoError(t, err)
	for script, want := range map[string]string{
		machine.DefaultRebootScript: "-n systemctl reboot\n",
		plans[lifecycle.RunTypeUpgrade].Steps[0].SSH.Command: "-n env DEBIAN_FRONTEND=noninteractive dpkg --configure -a\n-n apt-get -q update\n" +
			"-n env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Options::=--force-confold dist-upgrade\n",
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"id": "echo 1000", "sudo": `echo "$*" >>"$ASKED"`} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700)) //nolint:gosec // a program
		}
		asked := filepath.Join(dir, "asked")
		c := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
		c.Env = []string{"PATH=" + dir, "ASKED=" + asked}
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		got, err := os.ReadFile(asked)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}
