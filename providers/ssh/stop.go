package ssh

import (
	"context"
	_ "embed" // stop.sh
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

const opStop = "ssh.stop"

// stopLimit bounds the wait for the end of a command that is stopped. SIGKILL comes after
// killAfter.
const stopLimit = 30 * time.Second

// stopText is what ends an operation on the node.
//
//go:embed stop.sh
var stopText string

// Stop implements providers.RemoteExec.
func (r *Runner) Stop(ctx context.Context, t providers.MachineTarget, opID string) error {
	return providers.NewRedaction(t.SSH.Credentials()...).Error(r.stop(ctx, t.SSH, opID))
}

func (r *Runner) stop(ctx context.Context, t providers.SSHTarget, opID string) error {
	if !providers.ValidOpID(opID) {
		return failure(providers.KindInvalid, opStop, nil, "the operation id is not valid")
	}
	mark, err := newMark()
	if err != nil {
		return err
	}
	res, err := r.run(ctx, t, providers.SSHCommand{
		Argv: []string{"sh", "-c", ownerText + stopText, "slipway-stop", r.stateDir, opID, mark}, Timeout: stopLimit, MaxOutput: headerRoom,
	})
	if providers.IsKind(err, providers.KindUncertain) {
		return failure(providers.KindBusy, opStop, err, "the connection was lost while operation %s was stopped; repeat the call", opID)
	}
	if err != nil {
		return err
	}
	_, state, _ := strings.Cut(string(res.Stdout), mark+" ")
	switch strings.TrimSpace(state) {
	case "absent", "ended":
		return nil
	case "lost":
		return failure(providers.KindUncertain, opStop, nil,
			"operation %s left no result (killed, or the node restarted); look at the node", opID)
	case "nostate":
		return failure(providers.KindStateConflict, opStop, nil,
			"the node cannot keep that operation %s is stopped; free disk space, and repeat the call", opID)
	}
	return failure(providers.KindBusy, opStop, nil, "operation %s has not ended yet; repeat the call", opID)
}
