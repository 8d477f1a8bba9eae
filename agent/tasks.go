package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"time"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/selfupdate"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/taskhandlers"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The names below the state directories.
const (
	journalDir = "tasks"
	stagingDir = "staging"
)

// runTasks does tasks until ctx ends. Where tasks cannot be done at all, the
// node still sends its heartbeats.
func (a *Agent) runTasks(ctx context.Context) error {
	exec, watch, err := a.executor()
	if err != nil {
		a.log.Error("this agent does no tasks", "error", err)
		return nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		if err := watch(ctx); err != nil {
			end(err)
		}
	}()
	go func() {
		if err := a.sayHealthy(ctx, exec); err != nil {
			end(err)
		}
	}()
	go a.dropMark(ctx, exec)
	select {
	case <-ctx.Done():
		return ended(ctx)
	case <-a.session.ready:
	}
	prober := &networkProber{Executor: exec, a: a, dial: a.dialer()}
	loop := task.NewLoop(task.LoopConfig{Server: &taskServer{a: a, executor: prober}, Executor: prober, BootID: a.node.bootID,
		Fetch: a.fetch, Log: a.log, Wait: a.cfg.TaskWait, Backoff: min(a.cfg.HeartbeatInterval, time.Second)})
	if err := loop.Run(ctx); err != nil {
		return err
	}
	return ended(ctx)
}

// ended returns why a part of the agent ended by itself, or nil when it was stopped.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, task.ErrRestart) || errors.Is(cause, task.ErrUninstalled) {
		return cause
	}
	return nil
}

// executor returns what does the tasks, and what supervises a new version.
func (a *Agent) executor() (task.Executor, func(context.Context) error, error) {
	idle := func(context.Context) error { return nil }
	switch {
	case a.cfg.HelperSocket != "":
		return &privileged.Client{Path: a.cfg.Path(a.cfg.HelperSocket)}, idle, nil
	case !a.cfg.Simulated || filepath.Clean(a.cfg.Root) == "/":
		return unprivileged{a.log}, idle, nil
	}
	keys := func() ([]protocol.TaskKey, error) {
		id, _ := a.session.get()
		return id.TaskKeys, nil
	}
	nothing := func([]protocol.TaskKey) error { return nil }
	local, updater, err := newLocal(a.cfg, a.version, a.log, a.cfg.StateDir, keys, nothing, a.handlers)
	if err != nil {
		return nil, nil, err
	}
	return local, updater.Watch, nil
}

// newHost returns the node that the tasks change.
func newHost(c agentconfig.Config, stateDir string) taskhandlers.Host {
	tools := toolrunner.ForTasks(c.Root, c.ToolsPath)
	tools.Timeout = c.ToolTimeout
	tools.Path = tools.Tools // on a simulated node these handlers must not reach the real machine, not even through a recorded tool
	return taskhandlers.Host{Root: c.Root, Tool: tools.Run, HasTool: tools.Has, KeepUsers: c.PlatformUsers, StateDir: stateDir, TokenFile: c.TokenFile}
}

// newLocal makes the executor of this process, with its journal in stateDir.
func newLocal(c agentconfig.Config, version string, log *slog.Logger, stateDir string, keys func() ([]protocol.TaskKey, error), trust func([]protocol.TaskKey) error,
	more []task.Registry) (*task.Local, *selfupdate.Updater, error) {
	journal, err := task.OpenJournal(c.Path(filepath.Join(stateDir, journalDir)))
	if err != nil {
		return nil, nil, err
	}
	key, err := c.UpdatePublicKey()
	if err != nil {
		return nil, nil, err
	}
	host := newHost(c, stateDir)
	updater := &selfupdate.Updater{Root: c.Root, Dir: c.InstallDir, Key: key, Version: version, Trial: c.UpdateTrial}
	handlers := host.Handlers(taskhandlers.Uninstall{
		Secrets:  []string{filepath.Join(c.StateDir, identityFile), filepath.Join(c.StateDir, pendingFile), c.TokenFile, c.TaskKeysFile},
		State:    []string{c.StateDir, c.HelperStateDir},
		Programs: []string{c.InstallDir, "/usr/local/bin/slipway-agent", "/usr/local/bin/slipway-gpu-pattern", "/etc/slipway"},
		Journal:  filepath.Join(stateDir, journalDir), KeepIn: "/var/log/slipway-agent",
	})
	handlers[lifecycle.TaskKindUpdate] = updater
	for _, m := range more {
		maps.Copy(handlers, m)
	}
	return task.NewLocal(task.LocalConfig{NodeID: c.NodeID, Journal: journal, Handlers: handlers, Keys: keys, OnTrust: trust,
		OnHealthy: updater.Healthy, OnInService: host.Unmark, BootID: newNodeReader(c).bootID, Log: log, Simulated: c.Simulated}), updater, nil
}

