package lifecycle

import "time"

// The reasons of conditions that follow from the cluster of a machine.
const (
	ReasonNodeReady    = "NodeReady"
	ReasonNodeNotReady = "NodeNotReady"
	ReasonNotJoined    = "NotJoined"
	ReasonCordonedIdle = "CordonedWithoutPods"
	ReasonNotCordoned  = "NotCordoned"
	ReasonPodsLeft     = "PodsLeft"
)

// ClusterFacts are what the cluster of a machine says of it.
type ClusterFacts struct {
	// Known says that the cluster answered. Found says that it has a Node with the system UUID of
	// the machine.
	Known, Found bool
	Ready        bool
	Cordoned     bool
	// PodsKnown says that the pods of a cordoned node were read, and Pods how many have to leave
	// it.
	PodsKnown bool
	Pods      int
}

// ObserveCluster returns the conditions of a machine after its cluster was asked. A machine whose
// Node is not Ready is in its cluster: its pods may still run. A cluster that gives no answer
// changes no status.
func (c Conditions) ObserveCluster(f ClusterFacts, now time.Time) Conditions {
	switch {
	case !f.Known:
		return c.Fail(InCustomerClusterCondition).Fail(DrainedCondition)
	case !f.Found:
		return c.Observe(InCustomerClusterCondition, false, ReasonNotJoined, now).Observe(DrainedCondition, false, ReasonNotJoined, now)
	case f.Ready:
		c = c.Observe(InCustomerClusterCondition, true, ReasonNodeReady, now)
	default:
		c = c.Observe(InCustomerClusterCondition, true, ReasonNodeNotReady, now)
	}
	switch {
	case !f.Cordoned:
		return c.Observe(DrainedCondition, false, ReasonNotCordoned, now)
	case !f.PodsKnown:
		return c.Fail(DrainedCondition)
	case f.Pods > 0:
		return c.Observe(DrainedCondition, false, ReasonPodsLeft, now)
	}
	return c.Observe(DrainedCondition, true, ReasonCordonedIdle, now)
}
