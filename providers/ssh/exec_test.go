package ssh

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/conformance"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// behave writes a shell script that does what b says, with files beside the given one.
func behave(file string) func(conformance.Behaviour) string {
	return func(b conformance.Behaviour) string {
		var s strings.Builder
		if b.Hang {
			s.WriteString("trap '' TERM\n")
		}
		if b.Count {
			fmt.Fprintf(&s, "echo ran >>%s\n", quote([]string{file}))
		}
		fmt.Fprintf(&s, "printf %%s %s\nprintf %%s %s >&2\n", quote([]string{b.Stdout}), quote([]string{b.Stderr}))
		if b.Wait {
			fmt.Fprintf(&s, "until [ -e %s ]; do sleep 0.05; done\nprintf late\n", quote([]string{file + ".go"}))
		}
		if b.Hang {
			s.WriteString("while :; do sleep 0.1; done\n")
		}
		if b.Flood > 0 {
			fmt.Fprintf(&s, "head -c %d /dev/zero | tr '\\000' x\n", b.Flood)
		}
		fmt.Fprintf(&s, "exit %d\n", b.Exit)
		return s.String()
	}
}

func TestRunner_ConformsAsAMachineAdapter(t *testing.T) {
	t.Parallel()
	conformance.ExerciseMachine(t, func(t *testing.T) conformance.MachineFixture {
		n := startNode(t)
		file := filepath.Join(t.TempDir(), "count")
		return conformance.MachineFixture{
			Adapter: n.runner().Adapter(), Target: providers.MachineTarget{ID: "m-1", SSH: n.SSHTarget},
			Script: behave(file), Runs: func() int { return runs(t, file) },
			Release: func() { require.NoError(t, os.WriteFile(file+".go", nil, 0o600)) },
		}
	})
}

// discard is a sink that keeps nothing.
func discard(context.Context, providers.OutputChunk) error { return nil }

func remote(id, script string) providers.RemoteCommand {
	return providers.RemoteCommand{OpID: id, Script: script, Timeout: runenv.Patience(30 * time.Second)}
}

// A script must not be cut by its own commands, and nobody may read it in the list of processes.
func TestExec_TheScriptIsAFile(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	word := marker(t)
	var got string
	_, err := n.runner().Exec(t.Context(), providers.MachineTarget{SSH: n.SSHTarget}, remote("op", `# `+word+`
cat
for p in /proc/[0-9]*/cmdline; do tr '\000' ' ' <"$p"; echo; done 2>/dev/null | grep -c '[3]00`+word[3:]+`'
echo end`), func(_ context.Context, c providers.OutputChunk) error { got += string(c.Data); return nil })
	require.NoError(t, err)
	require.Equal(t, "0\nend\n", got)
	require.NoFileExists(t, filepath.Join(n.stateDir, "op", "in"))
}

// The connection is cut while a script runs, at each of several places of its output. It runs once,
// and the reader gets every byte once.
func TestExec_ACutConnectionLosesNothing(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "count")
	const lines = 40
	script := fmt.Sprintf("echo ran >>'%s'\ni=0; while [ $i -lt %d ]; do i=$((i+1)); echo \"line $i\"; sleep 0.03; done; exit 6", file, lines)
	var want, got strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	c := remote("op", script)
	cuts := 0
	for {
		target, l := relay(t, n)
		seen := 0
		res, err := n.runner().Exec(t.Context(), providers.MachineTarget{SSH: target}, c, func(_ context.Context, chunk providers.OutputChunk) error {
			got.Write(chunk.Data)
			c.From.Stdout = chunk.Next
			if seen++; seen == 2 && cuts < 4 {
				cuts++
				l.cut()
			}
			return nil
		})
		if err == nil {
			require.Equal(t, 6, res.ExitCode)
			break
		}
		require.Contains(t, []providers.Kind{providers.KindBusy, providers.KindUnreachable}, providers.KindOf(err), "%v", err)
	}
	require.Positive(t, cuts)
	require.Equal(t, want.String(), got.String())
	require.Equal(t, 1, runs(t, file))
}

