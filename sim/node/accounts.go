package simnode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// account is a line of the node's passwd. The zero uid of an account without a line is that of a
// login of user-data, which has none.
type account struct {
	name, home string
	uid        int
	known      bool // it has a line
}

const (
	// lockedMark stands in the place of the password of an account that usermod has locked.
	lockedMark = "!"
	// tenantPrefix begins the name of every account of a tenant.
	tenantPrefix = "t-"
	watchEvery   = 50 * time.Millisecond
	firstMadeUp  = 20000 // numbers of processes that stand for logins
	maxPasswd    = 1 << 20
)

// accountOf finds an account of the node. It returns false for one that is locked or not there.
func (n *Node) accountOf(name string) (account, bool) {
	raw := n.readNode("/etc/passwd")
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 7 || f[0] != name || f[1] == lockedMark {
			continue
		}
		if uid, err := strconv.Atoi(f[2]); err == nil {
			return account{name, f[5], uid, true}, true
		}
	}
	return account{name: name}, false
}

// readNode reads a file of the node, following no link out of it; nil when there is none.
func (n *Node) readNode(path string) []byte {
	root, err := os.OpenRoot(n.root)
	if err != nil {
		return nil
	}
	defer func() { _ = root.Close() }()
	f, err := root.Open(strings.TrimPrefix(path, "/"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxPasswd))
	if err != nil {
		return nil
	}
	return raw
}

// accountKeys are the keys that the files of an account authorize, where an sshd looks by default.
func (n *Node) accountKeys(name string) []string {
	a, ok := n.accountOf(name)
	if !ok || a.home == "" {
		return nil
	}
	var keys []string
	for _, file := range []string{"authorized_keys", "authorized_keys2"} {
		for line := range strings.Lines(string(n.readNode(filepath.Join(a.home, ".ssh", file)))) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				keys = append(keys, line)
			}
		}
	}
	return keys
}

// tenantKeys are the keys of each account of a tenant.
func (n *Node) tenantKeys() map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(string(n.readNode("/etc/passwd"))) {
		if name, _, _ := strings.Cut(line, ":"); strings.HasPrefix(name, tenantPrefix) {
			out[name] = n.accountKeys(name)
		}
	}
	return out
}

// keptKeys are the keys that sshd accepts for an account whatever its files say.
func (n *Node) keptKeys(name string) []string { n.mu.Lock(); defer n.mu.Unlock(); return n.kept[name] }

// apply makes a command one of the account.
func (a account) apply(root string, c *exec.Cmd) {
	c.Env = append(c.Env, "SLIPWAY_USER="+a.name, "USER="+a.name, "LOGNAME="+a.name)
	if home := filepath.Join(root, filepath.Clean("/"+a.home)); a.known && exists(home) {
		c.Env, c.Dir = append(c.Env, "HOME="+home), home
	}
}

// logIn stands for the process that a real sshd has for each login: it ends when somebody ends that
// process on the node, and with it the connection and all commands of it. A login of user-data,
// which has no account, has none; its commands end with the system.
func (s *sshServer) logIn(conn *ssh.ServerConn) (account, context.Context, func()) {
	who, ok := s.n.accountOf(conn.User())
	if !ok {
		return account{name: conn.User()}, s.ctx, func() {}
	}
	dir := fmt.Sprintf("/proc/%d", firstMadeUp+s.n.logins.Add(1))
	status := fmt.Sprintf("Name:\tsshd\nState:\tS (sleeping)\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", who.uid)
	ctx, cancel := context.WithCancel(s.ctx)
	t, err := openTree(s.n.root)
	if err == nil {
		err = t.put(dir+"/status", []byte(status), 0o644, false)
		t.close()
	}
	if err != nil {
		s.n.log.Error("a login of a simulated node could not be shown", "error", err)
		cancel()
		_ = conn.Close()
		return who, ctx, func() {}
	}
	file := filepath.Join(s.n.root, dir, "status")
	s.work.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for ctx.Err() == nil && exists(file) {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		cancel()
		_ = conn.Close()
		_ = os.RemoveAll(filepath.Join(s.n.root, dir))
	})
	return who, ctx, cancel
}

// shellOf are the arguments of a shell, and where it writes. With a terminal it shows a prompt, and
// lines end as terminals want.
func shellOf(ch ssh.Channel, pty bool) ([]string, terminal) {
	if pty {
		return []string{"-i"}, ptyOutput{ch}
	}
	return []string{"-s"}, ch
}

type ptyOutput struct{ ch ssh.Channel }

func (o ptyOutput) Write(p []byte) (int, error) {
	_, err := o.ch.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
	return len(p), err
}

func (o ptyOutput) Read([]byte) (int, error) { return 0, io.EOF }

func (o ptyOutput) Stderr() io.ReadWriter { return o }

// shellInput reads the lines that are typed, or sent, to a shell, and leads each below the root. A
// terminal shows what is typed.
func (n *Node) shellInput(ch ssh.Channel, pty bool) io.Reader {
	in, out := io.Pipe()
	go func() {
		var line []byte
		buf := make([]byte, 1)
		for {
			_, err := ch.Read(buf)
			switch c := buf[0]; {
			case err != nil || pty && c == 4 && len(line) == 0: // end of input
				_, _ = io.WriteString(out, n.localise(string(line)))
				_ = out.Close()
				return
			case c == '\n' || pty && c == '\r':
				if pty {
					_, _ = ch.Write([]byte("\r\n"))
				}
				if _, err := io.WriteString(out, n.localise(string(line))+"\n"); err != nil {
					return
				}
				line = line[:0]
			case pty && (c == 127 || c == 8):
				if len(line) > 0 {
					line = line[:len(line)-1]
					_, _ = ch.Write([]byte("\b \b"))
				}
			case pty && c == 3:
				line = line[:0]
				_, _ = ch.Write([]byte("^C\r\n"))
			default:
				if len(line) < 64<<10 {
					line = append(line, c)
				}
				if pty {
					_, _ = ch.Write(buf)
				}
			}
		}
	}()
	return in
}
