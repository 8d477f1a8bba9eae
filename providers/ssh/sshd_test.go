package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// node is a real OpenSSH server on the loopback interface that lets the user
// running the test log in with one key.
type node struct {
	providers.SSHTarget
	stateDir string
	ca       ssh.Signer // trusted to sign user certificates
	logFile  string
}

func (n *node) runner(opts ...Option) *Runner {
	return New(append([]Option{WithStateDir(n.stateDir)}, opts...)...)
}

func (n *node) log(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(n.logFile)
	require.NoError(t, err)
	return string(b)
}

// startNode runs sshd, or skips when OpenSSH is not installed.
func startNode(t *testing.T) *node {
	t.Helper()
	_, ca := newKey(t)
	return startNodeTrusting(t, ca)
}

// startNodeTrusting runs an sshd that takes the user certificates of ca.
func startNodeTrusting(t *testing.T, ca ssh.Signer) *node {
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
	hostPEM, host := newKey(t)
	loginPEM, login := newKey(t)
	hostCert := &ssh.Certificate{
		Key: host.PublicKey(), CertType: ssh.HostCert, KeyId: "host",
		ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: ssh.CertTimeInfinity,
	}
	require.NoError(t, hostCert.SignCert(rand.Reader, ca))

	addr := freeAddress(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	logFile := filepath.Join(dir, "log")
	conf := write("sshd_config", []byte(strings.Join([]string{
		"Port " + port,
		"ListenAddress 127.0.0.1",
		"HostKey " + write("host", hostPEM),
		"HostCertificate " + write("host-cert.pub", ssh.MarshalAuthorizedKey(hostCert)),
		"TrustedUserCAKeys " + write("ca.pub", ssh.MarshalAuthorizedKey(ca.PublicKey())),
		"AuthorizedKeysFile " + write("authorized", ssh.MarshalAuthorizedKey(login.PublicKey())),
		"PidFile none",
		"UsePAM no",
		"StrictModes no",
		"PasswordAuthentication no",
		"KbdInteractiveAuthentication no",
		"PermitRootLogin prohibit-password",
		"LogLevel DEBUG2",
		"",
	}, "\n")))

	cmd := exec.Command(sshd, "-D", "-f", conf, "-E", logFile)
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

	return &node{
		SSHTarget: providers.SSHTarget{
			Address: addr, Rule: providers.SimulatedAddresses(), User: me.Username,
			HostKey:       string(ssh.MarshalAuthorizedKey(host.PublicKey())),
			PrivateKeyPEM: providers.NewSecret(string(loginPEM)),
		},
		stateDir: filepath.Join(dir, "ops"), ca: ca, logFile: logFile,
	}
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

func newKey(t *testing.T) (pemBytes []byte, signer ssh.Signer) {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(priv, "test")
	require.NoError(t, err)
	signer, err = ssh.NewSignerFromKey(priv)
	require.NoError(t, err)
	return pem.EncodeToMemory(block), signer
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// line is a TCP relay whose connections can be cut or made to hang.
type line struct {
	mu     sync.Mutex
	conns  []net.Conn
	frozen chan struct{}
	once   sync.Once
}

// relay puts a line before the node and returns the target that goes over it.
func relay(t *testing.T, n *node) (providers.SSHTarget, *line) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &line{frozen: make(chan struct{})}
	t.Cleanup(func() { _ = ln.Close(); l.cut() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", n.Address)
			if err != nil {
				_ = in.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, in, out)
			l.mu.Unlock()
			go l.pump(in, out)
			go l.pump(out, in)
		}
	}()
	target := n.SSHTarget
	target.Address = ln.Addr().String()
	return target, l
}

func (l *line) pump(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		k, err := from.Read(buf)
		select {
		case <-l.frozen:
			_, _ = io.Copy(io.Discard, from) // stays open and silent until cut
			return
		default:
		}
		if _, werr := to.Write(buf[:k]); err != nil || werr != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

func (l *line) freeze() { l.once.Do(func() { close(l.frozen) }) }

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// marker is a word by which a test finds its own processes: a number of seconds
// that sleep(1) takes.
func marker(t *testing.T) string {
	t.Helper()
	b := make([]byte, 4)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return fmt.Sprintf("300.%d%d%d%d", b[0], b[1], b[2], b[3])
}

// processesWith lists the processes with word in their command line.
func processesWith(t *testing.T, word string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var found []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		words := strings.ReplaceAll(string(line), "\x00", " ")
		if err == nil && strings.Contains(words, word) {
			found = append(found, e.Name()+" "+words)
		}
	}
	return found
}
