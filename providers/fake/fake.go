package fake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/slipway-cloud/slipway/providers"
)

// keptOps bounds the ended operations that a machine remembers.
const keptOps = 100

// Provider has any number of machines; each comes into being when it is first named.
type Provider struct {
	mu       sync.Mutex
	machines map[string]*machine
	clusters map[string]*cluster
}

// machine is one simulated machine.
type machine struct {
	boots    int
	device   providers.BootTarget
	runs     int
	released chan struct{}
	images   map[string]string // installed, by operation
	ticket   string            // of its return
	networks map[string]*networkChange
	// joined is the cluster that the machine has joined since it was installed, "" for none.
	joined    string
	joinFiles map[string]providers.Secret // by operation
	ops       map[string]*operation
	order     []string // of ops, the oldest first
}

// New returns a provider without machines.
func New() *Provider {
	return &Provider{machines: map[string]*machine{}, clusters: map[string]*cluster{}}
}

// Adapter returns the provider as an adapter, which has every capability.
func (p *Provider) Adapter() providers.MachineAdapter {
	return providers.MachineAdapter{
		Simulated: true, Inspect: p, PowerControl: p, Netboot: p, Imaging: p, RemoteExec: p, Network: p, Return: p, ClusterJoin: p, JoinHost: p,
	}
}

// machine returns the machine with the id. The caller holds the lock.
func (p *Provider) machine(id string) *machine {
	m, ok := p.machines[id]
	if !ok {
		m = &machine{boots: 1, device: providers.BootNone, released: make(chan struct{}), ops: map[string]*operation{},
			images: map[string]string{}, networks: map[string]*networkChange{}, joinFiles: map[string]providers.Secret{}}
		p.machines[id] = m
	}
	return m
}

// Runs returns how often scripts that count have run on a machine.
func (p *Provider) Runs(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.machine(id).runs
}

// Release ends the wait of the scripts of a machine, those that come later too.
func (p *Provider) Release(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.machine(id); !isClosed(m.released) {
		close(m.released)
	}
}

// Inspect implements providers.Inspect. Serial and MAC address follow from the id.
func (p *Provider) Inspect(ctx context.Context, t providers.MachineTarget) (providers.MachineFacts, error) {
	if err := ctx.Err(); err != nil {
		return providers.MachineFacts{}, unreachable("fake.inspect", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := sha256.Sum256([]byte(t.ID))
	return providers.MachineFacts{
		Serial: "FAKE" + hex.EncodeToString(sum[:6]),
		MACs:   []string{fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3])},
		BootID: bootID(t.ID, p.machine(t.ID).boots),
	}, nil
}

// Reboot implements providers.PowerControl. Everything that runs on the machine is lost.
func (p *Provider) Reboot(ctx context.Context, t providers.MachineTarget) error {
	if err := ctx.Err(); err != nil {
		return unreachable("fake.reboot", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machine(t.ID).boot()
	return nil
}

// boot restarts the machine. A network change that nobody has confirmed is rolled back.
func (m *machine) boot() {
	m.boots++
	m.device = providers.BootNone
	clear(m.joinFiles) // they are in memory
	for _, op := range m.ops {
		op.lose()
	}
	for _, c := range m.networks {
		c.rollBack()
	}
}

// SetNetboot implements providers.Netboot.
func (p *Provider) SetNetboot(ctx context.Context, t providers.MachineTarget, device providers.BootTarget) error {
	const op = "fake.netboot"
	if err := ctx.Err(); err != nil {
		return unreachable(op, err)
	}
	if !slices.Contains([]providers.BootTarget{providers.BootPXE, providers.BootUEFIHTTP, providers.BootHDD, providers.BootNone}, device) {
		return &providers.Error{Kind: providers.KindUnsupported, Op: op, Message: fmt.Sprintf("a simulated machine does not boot from %q", device)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machine(t.ID).device = device
	return nil
}

// Netboot implements providers.Netboot.
func (p *Provider) Netboot(ctx context.Context, t providers.MachineTarget) (providers.BootTarget, error) {
	if err := ctx.Err(); err != nil {
		return "", unreachable("fake.netboot", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.machine(t.ID).device, nil
}

func unreachable(op string, err error) error {
	return &providers.Error{Kind: providers.KindUnreachable, Op: op, Message: "the call ended before the simulated machine was asked", Err: err}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
