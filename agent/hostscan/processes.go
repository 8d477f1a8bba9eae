package hostscan

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Process is one process as /proc shows it.
type Process struct {
	PID  int
	Name string
	UIDs []int // real, effective, saved, file system
}

func (p Process) String() string { return fmt.Sprintf("%d (%s)", p.PID, p.Name) }

// Same reports whether now is still the same process, as far as /proc shows.
func (p Process) Same(now Process) bool { return p.PID == now.PID && slices.Equal(p.UIDs, now.UIDs) }

// HasUserUID reports whether mine returns true for one of the process's user uids. A process that
// changed its other uids is found too.
func (p Process) HasUserUID(mine func(uid int) bool) bool {
	return slices.ContainsFunc(p.UIDs, func(uid int) bool { return IsUserUID(uid) && mine(uid) })
}

// maxName is more than the kernel stores of a name.
const maxName = 40

// Processes lists the running processes except this one. It omits zombies: they hold no resource,
// and their parent ends them.
func (r Root) Processes() ([]Process, error) {
	entries, err := os.ReadDir(string(r) + "/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var out []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || (r.real() && pid == os.Getpid()) {
			continue
		}
		if p, ok := r.Process(pid); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

// Process reads one process. It returns false when the process has ended or is a zombie.
func (r Root) Process(pid int) (Process, bool) {
	raw, err := r.Read("/proc", strconv.Itoa(pid), "status")
	if err != nil {
		return Process{}, false
	}
	p := Process{PID: pid}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		switch {
		case key == "Name":
			p.Name = strings.TrimSpace(value)
			p.Name = p.Name[:min(len(p.Name), maxName)]
		case key == "State" && len(f) > 0 && (f[0] == "Z" || f[0] == "X"):
			return Process{}, false
		case key == "Uid":
			for _, u := range f {
				if n, err := strconv.Atoi(u); err == nil {
					p.UIDs = append(p.UIDs, n)
				}
			}
		}
	}
	return p, len(p.UIDs) > 0
}
