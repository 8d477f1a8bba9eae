package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/internal/agent/task"
)

const (
	// firstUser is the first uid of people; nobody is the uid of nobody.
	firstUser = 1000
	nobody    = 65534
	// mercy is between TERM and KILL.
	mercy = 2 * time.Second
)

// process is what is known of a running one.
type process struct {
	pid, uid int
	name     string
}

func (p process) String() string { return fmt.Sprintf("%d (%s)", p.pid, p.name) }

// processList lists all processes but kernel threads' zombies and this one.
func (h Host) processList() ([]process, error) {
	entries, err := os.ReadDir(h.path("/proc"))
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p, ok := h.process(pid); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

// process reads one; a zombie holds nothing and is left out.
func (h Host) process(pid int) (process, bool) {
	raw, err := h.read("/proc", strconv.Itoa(pid), "status")
	if err != nil {
		return process{}, false
	}
	p := process{pid: pid, uid: -1}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		if len(f) == 0 {
			continue
		}
		switch key {
		case "Name":
			p.name = task.Clip(f[0], 40)
		case "State":
			if f[0] == "Z" || f[0] == "X" {
				return process{}, false
			}
		case "Uid":
			// The highest of the four: one that changed its real uid back is caught.
			for _, v := range f {
				if n, err := strconv.Atoi(v); err == nil {
					p.uid = max(p.uid, n)
				}
			}
		}
	}
	return p, p.uid >= 0
}

// foreignProcesses are those of people's accounts that do not stay, also of
// accounts that no longer exist.
func (r *run) foreignProcesses() ([]process, error) {
	all, err := r.processList()
	if err != nil {
		return nil, err
	}
	accounts, err := r.accounts()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p process) bool {
		if p.uid < firstUser || p.uid == nobody || p.uid >= 61184 && p.uid <= 65519 { // the last are systemd's own
			return true
		}
		name := strconv.Itoa(p.uid)
		for _, a := range accounts {
			if a.uid == p.uid {
				name = a.name
				break
			}
		}
		return r.keep[name] || !r.concerns("user", name)
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
		// Sessions and user managers end first, or they start things anew. Without
		// logind there are none; whether it worked is seen below.
		_, _ = r.run(ctx, 20*time.Second, "loginctl", "terminate-user", a.name)
	}
	deadline := time.Now().Add(r.Patience)
	for sig, from := syscall.SIGTERM, time.Now(); ; {
		left, err := r.foreignProcesses()
		if err != nil {
			return "", err
		}
		if len(left) == 0 {
			return fmt.Sprintf("%d processes of tenants ended", len(begin)), nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("%d processes of tenants do not end: %s", len(left), list(names(left)))
		}
		if time.Since(from) > min(mercy, r.Patience/2) {
			sig = syscall.SIGKILL
		}
		for _, p := range left {
			// The number may belong to someone else by now.
			if now, ok := r.process(p.pid); ok && now.uid == p.uid {
				if err := r.kill(ctx, p.pid, sig); err != nil {
					return "", fmt.Errorf("end process %s: %w", p, err)
				}
			}
		}
		if err := r.wait(ctx, min(r.Poll, 200*time.Millisecond)); err != nil {
			return "", err
		}
	}
}

func names(ps []process) []string {
	out := make([]string, 0, len(ps))
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

// holders are the processes that have something open for which match is true.
// An error means that it is not known who does.
func (h Host) holders(match func(path string) bool) ([]process, error) {
	all, err := h.processList()
	if err != nil {
		return nil, err
	}
	var out []process
	for _, p := range all {
		held, err := h.holds(p.pid, match)
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
