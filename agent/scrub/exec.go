package scrub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/task"
)

const maxOutput = 8 << 20

// Exec returns a Host.Run for programs of toolsPath (directories joined by ":").
// Below a root other than "/" only the first directory counts, the one of the
// recorded tools: a program that is not recorded must not act on the machine
// that runs the simulation.
func Exec(root, toolsPath string) func(ctx context.Context, name string, args ...string) ([]byte, error) {
	dirs := filepath.SplitList(toolsPath)
	if filepath.Clean(root) != "/" && len(dirs) > 1 {
		dirs = dirs[:1]
	}
	return func(ctx context.Context, name string, args ...string) ([]byte, error) {
		path, err := find(dirs, name)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env = []string{"PATH=" + toolsPath, "LC_ALL=C", "SLIPWAY_ROOT=" + root}
		cmd.Dir = root
		// A program that hangs in a driver may have children: all of its group end.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		out, errOut := capped{most: maxOutput}, capped{most: 4096}
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err = cmd.Run()
		switch {
		case ctx.Err() != nil:
			return out.b.Bytes(), fmt.Errorf("%s did not end in time: %w", name, ctx.Err())
		case out.over:
			return nil, fmt.Errorf("%s wrote over %d bytes", name, maxOutput)
		case err != nil:
			said := lastLine(errOut.b.String())
			if said == "" {
				said = lastLine(out.b.String())
			}
			return out.b.Bytes(), fmt.Errorf("%s failed (%w): %s", name, err, said)
		}
		return out.b.Bytes(), nil
	}
}

func find(dirs []string, name string) (string, error) {
	for _, dir := range dirs {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s %w", name, ErrNoTool)
}

// capped keeps the first bytes; more breaks the pipe and so ends the program.
type capped struct {
	b    bytes.Buffer
	most int
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.most - c.b.Len(); room < len(p) {
		c.over = true
		c.b.Write(p[:max(room, 0)])
		return max(room, 0), errors.New("too much output")
	}
	return c.b.Write(p)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return task.Clip(lines[len(lines)-1], 300)
}
