package agent

import (
	"context"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// Report looks at the node's hardware. What cannot be read is left out or nil:
// a report is never an error, since the server must hear also from a node that
// is half broken.
func Report(ctx context.Context, c Config) lifecycle.HealthReport {
	r := lifecycle.HealthReport{Simulated: c.Simulated, CPUs: c.cpus(), MemoryMiB: c.memory(),
		NICs: c.nics(), Mounts: c.mounts(), DiskFreeMB: c.diskFree()}
	r.Disks = c.disks(r.Mounts)
	gpus, driver, err := c.gpus(ctx)
	r.GPUs, r.Driver = gpus, driver
	if err != nil {
		r.GPUError = clip(err.Error(), 500)
	}
	return r
}
