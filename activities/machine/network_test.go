package machine_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/db"
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

// networkWorld is a machine behind a real SSH server, whose netplan and systemd are stand-ins.
type networkWorld struct {
	*world
	system *sshd.System
}

func newNetworkWorld(t *testing.T) *networkWorld {
	t.Helper()
	w := newWorld(t, "ssh")
	m := w.machine()
	s := sshd.NewSystem(t, m.Spec.SSHEndpoint)
	adapter := w.acts.Adapters["ssh"]
	adapter.Network = ssh.New(ssh.WithSystemRoot(s.Root))
	w.acts.Adapters = providers.MachineAdapters{"ssh": adapter}
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := machines.Register(ctx, tx, machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "ssh", SSHEndpoint: s.Before}}, admin); err != nil {
			return err
		}
		_, err := machines.SetAccess(ctx, tx, "m-1", machines.Access{SiteID: *m.SiteID, HostKey: m.HostKey}, admin)
		return err
	})
	return &networkWorld{w, s}
}

// How long a configuration is tried: 45 s of the stand-in's timer, and 3 s for a change that is
// taken back when its time is over.
const (
	longest = 30 * time.Minute
	shortly = 2 * time.Minute
)

// net is a step that tries a configuration.
func (w *networkWorld) net(netplan, endpoint string) machine.StepIn {
	w.t.Helper()
	return w.netFor(longest, netplan, endpoint)
}

// netFor accepts the risk of the run: the machine has no BMC.
func (w *networkWorld) netFor(window time.Duration, netplan, endpoint string) machine.StepIn {
	w.t.Helper()
	w.risk = true
	return w.step(runplan.Step{Name: "net", Net: &runplan.NetReconfig{Netplan: netplan, ConfirmSeconds: int(window.Seconds()), SSHEndpoint: endpoint}})
}

// TestTryNetwork_ConfirmsAtTheNewAddress: the machine is reached there from then on, under the same
// key.
func TestTryNetwork_ConfirmsAtTheNewAddress(t *testing.T) {
	t.Parallel()
	w := newNetworkWorld(t)
	before := w.machine()
	in := w.net("network: {version: 2}\n"+sshd.Moved+"\n", w.system.After)
	for range 2 { // as a worker does that died before its answer
		_, err := w.acts.TryNetwork(t.Context(), in)
		require.NoError(t, err)
	}
	require.False(t, w.system.Armed())
	after := w.machine()
	require.Equal(t, []string{w.system.After, before.HostKey}, []string{after.Spec.SSHEndpoint, after.HostKey})
	applied, err := os.ReadFile(filepath.Join(w.system.Root, "applies"))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(applied), "apply"), "before the test, and once by it")
}

// TestTryNetwork_CutOffRollsBack: the change cuts the machine off, or it does not come to the
// address that the step states. The machine is as before, and the step has failed.
func TestTryNetwork_CutOffRollsBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		netplan  string
		endpoint func(*sshd.System) string
	}{
		"cut off":           {sshd.CutOff + "\n", func(*sshd.System) string { return "" }},
		"at no new address": {sshd.CutOff + "\n", func(s *sshd.System) string { return s.After }},
		"stays where it is": {"network: {version: 2}\n", func(s *sshd.System) string { return s.After }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newNetworkWorld(t)
			files := w.system.Files(t)
			_, err := w.acts.TryNetwork(t.Context(), w.netFor(shortly, tc.netplan, tc.endpoint(w.system)))
			require.Equal(t, lifecycle.FailNetworkRolledBack, classOf(err), "%v", err)
			require.Equal(t, machine.CommandEnded, machine.EndOf(err), "nothing is left to take back")
			require.Equal(t, files, w.system.Files(t))
			require.Equal(t, w.system.Before, w.machine().Spec.SSHEndpoint)
		})
	}
}

// TestTryNetwork_WorkerKilledBeforeTheConfirmation: the next call finds the change pending and
// confirms it, or finds it taken back when the time is over. It is not begun again.
func TestTryNetwork_WorkerKilledBeforeTheConfirmation(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"in time": false, "too late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newNetworkWorld(t)
			window := longest
			if late {
				window = shortly
			}
			in := w.netFor(window, "network: {version: 2}\n", "")
			adapter := w.acts.Adapters["ssh"]
			killed, kill := context.WithCancel(t.Context())
			w.acts.Adapters = providers.MachineAdapters{"ssh": {Inspect: adapter.Inspect, RemoteExec: adapter.RemoteExec, Network: dies{adapter.Network, kill}}}
			_, err := w.acts.TryNetwork(killed, in)
			require.ErrorIs(t, err, context.Canceled)
			require.True(t, w.system.Armed(), "the change waits")
			w.acts.Adapters = providers.MachineAdapters{"ssh": adapter}
			if late {
				require.Eventually(t, func() bool { return !w.system.Armed() }, runenv.Patience(30*time.Second), 20*time.Millisecond)
			}
			_, err = w.acts.TryNetwork(t.Context(), in)
			if late {
				require.Equal(t, lifecycle.FailNetworkRolledBack, classOf(err), "%v", err)
				return
			}
			require.NoError(t, err)
			require.Len(t, w.system.Files(t), 2)
		})
	}
}

