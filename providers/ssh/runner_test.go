package ssh

import (
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func TestRunsACommandAndReturnsItsEnd(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{
		Argv:  []string{"sh", "-c", `printf '%s|' "$@"; cat; echo err >&2; exit 7`, "sh", "it's", "$(id)", "a  b", "*", "", "x\ny"},
		Stdin: []byte("input"),
	})
	require.NoError(t, err)
	require.Equal(t, 7, res.ExitCode)
	require.Equal(t, "it's|$(id)|a  b|*||x\ny|input", string(res.Stdout), "each word must arrive as it is")
	require.Equal(t, "err\n", string(res.Stderr))
	require.False(t, res.Truncated)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for name, c := range map[string]struct {
		argv []string
		code int
	}{
		"success":   {[]string{"true"}, 0},
		"failure":   {[]string{"false"}, 1},
		"not found": {[]string{"/nonexistent/program"}, 127},
		"killed":    {[]string{"sh", "-c", "kill -KILL $$"}, 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{Argv: c.argv})
			require.NoError(t, err)
			require.Equal(t, c.code, res.ExitCode)
		})
	}
}

func TestLogsInWithACertificate(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	pemBytes, key := newKey(t)
	certificate := func(principal string, until time.Time) string {
		c := &ssh.Certificate{
			Key: key.PublicKey(), CertType: ssh.UserCert, KeyId: "run", ValidPrincipals: []string{principal},
			ValidAfter: uint64(time.Now().Add(-time.Hour).Unix()), ValidBefore: uint64(until.Unix()),
		}
		require.NoError(t, c.SignCert(rand.Reader, n.ca))
		return string(ssh.MarshalAuthorizedKey(c))
	}
	target := n.SSHTarget
	target.PrivateKeyPEM = providers.NewSecret(string(pemBytes))

	target.CertificateAuthorized = certificate(n.User, time.Now().Add(10*time.Minute))
	res, err := n.runner().RunSSH(t.Context(), target, providers.SSHCommand{Argv: []string{"echo", "hello"}})
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(res.Stdout))

	target.CertificateAuthorized = certificate(n.User, time.Now().Add(-time.Minute))
	_, err = n.runner().RunSSH(t.Context(), target, providers.SSHCommand{Argv: []string{"true"}})
	require.Equal(t, providers.KindUnauthorized, providers.KindOf(err), "an expired certificate: %v", err)

	target.CertificateAuthorized = certificate("someone-else", time.Now().Add(time.Minute))
	_, err = n.runner().RunSSH(t.Context(), target, providers.SSHCommand{Argv: []string{"true"}})
	require.Equal(t, providers.KindUnauthorized, providers.KindOf(err), "another principal: %v", err)
}

func TestAnotherKeyIsRejected(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	pemBytes, _ := newKey(t)
	target := n.SSHTarget
	target.PrivateKeyPEM = providers.NewSecret(string(pemBytes))
	_, err := n.runner().RunSSH(t.Context(), target, providers.SSHCommand{Argv: []string{"true"}})
	require.Equal(t, providers.KindUnauthorized, providers.KindOf(err), "%v", err)
	require.NotContains(t, err.Error(), "PRIVATE KEY")
}

func TestAWrongPinIsRefusedBeforeAnyCredential(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	_, other := newKey(t)
	target := n.SSHTarget
	target.HostKey = string(ssh.MarshalAuthorizedKey(other.PublicKey()))
	_, err := n.runner().RunSSH(t.Context(), target, providers.SSHCommand{Argv: []string{"true"}})
	require.Equal(t, providers.KindPinMismatch, providers.KindOf(err), "%v", err)
	require.Contains(t, err.Error(), ssh.FingerprintSHA256(other.PublicKey()))
	require.Eventually(t, func() bool {
		return len(n.log(t)) > 0
	}, runenv.Patience(5*time.Second), 20*time.Millisecond)
	require.NotContains(t, n.log(t), "userauth-request", "the client began to log in to a server it must not trust")

	// The same log does show it when the pin is right.
	_, err = n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{Argv: []string{"true"}})
	require.NoError(t, err)
	require.Contains(t, n.log(t), "userauth-request")
}

func TestAPinOfAnotherTypeIsAMismatch(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	target := n.SSHTarget
	target.HostKey = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg="
	_, err := n.runner().RunSSH(t.Context(), target, providers.SSHCommand{Argv: []string{"true"}})
	require.Equal(t, providers.KindPinMismatch, providers.KindOf(err), "%v", err)
}

func TestASilentServerCostsTheHandshakeTimeoutOnly(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel and never speaks
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	pemBytes, key := newKey(t)
	target := providers.SSHTarget{
		Address: ln.Addr().String(), Rule: providers.SimulatedAddresses(), User: "root", HostKey: string(ssh.MarshalAuthorizedKey(key.PublicKey())),
		PrivateKeyPEM: providers.NewSecret(string(pemBytes)), HandshakeTimeout: 200 * time.Millisecond,
	}
	began := time.Now()
	_, err = New().RunSSH(t.Context(), target, providers.SSHCommand{Argv: []string{"true"}})
	require.Equal(t, providers.KindUnreachable, providers.KindOf(err), "%v", err)
	require.Less(t, time.Since(began), runenv.Patience(5*time.Second), runenv.Deadline+"it took too long")
}

