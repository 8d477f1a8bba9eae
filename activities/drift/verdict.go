package drift

import (
	"fmt"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// State is what a detector says of one node.
type State int

// What a detector may say. Unknown neither opens nor closes a finding: what
// cannot be seen has neither come nor gone.
const (
	Unknown State = iota
	Clear
	Found
)

// Verdict is a detector's answer. Key is what makes it the same fault, Message
// is for operators; neither they nor the evidence hold secrets.
type Verdict struct {
	State    State
	Key      string
	Message  string
	Evidence map[string]any
}

// clear and unknown are the verdicts without a finding.
func clean() Verdict   { return Verdict{State: Clear} }
func unknown() Verdict { return Verdict{State: Unknown} }

// found is a finding; evidence follows as name and value in turn.
func found(key, message string, evidence ...any) Verdict {
	v := Verdict{State: Found, Key: key, Message: message, Evidence: map[string]any{}}
	for i := 0; i+1 < len(evidence); i += 2 {
		v.Evidence[fmt.Sprint(evidence[i])] = evidence[i+1]
	}
	return v
}

// look is a detector of nodes or BMCs.
type look func(Facts) Verdict

// looks are the detectors by name; a test holds them against the catalogue.
func looks() map[string]look {
	return map[string]look{
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
		lifecycle.DriftBMCLoginBlocked:    bmcLoginBlocked,
		lifecycle.DriftBootUnannounced:    bootUnannounced,
		lifecycle.DriftAgentOld:           agentOld,
		lifecycle.DriftAgentCertificate:   agentCertificate,
		lifecycle.DriftAgentLocked:        agentLocked,
		lifecycle.DriftAgentElsewhere:     agentElsewhere,
		lifecycle.DriftClockSkew:          clockSkew,
		lifecycle.DriftGPUCount:           gpuCount,
		lifecycle.DriftGPUFault:           gpuFault,
		lifecycle.DriftMemory:             memory,
		lifecycle.DriftDisks:              disks,
		lifecycle.DriftNICs:               nics,
		lifecycle.DriftDriver:             driver,
	}
}

// judge asks one detector about a node. A node that is not in a state that the
// detector looks at is clear, except one that was quarantined since the finding
// opened (held): its fault is still looked for. Between two states nothing is
// said.
func judge(d lifecycle.DriftDetector, see look, f Facts, held bool) Verdict {
	for _, s := range d.Expects {
		if s == f.Node.Status {
			return see(f)
		}
	}
	switch {
	case f.Node.Status == lifecycle.NodeQuarantined && held:
		f.Node.Status = lifecycle.NodeActive
		return see(f)
	case f.Node.Status == lifecycle.NodeEnrolling, f.Node.Status == lifecycle.NodeDraining, f.Node.Status == lifecycle.NodeRemoving:
		return unknown()
	}
	return clean()
}