// dies has the worker die before it confirms.
type dies struct {
	providers.NetworkConfig
	kill func()
}

// ConfirmNetwork implements providers.NetworkConfig.
func (d dies) ConfirmNetwork(ctx context.Context, _ providers.MachineTarget, _ string) (providers.NetworkState, error) {
	d.kill()
	return "", context.Cause(ctx)
}

// TestTryNetwork_ARestartInTheWindow: the machine restarts before it is confirmed and is as before.
func TestTryNetwork_ARestartInTheWindow(t *testing.T) {
	t.Parallel()
	w := newNetworkWorld(t)
	files := w.system.Files(t)
	adapter := w.acts.Adapters["ssh"]
	w.acts.Adapters = providers.MachineAdapters{"ssh": {Inspect: adapter.Inspect, RemoteExec: adapter.RemoteExec, Network: &restarts{NetworkConfig: adapter.Network, w: w}}}
	_, err := w.acts.TryNetwork(t.Context(), w.net("network: {version: 2}\n", ""))
	require.Equal(t, lifecycle.FailNetworkRolledBack, classOf(err), "%v", err)
	require.Equal(t, files, w.system.Files(t))
}

// restarts has the machine restart before the first confirmation.
type restarts struct {
	providers.NetworkConfig
	w    *networkWorld
	done bool
}

// ConfirmNetwork implements providers.NetworkConfig.
func (r *restarts) ConfirmNetwork(ctx context.Context, t providers.MachineTarget, id string) (providers.NetworkState, error) {
	if !r.done {
		r.done = true
		r.w.system.Boot(r.w.t)
	}
	return r.NetworkConfig.ConfirmNetwork(ctx, t, id)
}

// A run that is cancelled in the window has the machine restore its network at once.
func TestRevertNetwork_TakesAChangeBack(t *testing.T) {
	t.Parallel()
	w := newNetworkWorld(t)
	files := w.system.Files(t)
	in := w.net("network: {version: 2}\n", "")
	adapter := w.acts.Adapters["ssh"]
	killed, kill := context.WithCancel(t.Context())
	w.acts.Adapters = providers.MachineAdapters{"ssh": {Inspect: adapter.Inspect, RemoteExec: adapter.RemoteExec, Network: dies{adapter.Network, kill}}}
	_, err := w.acts.TryNetwork(killed, in)
	require.ErrorIs(t, err, context.Canceled)
	w.acts.Adapters = providers.MachineAdapters{"ssh": adapter}
	_, err = w.acts.RevertNetwork(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, files, w.system.Files(t))
	require.False(t, w.system.Armed())
}

// diesConfirmed has the worker die once the machine is confirmed.
type diesConfirmed struct{ dies }

// ConfirmNetwork implements providers.NetworkConfig.
func (d diesConfirmed) ConfirmNetwork(ctx context.Context, t providers.MachineTarget, id string) (providers.NetworkState, error) {
	state, err := d.NetworkConfig.ConfirmNetwork(ctx, t, id)
	if state == providers.NetworkConfirmed {
		d.kill()
	}
	return state, err
}

// TestRevertNetwork_KeepsWhatIsConfirmed: a run that is cancelled after the machine was confirmed
// keeps the change, and the record says where the machine answers.
func TestRevertNetwork_KeepsWhatIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newNetworkWorld(t)
	in := w.net("network: {version: 2}\n"+sshd.Moved+"\n", w.system.After)
	adapter := w.acts.Adapters["ssh"]
	killed, kill := context.WithCancel(t.Context())
	w.acts.Adapters = providers.MachineAdapters{"ssh": {Inspect: adapter.Inspect, RemoteExec: adapter.RemoteExec, Network: diesConfirmed{dies{adapter.Network, kill}}}}
	_, err := w.acts.TryNetwork(killed, in)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, w.system.Before, w.machine().Spec.SSHEndpoint)
	w.acts.Adapters = providers.MachineAdapters{"ssh": adapter}
	facts, err := w.acts.RevertNetwork(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.True(t, facts.Moved, facts.Note)
	require.Equal(t, w.system.After, w.machine().Spec.SSHEndpoint)
	require.False(t, w.system.Armed())
}

// refuses has some addresses refuse the login, as another host does that has the address by now.
type refuses struct {
	providers.NetworkConfig
	addresses []string
}

// RevertNetwork implements providers.NetworkConfig.
func (r refuses) RevertNetwork(ctx context.Context, t providers.MachineTarget, id string) (providers.NetworkState, error) {
	if slices.Contains(r.addresses, t.SSH.Address) {
		return "", &providers.Error{Kind: providers.KindPinMismatch, Op: "ssh.dial", Message: "another host key"}
	}
	return r.NetworkConfig.RevertNetwork(ctx, t, id)
}

