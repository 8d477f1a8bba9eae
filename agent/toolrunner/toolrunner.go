// Package toolrunner runs the programs of a node: nvidia-smi, nvme, docker and the like. It is the
// only place of the agent that starts a process. Every program gets a small environment, bounded
// output and a deadline, and at the deadline its whole process group is killed.
package toolrunner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/task"
)

// The most that is kept of what a program writes, in bytes. The report on eight GPUs with all their
// processes is far smaller than maxOutput.
const (
	maxOutput   = 8 << 20
	maxErrorOut = 4096
)

// killDelay is how long a program may take to end once it was killed. A program that hangs in the
// kernel does not end before its device answers; it is left alone then, so that the agent goes on.
const killDelay = 5 * time.Second

// pipeDelay is how long a program that has ended may leave its output open in a child.
const pipeDelay = 5 * time.Second

// ErrNotInstalled is in the error of Run when no directory has the program.
var ErrNotInstalled = errors.New("is not installed")

var errTooMuch = errors.New("too much output")

// Runner runs programs. Its zero value finds none.
type Runner struct {
	// Root is where the node's files are: "/", except on a simulated node. It is the working
	// directory of a program and its SLIPWAY_ROOT.
	Root string
	// Tools are the directories that hold the programs, joined by ":". Relative ones are ignored.
	Tools string
	// Path is the PATH of the programs; "" means Tools.
	Path string
	// Commands are those that it may run; nil means Commands().
	Commands []Command
	// wait waits for a program; nil is its Wait. Tests make up a program that no signal ends.
	wait func(*exec.Cmd) error
	// Timeout ends each program; 0 means that only the caller's context ends it.
	Timeout time.Duration
}

// ForTasks returns a Runner for programs that change the node below root. On a simulated node it
// finds programs only in the first directory of toolsPath, which holds the recorded tools, and not
// even there when that is a directory of the machine: a program of the machine that runs the
// simulation would change that machine. Recorded tools are scripts, so their PATH is all of
// toolsPath.
func ForTasks(root, toolsPath string) Runner {
	r := Runner{Root: root, Tools: toolsPath, Path: toolsPath}
	if filepath.Clean(root) != "/" {
		r.Tools, _, _ = strings.Cut(toolsPath, string(os.PathListSeparator))
		if slices.Contains(filepath.SplitList(agentconfig.DefaultToolsPath), filepath.Clean(r.Tools)) {
			r.Tools = ""
		}
	}
	return r
}

// Has reports whether there is a program of this name.
func (r Runner) Has(name string) bool {
	_, err := r.find(name)
	return err == nil
}

// Run runs a program to its end, with nothing on its standard input, and returns its output. It
// refuses a command that is not listed, and one that destroys data without its guard's permit. The
// output is returned also when the program fails or does not end in time, but not when it is too
// long. The error holds the last line that the program wrote.
func (r Runner) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	program, err := r.find(name)
	if err != nil {
		return nil, err
	}
	all := r.Commands
	if all == nil {
		all = Commands()
	}
	if err := check(ctx, all, name, args); err != nil {
		return nil, err
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, fmt.Errorf("the limit is %s: %w", r.Timeout, context.DeadlineExceeded))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + r.path(), "LC_ALL=C", "SLIPWAY_ROOT=" + r.Root}
	cmd.Dir = r.Root
	// A program that hangs in a driver may have children: the whole group is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	wait := (*exec.Cmd).Wait
	if r.wait != nil {
		wait = r.wait
	}
	cmd.WaitDelay = pipeDelay
	out, errOut := boundedBuffer{limit: maxOutput}, boundedBuffer{limit: maxErrorOut}
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err = cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s failed: %w", name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- wait(cmd) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(pipeDelay + killDelay):
			return nil, fmt.Errorf("%s did not end in time, and cannot be killed: it hangs in the kernel: %w", name, context.Cause(ctx))
		}
	}
	switch {
	case ctx.Err() != nil:
		return out.kept.Bytes(), fmt.Errorf("%s did not end in time: %w", name, context.Cause(ctx))
	case out.exceeded:
		return nil, fmt.Errorf("%s wrote over %d bytes", name, maxOutput)
	case err != nil:
		line := lastLine(errOut.kept.String())
		if line == "" {
			line = lastLine(out.kept.String())
		}
		return out.kept.Bytes(), fmt.Errorf("%s failed (%w): %s", name, err, line)
	}
	return out.kept.Bytes(), nil
}

func (r Runner) path() string {
	if r.Path == "" {
		return r.Tools
	}
	return r.Path
}

func (r Runner) find(name string) (string, error) {
	for _, dir := range filepath.SplitList(r.Tools) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); filepath.IsAbs(p) && err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s %w in %q", name, ErrNotInstalled, r.Tools)
}

// boundedBuffer keeps the first bytes. One more closes the pipe, so that a program that writes
// without end is ended by it. The buffer is no embedded field, because its ReadFrom would bypass
// the limit.
type boundedBuffer struct {
	kept     bytes.Buffer
	limit    int
	exceeded bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := b.limit - b.kept.Len(); room < len(p) {
		b.exceeded = true
		b.kept.Write(p[:room])
		return room, errTooMuch
	}
	return b.kept.Write(p)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return task.Clip(lines[len(lines)-1], 300)
}
