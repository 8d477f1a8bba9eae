package ssh

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/sshd"
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
	s := sshd.Start(t, ca)
	return &node{SSHTarget: s.SSHTarget, stateDir: s.StateDir, ca: ca, logFile: s.LogFile}
}

func newKey(t *testing.T) (pemBytes []byte, signer ssh.Signer) {
	t.Helper()
	return sshd.NewKey(t)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return sshd.FreeAddress(t)
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