// TestRevertNetwork_RefusedLogin: the machine was confirmed at its new address and its old one
// belongs to another host, or both refuse the login.
func TestRevertNetwork_RefusedLogin(t *testing.T) {
	t.Parallel()
	w := newNetworkWorld(t)
	in := w.net("network: {version: 2}\n"+sshd.Moved+"\n", w.system.After)
	adapter := w.acts.Adapters["ssh"]
	use := func(n providers.NetworkConfig) {
		w.acts.Adapters = providers.MachineAdapters{"ssh": {Inspect: adapter.Inspect, RemoteExec: adapter.RemoteExec, Network: n}}
	}
	killed, kill := context.WithCancel(t.Context())
	use(diesConfirmed{dies{adapter.Network, kill}})
	_, err := w.acts.TryNetwork(killed, in)
	require.ErrorIs(t, err, context.Canceled)

	use(refuses{adapter.Network, []string{w.system.Before, w.system.After}})
	_, err = w.acts.RevertNetwork(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(time.Hour)})
	require.Equal(t, lifecycle.FailStateDisagreement, classOf(err), "%v", err)
	facts, err := w.acts.RevertNetwork(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(-time.Second)})
	require.NoError(t, err, "its time is over")
	require.Contains(t, facts.Note, "another host key")
	require.False(t, facts.Moved)

	use(refuses{adapter.Network, []string{w.system.Before}})
	facts, err = w.acts.RevertNetwork(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.True(t, facts.Moved, facts.Note)
	require.Equal(t, w.system.After, w.machine().Spec.SSHEndpoint)
}

// cannotRestore is a machine that fails to restore its network.
type cannotRestore struct{ providers.NetworkConfig }

// RevertNetwork implements providers.NetworkConfig.
func (cannotRestore) RevertNetwork(context.Context, providers.MachineTarget, string) (providers.NetworkState, error) {
	return "", &providers.Error{Kind: providers.KindStateConflict, Op: "ssh.network", Message: "the machine cannot restore its network yet"}
}

// TestRevertNetwork_OfAMachineThatCannot: it is asked until its time is over, and holds up no run
// after that.
func TestRevertNetwork_OfAMachineThatCannot(t *testing.T) {
	t.Parallel()
	w := newNetworkWorld(t)
	in := w.net("network: {version: 2}\n"+sshd.Moved+"\n", w.system.After)
	w.acts.Adapters = providers.MachineAdapters{"ssh": {Network: cannotRestore{w.acts.Adapters["ssh"].Network}}}
	facts, err := w.acts.RevertNetwork(t.Context(), machine.StopIn{StepIn: in, EndsBy: time.Now().Add(300 * time.Millisecond)})
	require.NoError(t, err)
	require.Contains(t, facts.Note, "cannot restore its network yet")
}

// A configuration that netplan refuses fails the step with netplan's words, and nothing is taken
// back.
func TestTryNetwork_RefusedByNetplan(t *testing.T) {
	t.Parallel()
	w := newNetworkWorld(t)
	_, err := w.acts.TryNetwork(t.Context(), w.net(sshd.Invalid+"\n", ""))
	require.Equal(t, lifecycle.FailCommand, classOf(err))
	require.ErrorContains(t, err, "Error in network definition")
	require.Equal(t, machine.CommandEnded, machine.EndOf(err))
}

// TestSteps_OfASimulatedMachine: the provider fake carries out every step of the default plans that
// needs no cluster, and says that it is simulated.
func TestSteps_OfASimulatedMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fake")
	for name, do := range map[string]struct {
		step runplan.Step
		call func(machine.StepIn) (machine.StepFacts, error)
	}{
		"repave": {runplan.Step{Name: "repave", Repave: &runplan.RepaveImage{Image: "ubuntu-22.04"}}, func(in machine.StepIn) (machine.StepFacts, error) {
			checked, err := w.acts.CheckMachine(t.Context(), in)
			require.NoError(t, err)
			require.False(t, checked.ByNode)
			return w.acts.RepaveMachine(t.Context(), in)
		}},
		"net": {runplan.Step{Name: "net", Net: &runplan.NetReconfig{Netplan: "network: {version: 2}"}}, func(in machine.StepIn) (machine.StepFacts, error) { return w.acts.TryNetwork(t.Context(), in) }},
		"rma": {runplan.Step{Name: "rma", RMA: &runplan.RMAAction{Ticket: "T-1"}}, func(in machine.StepIn) (machine.StepFacts, error) { return w.acts.ReturnMachine(t.Context(), in) }},
	} {
		facts, err := do.call(w.endRun(w.step(do.step)))
		require.NoError(t, err, name)
		require.True(t, facts.Simulated, name)
	}
	require.Subset(t, fake.New().Adapter().Offers(), []runplan.Capability{runplan.CapNetboot, runplan.CapImaging, runplan.CapNetworkConfig, runplan.CapReturn})
}
