package agent

import (
	"context"

	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Report looks at the node's hardware. What cannot be read is left out or nil:
// a report is never an error, since the server must hear also from a node that
// is half broken.
func Report(ctx context.Context, c Config) spec.HealthReport {
	return c.report(ctx, func(context.Context) ([]spec.MountReport, error) { return c.mounts(), nil })
}

// report is Report with the mounts of somebody who can see them. Without their
// word the mounts are unknown; those that this process sees still tell on which
// disk the system lies.
func (c Config) report(ctx context.Context, mounts func(context.Context) ([]spec.MountReport, error)) spec.HealthReport {
	r := spec.HealthReport{Simulated: c.Simulated, CPUs: c.cpus(), MemoryMiB: c.memory(), NICs: c.nics(), DiskFreeMB: c.diskFree()}
	seen, err := mounts(ctx)
	if err == nil {
		r.Mounts = seen
	} else {
		seen = c.mounts()
	}
	r.Disks = c.disks(seen)
	gpus, driver, err := c.gpus(ctx)
	r.GPUs, r.Driver = gpus, driver
	if err != nil {
		r.GPUError = clip(err.Error(), 500)
	}
	return r
}

// report is what this agent sees. In two halves it asks the privileged one for
// the mounts, since its own are those of its sandbox.
func (a *Agent) report(ctx context.Context) spec.HealthReport {
	if a.cfg.HelperSocket == "" {
		return Report(ctx, a.cfg)
	}
	helper := &privileged.Client{Path: a.cfg.path(a.cfg.HelperSocket)}
	return a.cfg.report(ctx, func(ctx context.Context) ([]spec.MountReport, error) {
		seen, err := helper.Mounts(ctx)
		if err != nil {
			a.log.Warn("the mounts of this machine are unknown", "error", err)
		}
		return seen, err
	})
}
