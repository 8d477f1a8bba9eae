package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	maxSentence = 1500
	// simulatedMark is the file by which a node says that it is made up.
	simulatedMark = "/etc/slipway-simulated"
	bootIDFile    = "/proc/sys/kernel/random/boot_id"
)

// Host is the machine as the steps see it. Root and Run are needed.
type Host struct {
	// Root is the directory that stands for "/". Another than "/" is a made-up
	// node: no process gets a signal but by its recorded program `kill`.
	Root string
	// Run runs a program to its end or to the end of ctx, with nothing on its
	// standard input, and returns its output also when it failed. It has no limit
	// of its own; toolrunner.ForTasks makes one.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
	// AllowWipe lets disks be erased. The executor of a real task sets it and
	// nobody else; without it every disk is reported as not erased.
	AllowWipe bool
	// BootID and Serial are what the task was fenced to. "" is not compared, nor is
	// a serial number that stands for none.
	BootID, Serial string
	// StateDir holds notes of what was begun, so that a scrub that is run again
	// under the same run id goes on; "" keeps none, and all is done again.
	StateDir string
	// Health looks at the hardware; Validate needs it.
	Health func(ctx context.Context) spec.HealthReport
	// Poll is how often something that takes long is looked at; default 2s.
	Poll time.Duration
	// Patience is how long tenants' processes are hunted for; default 30s.
	Patience time.Duration

	// only confines the steps to some accounts, mounts and disks: tests on a real
	// machine touch what they made and nothing else. nil is everything.
	only func(kind, name string) bool
	// owner makes up whose a file is, for tests that may not change it.
	owner func(path string) (uid int, ok bool)
}

func (h Host) withDefaults() Host {
	if h.Root == "" {
		h.Root = "/"
	}
	h.Root = filepath.Clean(h.Root)
	if h.Poll <= 0 {
		h.Poll = 2 * time.Second
	}
	if h.Patience <= 0 {
		h.Patience = 30 * time.Second
	}
	return h
}

// check says why nothing can be done on this host.
func (h Host) check() error {
	if h.Run == nil {
		return errors.New("the agent gave the scrub nothing to run programs with")
	}
	if h.Root != "/" && !h.simulated() && h.only == nil {
		return fmt.Errorf("the root is %s but this node does not say that it is simulated", h.Root)
	}
	return nil
}

func (h Host) simulated() bool { return h.exists(simulatedMark) }

// concerns is false for what a confined run must not touch.
func (h Host) concerns(kind, name string) bool { return h.only == nil || h.only(kind, name) }

// path is where a path of the node lies.
func (h Host) path(elem ...string) string { return filepath.Join(h.Root, filepath.Join(elem...)) }

func (h Host) read(elem ...string) ([]byte, error) { return h.scan().Read(elem...) }

// text reads a file of one line; "" when it cannot be read.
func (h Host) text(elem ...string) string {
	raw, err := h.read(elem...)
	if err != nil {
		return ""
	}
	return task.Clip(string(raw), 200)
}

func (h Host) exists(elem ...string) bool {
	_, err := os.Stat(h.path(elem...))
	return err == nil
}

func (h Host) names(elem ...string) []string {
	entries, err := os.ReadDir(h.path(elem...))
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// replace writes a file in one step, with the mode and owner that it had.
func (h Host) replace(path string, content []byte) error {
	p := h.path(path)
	st, err := os.Stat(p)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if err := atomicfile.ReplaceLike(p, content, st.Mode().Perm()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// run runs a program that should answer within limit. A command that destroys data needs the permit
// of its guard in ctx.
func (h Host) run(ctx context.Context, limit time.Duration, name string, args ...string) ([]byte, error) {
	if err := toolrunner.Check(ctx, name, args...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return h.Run(ctx, name, args...)
}

// kill sends a signal; a process that is gone already is no error.
func (h Host) kill(ctx context.Context, pid int, sig syscall.Signal) error {
	if h.Root != "/" && h.simulated() {
		_, err := h.run(ctx, 10*time.Second, "kill", "-"+strconv.Itoa(int(sig)), strconv.Itoa(pid))
		return err
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// wait waits until the next look.
func (h Host) wait(ctx context.Context, d time.Duration) error { return poll.Sleep(ctx, d) }

// list names some of many.
func list(names []string) string {
	const most = 12
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
