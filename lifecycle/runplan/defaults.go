package runplan

import (
	_ "embed" // defaults.json
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// defaultsJSON has the default plan of each type of run.
//
//go:embed defaults.json
var defaultsJSON []byte

// Defaults returns the default plans by the type of run.
func Defaults() (map[lifecycle.RunType]Plan, error) {
	var plans map[lifecycle.RunType]Plan
	if err := spec.DecodeStrict(defaultsJSON, &plans); err != nil {
		return nil, fmt.Errorf("read the default plans: %w", err)
	}
	for t, p := range plans {
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("check the default plan of %s: %w", t, err)
		}
	}
	return plans, nil
}

// For returns the plan as a run of a machine carries it out: the run keeps its own copy of the
// steps. Steps without a cluster take that of the machine, and are left out where it has none; an
// explicit cluster is kept. No step may be left.
func (p Plan) For(targetCluster string) Plan {
	out := p
	out.Steps = nil
	for _, s := range p.Steps {
		switch {
		case s.Join != nil && s.Join.ClusterRef == "":
			if targetCluster == "" {
				continue
			}
			join := *s.Join
			join.ClusterRef = targetCluster
			s.Join = &join
		case s.Verify != nil && s.Verify.ClusterRef == "":
			if targetCluster == "" {
				continue
			}
			verify := *s.Verify
			verify.ClusterRef = targetCluster
			s.Verify = &verify
		}
		out.Steps = append(out.Steps, s)
	}
	return out
}

// WithNetplan returns the plan with the network configuration that is kept for a machine in the
// steps that state none.
func (p Plan) WithNetplan(netplan string) Plan {
	out := p
	out.Steps = slices.Clone(p.Steps)
	for i, s := range out.Steps {
		if s.Net != nil && s.Net.Netplan == "" {
			net := *s.Net
			net.Netplan = netplan
			out.Steps[i].Net = &net
		}
	}
	return out
}

// names lists the capabilities in the order of the documentation.
func names(offered []Capability) []Capability {
	return slices.DeleteFunc(Capabilities(), func(c Capability) bool { return !slices.Contains(offered, c) })
}
