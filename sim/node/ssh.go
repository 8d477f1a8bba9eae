package simnode

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	handshakeLimit = 10 * time.Second
	commandLimit   = 15 * time.Minute
	maxConnections = 64
	maxSessions    = 32 // commands at a time on one node
	listenTries    = 100
)

// sshServer is the node's sshd during one boot.
type sshServer struct {
	n      *Node
	conf   *ssh.ServerConfig
	ln     net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	conns  chan struct{}
	slots  chan struct{}
}

// startSSH opens the node's ssh port under the host key of user-data; without
// one the node makes its own, as a real one does.
func (n *Node) startSSH(b firstBoot) error {
	signer, err := hostSigner(b.hostKey)
	if err != nil {
		return err
	}
	conf := &ssh.ServerConfig{ServerVersion: "SSH-2.0-Slipway_simulated_node", MaxAuthTries: 6,
		PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if n.Faults().SSHRefusesKeys || !authorized(b.keysOf(c.User()), key) && !authorized(n.accountKeys(c.User()), key) && !authorized(n.keptKeys(c.User()), key) {
				return nil, errors.New("the key is not authorized")
			}
			return &ssh.Permissions{}, nil
		}}
	conf.AddHostKey(signer)
	ln, err := n.reopen()
	if err != nil {
		return err
	}
	s := &sshServer{n: n, conf: conf, ln: ln, conns: make(chan struct{}, maxConnections), slots: make(chan struct{}, maxSessions)}
	s.ctx, s.cancel = context.WithCancel(n.closed)
	n.mu.Lock()
	n.ssh = s
	n.mu.Unlock()
	s.work.Go(s.accept)
	return nil
}

// reopen listens on the node's port again; the last boot's connections may hold
// it for a moment.
func (n *Node) reopen() (net.Listener, error) {
	var err error
	for range listenTries {
		var ln net.Listener
		if ln, err = net.Listen("tcp", n.sshAddr); err == nil {
			return ln, nil
		}
		select {
		case <-n.closed.Done():
			return nil, n.closed.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("open the node's ssh port: %w", err)
}

func hostSigner(pem []byte) (ssh.Signer, error) {
	if pem == nil {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("make a host key: %w", err)
		}
		return ssh.NewSignerFromKey(key)
	}
	s, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		return nil, errors.New("the host key of user-data cannot be read")
	}
	return s, nil
}

func authorized(keys []string, offered ssh.PublicKey) bool {
	for _, k := range keys {
		pub, _, _, _, err := ssh.ParseAuthorizedKey([]byte(k))
		if err == nil && string(pub.Marshal()) == string(offered.Marshal()) {
			return true
		}
	}
	return false
}

// close cuts all connections and ends all commands.
func (s *sshServer) close() {
	s.cancel()
	_ = s.ln.Close()
	s.work.Wait()
}

func (s *sshServer) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		select {
		case s.conns <- struct{}{}:
			s.work.Go(func() { defer func() { <-s.conns }(); s.serve(c) })
		default:
			_ = c.Close()
		}
	}
}

func (s *sshServer) serve(c net.Conn) {
	defer context.AfterFunc(s.ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(handshakeLimit))
	conn, chans, reqs, err := ssh.NewServerConn(c, s.conf)
	if err != nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	defer func() { _ = conn.Close() }()
	go ssh.DiscardRequests(reqs)
	who, ctx, leave := s.logIn(conn)
	defer leave()
	for nc := range chans {
		if nc.ChannelType() != "session" {
			_ = nc.Reject(ssh.UnknownChannelType, "only sessions are simulated")
			continue
		}
		ch, chReqs, err := nc.Accept()
		if err != nil {
			return
		}
		s.work.Go(func() { s.session(ctx, who, ch, chReqs) })
	}
}

// session runs one command, or a shell. A command goes on when its connection is lost, as under
// OpenSSH, and ends with the system.
func (s *sshServer) session(ctx context.Context, who account, ch ssh.Channel, reqs <-chan *ssh.Request) {
	defer func() { _ = ch.Close() }()
	pty := false
	for r := range reqs {
		var line struct{ Command string }
		var status uint32
		switch {
		case r.Type == "env" || r.Type == "pty-req":
			pty = pty || r.Type == "pty-req"
			reply(r, true)
			continue
		case r.Type == "exec" && ssh.Unmarshal(r.Payload, &line) == nil:
			reply(r, true)
			go ssh.DiscardRequests(reqs)
			status = s.exec(ctx, who, ch, []string{"-c", s.n.localise(line.Command)}, ch)
		case r.Type == "shell":
			reply(r, true)
			go ssh.DiscardRequests(reqs)
			args, out := shellOf(ch, pty)
			status = s.exec(ctx, who, out, args, s.n.shellInput(ch, pty))
		default:
			reply(r, false)
			continue
		}
		if text := s.n.Faults().SSHLosesAnswerTo; text != "" && strings.Contains(line.Command, text) {
			return
		}
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
		return
	}
}

func reply(r *ssh.Request, ok bool) {
	if r.WantReply {
		_ = r.Reply(ok, nil)
	}
}

// terminal is where the output of a command goes.
type terminal interface {
	io.Writer
	Stderr() io.ReadWriter
}

func (s *sshServer) exec(ctx context.Context, who account, out terminal, args []string, input io.Reader) uint32 {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		_, _ = out.Stderr().Write([]byte("too many commands at a time\n"))
		return 255
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	s.n.noteClock()
	err := s.n.run(ctx, append([]string{"/bin/sh"}, args...), func(c *exec.Cmd) {
		c.Stdout, c.Stderr = out, out.Stderr()
		who.apply(s.n.root, c)
		// A pipe of our own: the end of the command must not wait for a client
		// that never ends its input.
		if in, err := c.StdinPipe(); err == nil {
			go func() { _, _ = io.Copy(in, input); _ = in.Close() }()
		}
	})
	s.n.settle()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return uint32(exit.ExitCode()) //nolint:gosec // 0 to 255
	case errors.As(err, &exit):
		return 137
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return 255
	}
	return 0
}

// owned are the absolute paths that Slipway, and a tenant's shell, use on a node. The node has no
// file system of its own, so a command that names one is led below its root.
var owned = regexp.MustCompile(`(^|[\s'"=])(/var/lib/slipway|/etc/slipway|/etc/maas|/etc/systemd/system|/lib/systemd/system|/usr/lib/systemd/system|/proc/sys/kernel/random/boot_id|/etc/hostname` +
	`|/etc/os-release|/usr/lib/os-release|/etc/passwd|/etc/ssh|/etc/sudoers\.d|/etc/ld\.so\.preload|/home|/root|/boot|/var/log|/var/tmp|/var/spool/cron|/sys/firmware|/sys/class|/sys/block` +
	`|/proc/uptime|/proc/meminfo|/proc/cpuinfo|/proc/mounts|/proc/driver)\b`)

// localise leads a command below the node's root. A path that names the root already stays as it
// is.
func (n *Node) localise(line string) string {
	line = strings.ReplaceAll(line, "http://169.254.169.254", "http://"+n.metadataAddr)
	parts := strings.Split(line, n.root)
	for i, part := range parts {
		if i == 0 {
			parts[i] = owned.ReplaceAllString(part, "${1}"+n.root+"${2}")
		} else {
			parts[i] = owned.ReplaceAllString("/"+part, "${1}"+n.root+"${2}")[1:]
		}
	}
	return strings.Join(parts, n.root)
}