// A reader that is gone leaves no follower on the machine, also where the script writes nothing
// that would tell it so; the script goes on.
func TestExec_FollowersEndWithTheirReader(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	release := filepath.Join(t.TempDir(), "go")
	c := remote("op", "echo started; until [ -e '"+release+"' ]; do sleep 0.05; done; exit 4")
	for range 3 {
		target, l := relay(t, n)
		began := false
		_, err := n.runner().Exec(t.Context(), providers.MachineTarget{SSH: target}, c, func(context.Context, providers.OutputChunk) error {
			began = len(followers(t, n)) > 0
			l.cut()
			return nil
		})
		require.Equal(t, providers.KindBusy, providers.KindOf(err), "%v", err)
		require.True(t, began)
	}
	none := func() bool { return len(followers(t, n)) == 0 }
	require.Eventually(t, none, runenv.Patience(10*time.Second), 20*time.Millisecond)
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	res, err := n.runner().Exec(t.Context(), providers.MachineTarget{SSH: n.SSHTarget}, c, discard)
	require.NoError(t, err)
	require.Equal(t, 4, res.ExitCode)
	require.Eventually(t, none, runenv.Patience(10*time.Second), 20*time.Millisecond, "nor does one that has sent everything")
}

// followers are the processes on the node that follow an operation.
func followers(t *testing.T, n *node) []string {
	t.Helper()
	return slices.DeleteFunc(processesWith(t, n.stateDir), func(line string) bool { return !strings.Contains(line, "slipway-follow") })
}

// The process that runs the script is killed: the script is not run again, and its outcome is not
// guessed.
func TestExec_AKilledOperationStaysUncertain(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "count")
	c := remote("op", "echo ran >>'"+file+"'\nread -r pid _ <'"+n.stateDir+"/op/owner'\nkill -KILL \"$pid\"")
	for range 3 {
		_, err := n.runner().Exec(t.Context(), providers.MachineTarget{SSH: n.SSHTarget}, c, discard)
		require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
	}
	require.Equal(t, 1, runs(t, file))
}

// 50 MiB go through a slow reader. Neither what waits on this side nor the script is held up by it.
func TestExec_MuchOutputNeedsLittleMemory(t *testing.T) {
	n := startNode(t)
	const flood = 50 << 20
	c := remote("op", behave("")(conformance.Behaviour{Flood: flood}))
	c.MaxOutput = providers.MaxRemoteOutput
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, total, chunks := heap(), uint64(0), int64(0), 0
	res, err := n.runner().Exec(t.Context(), providers.MachineTarget{SSH: n.SSHTarget}, c, func(_ context.Context, chunk providers.OutputChunk) error {
		total += int64(len(chunk.Data))
		if chunks++; chunks%200 == 1 {
			most = max(most, heap())
		}
		return nil
	})
	require.NoError(t, err)
	require.False(t, res.Truncated)
	require.Equal(t, int64(flood), total)
	t.Logf("50 MiB of output: the heap grew by at most %d KiB", (max(most, before)-before)>>10)
	require.Less(t, most, before+(16<<20))
}

// endless is what a machine sends that somebody else controls.
type endless struct{ mark string }

func (e *endless) Read(p []byte) (int, error) {
	if e.mark != "" {
		n := copy(p, e.mark)
		e.mark = e.mark[n:]
		return n, nil
	}
	return len(p), nil
}

