package ssh

import (
	"context"
	_ "embed" // net.sh
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

const opNetwork = "ssh.network"

// networkLimit is how long the machine may take for one call: the rollback applies a configuration.
const networkLimit = 4 * time.Minute

// netText is what runs on the machine; it says itself how it works.
//
//go:embed net.sh
var netText string

// asRoot runs the program that follows as root. A folder that stands for / belongs to the login itself.
const asRoot = `if [ "$(id -u)" -eq 0 ] || [ -n "$5" ]; then exec sh -c "$0" "$@"; else exec sudo -n sh -c "$0" "$@"; fi`

var (
	_ providers.NetworkConfig = (*Runner)(nil)

	networkAnswer = regexp.MustCompile(`(?m)^slipway-net (unknown|pending|confirmed|rolled_back)$`)
)

// WithSystemRoot names the folder that stands for / of machines that are simulated by an SSH server: their
// netplan, their systemd and the programs of both, in bin.
func WithSystemRoot(dir string) Option { return func(r *Runner) { r.systemRoot = dir } }

// The exit statuses of net.sh.
const (
	exitRefused  = 3
	exitPending  = 4
	exitUnarmed  = 5
	exitCut      = 6
	maxSaidBytes = 2000
)

// TryNetwork implements providers.NetworkConfig. The file of Slipway stands beside the machine's own files
// of netplan, and after them. The machine needs netplan and systemd, and root or sudo without a password.
func (r *Runner) TryNetwork(ctx context.Context, t providers.MachineTarget, c providers.NetworkChange) (providers.NetworkState, error) {
	if err := c.Check(); err != nil {
		return "", err
	}
	return r.network(ctx, t, "try", c.OpID, c.Confirm, []byte(c.Netplan))
}

// ConfirmNetwork implements providers.NetworkConfig.
func (r *Runner) ConfirmNetwork(ctx context.Context, t providers.MachineTarget, opID string) (providers.NetworkState, error) {
	return r.network(ctx, t, "confirm", opID, 0, nil)
}

// RevertNetwork implements providers.NetworkConfig.
func (r *Runner) RevertNetwork(ctx context.Context, t providers.MachineTarget, opID string) (providers.NetworkState, error) {
	return r.network(ctx, t, "revert", opID, 0, nil)
}

// network calls net.sh over a connection of its own.
func (r *Runner) network(ctx context.Context, t providers.MachineTarget, verb, opID string, wait time.Duration, input []byte) (providers.NetworkState, error) {
	if !providers.ValidOpID(opID) {
		return "", failure(providers.KindInvalid, opNetwork, nil, "a change of the network needs an operation id")
	}
	res, err := r.RunSSH(ctx, t.SSH, providers.SSHCommand{
		Argv:  []string{"sh", "-c", asRoot, netText, "slipway-net", verb, opID, strconv.Itoa(int(wait.Seconds())), r.systemRoot, strconv.Itoa(len(input))},
		Stdin: input, Timeout: networkLimit,
	})
	if err != nil {
		return "", err
	}
	said := strings.TrimSpace(string(res.Stderr))
	if len(said) > maxSaidBytes {
		said = strings.ToValidUTF8(said[:maxSaidBytes], "")
	}
	switch found := networkAnswer.FindSubmatch(res.Stdout); {
	case res.ExitCode == 0 && found != nil:
		return providers.NetworkState(found[1]), nil
	case res.ExitCode == exitRefused:
		return "", failure(providers.KindInvalid, opNetwork, nil, "netplan refuses the configuration: %s", said)
	case res.ExitCode == exitPending, res.ExitCode == exitUnarmed:
		return "", failure(providers.KindStateConflict, opNetwork, nil, "%s", said)
	}
	if res.ExitCode == exitCut {
		return "", failure(providers.KindUnavailable, opNetwork, nil, "%s", said)
	}
	return "", failure(providers.KindUncertain, opNetwork, nil, "the machine gave no account of the change (exit status %d): %s", res.ExitCode, said)
}
