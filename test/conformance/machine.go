package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Behaviour is what a script of the fixture does, in this order.
type Behaviour struct {
	Count          bool   // it counts that it really ran
	Stdout, Stderr string // it writes these
	Wait           bool   // it waits until it is released, and then writes "late" to standard output
	Hang           bool   // it neither ends nor takes SIGTERM
	Flood          int    // it writes so many bytes to standard output
	Exit           int
}

// MachineFixture is one machine of a provider.
type MachineFixture struct {
	Adapter providers.MachineAdapter
	Target  providers.MachineTarget
	// Script writes a script in the machine's own language.
	Script func(Behaviour) string
	// Runs returns how often scripts that count have run.
	Runs func() int
	// Release ends the wait of scripts.
	Release func()
}

// ExerciseMachine takes a machine through the capabilities that its adapter has. open is called
// once a test.
func ExerciseMachine(t *testing.T, open func(t *testing.T) MachineFixture) {
	t.Helper()
	for name, test := range map[string]func(machineRun){
		"end": machineRun.end, "once": machineRun.once, "offsets": machineRun.offsets, "live": machineRun.live,
		"lost sink": machineRun.lostSink, "cancelled": machineRun.cancelled, "side by side": machineRun.sideBySide,
		"bounds": machineRun.bounds, "timeout": machineRun.timeout, "stop": machineRun.stop, "secrets": machineRun.secrets, "refused": machineRun.refused,
		"power": machineRun.power, "netboot": machineRun.netboot, "repave": machineRun.repave, "network": machineRun.network,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(machineRun{t, open(t)})
		})
	}
}

type machineRun struct {
	t *testing.T
	MachineFixture
}

// output is a sink that keeps everything.
type output struct {
	mu             sync.Mutex
	stdout, stderr strings.Builder
	next           providers.RemoteOffsets
	chunks, most   int
}

func (o *output) store(_ context.Context, c providers.OutputChunk) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.chunks++
	o.most = max(o.most, len(c.Data))
	if c.Stream == providers.StreamStdout {
		o.stdout.Write(c.Data)
		o.next.Stdout = c.Next
	} else {
		o.stderr.Write(c.Data)
		o.next.Stderr = c.Next
	}
	return nil
}

func (o *output) text() (stdout, stderr string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stdout.String(), o.stderr.String()
}

func (r machineRun) command(id string, b Behaviour) providers.RemoteCommand {
	return providers.RemoteCommand{OpID: id, Script: r.Script(b), Timeout: runenv.Patience(time.Minute)}
}

// exec runs a command that must end. A call that cannot answer in time, on a loaded machine, is
// repeated as its error says.
func (r machineRun) exec(c providers.RemoteCommand) (providers.RemoteResult, *output) {
	r.t.Helper()
	o := &output{next: c.From}
	res, err := r.Adapter.RemoteExec.Exec(r.t.Context(), r.Target, c, o.store)
	for tries := 0; tries < 3 && providers.IsKind(err, providers.KindBusy); tries++ {
		c.From = o.next
		res, err = r.Adapter.RemoteExec.Exec(r.t.Context(), r.Target, c, o.store)
	}
	require.NoError(r.t, err)
	return res, o
}

func (r machineRun) end() {
	res, o := r.exec(r.command("op", Behaviour{Stdout: "out $(id) 'x'\n", Stderr: "err\n", Exit: 7}))
	stdout, stderr := o.text()
	require.Equal(r.t, "out $(id) 'x'\n", stdout)
	require.Equal(r.t, "err\n", stderr)
	require.Equal(r.t, providers.RemoteResult{ExitCode: 7, Output: providers.RemoteOffsets{Stdout: 14, Stderr: 4}}, res)
	require.Equal(r.t, res.Output, o.next)
}

func (r machineRun) once() {
	c := r.command("op", Behaviour{Count: true, Stdout: "hello", Exit: 3})
	for range 3 {
		res, o := r.exec(c)
		stdout, _ := o.text()
		require.Equal(r.t, "hello", stdout)
		require.Equal(r.t, 3, res.ExitCode)
	}
	require.Equal(r.t, 1, r.Runs())

	other := r.command("op", Behaviour{Count: true, Stdout: "another"})
	_, err := r.Adapter.RemoteExec.Exec(r.t.Context(), r.Target, other, (&output{}).store)
	require.Equal(r.t, providers.KindInvalid, providers.KindOf(err), "%v", err)
	require.Equal(r.t, 1, r.Runs())

	other.OpID = "op-2"
	r.exec(other)
	require.Equal(r.t, 2, r.Runs())
}

