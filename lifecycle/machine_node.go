package lifecycle

import "time"

// The reasons of conditions that follow from the node of a machine.
const (
	ReasonAgentReports     = "AgentReports"
	ReasonAgentSilent      = "AgentSilent"
	ReasonBMCAnswers       = "BMCAnswers"
	ReasonBMCSilent        = "BMCSilent"
	ReasonNodeInstalled    = "NodeInstalled"
	ReasonNodeNotInstalled = "NodeNotInstalled"
	ReasonNodeLeft         = "NodeLeft"
	ReasonCriticalDrift    = "CriticalDrift"
	ReasonNoCriticalDrift  = "NoCriticalDrift"
	ReasonNodeQuarantined  = "NodeQuarantined"
	ReasonJobParked        = "JobParked"
	ReasonNothingParked    = "NothingParked"
)

// NodeFacts are what is known of the node that a machine is linked to.
type NodeFacts struct {
	Status NodeStatus
	// BMCKnown says that the BMC was asked lately, and BMCAnswers that it answered.
	BMCKnown, BMCAnswers bool
	// CriticalDrift says that a critical finding is open, and JobParked that a job waits for an
	// operator.
	CriticalDrift, JobParked bool
}

// ObserveNode returns the conditions of a machine after its node was read. InCustomerCluster and
// Drained are facts of a cluster and stay as they are.
func (c Conditions) ObserveNode(f NodeFacts, now time.Time) Conditions {
	switch f.Status {
	case NodeActive:
		c = c.Observe(ReachableCondition, true, ReasonAgentReports, now)
	case NodeOffline:
		c = c.Observe(ReachableCondition, false, ReasonAgentSilent, now)
	default: // nothing is concluded from the agent of a node that is not in service
		c = c.Fail(ReachableCondition)
	}
	switch {
	case !f.BMCKnown:
		c = c.Fail(BMCReachableCondition)
	case f.BMCAnswers:
		c = c.Observe(BMCReachableCondition, true, ReasonBMCAnswers, now)
	default:
		c = c.Observe(BMCReachableCondition, false, ReasonBMCSilent, now)
	}
	switch MachinePhaseOfNode(f.Status, false) {
	case MachineFactoryReady:
		c = c.Observe(ProvisionedCondition, false, ReasonNodeNotInstalled, now)
	case MachineReady:
		c = c.Observe(ProvisionedCondition, true, ReasonNodeInstalled, now)
	case MachineRetired:
		c = c.Observe(ProvisionedCondition, false, ReasonNodeLeft, now)
	case MachineMaintenance, MachineProvisioning, MachineInService, MachineRMA:
		c = c.Fail(ProvisionedCondition) // a node that leaves may be erased by now
	}
	if f.CriticalDrift {
		c = c.Observe(DegradedCondition, true, ReasonCriticalDrift, now)
	} else {
		c = c.Observe(DegradedCondition, false, ReasonNoCriticalDrift, now)
	}
	switch {
	case f.JobParked:
		return c.Observe(NeedsInterventionCondition, true, ReasonJobParked, now)
	case f.Status == NodeQuarantined:
		return c.Observe(NeedsInterventionCondition, true, ReasonNodeQuarantined, now)
	}
	return c.Observe(NeedsInterventionCondition, false, ReasonNothingParked, now)
}
