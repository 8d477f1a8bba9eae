package decommission

import (
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
)

// Why a stage is not needed: one function for each stage that may be skipped, and what several of
// them ask. An empty reason runs the stage.

// skipForceRelease returns why there is no tenant to end.
func skipForceRelease(s *State) string {
	if why := sanitize.DisksErasedByMAAS(&s.State); why != "" && s.Node.AllocationID == "" {
		return why
	}
	if s.Node.AllocationID == "" {
		return "no allocation is on the node"
	}
	return ""
}

// skipDrainNode is why a node that was retired when the job began is not
// drained again.
func skipDrainNode(s *State) string {
	if s.Retired {
		return "the node was drained when it was retired"
	}
	if why := hardwareReplaced(s); why != "" {
		return why
	}
	return sanitize.DisksErasedByMAAS(&s.State)
}

// skipPowerOffMAAS returns why the machine is not switched off before its record is removed.
func skipPowerOffMAAS(s *State) string {
	if s.Node.SystemID == "" && s.Node.BMCID == "" {
		return "Slipway knows neither a BMC nor a MAAS machine of the node; its agent is uninstalled instead"
	}
	return ""
}

// skipRetireNode returns why the node is not retired.
func skipRetireNode(s *State) string {
	if s.Retired {
		return "the node is retired already"
	}
	return ""
}

// skipPowerOff is why the machine is not switched off.
func skipPowerOff(s *State) string {
	if why := hardwareReplaced(s); why != "" {
		return why
	}
	if s.Node.BMCID == "" {
		return "Slipway knows no BMC of the machine; whoever is beside it switches it off"
	}
	return ""
}

// hardwareReplaced is why a stage about the old machine is not run any more.
func hardwareReplaced(s *State) string {
	if s.Hardware.Done {
		return "the node is on its new hardware"
	}
	return ""
}

// oldHardwareKept is why the old machine is not erased.
func oldHardwareKept(s *State) string {
	if s.Request.Mode == lifecycle.ModeMigrate && !s.Request.EraseOld {
		return "the request does not ask for the old hardware to be erased"
	}
	return hardwareReplaced(s)
}
