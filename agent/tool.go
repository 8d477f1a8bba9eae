package agent

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
)

// maxToolOutput bounds what is kept of a program's output; eight GPUs with all
// their processes are far below it.
const maxToolOutput = 8 << 20

var errNoTool = errors.New("was not found")

// acting is the configuration for programs that change the node. Those of a
// simulated one come from one directory of recorded tools: a program of the
// machine that runs the simulation would act on that.
func (c Config) acting() Config {
	if filepath.Clean(c.Root) == "/" {
		return c
	}
	first, _, _ := strings.Cut(c.ToolsPath, string(os.PathListSeparator))
	if slices.Contains(filepath.SplitList(DefaultToolsPath), filepath.Clean(first)) {
		first = ""
	}
	c.ToolsPath = first
	return c
}

// HasTool says whether the tools path has a program of this name.
func (c Config) HasTool(name string) bool {
	_, err := c.findTool(name)
	return err == nil
}

// tool runs a program of the tools path with a deadline, a small environment
// and bounded output. An error holds the end of what it said, never more than
// a line.
func (c Config) tool(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, err := c.findTool(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.ToolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + c.ToolsPath, "LC_ALL=C", "SLIPWAY_ROOT=" + c.Root}
	cmd.Dir = c.Root
	// A program that hangs in the driver may have children: all of its group end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, errOut bounded
	out.limit, errOut.limit = maxToolOutput, 4096
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not end within %s", name, c.ToolTimeout)
	case out.dropped:
		return nil, fmt.Errorf("%s wrote over %d bytes", name, maxToolOutput)
	case err != nil:
		said := lastLine(errOut.kept.Bytes())
		if said == "" {
			said = lastLine(out.kept.Bytes())
		}
		return nil, fmt.Errorf("%s failed (%w): %s", name, err, said)
	}
	return out.kept.Bytes(), nil
}

func (c Config) findTool(name string) (string, error) {
	for _, dir := range filepath.SplitList(c.ToolsPath) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s %w in %s", name, errNoTool, c.ToolsPath)
}

// bounded keeps the first bytes. More than that breaks the pipe, so that a
// program that writes without end is ended by it. The buffer is no embedded
// field: its ReadFrom would go round the bound.
type bounded struct {
	kept    bytes.Buffer
	limit   int
	dropped bool
}

var errTooMuch = errors.New("too much output")

func (b *bounded) Write(p []byte) (int, error) {
	room := b.limit - b.kept.Len()
	if room < len(p) {
		b.dropped = true
		if room > 0 {
			b.kept.Write(p[:room])
		}
		return max(room, 0), errTooMuch
	}
	return b.kept.Write(p)
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return clip(lines[len(lines)-1], 300)
}

// clip makes foreign text fit for a report: valid, printable, bounded.
func clip(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
