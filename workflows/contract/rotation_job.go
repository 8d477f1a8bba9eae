package contract

import "github.com/slipway-cloud/slipway/lifecycle"

// BMCRotationInput is the accepted request. Hostname is the node's, "" for a
// BMC that no node has.
type BMCRotationInput struct {
	BMCID    string `json:"bmc_id"`
	Hostname string `json:"hostname,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Stages lists the names of a kind's stages in order; nil for an unknown kind, and for runs, whose
// stages are the steps of their plans.
func Stages(k JobKind) []string {
	switch k {
	case KindOnboarding:
		return lifecycle.OnboardingStages()
	case KindBMCRotation:
		return lifecycle.BMCRotationStages()
	case KindDecommission, KindNodeOperation:
		return lifecycle.DecommissionStages()
	case KindAgentReissue:
		return lifecycle.AgentReissueStages()
	case KindAgentUpdate:
		return lifecycle.AgentUpdateStages()
	case KindAllocationProvision:
		return lifecycle.AllocationProvisionStages()
	case KindAllocationRelease:
		return lifecycle.AllocationReleaseStages()
	case KindAllocationKeys:
		return lifecycle.AllocationKeysStages()
	case KindMachineRun:
	case KindInstanceCreate:
		return lifecycle.InstanceCreateStages()
	case KindInstanceTerminate:
		return lifecycle.InstanceTerminateStages()
	}
	return nil
}
