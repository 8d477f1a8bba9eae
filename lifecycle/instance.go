package lifecycle

import (
	"slices"
	"strings"
)

// InstanceStatus is the state of an instance: of one server at a cloud provider that a project has.
type InstanceStatus string

// The states of an instance.
const (
	InstanceProvisioning       InstanceStatus = "provisioning"
	InstanceBooting            InstanceStatus = "booting"
	InstanceReady              InstanceStatus = "ready"
	InstanceDraining           InstanceStatus = "draining"
	InstanceTerminating        InstanceStatus = "terminating"
	InstanceTerminated         InstanceStatus = "terminated"
	InstanceArchived           InstanceStatus = "archived"
	InstanceProvisioningFailed InstanceStatus = "provisioning_failed"
	InstanceStartupFailed      InstanceStatus = "startup_failed"
	InstanceFailed             InstanceStatus = "failed"
)

// The transitions of an instance. The jobs own those that follow outside work, the intent those
// that a request causes, and the reconciler those that follow what the provider lists.
var (
	InstanceBoot = Transition[InstanceStatus]{
		Name: "provisioning_to_booting", From: []InstanceStatus{InstanceProvisioning}, To: InstanceBooting,
		Owners: []Owner{OwnerJob}, Doc: "the server exists with the volume that it needs",
	}
	InstanceFailProvisioning = Transition[InstanceStatus]{
		Name: "provisioning_to_provisioning_failed", From: []InstanceStatus{InstanceProvisioning}, To: InstanceProvisioningFailed,
		Owners: []Owner{OwnerJob}, Doc: "the provider did not make the server; error_code says why",
	}
	InstanceBecomeReady = Transition[InstanceStatus]{
		Name: "booting_to_ready", From: []InstanceStatus{InstanceBooting}, To: InstanceReady,
		Owners: []Owner{OwnerJob}, Doc: "the health check passed: the worker is ready and the model is loaded",
	}
	InstanceFailStartup = Transition[InstanceStatus]{
		Name: "booting_to_startup_failed", From: []InstanceStatus{InstanceBooting}, To: InstanceStartupFailed,
		Owners: []Owner{OwnerJob}, Doc: "the worker did not start in time, or an error was found; error_code says which",
	}
	InstanceRecover = Transition[InstanceStatus]{
		Name: "startup_failed_to_booting", From: []InstanceStatus{InstanceStartupFailed}, To: InstanceBooting,
		Owners: []Owner{OwnerJob}, Doc: "a late heartbeat came, or an operator retried the startup",
	}
	InstanceFail = Transition[InstanceStatus]{
		Name: "fail", From: []InstanceStatus{InstanceBooting, InstanceReady}, To: InstanceFailed,
		Owners: []Owner{OwnerJob, OwnerSystem}, Doc: "it does not work any more, or its startup was cancelled; error_code says why",
	}
	InstanceDrain = Transition[InstanceStatus]{
		Name: "ready_to_draining", From: []InstanceStatus{InstanceReady}, To: InstanceDraining,
		Owners: []Owner{OwnerCustomer, OwnerAdmin, OwnerSystem}, Doc: "it is to be terminated when its work has ended",
	}
	InstanceTerminate = Transition[InstanceStatus]{
		Name: "terminate", To: InstanceTerminating,
		From: []InstanceStatus{
			InstanceProvisioning, InstanceBooting, InstanceStartupFailed, InstanceDraining, InstanceProvisioningFailed, InstanceFailed,
		},
		Owners: []Owner{OwnerCustomer, OwnerAdmin, OwnerSystem, OwnerJob}, Doc: "the server and everything billed with it is being deleted",
	}
	InstanceFinish = Transition[InstanceStatus]{
		Name: "terminating_to_terminated", From: []InstanceStatus{InstanceTerminating}, To: InstanceTerminated,
		Owners: []Owner{OwnerJob}, Doc: "the provider has nothing of it any more",
	}
	InstanceFailTermination = Transition[InstanceStatus]{
		Name: "terminating_to_failed", From: []InstanceStatus{InstanceTerminating}, To: InstanceFailed,
		Owners: []Owner{OwnerJob}, Doc: "the provider still has something of it, and no try has deleted that",
	}
	InstanceMarkDeleted = Transition[InstanceStatus]{
		Name: "mark_provider_deleted", From: []InstanceStatus{InstanceBooting, InstanceReady, InstanceDraining}, To: InstanceTerminated,
		Owners: []Owner{OwnerReconciler}, Doc: "somebody deleted the server at the provider; deleted_by_provider is set",
	}
	InstanceArchive = Transition[InstanceStatus]{
		Name: "terminated_to_archived", From: []InstanceStatus{InstanceTerminated}, To: InstanceArchived,
		Owners: []Owner{OwnerSystem}, Doc: "it ended a set time ago; lists leave it out",
	}
)