func (r machineRun) offsets() {
	c := r.command("op", Behaviour{Stdout: "0123456789", Stderr: "abc"})
	r.exec(c)
	for _, from := range []providers.RemoteOffsets{{Stdout: 4, Stderr: 3}, {Stdout: 10}, {Stdout: 99, Stderr: 1}} {
		c.From = from
		res, o := r.exec(c)
		stdout, stderr := o.text()
		require.Equal(r.t, "0123456789"[min(10, from.Stdout):], stdout)
		require.Equal(r.t, "abc"[min(3, from.Stderr):], stderr)
		require.Equal(r.t, providers.RemoteOffsets{Stdout: 10, Stderr: 3}, res.Output)
	}
}

// live: output arrives while the script runs.
func (r machineRun) live() {
	o, ended := &output{}, make(chan error, 1)
	c := r.command("op", Behaviour{Count: true, Stdout: "early ", Wait: true})
	go func() {
		_, err := r.Adapter.RemoteExec.Exec(r.t.Context(), r.Target, c, o.store)
		ended <- err
	}()
	r.eventually("the output of a script that runs", func() bool { stdout, _ := o.text(); return stdout == "early " })
	r.Release()
	require.NoError(r.t, <-ended)
	stdout, _ := o.text()
	require.Equal(r.t, "early late", stdout)
}

// lostSink: a store that fails ends the reading. The script goes on, and the reader continues where
// it was.
func (r machineRun) lostSink() {
	o := &output{}
	c := r.command("op", Behaviour{Count: true, Stdout: "early ", Wait: true, Exit: 5})
	broken := errors.New("disk full")
	_, err := r.Adapter.RemoteExec.Exec(r.t.Context(), r.Target, c, func(ctx context.Context, chunk providers.OutputChunk) error {
		return errors.Join(o.store(ctx, chunk), broken)
	})
	require.Equal(r.t, providers.KindUnavailable, providers.KindOf(err), "%v", err)
	require.ErrorIs(r.t, err, broken)
	r.Release()
	c.From = o.next
	res, rest := r.exec(c)
	first, _ := o.text()
	second, _ := rest.text()
	require.Equal(r.t, "early late", first+second)
	require.Equal(r.t, 5, res.ExitCode)
	require.Equal(r.t, 1, r.Runs())
}

// cancelled: the end of a call is not the end of its script.
func (r machineRun) cancelled() {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	c := r.command("op", Behaviour{Count: true, Stdout: "early ", Wait: true, Exit: 4})
	o, ended := &output{}, make(chan error, 1)
	go func() {
		_, err := r.Adapter.RemoteExec.Exec(ctx, r.Target, c, o.store)
		ended <- err
	}()
	r.eventually("the script to run", func() bool { return r.Runs() == 1 })
	cancel()
	err := <-ended
	require.Equal(r.t, providers.KindUncertain, providers.KindOf(err), "%v", err)
	r.Release()
	res, _ := r.exec(c)
	require.Equal(r.t, 4, res.ExitCode)
	require.Equal(r.t, 1, r.Runs())
}

func (r machineRun) sideBySide() {
	c := r.command("op", Behaviour{Count: true, Stdout: "hello ", Wait: true})
	var outputs [3]output
	var errs [3]error
	var wg sync.WaitGroup
	for i := range outputs {
		wg.Go(func() { _, errs[i] = r.Adapter.RemoteExec.Exec(r.t.Context(), r.Target, c, outputs[i].store) })
	}
	r.eventually("the script to run", func() bool { return r.Runs() == 1 })
	r.Release()
	wg.Wait()
	for i := range outputs {
		require.NoError(r.t, errs[i])
		stdout, _ := outputs[i].text()
		require.Equal(r.t, "hello late", stdout)
	}
	require.Equal(r.t, 1, r.Runs())
}

func (r machineRun) bounds() {
	const flood, kept = 50 << 20, 1 << 20
	c := r.command("op", Behaviour{Flood: flood, Exit: 9})
	c.MaxOutput = kept
	res, o := r.exec(c)
	stdout, _ := o.text()
	require.Len(r.t, stdout, kept)
	require.Equal(r.t, providers.RemoteResult{ExitCode: 9, Output: providers.RemoteOffsets{Stdout: kept}, Truncated: true}, res)
	require.LessOrEqual(r.t, o.most, 1<<17, "a chunk is bounded")
}

