package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/taskkeys"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// probesAtOnce is how many addresses are tried at the same time.
const probesAtOnce = 16

// errItself says that an address names the node itself.
var errItself = errors.New("the address is the node's own")

// networkProber does the tasks node.probe_network and hands all others on. The process that speaks
// to the control plane does them: the privileged half may use no network, and would find everything
// closed. A probe changes nothing, so it is in no journal, and its addresses are never on the disk,
// where the next tenant would read them.
type networkProber struct {
	task.Executor
	a    *Agent
	dial func(ctx context.Context, address string) error
}

// Execute implements task.Executor.
func (p *networkProber) Execute(ctx context.Context, signed protocol.SignedTask, generation int64, c task.Control) (lifecycle.TaskResult, error) {
	id, _ := p.a.session.get()
	t, refusal := task.Open(signed, taskkeys.Valid(id.TaskKeys, p.a.now()))
	if refusal != nil || t.Kind != lifecycle.TaskKindProbeNetwork {
		return p.Executor.Execute(ctx, signed, generation, c)
	}
	boot, err := p.a.node.bootID()
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	if refusal = (task.Fence{NodeID: p.a.cfg.NodeID, BootID: boot, Generation: generation, Now: p.a.now()}).Check(t); refusal != nil {
		return refusal.Result(), nil
	}
	args, err := t.Kind.CheckArgs(t.SchemaVersion, t.Args)
	asked, ok := args.(*spec.ProbeNetworkArgs)
	if err != nil || !ok {
		return task.Fail(task.CodeArguments, fmt.Sprint(err)), nil
	}
	out, err := json.Marshal(p.probe(ctx, *asked))
	if err != nil {
		return lifecycle.TaskResult{}, fmt.Errorf("encode the result of a network probe: %w", err)
	}
	if ctx.Err() != nil {
		return lifecycle.TaskResult{}, task.ErrInterrupted
	}
	return lifecycle.TaskResult{OK: true, BootID: boot, Simulated: p.a.cfg.Simulated, Output: out}, nil
}

// probe tries all targets, a few at a time.
func (p *networkProber) probe(ctx context.Context, in spec.ProbeNetworkArgs) spec.ProbeNetworkResult {
	var out spec.ProbeNetworkResult
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan spec.ProbeTarget)
	for range min(probesAtOnce, len(in.Targets)) {
		wg.Go(func() {
			for t := range next {
				one, cancel := context.WithTimeout(ctx, time.Duration(in.TimeoutMillis)*time.Millisecond)
				err := p.dial(one, t.Address)
				cancel()
				mu.Lock()
				switch {
				case errors.Is(err, errItself):
					out.NotTried = append(out.NotTried, t.Name)
				case err == nil:
					out.Open = append(out.Open, t.Name)
					fallthrough
				default:
					out.Tried++
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range in.Targets {
		next <- t
	}
	close(next)
	wg.Wait()
	slices.Sort(out.Open)
	slices.Sort(out.NotTried)
	return out
}

// dialer returns how this node connects. A simulated node, whose network is that of the machine
// which simulates it, reaches no more than its file of open addresses lists.
func (a *Agent) dialer() func(context.Context, string) error {
	if filepath.Clean(a.cfg.Root) == "/" {
		return func(ctx context.Context, address string) error { return connect(ctx, address, refuseItself) }
	}
	return func(ctx context.Context, address string) error {
		raw, err := os.ReadFile(a.cfg.Path(simulatedNetwork))
		if err != nil || !slices.Contains(strings.Fields(string(raw)), address) {
			return errors.New("the simulated network does not let it pass")
		}
		return connect(ctx, address, nil)
	}
}

// simulatedNetwork is the file of a simulated node that lists what its network lets pass.
const simulatedNetwork = "/etc/slipway-simulated-network"

func connect(ctx context.Context, address string, control func(network, address string, c syscall.RawConn) error) error {
	conn, err := (&net.Dialer{Control: control}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// refuseItself keeps an address from being tried that the node itself would answer.
func refuseItself(_, address string, _ syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); err != nil || at.Addr().Unmap().IsLoopback() || at.Addr().IsUnspecified() {
		return errItself
	}
	return nil
}
