package fake

import (
	"context"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

var (
	_ providers.Imaging       = (*Provider)(nil)
	_ providers.NetworkConfig = (*Provider)(nil)
	_ providers.Return        = (*Provider)(nil)
)

// Repave implements providers.Imaging. The machine restarts into the image.
func (p *Provider) Repave(ctx context.Context, t providers.MachineTarget, opID, image string) error {
	const op = "fake.repave"
	if err := ctx.Err(); err != nil {
		return unreachable(op, err)
	}
	if !providers.ValidOpID(opID) || image == "" {
		return &providers.Error{Kind: providers.KindInvalid, Op: op, Message: "an installation needs an operation id and an image"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machine(t.ID)
	if m.images[opID] == image {
		return nil
	}
	if len(m.images) >= keptOps {
		clear(m.images)
	}
	m.images[opID], m.joined = image, ""
	m.boot()
	return nil
}

// ReturnMachine implements providers.Return.
func (p *Provider) ReturnMachine(ctx context.Context, t providers.MachineTarget, ticket string) error {
	if err := ctx.Err(); err != nil {
		return unreachable("fake.return", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machine(t.ID).ticket = ticket
	return nil
}

// cutsOff in a configuration has the simulated machine reached by nobody until it has rolled back.
const cutsOff = "# cuts off"

// networkChange is a change that was tried.
type networkChange struct {
	state   providers.NetworkState
	netplan string
	until   time.Time
}

func (c *networkChange) rollBack() {
	if c.state == providers.NetworkPending {
		c.state = providers.NetworkRolledBack
	}
}

// now returns the state of a change at this moment.
func (c *networkChange) now() providers.NetworkState {
	if !time.Now().Before(c.until) {
		c.rollBack()
	}
	return c.state
}

// TryNetwork implements providers.NetworkConfig.
func (p *Provider) TryNetwork(ctx context.Context, t providers.MachineTarget, c providers.NetworkChange) (providers.NetworkState, error) {
	const op = "fake.network"
	if err := ctx.Err(); err != nil {
		return "", unreachable(op, err)
	}
	if err := c.Check(); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machine(t.ID)
	if known, ok := m.networks[c.OpID]; ok {
		return known.now(), nil
	}
	for _, other := range m.networks {
		if other.now() == providers.NetworkPending {
			return "", &providers.Error{Kind: providers.KindStateConflict, Op: op, Message: "another change of the network waits for its confirmation"}
		}
	}
	if len(m.networks) >= keptOps {
		clear(m.networks) // none of them is pending
	}
	m.networks[c.OpID] = &networkChange{state: providers.NetworkPending, netplan: c.Netplan, until: time.Now().Add(c.Confirm)}
	return providers.NetworkPending, nil
}

// ConfirmNetwork implements providers.NetworkConfig.
func (p *Provider) ConfirmNetwork(ctx context.Context, t providers.MachineTarget, opID string) (providers.NetworkState, error) {
	return p.change(ctx, t, opID, func(c *networkChange) { c.state = providers.NetworkConfirmed })
}

// RevertNetwork implements providers.NetworkConfig.
func (p *Provider) RevertNetwork(ctx context.Context, t providers.MachineTarget, opID string) (providers.NetworkState, error) {
	p.mu.Lock()
	m := p.machine(t.ID)
	if _, begun := m.networks[opID]; !begun && ctx.Err() == nil {
		m.networks[opID] = &networkChange{state: providers.NetworkRolledBack}
	}
	p.mu.Unlock()
	return p.change(ctx, t, opID, (*networkChange).rollBack)
}

// change ends a change that is pending, on a machine that can be reached.
func (p *Provider) change(ctx context.Context, t providers.MachineTarget, opID string, end func(*networkChange)) (providers.NetworkState, error) {
	if err := ctx.Err(); err != nil {
		return "", unreachable("fake.network", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.machine(t.ID).networks[opID]
	switch {
	case !ok:
		return providers.NetworkUnknown, nil
	case c.now() != providers.NetworkPending:
		return c.state, nil
	case strings.Contains(c.netplan, cutsOff):
		return "", &providers.Error{Kind: providers.KindUnreachable, Op: "fake.network", Message: "the simulated machine has cut itself off"}
	}
	end(c)
	return c.state, nil
}
