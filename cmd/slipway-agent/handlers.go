package main

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/scrub"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// moreHandlers are those that the agent's own package does not hold. Their notes
// lie in stateDir, a path of the node.
func moreHandlers(cfg agentconfig.Config, stateDir string) task.Registry {
	c := cleaner{cfg: cfg, host: scrub.Host{
		Root: cfg.Root, Run: toolrunner.ForTasks(cfg.Root, cfg.ToolsPath).Run, StateDir: filepath.Join(cfg.Root, stateDir),
		Health: func(ctx context.Context) spec.HealthReport { return agent.Report(ctx, cfg) },
	}}
	return task.Registry{lifecycle.TaskKindScrub: scrubber{c}, lifecycle.TaskKindValidate: task.Func(c.validate)}
}

// cleaner scrubs and validates.
type cleaner struct {
	cfg  agentconfig.Config
	host scrub.Host
}

// fenced is the host of one task: the boot is the signed task's own, the serial
// number its arguments'.
func (c cleaner) fenced(r task.Request, serial string) scrub.Host {
	h := c.host
	h.BootID, h.Serial = r.Task.BootID, serial
	return h
}

func (c cleaner) keep(users []string) []string { return slices.Concat(users, c.cfg.PlatformUsers) }

type scrubber struct{ cleaner }

// Run implements task.Handler. A task that comes this far was signed by the
// control plane for this node: that is what allows disks to be erased, and
// nothing else does.
func (s scrubber) Run(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	in, ok := r.Args.(*spec.ScrubArgs)
	if !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of a scrub")
	}
	args := *in
	args.KeepUsers = s.keep(args.KeepUsers)
	host := s.fenced(r, args.Serial)
	host.AllowWipe = true
	return scrub.Scrub(ctx, host, args, steps.Note)
}

// Resume implements task.Resumer. In the same boot a scrub checks everything again and continues
// what its notes list as begun. It returns an uncertain result after a reboot, which leaves nothing
// to continue.
func (s scrubber) Resume(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	switch {
	case r.Rebooted:
		return task.Uncertain("the node was started again in the middle of its scrub; have it scrubbed again")
	case r.Expired:
		return task.Uncertain("the scrub's deadline passed while the agent was stopped; have the node scrubbed again")
	}
	return s.Run(ctx, r, steps)
}

// validate looks and changes nothing, so that it ends with its lease and is done
// again.
func (c cleaner) validate(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	in, ok := r.Args.(*spec.ValidateArgs)
	if !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of a validation")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-steps.Halt():
			cancel()
		case <-over:
		}
	}()
	args := *in
	args.KeepUsers = c.keep(args.KeepUsers)
	res := scrub.Validate(ctx, c.fenced(r, args.Serial), args, steps.Note)
	select {
	case <-steps.Halt():
		if !res.OK { // it may have been cut short; the next delivery sees all
			return steps.End(task.ErrHalted)
		}
	default:
	}
	return res
}
