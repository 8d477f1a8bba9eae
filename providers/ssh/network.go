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

// asRoot runs the program that follows as root. A folder that stands for / belongs to the login
// itself.
const asRoot = `if [ "$(id -u)" -eq 0 ] || [ -n "$5" ]; then exec sh -c "$0" "$@"; else exec sudo -n sh -c "$0" "$@"; fi`

var (
	_ providers.NetworkConfig = (*Runner)(nil)

	networkAnswer = regexp.MustCompile(`(?m)^slipway-net (unknown|pending|confirmed|rolled_back)(?: ([0-9a-f-]{36}))?$`)
)

// WithSystemRoot names the folder that stands for / of machines that are simulated by an SSH
// server: their netplan, their systemd and the programs of both, in bin.
func WithSystemRoot(dir string) Option { return func(r *Runner) { r.systemRoot = dir } }

// The exit statuses of net.sh.
const (
	exitRefused  = 3
	exitPending  = 4
	exitUnarmed  = 5
	exitCut      = 6
	maxSaidBytes = 2000
)

// TryNetwork implements providers.NetworkConfig. The file of Slipway stands beside the machine's
// own files of netplan, and after them. The machine needs netplan and systemd, and root or sudo
// without a password.
func (r *Runner) TryNetwork(ctx context.Context, t providers.MachineTarget, c providers.NetworkChange) (providers.NetworkState, error) {
	if err := c.Check(); err != nil {
		return "", err
	}
	state, _, err := r.network(ctx, t, netCall{verb: "try", opID: c.OpID, wait: c.Confirm, input: []byte(c.Netplan)})
	return state, err
}

// ConfirmNetwork implements providers.NetworkConfig. It reads a proof that the machine makes after
// the change, and brings it back over a second connection. So the network of after the change has
// carried both.
func (r *Runner) ConfirmNetwork(ctx context.Context, t providers.MachineTarget, opID string) (providers.NetworkState, error) {
	state, proof, err := r.network(ctx, t, netCall{verb: "confirm", opID: opID})
	if err != nil || state != providers.NetworkPending || proof == "" {
		return state, err
	}
	state, _, err = r.network(ctx, t, netCall{verb: "confirm", opID: opID, proof: proof})
	return state, err
}

// RevertNetwork implements providers.NetworkConfig.
func (r *Runner) RevertNetwork(ctx context.Context, t providers.MachineTarget, opID string) (providers.NetworkState, error) {
	state, _, err := r.network(ctx, t, netCall{verb: "revert", opID: opID})
	return state, err
}

// netCall is one call of net.sh.
type netCall struct {
	verb, opID string
	wait       time.Duration
	input      []byte
	proof      string // of a confirmation
}

// network calls net.sh over a connection of its own. It returns the proof that a confirmation has
// to bring.
func (r *Runner) network(ctx context.Context, t providers.MachineTarget, c netCall) (state providers.NetworkState, proof string, err error) {
	if !providers.ValidOpID(c.opID) {
		return "", "", failure(providers.KindInvalid, opNetwork, nil, "a change of the network needs an operation id")
	}
	res, err := r.RunSSH(ctx, t.SSH, providers.SSHCommand{
		Argv:  []string{"sh", "-c", asRoot, netText, "slipway-net", c.verb, c.opID, strconv.Itoa(int(c.wait.Seconds())), r.systemRoot, strconv.Itoa(len(c.input)), c.proof},
		Stdin: c.input, Timeout: networkLimit,
	})
	if err != nil {
		return "", "", err
	}
	said := strings.TrimSpace(string(res.Stderr))
	if len(said) > maxSaidBytes {
		said = strings.ToValidUTF8(said[:maxSaidBytes], "")
	}
	switch found := networkAnswer.FindSubmatch(res.Stdout); {
	case res.ExitCode == 0 && found != nil:
		return providers.NetworkState(found[1]), string(found[2]), nil
	case res.ExitCode == exitRefused:
		return "", "", failure(providers.KindInvalid, opNetwork, nil, "netplan refuses the configuration: %s", said)
	case res.ExitCode == exitPending, res.ExitCode == exitUnarmed:
		return "", "", failure(providers.KindStateConflict, opNetwork, nil, "%s", said)
	}
	if res.ExitCode == exitCut {
		return "", "", failure(providers.KindUnavailable, opNetwork, nil, "%s", said)
	}
	return "", "", failure(providers.KindUncertain, opNetwork, nil, "the machine gave no account of the change (exit status %d): %s", res.ExitCode, said)
}
