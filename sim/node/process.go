package simnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// maxAgentLog is the size in bytes at which the agent's log is truncated.
const maxAgentLog = 4 << 20

// agentProcess is one run of the real slipway-agent program.
type agentProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
	once sync.Once
}

const (
	installedAgent = "opt/slipway-agent/current/slipway-agent"
	agentGuard     = "opt/slipway-agent/guard"
	agentTrial     = "opt/slipway-agent/trial"
	guardLimit     = 10 * time.Second
)

// program returns what the agent's unit starts: the installed version, or the program of the
// simulation where none is installed.
func (n *Node) program() string {
	if installed := filepath.Join(n.root, installedAgent); exists(installed) {
		return installed
	}
	return n.opt.AgentBinary
}

// guard runs what the agent's unit runs before each start, where there was an update.
func (n *Node) guard() {
	if !exists(filepath.Join(n.root, agentTrial)) {
		return
	}
	ctx, cancel := context.WithTimeout(n.closed, guardLimit)
	defer cancel()
	if err := n.run(ctx, []string{"/bin/sh", filepath.Join(n.root, agentGuard)}, func(*exec.Cmd) {}); err != nil {
		n.log.Error("the guard of a simulated node failed", "error", err)
	}
}

// startAgent starts the program in a process group of its own.
func (n *Node) startAgent() (*agentProcess, error) {
	logPath := filepath.Join(n.dir, "agent.log")
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if st, err := os.Stat(logPath); err == nil && st.Size() > maxAgentLog {
		flags |= os.O_TRUNC
	}
	out, err := os.OpenFile(logPath, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the agent's log: %w", err)
	}
	defer func() { _ = out.Close() }()
	n.guard()
	cmd := exec.CommandContext(n.closed, n.program(), "run",
		"--config", filepath.Join(n.root, "etc/slipway/agent.yaml"), "--root", n.root, "--tools-path", n.path(), "--metadata-listen", n.metadataAddr)
	cmd.Env = []string{"PATH=" + n.path(), "LC_ALL=C"}
	cmd.Dir = n.root
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = groupAttributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	p := &agentProcess{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

// kill ends the program as a power cut does, with all of its group, and waits
// for it.
func (p *agentProcess) kill() {
	p.once.Do(func() {
		select {
		case <-p.done: // its number may belong to someone else by now
			return
		default:
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
		}
	})
}

// StopAgent stops the agent's process, which stays there and does nothing until the system goes
// down.
func (n *Node) StopAgent() error {
	pid := n.AgentPID()
	if pid == 0 {
		return errors.New("the agent does not run")
	}
	return syscall.Kill(-pid, syscall.SIGSTOP)
}

// run executes one command of the node: below its root, with its tools first,
// as a process group that ends with ctx.
func (n *Node) run(ctx context.Context, argv []string, wire func(*exec.Cmd)) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + n.path(), "LC_ALL=C", "HOME=" + filepath.Join(n.root, "root"), "SLIPWAY_ROOT=" + n.root}
	cmd.Dir = n.root
	cmd.SysProcAttr = groupAttributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	wire(cmd)
	return cmd.Run()
}

func (n *Node) path() string { return n.tools + ":/usr/bin:/bin" }
