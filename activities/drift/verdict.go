package drift

import (
	"fmt"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// State is the result of a detector for one node.
type State int

// The results of a detector. Unknown neither opens nor closes a finding, since the detector lacks a
// fact.
const (
	Unknown State = iota
	Clear
	Found
)

// Verdict is the result of a detector with its reason. Key identifies the fault over passes.
// Message is for operators. No field holds a secret.
type Verdict struct {
	State    State
	Key      string
	Message  string
	Evidence map[string]any
}

// clean and unknown return the verdicts without a finding.
func clean() Verdict   { return Verdict{State: Clear} }
func unknown() Verdict { return Verdict{State: Unknown} }

// found returns a verdict with a finding. The evidence alternates names and values.
func found(key, message string, evidence ...any) Verdict {
	v := Verdict{State: Found, Key: key, Message: message, Evidence: map[string]any{}}
	for i := 0; i+1 < len(evidence); i += 2 {
		v.Evidence[fmt.Sprint(evidence[i])] = evidence[i+1]
	}
	return v
}

// nodeDetector evaluates one rule on the facts of a node or its BMC.
type nodeDetector func(Facts) Verdict

// detectors returns the detectors by name. A test compares them with the catalogue.
func detectors() map[string]nodeDetector {
	return map[string]nodeDetector{
		lifecycle.DriftMachineAbsent:      machineAbsent,
		lifecycle.DriftExternallyReleased: externallyReleased,
		lifecycle.DriftExternallyDeployed: externallyDeployed,
		lifecycle.DriftBusyWithoutJob:     busyWithoutJob,
		lifecycle.DriftFailedOrBroken:     failedOrBroken,
		lifecycle.DriftMachineLocked:      machineLocked,
		lifecycle.DriftOtherOwner:         otherOwner,
		lifecycle.DriftPoweredOff:         poweredOff,
		lifecycle.DriftPowerUnknown:       powerUnknown,
		lifecycle.DriftHWSyncStale:        hwSyncStale,
		lifecycle.DriftHWSyncOff:          hwSyncOff,
		lifecycle.DriftHostnameChanged:    hostnameChanged,
		lifecycle.DriftMACsChanged:        macsChanged,
		lifecycle.DriftHardwareChanged:    hardwareChanged,
		lifecycle.DriftAddressesChanged:   addressesChanged,
		lifecycle.DriftBMCAddressChanged:  bmcAddressChanged,
		lifecycle.DriftBMCPinChanged:      bmcPinChanged,
		lifecycle.DriftBMCUnreachable:     bmcUnreachable,
		lifecycle.DriftBMCUnhealthy:       bmcUnhealthy,
		lifecycle.DriftBMCLoginBlocked:    bmcLoginBlocked,
		lifecycle.DriftPartsChanged:       partsChanged,
		lifecycle.DriftDPUMode:            dpuModeChanged,
		lifecycle.DriftBootUnannounced:    bootUnannounced,
		lifecycle.DriftAgentOld:           agentOld,
		lifecycle.DriftAgentCertificate:   agentCertificate,
		lifecycle.DriftAgentLocked:        agentLocked,
		lifecycle.DriftAgentElsewhere:     agentElsewhere,
		lifecycle.DriftAgentSilent:        agentSilent,
		lifecycle.DriftClockSkew:          clockSkew,
		lifecycle.DriftGPUCount:           gpuCount,
		lifecycle.DriftGPUFault:           gpuFault,
		lifecycle.DriftMemory:             memory,
		lifecycle.DriftDisks:              disks,
		lifecycle.DriftNICs:               nics,
		lifecycle.DriftDriver:             driver,
		lifecycle.DriftOccupancy:          occupancyMismatch,
		lifecycle.DriftMAASOccupant:       maasOccupant,
		lifecycle.DriftAgentOccupant:      agentOccupant,
		lifecycle.DriftNetworkOpen:        networkOpen,
	}
}

// evaluate runs one detector on a node. It returns Clear for a node in a state that the detector
// does not check, and Unknown for a node between two states. A node that was quarantined while its
// finding is open (held) is evaluated as if it were active. A PXE node is evaluated while it is
// active.
func evaluate(d lifecycle.DriftDetector, detect nodeDetector, f Facts, held bool) Verdict {
	if f.isPXE() && f.Node.Status != lifecycle.NodeActive {
		return clean()
	}
	for _, s := range d.Expects {
		if s == f.Node.Status {
			return detect(f)
		}
	}
	switch {
	case f.Node.Status == lifecycle.NodeQuarantined && held:
		f.Node.Status = lifecycle.NodeActive
		return detect(f)
	case f.Node.Status == lifecycle.NodeEnrolling, f.Node.Status == lifecycle.NodeDraining, f.Node.Status == lifecycle.NodeRemoving:
		return unknown()
	}
	return clean()
}
