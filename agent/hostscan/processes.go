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

// Same says whether the process of a number is still the one that was seen, as
// far as /proc tells.
func (p Process) Same(now Process) bool { return p.PID == now.PID && slices.Equal(p.UIDs, now.UIDs) }

// Of says whether one of a process's uids is a person's that mine says true of:
// one that changed the others is found all the same.
func (p Process) Of(mine func(uid int) bool) bool {
	return slices.ContainsFunc(p.UIDs, func(uid int) bool { return Person(uid) && mine(uid) })
}

// maxName is what the kernel keeps of a name, and more.
const maxName = 40

// Processes lists the living processes but this one. Zombies are left out: they
// run and hold nothing, and their parent ends them.
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

// Process reads one; false when it is gone or a zombie.
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