// The bound on the machine is the machine's word. Here it counts again.
func TestFollow_StopsAtTheBound(t *testing.T) {
	t.Parallel()
	const bound = 1 << 20
	for _, offset := range []int64{0, 1000, bound, 2 * bound} {
		total := int64(0)
		f := &follower{
			cmd: command{maxOutput: bound, op: &operation{id: "op", mark: "mark"}},
			sink: func(_ context.Context, c providers.OutputChunk) error {
				total += int64(len(c.Data))
				return nil
			},
		}
		err := f.read(t.Context(), &endless{"mark\n"}, providers.StreamStdout, offset)
		require.Equal(t, providers.KindTooBig, providers.KindOf(err), "%v", err)
		require.LessOrEqual(t, total, max(bound-offset, 0))
	}
	f := &follower{cmd: command{maxOutput: bound, op: &operation{id: "op", mark: "mark"}}}
	err := f.read(t.Context(), &endless{}, providers.StreamStdout, 0)
	require.Equal(t, providers.KindUnreachable, providers.KindOf(err), "%v", err)
}

// TestFollow_GathersSmallOutput: single bytes come in chunks that are some time apart, however fast
// the machine sends them. The first one is not held back.
func TestFollow_GathersSmallOutput(t *testing.T) {
	t.Parallel()
	var at []time.Time
	f := &follower{
		cmd: command{maxOutput: 1 << 20, op: &operation{id: "op", mark: "mark"}},
		sink: func(context.Context, providers.OutputChunk) error {
			at = append(at, time.Now())
			return nil
		},
	}
	require.NoError(t, f.read(t.Context(), iotest.OneByteReader(strings.NewReader("mark\nabc")), providers.StreamStdout, 0))
	require.Len(t, at, 3)
	require.GreaterOrEqual(t, at[2].Sub(at[0]), 2*gatherPause)
}

// A sink that never returns holds up its own call only.
func TestExec_ASinkThatBlocksDoesNotHoldTheScript(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "done")
	ended := make(chan error, 1)
	var calls atomic.Int32
	c := remote("op", "head -c 9000000 /dev/zero\n: >'"+file+"'")
	go func() {
		_, err := n.runner().Exec(ctx, providers.MachineTarget{SSH: n.SSHTarget}, c,
			func(ctx context.Context, _ providers.OutputChunk) error {
				calls.Add(1)
				<-ctx.Done()
				return ctx.Err()
			})
		ended <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, runenv.Patience(20*time.Second), 20*time.Millisecond, "the script waited for its reader")
	cancel()
	require.Error(t, <-ended)
	require.LessOrEqual(t, calls.Load(), int32(2), "one chunk of each stream")
	res, err := n.runner().Exec(t.Context(), providers.MachineTarget{SSH: n.SSHTarget}, c, discard)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
}

// signed returns the target with a certificate that ca has signed.
func signed(t *testing.T, n *node, ca ssh.Signer, principal string, from, until time.Time) providers.MachineTarget {
	t.Helper()
	pemBytes, key := newKey(t)
	cert := &ssh.Certificate{
		Key: key.PublicKey(), CertType: ssh.UserCert, KeyId: "run-1", ValidPrincipals: []string{principal},
		ValidAfter: uint64(from.Unix()), ValidBefore: uint64(until.Unix()),
	}
	require.NoError(t, cert.SignCert(rand.Reader, ca))
	target := n.SSHTarget
	target.PrivateKeyPEM, target.CertificateAuthorized = providers.NewSecret(string(pemBytes)), string(ssh.MarshalAuthorizedKey(cert))
	return providers.MachineTarget{SSH: target}
}

