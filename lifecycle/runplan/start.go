package runplan

import (
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// StartReason says why a run may not start.
type StartReason string

// The reasons, in the order in which they are checked.
const (
	ReasonUnknownType       StartReason = "unknown_type"
	ReasonNoSteps           StartReason = "no_steps"
	ReasonMissingCapability StartReason = "missing_capability"
	ReasonNoNetplan         StartReason = "no_netplan"
	ReasonRetired           StartReason = "machine_retired"
	ReasonActiveRun         StartReason = "active_run"
	ReasonClusterUnknown    StartReason = "cluster_unknown"
	ReasonNotDrained        StartReason = "not_drained"
	ReasonNoConsole         StartReason = "no_console"
)

// StartRefusal says why a run may not start and what to do. Nothing was begun.
type StartRefusal struct {
	Reason   StartReason
	Detail   string
	Existing string // the id of the active run
}

func (r *StartRefusal) Error() string { return r.Detail }

// Invalid reports whether the request itself is wrong. Otherwise the state of the machine does not
// allow it.
func (r *StartRefusal) Invalid() bool { return r.Reason == ReasonUnknownType }

// StartFacts are what is known of a machine when a run is asked for.
type StartFacts struct {
	Provider    string
	Offered     []Capability // of the provider's adapter
	Phase       lifecycle.MachinePhase
	Conditions  lifecycle.Conditions
	ActiveRunID string // "" when no run is active
	AcceptRisk  bool   // an operator accepts that work on the machine is interrupted
}

// CheckStart returns a *StartRefusal when the plan may not start, as Plan.For returned it for the
// machine. It is asked again in the transaction that writes the run.
func CheckStart(t lifecycle.RunType, p Plan, f StartFacts) error {
	refuse := func(reason StartReason, format string, args ...any) error {
		return &StartRefusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	if !slices.Contains(lifecycle.RunTypes(), t) {
		return refuse(ReasonUnknownType, "type is not one of %s", list(lifecycle.RunTypes()))
	}
	if len(p.Steps) == 0 {
		return refuse(ReasonNoSteps, "no step of plan %s is left: its steps are for a cluster and the machine has none; set target_cluster_ref or name another plan", p.ID)
	}
	for _, s := range p.Steps {
		if needs := s.Needs(); !slices.Contains(f.Offered, needs) {
			if len(f.Offered) == 0 {
				return refuse(ReasonMissingCapability, "step %s needs %s, and the machine's provider %q offers nothing; set spec.provider to one that does", s.Name, needs, f.Provider)
			}
			return refuse(ReasonMissingCapability, "step %s needs %s, which provider %q does not have; it has: %s",
				s.Name, needs, f.Provider, list(names(f.Offered)))
		}
	}
	for _, s := range p.Steps {
		if s.Net != nil && s.Net.Netplan == "" {
			return refuse(ReasonNoNetplan, "step %s states no network configuration, and none is kept for the machine; set spec.netplan, or name a plan that states one", s.Name)
		}
	}
	if f.Phase == lifecycle.MachineRetired {
		return refuse(ReasonRetired, "the machine is RETIRED; no run is allowed on it")
	}
	if f.ActiveRunID != "" {
		return &StartRefusal{
			Reason: ReasonActiveRun, Existing: f.ActiveRunID,
			Detail: fmt.Sprintf("run %s is active on the machine; wait for it, or cancel it", f.ActiveRunID),
		}
	}
	if err := checkDrained(p, f, refuse); err != nil {
		return err
	}
	for _, s := range p.Steps {
		if s.Net != nil && !f.AcceptRisk && !slices.Contains(f.Offered, CapPowerControl) {
			return refuse(ReasonNoConsole, "step %s may cut the machine off, and nothing could restart it then: link it to a node with a BMC, or let an operator accept the risk", s.Name)
		}
	}
	return nil
}

// checkDrained refuses to interrupt work in a cluster, and to guess whether there is any.
func checkDrained(p Plan, f StartFacts, refuse func(StartReason, string, ...any) error) error {
	if !p.Disruptive() || f.AcceptRisk {
		return nil
	}
	cluster, observed := f.Conditions.Find(lifecycle.InCustomerClusterCondition)
	switch {
	case !observed && f.Phase != lifecycle.MachineInService:
		return nil // it was never in a cluster that Slipway knows
	case !observed, cluster.Reason == lifecycle.ReasonUnknown:
		return refuse(ReasonClusterUnknown, "whether the machine is in its cluster is not known now; make the cluster's API reachable, or let an operator accept the risk")
	case !cluster.Status:
		return nil
	case !f.Conditions.Known(lifecycle.DrainedCondition):
		return refuse(ReasonClusterUnknown, "whether the machine is drained is not known now; make the cluster's API reachable, or let an operator accept the risk")
	case !f.Conditions.Holds(lifecycle.DrainedCondition):
		return refuse(ReasonNotDrained, "the machine is in its cluster and not drained; drain it, or let an operator accept the risk")
	}
	return nil
}
