// Package taskhandlers holds the handlers of node.drain and allocation.revoke_user, which end a
// tenant's work on a node, of allocation.create_user, set_keys and set_metadata, which let a tenant
// begin, and of node.uninstall, which removes the agent. A handler checks the current state before
// each change, so it can run again.
//
// All files are below Host.Root. When that is not "/", the node is simulated and no process of the
// machine gets a signal: a signal removes the process from the simulated /proc.
package taskhandlers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Host is the node that the handlers work on.
type Host struct {
	Root string
	// Tool runs a program of the tools path and gives its output; HasTool says
	// whether there is one.
	Tool    func(ctx context.Context, name string, args ...string) ([]byte, error)
	HasTool func(name string) bool
	// KeepUsers are accounts of the platform; theirs is never ended.
	KeepUsers []string
	// TokenFile is where the enrolment token lies.
	TokenFile string
	// StateDir holds the drain marker.
	StateDir string
	// Poll is how often ending things are looked at; default 200ms.
	Poll time.Duration
	// Signal replaces how a process is signalled; nil is the real thing.
	Signal func(p hostscan.Process, s syscall.Signal) error
}

// Handlers are the handlers of this package. u is what an uninstall removes.
func (h Host) Handlers(u Uninstall) task.Registry {
	u.Host = h
	return task.Registry{
		lifecycle.TaskKindDrain:      task.Func(h.Drain),
		lifecycle.TaskKindRevokeUser: task.Func(h.RevokeUser),
		lifecycle.TaskKindUninstall:  u,

		lifecycle.TaskKindCreateUser:  task.Func(h.CreateUser),
		lifecycle.TaskKindSetKeys:     task.Func(h.SetKeys),
		lifecycle.TaskKindSetMetadata: task.Func(h.SetMetadata),

		lifecycle.TaskKindRetireCredentials: task.Func(h.RetireCredentials),
	}
}

func (h Host) path(p string) string { return filepath.Join(h.Root, p) }

func (h Host) real() bool { return filepath.Clean(h.Root) == "/" }

// read reads a small file of the node; a missing one is empty.
func (h Host) read(p string) ([]byte, error) {
	raw, err := os.ReadFile(h.path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// replace writes a file whole, with the mode and owner of the one it replaces.
func (h Host) replace(p string, content []byte, mode fs.FileMode) error {
	full := h.path(p)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return atomicfile.ReplaceLike(full, content, mode)
}

// dropLines takes the lines of a file away that gone says so of.
func (h Host) dropLines(p string, gone func(line string) bool) (dropped int, err error) {
	raw, err := h.read(p)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	var keep strings.Builder
	for line := range strings.Lines(string(raw)) {
		if gone(strings.TrimSpace(line)) {
			dropped++
			continue
		}
		keep.WriteString(line)
	}
	if dropped == 0 {
		return 0, nil
	}
	return dropped, h.replace(p, []byte(keep.String()), 0o600)
}

// remove removes files that may be gone already and counts those that were there.
func (h Host) remove(paths ...string) (removed []string, err error) {
	for _, p := range paths {
		switch e := os.Remove(h.path(p)); {
		case e == nil:
			removed = append(removed, p)
		case !errors.Is(e, fs.ErrNotExist):
			err = errors.Join(err, fmt.Errorf("%s could not be removed: %w", p, e))
		}
	}
	return removed, err
}

// poll asks done until it says so, the time is over, the lease is lost or ctx
// ends. It answers what done said last.
func (h Host) poll(ctx context.Context, steps *task.Recorder, most time.Duration, done func() (bool, error)) (bool, error) {
	every := h.Poll
	if every <= 0 {
		every = 200 * time.Millisecond
	}
	over := time.NewTimer(most)
	defer over.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return ok, err
		}
		select {
		case <-ctx.Done():
			return false, task.ErrHalted
		case <-steps.Halt():
			return false, task.ErrHalted
		case <-over.C:
			return done()
		case <-tick.C:
		}
	}
}

// tenant says whether a uid is a tenant's and not kept.
func (h Host) tenant(uid int, kept []int) bool {
	return hostscan.IsUserUID(uid) && !slices.Contains(kept, uid)
}
