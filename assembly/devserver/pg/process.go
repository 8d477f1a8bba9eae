package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

type stopMode int

const (
	orderly     stopMode = iota // SIGINT: roll back open transactions, write a checkpoint
	immediately                 // SIGQUIT: drop everything; the next start recovers from the log of writes
)

// process is one run of the server and its guard.
type process struct {
	cmd   *exec.Cmd
	done  chan struct{} // closed when the server has ended
	guard *guard
}

// startProcess runs cmd in a process group of its own, so that Ctrl-C in a terminal reaches us
// first and we stop it in order. doomed is removed by the guard if we die; empty for nothing.
func startProcess(cmd *exec.Cmd, doomed string) (*process, error) {
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the log says why it ended
		close(p.done)
	}()
	watch, err := startGuard(cmd.Process.Pid, doomed)
	if err != nil {
		return nil, errors.Join(err, p.stop(context.Background(), immediately))
	}
	p.guard = watch
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the server and returns when it is gone; past ctx or the limit it is killed.
func (p *process) stop(ctx context.Context, how stopMode) error {
	if p.guard != nil {
		p.guard.dismiss()
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	sig := syscall.SIGINT
	if how == immediately {
		sig = syscall.SIGQUIT
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal PostgreSQL: %w", err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill PostgreSQL: %w", err)
	}
	<-p.done
	return fmt.Errorf("PostgreSQL did not stop in time and was killed")
}

// guard is a shell that waits for us to die (its standard input closes) and then ends the server
// and removes its temporary folder. A test binary that panics or is killed runs no deferred call;
// without the guard each would leave a server behind.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

const guardScript = `cat >/dev/null
kill -QUIT "$1" 2>/dev/null
n=0
while kill -0 "$1" 2>/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
if [ -n "$2" ]; then rm -rf -- "$2"; fi`

func startGuard(pid int, doomed string) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "slipway-pg-guard", strconv.Itoa(pid), doomed) //nolint:forbidigo // dismiss ends it, or our own death
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("guard PostgreSQL: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard PostgreSQL: %w", err)
	}
	return &guard{cmd: cmd, in: in}, nil
}

// dismiss ends the guard before it can act: first the kill, then the pipe. The whole group goes,
// cat included.
func (g *guard) dismiss() {
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	_ = g.in.Close()
	waited := make(chan struct{})
	go func() { _ = g.cmd.Wait(); close(waited) }()
	select {
	case <-waited:
	case <-time.After(5 * time.Second):
	}
}
