package ssh

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/sshd"
)

// network is a real SSH server before a system whose netplan and systemd are stand-ins.
type network struct {
	*sshd.System
	t             *testing.T
	runner        *Runner
	before, after providers.MachineTarget
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := startNode(t)
	s := sshd.NewSystem(t, n.Address)
	out := &network{System: s, t: t, runner: n.runner(WithSystemRoot(s.Root))}
	for at, target := range map[string]*providers.MachineTarget{s.Before: &out.before, s.After: &out.after} {
		*target = providers.MachineTarget{ID: "m-1", SSH: n.SSHTarget}
		target.SSH.Address = at
	}
	return out
}

func (n *network) change(id, netplan string, confirm time.Duration) providers.NetworkChange {
	return providers.NetworkChange{OpID: id, Netplan: netplan, Confirm: confirm}
}

// until waits for a state of an operation.
func (n *network) until(what providers.NetworkState, ask func() (providers.NetworkState, error)) {
	n.t.Helper()
	require.Eventually(n.t, func() bool {
		state, err := ask()
		return err == nil && state == what
	}, runenv.Patience(30*time.Second), 50*time.Millisecond)
}

func (n *network) confirm(at providers.MachineTarget, id string) func() (providers.NetworkState, error) {
	return func() (providers.NetworkState, error) { return n.runner.ConfirmNetwork(n.t.Context(), at, id) }
}

const longConfirm = 30 * time.Minute // 45 s for the stand-in

// A change that is confirmed at its new address stays, over a restart too.
func TestNetwork_ConfirmedAtTheNewAddress(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	c := n.change("op-1", "network: {version: 2}\n"+sshd.Moved+"\n", longConfirm)
	_, _ = n.runner.TryNetwork(t.Context(), n.before, c) // the machine may be gone before it has answered
	n.until(providers.NetworkConfirmed, n.confirm(n.after, "op-1"))
	require.False(t, n.Armed())
	state, err := n.runner.TryNetwork(t.Context(), n.after, c)
	require.NoError(t, err)
	require.Equal(t, providers.NetworkConfirmed, state, "it is not begun again")
	state, err = n.runner.RevertNetwork(t.Context(), n.after, "op-1")
	require.NoError(t, err)
	require.Equal(t, providers.NetworkConfirmed, state)
	n.Boot(t)
	require.Equal(t, map[string]string{"50-cloud-init.yaml": "network: {version: 2}\n", "90-slipway.yaml": c.Netplan}, n.Files(t))
	_, err = n.runner.ConfirmNetwork(t.Context(), n.after, "op-1")
	require.NoError(t, err)
}

// A change that cuts the machine off is taken back by the machine alone.
func TestNetwork_CutOffRollsBack(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before := n.Files(t)
	_, _ = n.runner.TryNetwork(t.Context(), n.before, n.change("op-1", sshd.CutOff+"\n", 2*time.Minute)) // 3 s
	n.until(providers.NetworkRolledBack, n.confirm(n.before, "op-1"))
	require.Equal(t, before, n.Files(t))
	require.False(t, n.Armed())
	state, err := n.runner.TryNetwork(t.Context(), n.before, n.change("op-2", "network: {version: 2}\n", longConfirm))
	require.NoError(t, err, "another change may be tried")
	require.Equal(t, providers.NetworkPending, state)
	n.until(providers.NetworkConfirmed, n.confirm(n.before, "op-2"))
}

// A restart before the confirmation takes the change back at once: the timer is gone with the boot.
func TestNetwork_ARestartInTheWindowRollsBack(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before := n.Files(t)
	_, _ = n.runner.TryNetwork(t.Context(), n.before, n.change("op-1", sshd.CutOff+"\n", longConfirm))
	require.Eventually(t, func() bool { return n.Files(t)["90-slipway.yaml"] != "" }, runenv.Patience(20*time.Second), 20*time.Millisecond, "the change is applied")
	n.Boot(t)
	require.Equal(t, before, n.Files(t))
	state, err := n.runner.ConfirmNetwork(t.Context(), n.before, "op-1")
	require.NoError(t, err)
	require.Equal(t, providers.NetworkRolledBack, state, "it is confirmed no more")
	require.False(t, n.Armed())
}