// sayHealthy reports to the executor that a heartbeat of this version was accepted.
func (a *Agent) sayHealthy(ctx context.Context, exec task.Executor) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.accepted:
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := exec.Healthy(ctx, a.version)
		if err == nil || errors.Is(err, task.ErrRestart) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// dropMark removes the mark of a drain when the control plane has the node in service again. Only
// the answer to a heartbeat that was sent after the mark was seen counts, since an older answer may
// be from before the drain.
func (a *Agent) dropMark(ctx context.Context, exec task.Executor) {
	var mark string
	var seen time.Time
	for {
		var sent time.Time
		select {
		case <-ctx.Done():
			return
		case sent = <-a.inService:
		}
		drop := ""
		if sent.After(seen) {
			drop = mark
		}
		left, err := exec.InService(ctx, drop)
		if err != nil {
			a.log.Warn("the mark of a drain could not be looked at", "error", err)
		}
		mark, seen = left, time.Now()
	}
}

// Helper is the privileged half of the agent. It does the tasks that the other half forwards, until
// ctx ends, and sends nothing over a network. Besides root, the users in uids may connect. handlers
// are added to its own. It returns the same errors as Agent.Run.
func Helper(ctx context.Context, c agentconfig.Config, version string, log *slog.Logger, l net.Listener, uids []int, handlers ...task.Registry) error {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return errors.Join(err, l.Close())
	}
	file := &privileged.KeyFile{Path: c.Path(c.TaskKeysFile)}
	local, updater, err := newLocal(c, version, log, c.HelperStateDir, file.Load, file.Adopt, handlers)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		if err := updater.Watch(ctx); err != nil {
			end(err)
		}
	}()
	if err := newHost(c, c.HelperStateDir).RestoreMetadata(ctx); err != nil {
		log.Warn("the metadata of the allocation is not served", "error", err)
	}
	log.Info("the privileged half of the agent listens", "socket", l.Addr().String(), "version", version)
	server := privileged.Server{Executor: local, AllowUIDs: uids, Version: version, Log: log, Mounts: newNodeReader(c).mounts}
	if err := server.Serve(ctx, l); err != nil {
		return err
	}
	return ended(ctx)
}

// unprivileged answers tasks on a real node whose agent has no privileged half.
type unprivileged struct{ log *slog.Logger }

func (u unprivileged) Pending(context.Context) ([]task.Entry, error) { return nil, nil }

func (u unprivileged) Execute(_ context.Context, _ protocol.SignedTask, _ int64, _ task.Control) (lifecycle.TaskResult, error) {
	u.log.Warn("a task was refused: helper_socket is not configured")
	return task.Fail(task.CodeUnsupported, "this agent has no privileged half: install slipway-agent-helper and set helper_socket in the agent's configuration"), nil
}

func (u unprivileged) Acknowledge(context.Context, string) error       { return nil }
func (u unprivileged) Drop(context.Context, string) error              { return nil }
func (u unprivileged) Trust(context.Context, []protocol.TaskKey) error { return nil }
func (u unprivileged) Healthy(context.Context, string) error           { return nil }

func (u unprivileged) InService(context.Context, string) (string, error) { return "", nil }

var _ task.Executor = unprivileged{}