// Instance is the lifecycle of an instance.
var Instance = Machine[InstanceStatus]{
	Resource: "instance",
	Initial:  []InstanceStatus{InstanceProvisioning},
	States: []StateInfo[InstanceStatus]{
		{State: InstanceProvisioning, Doc: "the server is being made at the provider", Transitional: true},
		{State: InstanceBooting, Doc: "the server starts, and its worker is installed and loads the model", Transitional: true},
		{State: InstanceReady, Doc: "the worker serves its model"},
		{State: InstanceDraining, Doc: "no new work goes to it; it ends when its work has ended", Transitional: true},
		{State: InstanceTerminating, Doc: "the server and everything billed with it is being deleted", Transitional: true},
		{State: InstanceTerminated, Doc: "the provider has nothing of it any more"},
		{State: InstanceArchived, Doc: "it ended a set time ago", Terminal: true},
		{State: InstanceProvisioningFailed, Doc: "the server could not be made; terminate it"},
		{State: InstanceStartupFailed, Doc: "the server runs and its worker does not; it is billed until it is terminated"},
		{State: InstanceFailed, Doc: "it does not work, or could not be deleted; it may be billed until it is terminated"},
	},
	Transitions: []Transition[InstanceStatus]{
		InstanceBoot, InstanceFailProvisioning, InstanceBecomeReady, InstanceFailStartup, InstanceRecover, InstanceFail, InstanceDrain, InstanceTerminate,
		InstanceFinish, InstanceFailTermination, InstanceMarkDeleted, InstanceArchive,
	},
}

// Live reports whether an instance in this state may have something at its provider.
func (s InstanceStatus) Live() bool {
	return Instance.Has(s) && s != InstanceTerminated && s != InstanceArchived
}

// Failed reports whether the state is one of the three failures.
func (s InstanceStatus) Failed() bool {
	return s == InstanceProvisioningFailed || s == InstanceStartupFailed || s == InstanceFailed
}

// The error codes that are no failure class in capital letters.
const (
	// InstanceStartupTimeout is the code of an instance whose worker was not ready in time.
	InstanceStartupTimeout = "STARTUP_TIMEOUT"
	// InstanceChecksumFailed is the code of an instance whose agent is not the one that was
	// installed.
	InstanceChecksumFailed = "AGENT_CHECKSUM_FAILED"
	// InstanceWaitingHeartbeat is set while an instance boots and its worker has sent no heartbeat.
	InstanceWaitingHeartbeat = "WAITING_FOR_WORKER_HEARTBEAT"
	// InstanceHealthFailed is set while a ready instance does not pass its health checks.
	InstanceHealthFailed = "HEALTH_CHECK_FAILED"
	// InstanceCancelled is the code of an instance whose creation an operator cancelled.
	InstanceCancelled = "CANCELLED"
)

// InstanceErrorCode returns the error code of a failure class; "" of none.
func InstanceErrorCode(c FailureClass) string {
	switch c { //nolint:exhaustive // the others keep their name
	case "":
		return ""
	case FailInstanceStartup, FailStageDeadline:
		return InstanceStartupTimeout
	case FailAgentChecksum:
		return InstanceChecksumFailed
	}
	return strings.ToUpper(string(c))
}