// TestNetwork_RefusedChangesNothing asks for what netplan, systemd or another change does not
// allow.
func TestNetwork_RefusedChangesNothing(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before := n.Files(t)
	_, err := n.runner.TryNetwork(t.Context(), n.before, n.change("op-1", sshd.Invalid+"\n", longConfirm))
	require.Equal(t, providers.KindInvalid, providers.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "Error in network definition")
	n.RefuseTimers(t)
	_, err = n.runner.TryNetwork(t.Context(), n.before, n.change("op-2", sshd.Moved+"\n", longConfirm))
	require.Equal(t, providers.KindStateConflict, providers.KindOf(err), "%v", err)
	require.Equal(t, before, n.Files(t), "without a way back nothing is tried")
	require.False(t, n.Armed())
	for name, c := range map[string]providers.NetworkChange{
		"a path as id": n.change("../op", "a", longConfirm), "no file": n.change("op", "", longConfirm), "no time": n.change("op", "a", 0),
		"a long time": n.change("op", "a", 2*providers.MaxNetworkConfirm),
	} {
		_, err := n.runner.TryNetwork(t.Context(), n.before, c)
		require.Equal(t, providers.KindInvalid, providers.KindOf(err), "%s: %v", name, err)
	}
	state, err := n.runner.ConfirmNetwork(t.Context(), n.before, "op-3")
	require.NoError(t, err)
	require.Equal(t, providers.NetworkUnknown, state)
}

// One change waits at a time, and it can be taken back before its time.
func TestNetwork_OneChangeAtATime(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before := n.Files(t)
	state, err := n.runner.TryNetwork(t.Context(), n.before, n.change("op-1", "network: {version: 2}\n", longConfirm))
	require.NoError(t, err)
	require.Equal(t, providers.NetworkPending, state)
	_, err = n.runner.TryNetwork(t.Context(), n.before, n.change("op-2", "network: {version: 2}\n", longConfirm))
	require.Equal(t, providers.KindStateConflict, providers.KindOf(err), "%v", err)
	state, err = n.runner.RevertNetwork(t.Context(), n.before, "op-1")
	require.NoError(t, err)
	require.Equal(t, providers.NetworkRolledBack, state)
	require.Equal(t, before, n.Files(t))
}

// The confirmation needs the pinned host key: who answers at the new address otherwise confirms
// nothing.
func TestNetwork_AnotherHostConfirmsNothing(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	_, _ = n.runner.TryNetwork(t.Context(), n.before, n.change("op-1", sshd.Moved+"\n", 2*time.Minute))
	other := startNode(t)
	at := n.after
	at.SSH.Address = other.Address
	_, err := n.runner.ConfirmNetwork(t.Context(), at, "op-1")
	require.Equal(t, providers.KindPinMismatch, providers.KindOf(err), "%v", err)
	n.until(providers.NetworkRolledBack, n.confirm(n.before, "op-1"))
}

// holdProgram is a flock that has a confirmation ask before the change is applied and go on after
// it, as one does whose sudo hangs meanwhile.
const holdProgram = `#!/bin/sh
root=$(dirname "$(dirname "$0")")
op=$root/var/lib/slipway/net/op-1
if [ -d "$op" ] && ! [ -e "$op/applied" ]; then
	if [ "$1" = -w ]; then
		: >"$root/asked"
		until [ -e "$op/applied" ]; do /bin/sleep 0.01; done
	else
		until [ -e "$root/asked" ]; do /bin/sleep 0.01; done
	fi
fi
PATH=${PATH#*:}
exec flock "$@"
`