func (r machineRun) timeout() {
	c := r.command("op", Behaviour{Count: true, Stdout: "before", Hang: true})
	c.Timeout = runenv.Patience(time.Second)
	for range 2 {
		res, o := r.exec(c)
		stdout, _ := o.text()
		require.Equal(r.t, 124, res.ExitCode)
		require.Equal(r.t, "before", stdout)
	}
	require.Equal(r.t, 1, r.Runs())
}

// stop: a script is ended before its timeout, also one that does not take SIGTERM, and is not run
// again.
func (r machineRun) stop() {
	end := func(id string) { require.NoError(r.t, r.Adapter.RemoteExec.Stop(r.t.Context(), r.Target, id)) }
	end("never-began")
	late, _ := r.exec(r.command("never-began", Behaviour{Count: true}))
	require.Equal(r.t, 143, late.ExitCode)
	require.Zero(r.t, r.Runs(), "what was stopped before it began never begins")
	for i, tc := range []struct {
		b    Behaviour
		exit int
	}{{Behaviour{Count: true, Wait: true}, 143}, {Behaviour{Count: true, Stdout: "x", Hang: true}, 137}} {
		id := []string{"op-term", "op-kill"}[i]
		c, ended := r.command(id, tc.b), make(chan int, 1)
		go func() {
			res, err := r.Adapter.RemoteExec.Exec(r.t.Context(), r.Target, c, (&output{}).store)
			if err != nil {
				res.ExitCode = -1
			}
			ended <- res.ExitCode
		}()
		r.eventually("the script to run", func() bool { return r.Runs() == i+1 })
		end(id)
		require.Equal(r.t, tc.exit, <-ended)
		end(id)
		res, _ := r.exec(c)
		require.Equal(r.t, tc.exit, res.ExitCode)
		require.Equal(r.t, i+1, r.Runs())
	}
	err := r.Adapter.RemoteExec.Stop(r.t.Context(), r.Target, "../op")
	require.Equal(r.t, providers.KindInvalid, providers.KindOf(err), "%v", err)
}

func (r machineRun) secrets() {
	secret := providers.NewSecret("abcdef.0123456789abcdef")
	c := r.command("op", Behaviour{Stdout: "token " + secret.Reveal() + "\n", Stderr: secret.Reveal()})
	c.Secrets = []providers.Secret{secret}
	_, o := r.exec(c)
	stdout, stderr := o.text()
	require.Equal(r.t, "token [secret]\n", stdout)
	require.Equal(r.t, "[secret]", stderr)
}

func (r machineRun) refused() {
	for name, edit := range map[string]func(*providers.RemoteCommand){
		"no id":           func(c *providers.RemoteCommand) { c.OpID = "" },
		"a path as id":    func(c *providers.RemoteCommand) { c.OpID = "../op" },
		"no script":       func(c *providers.RemoteCommand) { c.Script = "" },
		"a long script":   func(c *providers.RemoteCommand) { c.Script = strings.Repeat("#", providers.MaxRemoteScript+1) },
		"a NUL":           func(c *providers.RemoteCommand) { c.Script += "\x00" },
		"no limit":        func(c *providers.RemoteCommand) { c.Timeout = 0 },
		"a long limit":    func(c *providers.RemoteCommand) { c.Timeout = providers.MaxRemoteTimeout + 1 },
		"much output":     func(c *providers.RemoteCommand) { c.MaxOutput = providers.MaxRemoteOutput + 1 },
		"negative output": func(c *providers.RemoteCommand) { c.MaxOutput = -1 },
		"negative offset": func(c *providers.RemoteCommand) { c.From.Stderr = -1 },
	} {
		c := r.command("op", Behaviour{Count: true})
		edit(&c)
		_, err := r.Adapter.RemoteExec.Exec(r.t.Context(), r.Target, c, (&output{}).store)
		require.Equal(r.t, providers.KindInvalid, providers.KindOf(err), "%s: %v", name, err)
	}
	require.Zero(r.t, r.Runs())
}

// power: a restart is proven by a new boot id.
func (r machineRun) power() {
	if r.Adapter.PowerControl == nil {
		r.t.Log("this adapter has no PowerControl")
		return
	}
	before, err := r.Adapter.Inspect.Inspect(r.t.Context(), r.Target)
	require.NoError(r.t, err)
	require.NotEmpty(r.t, before.Serial)
	require.NoError(r.t, r.Adapter.PowerControl.Reboot(r.t.Context(), r.Target))
	r.eventually("a new boot id", func() bool {
		after, err := r.Adapter.Inspect.Inspect(r.t.Context(), r.Target)
		return err == nil && after.BootID != "" && after.BootID != before.BootID && after.Serial == before.Serial
	})
}

