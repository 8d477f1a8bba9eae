// Package sshd runs a real OpenSSH server on the loopback interface, for tests.
package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Server is a real OpenSSH server that lets the user running the test log in with one key.
type Server struct {
	providers.SSHTarget
	StateDir string
	LogFile  string
}

// Start runs an sshd that takes the user certificates of ca too. It skips the test when OpenSSH is
// not installed.
func Start(t *testing.T, ca ssh.Signer) *Server {
	t.Helper()
	hostPEM, host := NewKey(t)
	loginPEM, login := NewKey(t)
	s := StartAt(t, ca, FreeAddress(t), hostPEM, ssh.MarshalAuthorizedKey(login.PublicKey()))
	s.HostKey, s.PrivateKeyPEM = string(ssh.MarshalAuthorizedKey(host.PublicKey())), providers.NewSecret(string(loginPEM))
	return s
}

// StartAt runs an sshd at an address, with a host key and the login key that it accepts, both as
// files. The target that it returns has no keys.
func StartAt(t *testing.T, ca ssh.Signer, addr string, hostPEM, authorized []byte) *Server {
	t.Helper()
	sshd := findSSHD(t)
	if os.Geteuid() == 0 {
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // sshd's privilege separation folder
	}
	me, err := user.Current()
	require.NoError(t, err)

	dir := t.TempDir()
	write := func(name string, content []byte) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, content, 0o600))
		return p
	}
	host, err := ssh.ParsePrivateKey(hostPEM)
	require.NoError(t, err)
	hostCert := &ssh.Certificate{
		Key: host.PublicKey(), CertType: ssh.HostCert, KeyId: "host",
		ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: ssh.CertTimeInfinity,
	}
	require.NoError(t, hostCert.SignCert(rand.Reader, ca))

	listen, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	logFile := filepath.Join(dir, "log")
	conf := write("sshd_config", config(listen, port,
		"HostKey "+write("host", hostPEM),
		"HostCertificate "+write("host-cert.pub", ssh.MarshalAuthorizedKey(hostCert)),
		"TrustedUserCAKeys "+write("ca.pub", ssh.MarshalAuthorizedKey(ca.PublicKey())),
		"AuthorizedKeysFile "+write("authorized", authorized),
	))

	cmd := exec.Command(sshd, "-D", "-f", conf, "-E", logFile) //nolint:forbidigo // the clean-up below ends it
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, runenv.Patience(10*time.Second), 20*time.Millisecond, "sshd did not start")

	return &Server{
		SSHTarget: providers.SSHTarget{Address: addr, Rule: providers.SimulatedAddresses(), User: me.Username},
		StateDir:  filepath.Join(dir, "ops"), LogFile: logFile,
	}
}

// config is a configuration of sshd with some lines of its own. The home directory is none: a login
// shell would read the files of whoever runs the tests, which may take seconds for each command.
func config(listen, port string, lines ...string) []byte {
	return []byte(strings.Join(append(lines,
		"Port "+port, "ListenAddress "+listen, "PidFile none", "UsePAM no", "StrictModes no", "PasswordAuthentication no",
		"KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password", "LogLevel DEBUG2", "SetEnv HOME=/nonexistent", "",
	), "\n"))
}

func findSSHD(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if os.Getenv("SLIPWAY_REQUIRE_PEERS") == "1" {
		t.Fatal("OpenSSH's server is not installed and SLIPWAY_REQUIRE_PEERS=1 wants it: install openssh-server")
	}
	t.Skip("OpenSSH's server is not installed: install openssh-server to run this test")
	return ""
}

// NewKey returns a new key, as a file and as a signer.
func NewKey(t *testing.T) (pemBytes []byte, signer ssh.Signer) {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(priv, "test")
	require.NoError(t, err)
	signer, err = ssh.NewSignerFromKey(priv)
	require.NoError(t, err)
	return pem.EncodeToMemory(block), signer
}

// FreeAddress returns an address of the loopback interface on which nothing listens.
func FreeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