func TestExec_RefusesLoginsThatAreNotValid(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	_, foreign := newKey(t)
	_, other := newKey(t)
	file := filepath.Join(t.TempDir(), "count")
	now := time.Now()
	changed := providers.MachineTarget{SSH: n.SSHTarget}
	changed.SSH.HostKey = string(ssh.MarshalAuthorizedKey(other.PublicKey()))
	for name, tc := range map[string]struct {
		target providers.MachineTarget
		want   providers.Kind
	}{
		"a valid certificate": {signed(t, n, n.ca, n.User, now.Add(-time.Minute), now.Add(10*time.Minute)), ""},
		"expired":             {signed(t, n, n.ca, n.User, now.Add(-time.Hour), now.Add(-time.Minute)), providers.KindUnauthorized},
		"not valid yet":       {signed(t, n, n.ca, n.User, now.Add(time.Hour), now.Add(2*time.Hour)), providers.KindUnauthorized},
		"of a foreign CA":     {signed(t, n, foreign, n.User, now.Add(-time.Minute), now.Add(time.Minute)), providers.KindUnauthorized},
		"of another account":  {signed(t, n, n.ca, "nobody", now.Add(-time.Minute), now.Add(time.Minute)), providers.KindUnauthorized},
		"another host key":    {changed, providers.KindPinMismatch},
	} {
		before := runs(t, file)
		_, err := n.runner().Exec(t.Context(), tc.target, remote("op-"+strings.ReplaceAll(name, " ", "-"), "echo ran >>'"+file+"'"), discard)
		require.Equal(t, tc.want, providers.KindOf(err), "%s: %v", name, err)
		require.Equal(t, tc.want == "", runs(t, file) == before+1, name)
	}
}

// behind returns the target that is reached through the jump host.
func behind(n, jump *node) providers.MachineTarget {
	target, host := n.SSHTarget, jump.SSHTarget
	target.Jump = &host
	return providers.MachineTarget{SSH: target}
}

func TestExec_ThroughAJumpHost(t *testing.T) {
	t.Parallel()
	n, jump := startNode(t), startNode(t)
	target := behind(n, jump)
	var got string
	_, err := n.runner().Exec(t.Context(), target, remote("op", "echo \"$SSH_CONNECTION\""), func(_ context.Context, c providers.OutputChunk) error {
		got += string(c.Data)
		return nil
	})
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(n.Address)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(got, port+"\n"), got)
	require.Contains(t, jump.log(t), "direct-tcpip")
	require.NotContains(t, jump.log(t), "auth-agent", "the agent is not forwarded")
}

func TestExec_ChecksBothEndsOfAJump(t *testing.T) {
	t.Parallel()
	n, jump := startNode(t), startNode(t)
	_, other := newKey(t)
	foreign := string(ssh.MarshalAuthorizedKey(other.PublicKey()))
	wrongPEM, _ := newKey(t)
	for name, tc := range map[string]struct {
		edit func(*providers.SSHTarget)
		want providers.Kind
	}{
		"the node's host key changed":   {func(s *providers.SSHTarget) { s.HostKey = foreign }, providers.KindPinMismatch},
		"the jump's host key changed":   {func(s *providers.SSHTarget) { s.Jump.HostKey = foreign }, providers.KindPinMismatch},
		"the jump refuses the login":    {func(s *providers.SSHTarget) { s.Jump.PrivateKeyPEM = providers.NewSecret(string(wrongPEM)) }, providers.KindUnauthorized},
		"nothing listens at the node":   {func(s *providers.SSHTarget) { s.Address = freeAddress(t) }, providers.KindUnreachable},
		"a name that the jump resolves": {func(s *providers.SSHTarget) { s.Address = "localhost:22" }, providers.KindInvalid},
		"an address that is refused":    {func(s *providers.SSHTarget) { s.Address = "169.254.169.254:22" }, providers.KindInvalid},
		"a jump host behind another":    {func(s *providers.SSHTarget) { s.Jump.Jump = &jump.SSHTarget }, providers.KindInvalid},
	} {
		target := behind(n, jump)
		tc.edit(&target.SSH)
		_, err := n.runner().Exec(t.Context(), target, remote("op", "true"), discard)
		require.Equal(t, tc.want, providers.KindOf(err), "%s: %v", name, err)
	}
}

// A jump host that accepts and says nothing costs the handshake's time.
func TestExec_ASilentJumpHostCostsTheHandshakeTimeout(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	target := behind(n, n)
	target.SSH.Jump.Address = ln.Addr().String()
	target.SSH.HandshakeTimeout = 200 * time.Millisecond
	_, err = n.runner().Exec(t.Context(), target, remote("op", "true"), discard)
	require.Equal(t, providers.KindUnreachable, providers.KindOf(err), "%v", err)
}