// netboot: the device is read back, and is for one boot.
func (r machineRun) netboot() {
	if r.Adapter.Netboot == nil {
		r.t.Log("this adapter has no Netboot")
		return
	}
	read := func() providers.BootTarget {
		device, err := r.Adapter.Netboot.Netboot(r.t.Context(), r.Target)
		require.NoError(r.t, err)
		return device
	}
	require.Equal(r.t, providers.BootNone, read())
	for range 2 {
		require.NoError(r.t, r.Adapter.Netboot.SetNetboot(r.t.Context(), r.Target, providers.BootPXE))
		require.Equal(r.t, providers.BootPXE, read())
	}
	r.power()
	require.Equal(r.t, providers.BootNone, read())
}

// repave: one operation installs once, and the machine starts its new system.
func (r machineRun) repave() {
	if r.Adapter.Imaging == nil {
		r.t.Log("this adapter has no Imaging")
		return
	}
	boot := func() string {
		facts, err := r.Adapter.Inspect.Inspect(r.t.Context(), r.Target)
		require.NoError(r.t, err)
		return facts.BootID
	}
	before := boot()
	require.NoError(r.t, r.Adapter.Imaging.Repave(r.t.Context(), r.Target, "op", "ubuntu-22.04"))
	after := boot()
	require.NotEqual(r.t, before, after)
	require.NoError(r.t, r.Adapter.Imaging.Repave(r.t.Context(), r.Target, "op", "ubuntu-22.04"))
	require.Equal(r.t, after, boot(), "it is not installed again")
	require.Error(r.t, r.Adapter.Imaging.Repave(r.t.Context(), r.Target, "../op", "ubuntu-22.04"))
}

// network: a change is kept when it is confirmed, and taken back otherwise. One waits at a time. An
// adapter that needs a system of its own for it is exercised in its own package.
func (r machineRun) network() {
	if r.Adapter.Network == nil || !r.Adapter.Simulated {
		r.t.Log("this adapter changes no network here")
		return
	}
	change := func(id, netplan string) providers.NetworkChange {
		return providers.NetworkChange{OpID: id, Netplan: netplan, Confirm: time.Hour}
	}
	try := func(c providers.NetworkChange) (providers.NetworkState, error) {
		return r.Adapter.Network.TryNetwork(r.t.Context(), r.Target, c)
	}
	state, err := try(change("op-1", "network: {}"))
	require.NoError(r.t, err)
	require.Equal(r.t, providers.NetworkPending, state)
	_, err = try(change("op-2", "network: {}"))
	require.Equal(r.t, providers.KindStateConflict, providers.KindOf(err), "%v", err)
	for range 2 {
		state, err = r.Adapter.Network.ConfirmNetwork(r.t.Context(), r.Target, "op-1")
		require.NoError(r.t, err)
		require.Equal(r.t, providers.NetworkConfirmed, state)
	}
	_, err = try(change("op-2", "network: {}"))
	require.NoError(r.t, err)
	require.NoError(r.t, r.Adapter.PowerControl.Reboot(r.t.Context(), r.Target))
	state, err = r.Adapter.Network.ConfirmNetwork(r.t.Context(), r.Target, "op-2")
	require.NoError(r.t, err)
	require.Equal(r.t, providers.NetworkRolledBack, state, "a restart takes it back")
	state, err = r.Adapter.Network.RevertNetwork(r.t.Context(), r.Target, "op-1")
	require.NoError(r.t, err)
	require.Equal(r.t, providers.NetworkConfirmed, state, "what was confirmed stays")
	state, err = r.Adapter.Network.RevertNetwork(r.t.Context(), r.Target, "op-3")
	require.NoError(r.t, err)
	require.Equal(r.t, providers.NetworkRolledBack, state)
	state, err = try(change("op-3", "network: {}"))
	require.NoError(r.t, err)
	require.Equal(r.t, providers.NetworkRolledBack, state, "what was taken back before it began does not begin")
}

func (r machineRun) eventually(what string, cond func() bool) {
	r.t.Helper()
	require.Eventually(r.t, cond, runenv.Patience(30*time.Second), 20*time.Millisecond, what)
}
