package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/hostscan"
)

// mercy is between TERM and KILL.
const mercy = 2 * time.Second

func (h Host) scan() hostscan.Root { return hostscan.Root(h.Root) }

// foreignProcesses are those of people's accounts that do not stay, also of
// accounts that no longer exist.
func (r *run) foreignProcesses() ([]hostscan.Process, error) {
	all, err := r.scan().Processes()
	if err != nil {
		return nil, err
	}
	accounts, err := r.accounts()
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, a := range slices.Backward(accounts) { // the first of a number counts
		names[a.UID] = a.Name
	}
	return slices.DeleteFunc(all, func(p hostscan.Process) bool {
		return !p.HasUserUID(func(uid int) bool {
			name, known := names[uid]
			if !known {
				name = strconv.Itoa(uid)
			}
			return !r.keep[name] && r.concerns("user", name)
		})
	}), nil
}

// processes ends the sessions and processes of tenants.
func (r *run) processes(ctx context.Context) (string, error) {
	begin, err := r.foreignProcesses()
	if err != nil {
		return "", err
	}
	foreign, err := r.foreignAccounts()
	if err != nil {
		return "", err
	}
	for _, a := range foreign {
		// Sessions and user managers end first, or they restart processes. Without logind
		// there are none. The loop below checks the result.
		_, _ = r.run(ctx, 20*time.Second, "loginctl", "terminate-user", a.Name)
	}
	deadline := time.Now().Add(r.Patience)
	calm := false // none was there at the last look: what is started again at once is met by the next
	for sig, from := syscall.SIGTERM, time.Now(); ; {
		left, err := r.foreignProcesses()
		if err != nil {
			return "", err
		}
		if len(left) == 0 && calm {
			return fmt.Sprintf("%d processes of tenants ended", len(begin)), nil
		}
		calm = len(left) == 0
		if !calm && time.Now().After(deadline) {
			return "", fmt.Errorf("%d processes of tenants do not end: %s", len(left), list(names(left)))
		}
		if time.Since(from) > min(mercy, r.Patience/2) {
			sig = syscall.SIGKILL
		}
		for _, p := range left {
			// The number may belong to someone else by now.
			if now, ok := r.scan().Process(p.PID); ok && p.Same(now) {
				if err := r.kill(ctx, p.PID, sig); err != nil {
					return "", fmt.Errorf("end process %s: %w", p, err)
				}
			}
		}
		if err := r.wait(ctx, min(r.Poll, 200*time.Millisecond)); err != nil {
			return "", err
		}
	}
}

func names(ps []hostscan.Process) []string {
	out := make([]string, 0, len(ps))
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

// holders are the processes that have something open for which match is true.
// An error means that it is not known who does.
func (h Host) holders(match func(path string) bool) ([]hostscan.Process, error) {
	all, err := h.scan().Processes()
	if err != nil {
		return nil, err
	}
	var out []hostscan.Process
	for _, p := range all {
		held, err := h.holds(p.PID, match)
		if err != nil {
			return nil, err
		}
		if held {
			out = append(out, p)
		}
	}
	return out, nil
}

func (h Host) holds(pid int, match func(string) bool) (bool, error) {
	dir := h.path("/proc", strconv.Itoa(pid))
	links := []string{filepath.Join(dir, "cwd"), filepath.Join(dir, "root"), filepath.Join(dir, "exe")}
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("look at what process %d has open: %w", pid, err)
	}
	for _, fd := range fds {
		links = append(links, filepath.Join(dir, "fd", fd.Name()))
	}
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil && match(target) {
			return true, nil
		}
	}
	return false, nil
}
