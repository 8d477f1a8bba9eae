package sanitize

import (
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Why a stage is not needed. An empty reason runs the stage.

// skipCleanupStorage is why the agent is not asked to erase: it cannot be, or there is nothing
// of the old system left.
func skipCleanupStorage(s *State) string {
	if why := DisksErasedByMAAS(s); why != "" {
		return why
	}
	if s.Mode == lifecycle.ModeReimage && s.IsDistrusted() {
		return lifecycle.SystemDistrusted + "; the next system scrubs the node"
	}
	if s.AgentUnreachable != "" && s.IsUnmanaged() {
		return "the agent cannot be asked (" + s.AgentUnreachable + "), and no MAAS erases the disks from outside"
	}
	if s.AgentUnreachable != "" && s.IsFullDecommission() {
		return "the agent cannot be asked (" + s.AgentUnreachable + "); erasing from outside has to be the proof"
	}
	return ""
}

// SkipWithoutMAAS returns why MAAS is not asked.
func SkipWithoutMAAS(s *State) string {
	if s.Node.SystemID == "" {
		return "the node is not a machine of MAAS"
	}
	return ""
}

// IsUnmanaged is set in a full decommission of a node that MAAS does not manage:
// nobody erases its disks from outside, so that what there is to prove is proven,
// and certified, before it is retired.
func (s *State) IsUnmanaged() bool { return s.IsFullDecommission() && SkipWithoutMAAS(s) != "" }

// DisksErasedByMAAS returns why no system of the node is asked: MAAS has erased the disks in a
// reimage, and the new system is not there yet. A deployment that failed is begun again from here.
func DisksErasedByMAAS(s *State) string {
	if s.Mode == lifecycle.ModeReimage && s.Release.Completed && s.Release.Erased && !s.Deploy.Completed {
		return "MAAS has erased the disks; there is no system to ask"
	}
	return ""
}

// skipScrubGPU returns why the node is not scrubbed.
func skipScrubGPU(s *State) string {
	if s.IsPXE() {
		return ""
	}
	return skipCleanupStorage(s)
}

// skipValidateClean returns why the node is not validated: only a reimage gets a new system. A node
// that cannot be validated and that MAAS does not release is certified as it is.
func skipValidateClean(s *State) string {
	if !s.IsPXE() && s.IsFullDecommission() && !s.IsUnmanaged() {
		return skipCleanupStorage(s)
	}
	return ""
}

// skipBootEraser returns why the live system is not booted.
func skipBootEraser(s *State) string {
	if s.Validated && s.IsProven() {
		return "the node is proven clean already: certificate " + s.Evidence.CertificateID
	}
	return ""
}