func TestTheDeadlineEndsTheRemoteProcesses(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	word := marker(t)
	res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{
		Argv:    []string{"sh", "-c", "echo started; sleep " + word + " & sleep " + word},
		Timeout: time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, 124, res.ExitCode)
	require.Equal(t, "started\n", string(res.Stdout))
	require.Eventually(t, func() bool { return len(processesWith(t, word)) == 0 },
		runenv.Patience(10*time.Second), 50*time.Millisecond, "processes of the command outlived its deadline")
}

func TestACommandThatIgnoresTermIsKilled(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	word := marker(t)
	res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{
		Argv:    []string{"sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", word},
		Timeout: time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, 124, res.ExitCode)
	require.Eventually(t, func() bool { return len(processesWith(t, word)) == 0 },
		runenv.Patience(10*time.Second), 50*time.Millisecond)
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{
		Argv:      []string{"sh", "-c", "head -c 20000000 /dev/zero; echo end >&2; exit 3"},
		MaxOutput: 1000,
	})
	require.NoError(t, err)
	require.Equal(t, 3, res.ExitCode, "the rest must be drained, or the command dies of a closed pipe")
	require.Len(t, res.Stdout, 1000)
	require.Equal(t, "end\n", string(res.Stderr))
	require.True(t, res.Truncated)
}

func TestABackgroundProcessDoesNotHoldTheResultBack(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	word := marker(t)
	began := time.Now()
	res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{
		// The daemon leaves timeout's process group, as daemons do, and ends by itself.
		Argv:    []string{"sh", "-c", "setsid timeout 8 sleep " + word + " & echo ready; exit 5"},
		Timeout: 20 * time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, 5, res.ExitCode)
	require.Equal(t, "ready\n", string(res.Stdout))
	require.True(t, res.Truncated)
	require.Less(t, time.Since(began), runenv.Patience(7*time.Second), runenv.Deadline+"it took too long")
}

// begin runs a command that sleeps for word seconds and returns when it can be
// seen on the node; its error comes over the channel.
func begin(ctx context.Context, t *testing.T, r *Runner, target providers.SSHTarget, word string, limit time.Duration) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := r.RunSSH(ctx, target, providers.SSHCommand{Argv: []string{"sleep", word}, Timeout: limit})
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(processesWith(t, "sleep "+word)) > 0 }, runenv.Patience(10*time.Second), 20*time.Millisecond)
	return ended
}

func TestALostConnectionIsUncertain(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	target, l := relay(t, n)
	word := marker(t)
	ended := begin(t.Context(), t, n.runner(), target, word, 3*time.Second)
	l.cut()
	err := <-ended
	require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
	require.Eventually(t, func() bool { return len(processesWith(t, word)) == 0 },
		runenv.Patience(15*time.Second), 50*time.Millisecond, "the node's own limit must end the command")
}

func TestAFrozenConnectionIsFoundByKeepalive(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	target, l := relay(t, n)
	r := n.runner(WithKeepalive(200*time.Millisecond, time.Second))
	ended := begin(t.Context(), t, r, target, marker(t), 20*time.Second)
	began := time.Now()
	l.freeze()
	err := <-ended
	require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
	require.Less(t, time.Since(began), runenv.Patience(10*time.Second), runenv.Deadline+"it took too long")
}

