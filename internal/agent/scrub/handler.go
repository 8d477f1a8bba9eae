package scrub

import (
	"context"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/internal/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Handlers are the handlers of gpu.scrub and node.validate. keepUsers are
// accounts that this node's own configuration keeps, besides those of the task.
//
// A task that comes this far was signed by the control plane and fenced to this
// node: that is what allows disks to be erased, and nothing else does.
func Handlers(h Host, keepUsers []string) task.Registry {
	h.AllowWipe = false
	return task.Registry{lifecycle.TaskKindScrub: scrubber{h, keepUsers}, lifecycle.TaskKindValidate: validator{h, keepUsers}}
}

type scrubber struct {
	host Host
	keep []string
}

// Run implements task.Handler.
func (s scrubber) Run(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	args, ok := r.Args.(*lifecycle.ScrubArgs)
	if !ok {
		return task.Fail(task.CodeArguments, fmt.Sprintf("the arguments are %T", r.Args))
	}
	h, a := s.host, *args
	h.BootID, h.AllowWipe = r.Task.BootID, true
	a.KeepUsers = slices.Concat(s.keep, a.KeepUsers)
	return Scrub(ctx, h, a, steps.Add)
}

// Resume goes on in the same boot. After a reboot it says that it cannot tell:
// a new delivery of the same run, fenced to the new boot, goes on.
func (s scrubber) Resume(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	switch {
	case r.Rebooted:
		return task.Uncertain("the node was started again in the middle of the scrub; hand it out again for this boot, and it goes on where the drives are")
	case r.Expired:
		return task.Uncertain("the deadline passed in the middle of the scrub; hand it out again, and it goes on where the drives are")
	}
	return s.Run(ctx, r, steps)
}

type validator struct {
	host Host
	keep []string
}

// Run implements task.Handler.
func (v validator) Run(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	args, ok := r.Args.(*lifecycle.ValidateArgs)
	if !ok {
		return task.Fail(task.CodeArguments, fmt.Sprintf("the arguments are %T", r.Args))
	}
	h, a := v.host, *args
	h.BootID = r.Task.BootID
	a.KeepUsers = slices.Concat(v.keep, a.KeepUsers)
	return Validate(ctx, h, a, steps.Add)
}
