package ssh

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
)

func authorizedLine(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// authorize replaces the authorized_keys file of the node.
func (n *node) authorize(t *testing.T, lines ...string) {
	t.Helper()
	path := filepath.Join(filepath.Dir(n.logFile), "authorized")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

// TestVerifyHost asks a real sshd for its host key alone.
func TestVerifyHost(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	_, other := newKey(t)
	_, port, err := net.SplitHostPort(n.Address)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*providers.SSHTarget)
		want   providers.Kind
	}{
		"pinned":          {func(*providers.SSHTarget) {}, ""},
		"another key":     {func(t *providers.SSHTarget) { t.HostKey = authorizedLine(other.PublicKey()) }, providers.KindPinMismatch},
		"no pin":          {func(t *providers.SSHTarget) { t.HostKey = "" }, providers.KindInvalid},
		"refused address": {func(t *providers.SSHTarget) { t.Rule.Loopback = false }, providers.KindInvalid},
		"nobody listens":  {func(t *providers.SSHTarget) { t.Address = net.JoinHostPort("127.0.0.99", port) }, providers.KindUnreachable},
		"jump host":       {func(t *providers.SSHTarget) { t.Jump = &providers.SSHTarget{} }, providers.KindInvalid},
	} {
		target := n.SSHTarget
		target.User, target.PrivateKeyPEM = "", providers.Secret{} // they are not needed
		c.change(&target)
		require.Equal(t, c.want, providers.KindOf(n.runner().VerifyHost(t.Context(), target)), name)
	}
	log, err := os.ReadFile(n.logFile)
	require.NoError(t, err)
	require.Contains(t, string(log), "SSH2_MSG_KEXINIT received")
	require.NotContains(t, string(log), "userauth-request", "no login begins")
}

// TestOfferKey_OpenSSH offers keys of which this side has no private half to a real sshd.
func TestOfferKey_OpenSSH(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	_, login := newKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 3072)
	require.NoError(t, err)
	rsaPublic, err := ssh.NewPublicKey(&rsaKey.PublicKey)
	require.NoError(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ecPublic, err := ssh.NewPublicKey(&ecKey.PublicKey)
	require.NoError(t, err)
	sk := securityKey(t)
	all := []ssh.PublicKey{login.PublicKey(), rsaPublic, ecPublic, sk}
	offer := func(key ssh.PublicKey) (bool, error) {
		target := n.SSHTarget
		target.PrivateKeyPEM = providers.Secret{} // it is not needed
		return n.runner().OfferKey(t.Context(), target, authorizedLine(key))
	}
	for i, key := range all {
		var lines []string
		for j, other := range all {
			if i != j {
				lines = append(lines, authorizedLine(other))
			}
		}
		n.authorize(t, lines...)
		accepted, err := offer(key)
		require.NoError(t, err, key.Type())
		require.False(t, accepted, "%s is not in authorized_keys", key.Type())
		n.authorize(t, authorizedLine(key))
		accepted, err = offer(key)
		require.NoError(t, err, key.Type())
		require.True(t, accepted, "%s is in authorized_keys", key.Type())
	}
	require.NotContains(t, n.log(t), "Accepted publickey", "nobody logged in")
	require.NotContains(t, n.log(t), "signature", "nothing was signed")

	target := n.SSHTarget
	target.User = "slipway-no-such-account"
	accepted, err := n.runner().OfferKey(t.Context(), target, authorizedLine(login.PublicKey()))
	require.NoError(t, err)
	require.False(t, accepted, "an account that is gone")
	target = n.SSHTarget
	_, other := newKey(t)
	target.HostKey = authorizedLine(other.PublicKey())
	_, err = n.runner().OfferKey(t.Context(), target, authorizedLine(login.PublicKey()))
	require.True(t, providers.IsKind(err, providers.KindPinMismatch), "%v", err)
	for _, bad := range []string{"", "ssh-ed25519 AAAA", "no-pty " + authorizedLine(sk), authorizedLine(sk) + "\n" + authorizedLine(ecPublic)} {
		_, err = n.runner().OfferKey(t.Context(), n.SSHTarget, bad)
		require.True(t, providers.IsKind(err, providers.KindInvalid), "%q: %v", bad, err)
	}
}

// securityKey returns a public key as ssh-keygen -t ed25519-sk makes it; the private half would be
// in a device.
func securityKey(t *testing.T) ssh.PublicKey {
	t.Helper()
	_, signer := newKey(t)
	var in struct {
		Type string
		Key  []byte
	}
	require.NoError(t, ssh.Unmarshal(signer.PublicKey().Marshal(), &in))
	key, err := ssh.ParsePublicKey(ssh.Marshal(struct {
		Type string
		Key  []byte
		App  string
	}{ssh.KeyAlgoSKED25519, in.Key, "ssh:"}))
	require.NoError(t, err)
	return key
}

// TestOfferKey_UntrustworthyServer: what these servers say of a key is no answer.
func TestOfferKey_UntrustworthyServer(t *testing.T) {
	t.Parallel()
	_, key := newKey(t)
	for name, tc := range map[string]struct {
		conf ssh.ServerConfig
		kind providers.Kind
		says string
	}{
		"accepts every key": {ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return &ssh.Permissions{}, nil }},
			providers.KindProtocol, "would accept any"},
		"needs no key": {ssh.ServerConfig{NoClientAuth: true}, providers.KindProtocol, "without any key"},
		"ends the connection after the first key": {ssh.ServerConfig{MaxAuthTries: 1, PublicKeyCallback: func(_ ssh.ConnMetadata, offered ssh.PublicKey) (*ssh.Permissions, error) {
			if bytes.Equal(offered.Marshal(), key.PublicKey().Marshal()) {
				return &ssh.Permissions{}, nil
			}
			return nil, os.ErrPermission
		}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := serve(t, &tc.conf)
			accepted, err := New().OfferKey(t.Context(), target, authorizedLine(key.PublicKey()))
			require.Error(t, err)
			require.False(t, accepted)
			if tc.kind != "" {
				require.True(t, providers.IsKind(err, tc.kind), "%v", err)
				require.ErrorContains(t, err, tc.says)
			}
		})
	}
}

// serve runs a server of these rules on the loopback interface.
func serve(t *testing.T, conf *ssh.ServerConfig) providers.SSHTarget {
	t.Helper()
	_, host := newKey(t)
	conf.AddHostKey(host)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				if conn, _, reqs, err := ssh.NewServerConn(c, conf); err == nil {
					go ssh.DiscardRequests(reqs)
					_ = conn.Wait()
				}
			}()
		}
	}()
	return providers.SSHTarget{Address: ln.Addr().String(), Rule: providers.SimulatedAddresses(), User: "t-1", HostKey: authorizedLine(host.PublicKey())}
}

func TestLogin_OpenSSH(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	uid, err := n.runner().Login(t.Context(), n.SSHTarget)
	require.NoError(t, err)
	require.Equal(t, os.Getuid(), uid)
	n.authorize(t)
	_, err = n.runner().Login(t.Context(), n.SSHTarget)
	require.True(t, providers.IsKind(err, providers.KindUnauthorized), "%v", err)
}
