package decommission

import "github.com/slipway-cloud/slipway/lifecycle"

// Why a stage is not needed: one function for each stage that may be skipped, and what several of
// them ask. An empty reason runs the stage.

// skipForceRelease returns why there is no tenant to end.
func skipForceRelease(s *State) string {
	if why := disksErasedByMAAS(s); why != "" && s.Node.AllocationID == "" {
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
	return disksErasedByMAAS(s)
}

// skipCleanupStorage is why the agent is not asked to erase: it cannot be, or there is nothing
// of the old system left.
func skipCleanupStorage(s *State) string {
	if why := disksErasedByMAAS(s); why != "" {
		return why
	}
	if s.Request.Mode == lifecycle.ModeReimage && s.distrusted() {
		return lifecycle.SystemDistrusted + "; the next system scrubs the node"
	}
	if s.AgentUnreachable != "" && s.isUnmanaged() {
		return "the agent cannot be asked (" + s.AgentUnreachable + "), and no MAAS erases the disks from outside"
	}
	if s.AgentUnreachable != "" && s.isFullDecommission() {
		return "the agent cannot be asked (" + s.AgentUnreachable + "); erasing from outside has to be the proof"
	}
	return ""
}

// skipScrubGPU returns why the node is not scrubbed.
func skipScrubGPU(s *State) string {
	if s.pxe() {
		return oldHardwareKept(s)
	}
	return skipCleanupStorage(s)
}

// skipValidateClean returns why the node is not validated: only a reimage gets a new system. A node
// that cannot be validated and that MAAS does not release is certified as it is.
func skipValidateClean(s *State) string {
	switch {
	case s.pxe():
		return oldHardwareKept(s)
	case s.isFullDecommission() && !s.isUnmanaged():
		return skipCleanupStorage(s)
	}
	return ""
}

// skipWithoutMAAS returns why MAAS is not asked.
func skipWithoutMAAS(s *State) string {
	if s.Node.SystemID == "" {
		return "the node is not a machine of MAAS"
	}
	return ""
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

// skipBootEraser is why the live system is not booted.
func skipBootEraser(s *State) string {
	if s.Validated && s.Evidence.CertificateID != "" && len(s.Evidence.Unproven) == 0 {
		return "the node is proven clean already: certificate " + s.Evidence.CertificateID
	}
	return oldHardwareKept(s)
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

// isUnmanaged is set in a full decommission of a node that MAAS does not manage:
// nobody erases its disks from outside, so that what there is to prove is proven,
// and certified, before it is retired.
func (s *State) isUnmanaged() bool { return s.isFullDecommission() && skipWithoutMAAS(s) != "" }

// disksErasedByMAAS is set in a reimage whose disks MAAS has erased, and whose new system is
// not there yet: a deployment that failed is begun again from here.
func disksErasedByMAAS(s *State) string {
	if s.Request.Mode == lifecycle.ModeReimage && s.Release.Completed && s.Release.Erased && !s.Deploy.Completed {
		return "MAAS has erased the disks; there is no system to ask"
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
