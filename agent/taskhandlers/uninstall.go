package taskhandlers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// AgentUser is the account of the agent's process that faces the network.
const AgentUser = "slipway-agent"

// Units are the agent's systemd units.
func Units() []string {
	return []string{"slipway-agent.service", "slipway-agent-helper.service", "slipway-agent-helper.socket", "slipway-agent-metadata.socket"}
}

const unitDir = "/etc/systemd/system"

// Uninstall is the handler of node.uninstall. Run only looks whether it can be
// done: its result is with the server before Finish removes anything, since
// nobody would be left to report. The server takes a revoked certificate and
// silence as confirmation.
type Uninstall struct {
	Host
	// Secrets go first: identity, token, keys. State are the directories of the
	// agent, Journal the one with the task journal, which goes last, because it
	// knows that Finish is to be run. Programs are binaries and their directories.
	Secrets, State, Programs []string
	Journal                  string
	// KeepIn is where the journal goes when reports are to be kept.
	KeepIn string
}

// Run implements task.Handler.
func (u Uninstall) Run(ctx context.Context, _ task.Request, steps *task.Recorder) lifecycle.TaskResult {
	return steps.End(steps.Do(ctx, "check", func(context.Context) (string, error) {
		var there []string
		for _, p := range u.all() {
			if filepath.Clean(p) == "/" || !filepath.IsAbs(p) {
				return "", fmt.Errorf("%q is not a path that can be removed", p)
			}
			if _, err := os.Lstat(u.path(p)); err == nil {
				there = append(there, p)
			}
		}
		return "these will be removed when the server has this result: " + strings.Join(there, ", "), nil
	}))
}

// Resume implements task.Resumer: nothing is removed before the result is
// durable, so that looking again is all.
func (u Uninstall) Resume(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	if r.Expired {
		return task.Fail(task.CodeExpired, "its deadline passed before anything was removed")
	}
	return u.Run(ctx, r, steps)
}

func (u Uninstall) all() []string {
	out := append([]string{}, u.Secrets...)
	out = append(out, u.Programs...)
	for _, n := range Units() {
		out = append(out, filepath.Join(unitDir, n))
	}
	return append(append(out, u.State...), u.Journal)
}

// Finish implements task.Finisher. Each removal may be repeated; the journal
// goes last.
func (u Uninstall) Finish(ctx context.Context, r task.Request, result lifecycle.TaskResult) error {
	if !result.OK {
		return nil
	}
	var errs []error
	drop := func(paths ...string) {
		for _, p := range paths {
			if err := os.RemoveAll(u.path(p)); err != nil {
				errs = append(errs, fmt.Errorf("%s could not be removed: %w", p, err))
			}
		}
	}
	drop(u.Secrets...)
	u.disable(ctx)
	for _, n := range Units() {
		drop(filepath.Join(unitDir, n), filepath.Join(unitDir, n+".d"))
	}
	drop(u.Programs...)
	args, _ := r.Args.(*spec.UninstallArgs)
	if args != nil && args.KeepReports {
		errs = append(errs, u.keep())
	}
	for _, p := range u.State {
		errs = append(errs, u.empty(p))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the agent is not off the node yet: %w", err)
	}
	drop(u.Journal)
	drop(u.State...) // with the journal away they are empty
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the agent is not off the node yet: %w", err)
	}
	return task.ErrUninstalled
}

// empty removes what is in a directory but the journal.
func (u Uninstall) empty(dir string) error {
	entries, err := os.ReadDir(u.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", dir, err)
	}
	journal := filepath.Clean(u.Journal)
	for _, e := range entries {
		p := filepath.Join(dir, e.Name())
		if p == journal || strings.HasPrefix(journal, p+"/") {
			continue
		}
		if err := os.RemoveAll(u.path(p)); err != nil {
			return fmt.Errorf("%s could not be removed: %w", p, err)
		}
	}
	return nil
}

// disable takes the units out of the next boot. It does not stop them: the
// process that does this ends by itself, and systemd does not start it again.
func (u Uninstall) disable(ctx context.Context) {
	if !u.HasTool("systemctl") {
		return
	}
	for _, n := range Units() {
		_, _ = u.Tool(ctx, "systemctl", "disable", n) // its file goes next
	}
}

// keep copies the journal to where reports are kept.
func (u Uninstall) keep() error {
	raw, err := u.read(filepath.Join(u.Journal, "journal"))
	if err != nil || len(raw) == 0 {
		return err
	}
	return u.replace(filepath.Join(u.KeepIn, "journal"), raw, 0o600)
}