// MaxInstanceRecoveries is how often a late heartbeat takes an instance back from startup_failed.
const MaxInstanceRecoveries = 3

// MayRecover reports whether a heartbeat takes an instance back to booting: one that came too late,
// and only so often. An agent with a wrong checksum is never trusted again by itself.
func MayRecover(s InstanceStatus, errorCode string, recoveries int) bool {
	return s == InstanceStartupFailed && errorCode == InstanceStartupTimeout && recoveries < MaxInstanceRecoveries
}

// InstanceMoveFor returns the transition of an instance that follows the state of its job; ok is
// false where the instance stays as it is. creates tells the job that makes the instance from the
// one that terminates it, and class says why a parked job is parked. An instance that somebody
// terminates while it is made, and one whose failed startup is cancelled, is terminating until that
// job has deleted everything.
func InstanceMoveFor(creates bool, now InstanceStatus, job JobStatus, class FailureClass) (t Transition[InstanceStatus], ok bool) {
	to := instanceStatusAfter(creates, now, job, class)
	for _, each := range Instance.Transitions {
		if each.To == to && slices.Contains(each.From, now) && slices.Contains(each.Owners, OwnerJob) {
			return each, true
		}
	}
	return t, false
}

// instanceStatusAfter returns the state that an instance has when its job is in a state; "" leaves
// it.
func instanceStatusAfter(creates bool, now InstanceStatus, job JobStatus, class FailureClass) InstanceStatus {
	switch job {
	case JobCompleted, JobReconciled:
		if creates {
			return InstanceReady
		}
		return InstanceTerminated
	case JobFailedRetryable, JobFailedManual:
		if class == FailFrozen || class == FailWorkflowLost || class == FailStoreUnavailable {
			return "" // that says nothing of the server
		}
		return map[InstanceStatus]InstanceStatus{InstanceBooting: InstanceStartupFailed, InstanceTerminating: InstanceFailed}[now]
	case JobRunning:
		if creates {
			return map[InstanceStatus]InstanceStatus{InstanceStartupFailed: InstanceBooting}[now]
		}
		return map[InstanceStatus]InstanceStatus{InstanceFailed: InstanceTerminating}[now]
	case JobCompensating: // an operator cancelled it, or its termination goes on
		if creates && InstanceGivesUp(now, class) { // what was made is deleted as soon as the provider answers
			return InstanceProvisioningFailed
		}
		return map[InstanceStatus]InstanceStatus{InstanceFailed: InstanceTerminating, InstanceStartupFailed: InstanceTerminating}[now]
	case JobCancelled:
		return map[InstanceStatus]InstanceStatus{
			InstanceProvisioning: InstanceProvisioningFailed, InstanceBooting: InstanceFailed, InstanceTerminating: InstanceTerminated,
		}[now]
	case JobPending:
	}
	return ""
}

// InstanceGivesUp reports whether the creation of a server ends at a failure of this class:
// everything that was made is deleted, and the instance is provisioning_failed. At every other
// failure its job parks.
func InstanceGivesUp(now InstanceStatus, class FailureClass) bool {
	switch class { //nolint:exhaustive // a job parks for the others
	case FailCloudQuota, FailCloudCapacity, FailCloudUnavailable, FailCloudRejected, FailConfiguration, FailStageDeadline:
		return now == InstanceProvisioning
	}
	return false
}

// InstancePercent returns progress_percent of an instance: what its creation shows while it is
// made, 100 while it works and 0 at its end and after a failure.
func InstancePercent(s InstanceStatus, shown int) int {
	switch s {
	case InstanceReady, InstanceDraining:
		return 100
	case InstanceProvisioning, InstanceBooting:
		return shown
	case InstanceTerminating, InstanceTerminated, InstanceArchived, InstanceProvisioningFailed, InstanceStartupFailed, InstanceFailed:
	}
	return 0
}