func TestACancelledCallIsUncertain(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := begin(ctx, t, n.runner(), n.SSHTarget, marker(t), 5*time.Second)
	cancel()
	err := <-ended
	require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNoServerIsUnreachable(t *testing.T) {
	t.Parallel()
	pemBytes, key := newKey(t)
	_, err := New().RunSSH(t.Context(), providers.SSHTarget{
		Address: freeAddress(t), Rule: providers.SimulatedAddresses(), User: "root", HostKey: string(ssh.MarshalAuthorizedKey(key.PublicKey())),
		PrivateKeyPEM: providers.NewSecret(string(pemBytes)),
	}, providers.SSHCommand{Argv: []string{"true"}})
	require.Equal(t, providers.KindUnreachable, providers.KindOf(err), "%v", err)
}

func TestRunSSH_ChecksTheAddressThatItConnectsTo(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	accepted := make(chan struct{})
	go func() {
		if c, err := ln.Accept(); err == nil {
			_ = c.Close()
			close(accepted)
		}
	}()
	pemBytes, key := newKey(t)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	run := func(host string, rule spec.AddressRule) error {
		_, err := New().RunSSH(t.Context(), providers.SSHTarget{
			Address: net.JoinHostPort(host, port), Rule: rule, User: "root", HostKey: string(ssh.MarshalAuthorizedKey(key.PublicKey())),
			PrivateKeyPEM: providers.NewSecret(string(pemBytes)),
		}, providers.SSHCommand{Argv: []string{"true"}})
		return err
	}
	own := providers.SimulatedAddresses()
	own.Own = []netip.AddrPort{netip.MustParseAddrPort(ln.Addr().String())}
	for name, err := range map[string]error{
		"no rule":           run("127.0.0.1", spec.AddressRule{}),
		"loopback":          run("127.0.0.1", spec.AddressRule{Anywhere: true}),
		"a name of it":      run("localhost", spec.AddressRule{Anywhere: true}),
		"the control plane": run("127.0.0.1", own),
		"link-local":        run("169.254.169.254", spec.AddressRule{Anywhere: true}),
	} {
		require.True(t, providers.IsRefusedAddress(err), "%s: %v", name, err)
		require.Equal(t, providers.KindInvalid, providers.KindOf(err), name)
	}
	select {
	case <-accepted:
		t.Fatal("a refused address was connected to")
	default:
	}
	require.False(t, providers.IsRefusedAddress(run("127.0.0.1", providers.SimulatedAddresses())))
	<-accepted // the test can fail: an allowed address is connected to
}

func TestBadInputIsRefusedWithoutACall(t *testing.T) {
	t.Parallel()
	pemBytes, key := newKey(t)
	_, foreign := newKey(t)
	foreignCert := &ssh.Certificate{Key: foreign.PublicKey(), CertType: ssh.UserCert, ValidBefore: ssh.CertTimeInfinity}
	require.NoError(t, foreignCert.SignCert(rand.Reader, key))
	good := providers.SSHTarget{
		Address: "127.0.0.1:1", Rule: providers.SimulatedAddresses(), User: "root", HostKey: string(ssh.MarshalAuthorizedKey(key.PublicKey())),
		PrivateKeyPEM: providers.NewSecret(string(pemBytes)),
	}
	run := providers.SSHCommand{Argv: []string{"true"}}
	for name, edit := range map[string]func(*providers.SSHTarget, *providers.SSHCommand){
		"address without port": func(s *providers.SSHTarget, _ *providers.SSHCommand) { s.Address = "127.0.0.1" },
		"no user":              func(s *providers.SSHTarget, _ *providers.SSHCommand) { s.User = "" },
		"no pin":               func(s *providers.SSHTarget, _ *providers.SSHCommand) { s.HostKey = "" },
		"certificate as pin": func(s *providers.SSHTarget, _ *providers.SSHCommand) {
			s.HostKey = string(ssh.MarshalAuthorizedKey(foreignCert))
		},
		"no key":             func(s *providers.SSHTarget, _ *providers.SSHCommand) { s.PrivateKeyPEM = providers.Secret{} },
		"key as certificate": func(s *providers.SSHTarget, _ *providers.SSHCommand) { s.CertificateAuthorized = good.HostKey },
		"certificate of another": func(s *providers.SSHTarget, _ *providers.SSHCommand) {
			s.CertificateAuthorized = string(ssh.MarshalAuthorizedKey(foreignCert))
		},
		"no command":              func(_ *providers.SSHTarget, c *providers.SSHCommand) { c.Argv = nil },
		"NUL in a word":           func(_ *providers.SSHTarget, c *providers.SSHCommand) { c.Argv = []string{"echo", "a\x00b"} },
		"negative limit":          func(_ *providers.SSHTarget, c *providers.SSHCommand) { c.Timeout = -1 },
		"negative output":         func(_ *providers.SSHTarget, c *providers.SSHCommand) { c.MaxOutput = -1 },
		"operation id with slash": func(_ *providers.SSHTarget, c *providers.SSHCommand) { c.OpID = "../etc" },
		"operation id hidden":     func(_ *providers.SSHTarget, c *providers.SSHCommand) { c.OpID = ".new" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, cmd := good, run
			edit(&target, &cmd)
			_, err := New().RunSSH(t.Context(), target, cmd)
			require.Equal(t, providers.KindInvalid, providers.KindOf(err), "%v", err)
		})
	}
}

func TestRunSSH_HidesSecretsThatTheNodeRepeats(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	secret := providers.NewSecret("consumer_key: SxxVN2vSdJNyp5Kqyv\ntoken: yes\n")
	for _, id := range []string{"", "op-that-repeats"} {
		res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{
			Argv: []string{"sh", "-c", "tee /dev/stderr"}, Stdin: []byte("x " + secret.Reveal() + "y SxxVN2vSdJNyp5Kqyv"), Secrets: []providers.Secret{secret}, OpID: id,
		})
		require.NoError(t, err)
		require.Equal(t, "x [secret]y [secret]", string(res.Stdout))
		require.Equal(t, "x [secret]y [secret]", string(res.Stderr))
	}
}
