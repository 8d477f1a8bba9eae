package agent

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Report reads the node's hardware. A part that cannot be read is left out or nil. Report never
// fails, because the server also needs a report of a node that is partly broken.
func Report(ctx context.Context, c agentconfig.Config) spec.HealthReport {
	n := newNodeReader(c)
	return n.report(ctx, func(context.Context) ([]spec.MountReport, error) { return n.mounts(), nil })
}

// report returns a report with the mounts that the function mounts lists. If that fails, the mounts
// are unknown. The mounts that this process sees itself then only show which disk holds the system.
func (n nodeReader) report(ctx context.Context, mounts func(context.Context) ([]spec.MountReport, error)) spec.HealthReport {
	r := spec.HealthReport{Simulated: n.simulated, Address: ownAddress(ctx, n.serverURL), CPUs: n.cpus(), MemoryMiB: n.memory(), NICs: n.nics(), DiskFreeMB: n.diskFree()}
	seen, err := mounts(ctx)
	if err == nil {
		r.Mounts = seen
	} else {
		seen = n.mounts()
	}
	r.Disks = n.disks(seen)
	gpus, driver, err := n.gpus(ctx)
	r.GPUs, r.Driver = gpus, driver
	if err != nil {
		r.GPUError = task.Clip(err.Error(), 500)
	}
	r.Units = n.units(ctx)
	return r
}

// report returns a report of this node. An agent of two processes asks the
// privileged one for the mounts, because its own are those of its sandbox.
func (a *Agent) report(ctx context.Context) spec.HealthReport {
	if a.cfg.HelperSocket == "" {
		return Report(ctx, a.cfg)
	}
	helper := &privileged.Client{Path: a.cfg.Path(a.cfg.HelperSocket)}
	return a.node.report(ctx, func(ctx context.Context) ([]spec.MountReport, error) {
		seen, err := helper.Mounts(ctx)
		if err != nil {
			a.log.Warn("the mounts of this machine are unknown", "error", err)
		}
		return seen, err
	})
}

// ownAddress returns the address from which this node reaches the control plane, "" where there is
// no way, or only the loopback device. Nothing is sent.
func ownAddress(ctx context.Context, serverURL string) string {
	u, err := url.Parse(serverURL)
	if err != nil {
		return ""
	}
	conn, err := (&net.Dialer{Timeout: addressTimeout}).DialContext(ctx, "udp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	if err != nil {
		return ""
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil || at.Addr().Unmap().IsLoopback() {
		return ""
	}
	return at.Addr().Unmap().WithZone("").String()
}

// addressTimeout bounds the look-up of the control plane's name.
const addressTimeout = 5 * time.Second
