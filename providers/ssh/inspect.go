package ssh

import (
	"context"
	"regexp"
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	opInspect = "ssh.inspect"
	// defaultBootIDFile differs after each boot.
	defaultBootIDFile = "/proc/sys/kernel/random/boot_id"
)

var (
	_ providers.Inspect = (*Runner)(nil)

	validBootID = regexp.MustCompile(`^[0-9a-f-]{8,64}$`)
)

// WithBootIDFile names the file on the machine that differs after each boot, for machines that are
// simulated by an SSH server.
func WithBootIDFile(path string) Option { return func(r *Runner) { r.bootIDFile = path } }

// Adapter returns what the runner can do to machines.
func (r *Runner) Adapter() providers.MachineAdapter {
	return providers.MachineAdapter{Inspect: r, RemoteExec: r, Network: r, JoinHost: r, HostProbe: r}
}

// inspectScript prints the boot id, the serial number where root may read it, and the addresses of
// the network cards. It is given the name of the boot id's file.
const inspectScript = `cat -- "$0" && { cat /sys/class/dmi/id/product_serial 2>/dev/null || echo; } && cat /sys/class/net/*/address 2>/dev/null; true`

// Inspect implements providers.Inspect. The serial number is "" where the account may not read it.
func (r *Runner) Inspect(ctx context.Context, t providers.MachineTarget) (providers.MachineFacts, error) {
	res, err := r.RunSSH(ctx, t.SSH, providers.SSHCommand{Argv: []string{"sh", "-c", inspectScript, r.bootIDFile}})
	if err != nil {
		return providers.MachineFacts{}, err
	}
	lines := strings.Split(string(res.Stdout), "\n")
	if len(lines) < 2 || !validBootID.MatchString(lines[0]) {
		return providers.MachineFacts{}, failure(providers.KindProtocol, opInspect, nil, "the machine does not say its boot id")
	}
	facts := providers.MachineFacts{BootID: lines[0], Serial: spec.NormalSerial(lines[1])}
	for _, line := range lines[2:] {
		if mac, ok := spec.NormalMAC(strings.TrimSpace(line)); ok {
			facts.MACs = append(facts.MACs, mac)
		}
	}
	return facts, nil
}
