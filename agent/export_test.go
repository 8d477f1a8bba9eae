package agent

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Step does what is due once, as the loop of Run does, and returns how long the loop would wait.
func (a *Agent) Step(ctx context.Context) time.Duration { return a.step(ctx) }

// SetClock replaces the agent's wall clock.
func (a *Agent) SetClock(now func() time.Time) { a.now = now }

// Generation returns the generation of the stored certificate, 0 for none.
func (a *Agent) Generation() int64 {
	if a.id == nil {
		return 0
	}
	return a.id.Generation
}

// Heard reports whether the last step ended with an accepted heartbeat.
func (a *Agent) Heard() bool { return a.failures == 0 && a.id != nil }

// ProbeAsRealNode tries targets as an agent of a real node does.
func ProbeAsRealNode(ctx context.Context, in spec.ProbeNetworkArgs) spec.ProbeNetworkResult {
	a := &Agent{cfg: agentconfig.Config{Root: "/"}}
	return (&networkProber{a: a, dial: a.dialer()}).probe(ctx, in)
}
