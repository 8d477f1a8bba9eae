package lifecycle

import (
	"slices"
	"time"
)

// ConditionType names one derived fact about a machine.
type ConditionType string

// The types of conditions.
const (
	ReachableCondition         ConditionType = "Reachable"
	BMCReachableCondition      ConditionType = "BMCReachable"
	ProvisionedCondition       ConditionType = "Provisioned"
	InCustomerClusterCondition ConditionType = "InCustomerCluster"
	DrainedCondition           ConditionType = "Drained"
	DegradedCondition          ConditionType = "Degraded"
	NeedsInterventionCondition ConditionType = "NeedsIntervention"
)

// ConditionTypes lists all types, in the order of the documentation.
func ConditionTypes() []ConditionType {
	return []ConditionType{
		ReachableCondition, BMCReachableCondition, ProvisionedCondition, InCustomerClusterCondition, DrainedCondition,
		DegradedCondition, NeedsInterventionCondition,
	}
}

// ReasonUnknown is the reason of a condition whose last probe failed. Its status is the last known
// one.
const ReasonUnknown = "Unknown"

// Condition is one derived fact about a machine.
type Condition struct {
	Type           ConditionType `json:"type"`
	Status         bool          `json:"status"`
	Reason         string        `json:"reason"`
	LastTransition time.Time     `json:"last_transition"` // when Status changed
}

// Conditions are the derived facts about one machine, at most one of each type.
type Conditions []Condition

// Find returns the condition of a type. It returns false when it was never observed.
func (c Conditions) Find(t ConditionType) (Condition, bool) {
	i := slices.IndexFunc(c, func(x Condition) bool { return x.Type == t })
	if i < 0 {
		return Condition{Type: t, Reason: ReasonUnknown}, false
	}
	return c[i], true
}

// Holds reports whether the last known status of a type is true.
func (c Conditions) Holds(t ConditionType) bool {
	found, _ := c.Find(t)
	return found.Status
}

// Known reports whether a type was observed and its last probe succeeded.
func (c Conditions) Known(t ConditionType) bool {
	found, ok := c.Find(t)
	return ok && found.Reason != ReasonUnknown
}

// Observe returns the conditions after a probe of one type. LastTransition moves only when the
// status does, and never back when the clock does.
func (c Conditions) Observe(t ConditionType, status bool, reason string, now time.Time) Conditions {
	last, seen := c.Find(t)
	next := Condition{Type: t, Status: status, Reason: reason, LastTransition: last.LastTransition}
	if !seen || last.Status != status {
		if next.LastTransition = now; now.Before(last.LastTransition) {
			next.LastTransition = last.LastTransition
		}
	}
	return c.replace(next)
}

// Fail returns the conditions after a probe of one type that gave no answer. The last status stays,
// with reason Unknown; a type that was never observed stays absent.
func (c Conditions) Fail(t ConditionType) Conditions {
	last, seen := c.Find(t)
	if !seen {
		return c
	}
	last.Reason = ReasonUnknown
	return c.replace(last)
}

func (c Conditions) replace(next Condition) Conditions {
	out := slices.Clone(c)
	if i := slices.IndexFunc(out, func(x Condition) bool { return x.Type == next.Type }); i >= 0 {
		out[i] = next
		return out
	}
	return append(out, next)
}

// EffectiveState returns what a reader should see of a machine: an active run comes first, then an
// explicit phase that takes it out of service, then its cluster. activeRun is "" when no run is
// active.
func EffectiveState(phase MachinePhase, activeRun RunPhase, c Conditions) MachinePhase {
	switch {
	case activeRun == RunPending, activeRun == RunRunning:
		return MachineProvisioning
	case phase == MachineRMA, phase == MachineRetired, phase == MachineMaintenance:
		return phase
	case c.Holds(InCustomerClusterCondition):
		return MachineInService
	case phase == MachineFactoryReady:
		return MachineFactoryReady
	}
	return MachineReady
}

// Banners lists the conditions that hold and require attention, whatever the state is.
func Banners(c Conditions) []ConditionType {
	var out []ConditionType
	for _, t := range []ConditionType{NeedsInterventionCondition, DegradedCondition} {
		if c.Holds(t) {
			out = append(out, t)
		}
	}
	return out
}
