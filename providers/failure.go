package providers

import (
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// Side is the outside system that answered, or did not.
type Side string

// The sides.
const (
	SideMAAS    Side = "maas"
	SideBMC     Side = "bmc"
	SideSSH     Side = "ssh"
	SideSecrets Side = "secrets"
	SideStripe  Side = "stripe"
	SideCloud   Side = "cloud"
	SideCluster Side = "cluster"
)

// sideOfOp has the side of each first part of an Error's Op.
var sideOfOp = map[string]Side{"maas": SideMAAS, "redfish": SideBMC, "ipmi": SideBMC, "ssh": SideSSH, "secrets": SideSecrets, "stripe": SideStripe, "cloud": SideCloud, "kube": SideCluster}

// Side returns the side that e is about, "" where its Op names none.
func (e *Error) Side() Side {
	first, _, _ := strings.Cut(e.Op, ".")
	return sideOfOp[first]
}

// FailureClass returns why a stage fails that met an error of this kind. Every kind has a class; it
// is internal where the side is not known.
func (s Side) FailureClass(k Kind) lifecycle.FailureClass {
	t, ok := failureTables[s]
	if !ok {
		return lifecycle.FailInternal
	}
	if class, ok := t.kinds[k]; ok {
		return class
	}
	return t.fallback
}

// failureTable maps kinds to failure classes. A kind that is not listed takes the fallback.
type failureTable struct {
	fallback lifecycle.FailureClass
	kinds    map[Kind]lifecycle.FailureClass
}

var failureTables = map[Side]failureTable{
	SideMAAS: {lifecycle.FailMAASRejected, map[Kind]lifecycle.FailureClass{
		KindUnreachable: lifecycle.FailMAASUnavailable,
		KindUnavailable: lifecycle.FailMAASUnavailable,
		KindBusy:        lifecycle.FailMAASUnavailable,
		// An uncertain mutation is tried again: each activity re-reads first.
		KindUncertain:     lifecycle.FailMAASUnavailable,
		KindProtocol:      lifecycle.FailMAASUnavailable,
		KindTooBig:        lifecycle.FailMAASUnavailable,
		KindUnauthorized:  lifecycle.FailConfiguration,
		KindForeign:       lifecycle.FailConfiguration,
		KindNotFound:      lifecycle.FailMAASMachineDeleted,
		KindStateConflict: lifecycle.FailStateDisagreement,
	}},
	SideBMC: {lifecycle.FailBMCUnreachable, map[Kind]lifecycle.FailureClass{
		KindUnauthorized:           lifecycle.FailBMCAuthRejected,
		KindForbidden:              lifecycle.FailBMCAuthRejected,
		KindPasswordChangeRequired: lifecycle.FailBMCAuthRejected,
		KindLocked:                 lifecycle.FailBMCLocked,
		KindPinMismatch:            lifecycle.FailBMCPinMismatch,
		KindForeign:                lifecycle.FailBMCPinMismatch,
		KindInvalid:                lifecycle.FailConfiguration,
		KindUnsupported:            lifecycle.FailConfiguration,
		KindUncertain:              lifecycle.FailPowerNotConfirmed,
	}},
	SideStripe: {lifecycle.FailPaymentsRejected, map[Kind]lifecycle.FailureClass{
		KindUnreachable: lifecycle.FailPaymentsUnavailable,
		KindUnavailable: lifecycle.FailPaymentsUnavailable,
		KindBusy:        lifecycle.FailPaymentsUnavailable,
		// A mutation is repeated with its key, or what it made is read.
		KindUncertain:    lifecycle.FailPaymentsUnavailable,
		KindProtocol:     lifecycle.FailPaymentsUnavailable,
		KindTooBig:       lifecycle.FailPaymentsUnavailable,
		KindUnauthorized: lifecycle.FailConfiguration,
		KindForbidden:    lifecycle.FailConfiguration,
		// A redirect, or an object of the other mode.
		KindForeign: lifecycle.FailConfiguration,
	}},
	SideCloud: {lifecycle.FailCloudRejected, map[Kind]lifecycle.FailureClass{
		KindUnreachable: lifecycle.FailCloudUnavailable,
		KindUnavailable: lifecycle.FailCloudUnavailable,
		KindBusy:        lifecycle.FailCloudUnavailable,
		KindProtocol:    lifecycle.FailCloudUnavailable,
		KindTooBig:      lifecycle.FailCloudUnavailable,
		// Every order but the one for a server is repeated after a look.
		KindUncertain: lifecycle.FailCloudUnavailable,
		KindQuota:     lifecycle.FailCloudQuota,
		KindCapacity:  lifecycle.FailCloudCapacity,
		KindNotFound:  lifecycle.FailStateDisagreement,
	}},
	// These failures come from the configuration: the kubeconfig, its rights, the pins.
	SideCluster: {lifecycle.FailClusterJoin, map[Kind]lifecycle.FailureClass{
		KindUnauthorized: lifecycle.FailConfiguration,
		KindForbidden:    lifecycle.FailConfiguration,
		KindPinMismatch:  lifecycle.FailConfiguration,
		KindInvalid:      lifecycle.FailConfiguration,
	}},
	SideSSH: {lifecycle.FailSSHSeed, map[Kind]lifecycle.FailureClass{
		KindPinMismatch: lifecycle.FailStateDisagreement,
		KindInvalid:     lifecycle.FailConfiguration,
		// Sent, and nobody knows what became of it. An activity whose command
		// shows its effect looks first.
		KindUncertain: lifecycle.FailNodeTaskUncertain,
	}},
	// A store or keeper that is away comes back by itself, other than a secret that is missing.
	SideSecrets: {lifecycle.FailSecretUnavailable, map[Kind]lifecycle.FailureClass{
		KindUnavailable: lifecycle.FailStoreUnavailable,
		KindUnreachable: lifecycle.FailStoreUnavailable,
	}},
}
