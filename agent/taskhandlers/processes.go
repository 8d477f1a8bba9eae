package taskhandlers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/task"
)

// processes lists the living processes for which mine says true of one of their
// uids.
func (h Host) processes(mine func(uid int) bool) ([]hostscan.Process, error) {
	all, err := h.scan().Processes()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p hostscan.Process) bool { return p.PID <= 1 || !p.HasUserUID(mine) }), nil
}

// signal signals a process if it is still the one that was seen.
func (h Host) signal(ctx context.Context, p hostscan.Process, s syscall.Signal) error {
	if h.Signal != nil {
		return h.Signal(p, s)
	}
	if !h.real() && h.HasTool("kill") {
		_, err := h.Tool(ctx, "kill", "-"+strconv.Itoa(int(s)), strconv.Itoa(p.PID))
		return err
	}
	if !h.real() {
		return os.RemoveAll(h.path(filepath.Join("/proc", strconv.Itoa(p.PID))))
	}
	held, err := os.FindProcess(p.PID) // a pidfd: the number cannot become another's from here on
	if err != nil {
		return err
	}
	defer func() { _ = held.Release() }()
	if now, ok := h.scan().Process(p.PID); !ok || !p.Same(now) {
		return nil
	}
	if err := held.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// killWait is how long killed processes may take to go: one that hangs in a
// driver does not.
const killWait = 10 * time.Second

// end ends processes with TERM, and with KILL those that are there when grace
// is over, and answers what it did. A process that does not end is an error.
func (h Host) end(ctx context.Context, steps *task.Recorder, grace time.Duration, mine func(uid int) bool) (string, error) {
	var left []hostscan.Process
	look := func() (bool, error) {
		var err error
		left, err = h.processes(mine)
		return len(left) == 0, err
	}
	if none, err := look(); err != nil || none {
		return "no process was there", err
	}
	begun := len(left)
	for _, p := range left {
		if err := h.signal(ctx, p, syscall.SIGTERM); err != nil {
			return "", fmt.Errorf("process %d (%s) could not be signalled: %w", p.PID, p.Name, err)
		}
	}
	gone, err := h.poll(ctx, steps, grace, look)
	if err != nil {
		return "", err
	}
	if gone {
		return fmt.Sprintf("%d processes ended", begun), nil
	}
	killed := len(left)
	// Whoever forks while it dies is met again.
	gone, err = h.poll(ctx, steps, killWait, func() (bool, error) {
		none, err := look()
		for _, p := range left {
			err = errors.Join(err, h.signal(ctx, p, syscall.SIGKILL))
		}
		return none, err
	})
	if err != nil {
		return "", err
	}
	if !gone {
		return "", fmt.Errorf("%d processes do not end even by SIGKILL, such as %d (%s): they hang in the kernel, often in a driver; a reboot ends them", len(left), left[0].PID, left[0].Name)
	}
	return fmt.Sprintf("%d processes ended, up to %d of them by SIGKILL", begun, killed), nil
}