// A confirmation that came over the network of before, and that the machine reads when the change
// has cut it off, confirms nothing.
func TestNetwork_ARequestOfBeforeConfirmsNothing(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before := n.Files(t)
	require.NoError(t, os.WriteFile(filepath.Join(n.Root, "bin/flock"), []byte(holdProgram), 0o700))                         //nolint:gosec // a program
	_, err := n.runner.TryNetwork(t.Context(), n.before, n.change("op-1", sshd.CutOff+"\n", runenv.Patience(4*time.Minute))) // 6 s
	require.NoError(t, err)
	_, err = n.runner.ConfirmNetwork(t.Context(), n.before, "op-1")
	require.Error(t, err, "its connection is cut")
	require.FileExists(t, filepath.Join(n.Root, "asked"))
	n.until(providers.NetworkRolledBack, n.confirm(n.before, "op-1"))
	require.Equal(t, before, n.Files(t))
}

// A rollback that fails is tried again, and the machine does not say meanwhile that it is restored.
func TestNetwork_AFailedRollbackIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before := n.Files(t)
	_, err := n.runner.TryNetwork(t.Context(), n.before, n.change("op-1", "network: {version: 2}\n", min(runenv.Patience(10*time.Minute), longConfirm))) // 15 s
	require.NoError(t, err)
	applied := filepath.Join(n.Root, "var/lib/slipway/net/op-1/applied")
	require.Eventually(t, func() bool { _, err := os.Stat(applied); return err == nil }, runenv.Patience(20*time.Second), 20*time.Millisecond)
	n.FailApplies(t, 3)
	_, err = n.runner.RevertNetwork(t.Context(), n.before, "op-1")
	require.Equal(t, providers.KindStateConflict, providers.KindOf(err), "%v", err)
	require.True(t, n.Armed())
	state, err := n.runner.ConfirmNetwork(t.Context(), n.before, "op-1")
	require.NoError(t, err)
	require.Equal(t, providers.NetworkPending, state, "what is being restored is confirmed no more")
	n.until(providers.NetworkRolledBack, n.confirm(n.before, "op-1"))
	require.Equal(t, before, n.Files(t))
}

// slowProgram is a netplan that checks a configuration until it may go on.
const slowProgram = `#!/bin/sh
root=$(dirname "$(dirname "$0")")
if [ "$1" = generate ]; then
	: >"$root/checking"
	until [ -e "$root/go-on" ]; do /bin/sleep 0.01; done
fi
exec "$root/bin/netplan.real" "$@"
`

// A change that is taken back while the machine checks its configuration is not left to begin, and
// neither is one that the machine has not got yet.
func TestNetwork_RevertedBeforeItBegins(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before := n.Files(t)
	at := func(name string) string { return filepath.Join(n.Root, name) }
	require.NoError(t, os.Rename(at("bin/netplan"), at("bin/netplan.real")))
	require.NoError(t, os.WriteFile(at("bin/netplan"), []byte(slowProgram), 0o700)) //nolint:gosec // a program
	c := n.change("op-1", "network: {version: 2}\n", longConfirm)
	cut, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := n.runner.TryNetwork(cut, n.before, c)
		ended <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(at("checking")); return err == nil }, runenv.Patience(20*time.Second), 20*time.Millisecond)
	cancel()
	require.Error(t, <-ended)
	reverted := make(chan providers.NetworkState, 1)
	go func() {
		state, _ := n.runner.RevertNetwork(t.Context(), n.before, "op-1")
		reverted <- state
	}()
	select {
	case state := <-reverted:
		require.Fail(t, "it does not wait for the check", "%q", state)
	case <-time.After(time.Second):
	}
	require.NoError(t, os.WriteFile(at("go-on"), nil, 0o600))
	require.Equal(t, providers.NetworkRolledBack, <-reverted)
	require.False(t, n.Armed())
	require.Equal(t, before, n.Files(t))

	state, err := n.runner.RevertNetwork(t.Context(), n.before, "op-2")
	require.NoError(t, err)
	require.Equal(t, providers.NetworkRolledBack, state)
	c.OpID = "op-2"
	state, err = n.runner.TryNetwork(t.Context(), n.before, c)
	require.NoError(t, err)
	require.Equal(t, providers.NetworkRolledBack, state)
	require.False(t, n.Armed())
}
