package lifecycle

// AllocationStatus is the state of an allocation: of one node that a project has or has requested.
type AllocationStatus string

// The states of an allocation.
const (
	AllocationRequested     AllocationStatus = "requested"
	AllocationProvisioning  AllocationStatus = "provisioning"
	AllocationActive        AllocationStatus = "active"
	AllocationReleasing     AllocationStatus = "releasing"
	AllocationReleased      AllocationStatus = "released"
	AllocationFailed        AllocationStatus = "failed"
	AllocationReleaseFailed AllocationStatus = "release_failed"
)

// The transitions of an allocation. Jobs own those that follow work outside; the intent owns those
// that a request causes.
var (
	AllocationClaim = Transition[AllocationStatus]{
		Name: "claim", From: []AllocationStatus{AllocationRequested}, To: AllocationProvisioning,
		Owners: []Owner{OwnerCustomer, OwnerAdmin, OwnerJob}, Doc: "a node was claimed for it",
	}
	AllocationFail = Transition[AllocationStatus]{
		Name: "fail", From: []AllocationStatus{AllocationRequested, AllocationProvisioning}, To: AllocationFailed,
		Owners: []Owner{OwnerJob, OwnerAdmin, OwnerSystem},
		Doc:    "no node was free in time, or provisioning failed before the tenant could have access",
	}
	AllocationCancel = Transition[AllocationStatus]{
		Name: "cancel", From: []AllocationStatus{AllocationRequested}, To: AllocationReleased,
		Owners: []Owner{OwnerCustomer, OwnerAdmin, OwnerSystem}, Doc: "it was released before a node was claimed",
	}
	AllocationActivate = Transition[AllocationStatus]{
		Name: "activate", From: []AllocationStatus{AllocationProvisioning}, To: AllocationActive,
		Owners: []Owner{OwnerJob}, Doc: "the node accepts the tenant's keys",
	}
	AllocationAbort = Transition[AllocationStatus]{
		Name: "abort", From: []AllocationStatus{AllocationProvisioning}, To: AllocationReleasing,
		Owners: []Owner{OwnerJob, OwnerAdmin, OwnerSystem, OwnerDecommission},
		Doc:    "provisioning stopped at a safe point; the release job cleans the node",
	}
	AllocationRelease = Transition[AllocationStatus]{
		Name: "release", From: []AllocationStatus{AllocationActive}, To: AllocationReleasing,
		Owners: []Owner{OwnerCustomer, OwnerAdmin, OwnerSystem, OwnerDecommission}, Doc: "the tenant, an operator or a limit ended it",
	}
	AllocationFinish = Transition[AllocationStatus]{
		Name: "finish", From: []AllocationStatus{AllocationReleasing}, To: AllocationReleased,
		Owners: []Owner{OwnerJob, OwnerAdmin, OwnerDecommission}, Doc: "access has ended and the node is free of it",
	}
	AllocationFailRelease = Transition[AllocationStatus]{
		Name: "fail_release", From: []AllocationStatus{AllocationReleasing}, To: AllocationReleaseFailed,
		Owners: []Owner{OwnerJob, OwnerSystem}, Doc: "the release was tried as often as the policy allows",
	}
	AllocationRetryRelease = Transition[AllocationStatus]{
		Name: "retry_release", From: []AllocationStatus{AllocationReleaseFailed}, To: AllocationReleasing,
		Owners: []Owner{OwnerCustomer, OwnerAdmin, OwnerJob, OwnerDecommission}, Doc: "the tenant or an operator asked for one more attempt",
	}
)

// Allocation is the lifecycle of an allocation.
var Allocation = Machine[AllocationStatus]{
	Resource: "allocation",
	Initial:  []AllocationStatus{AllocationRequested},
	States: []StateInfo[AllocationStatus]{
		{State: AllocationRequested, Doc: "accepted; no node is claimed yet", Transitional: true},
		{State: AllocationProvisioning, Doc: "a node is claimed and being prepared", Transitional: true},
		{State: AllocationActive, Doc: "the tenant has access"},
		{State: AllocationReleasing, Doc: "access is being ended and the node cleaned; nothing new is accepted", Transitional: true},
		{State: AllocationReleased, Doc: "it has ended", Terminal: true},
		{State: AllocationFailed, Doc: "it never became active, and no tenant had access to a node", Terminal: true},
		{State: AllocationReleaseFailed, Doc: "the release failed; the node is still held, and nothing is charged"},
	},
	Transitions: []Transition[AllocationStatus]{
		AllocationClaim, AllocationFail, AllocationCancel, AllocationActivate, AllocationAbort, AllocationRelease, AllocationFinish,
		AllocationFailRelease, AllocationRetryRelease,
	},
}

// Live reports whether an allocation in this state counts against a quota.
func (s AllocationStatus) Live() bool { return Allocation.Has(s) && !Allocation.Terminal(s) }

// Releasing reports whether an allocation in this state is being released, or its release failed:
// an operator may try it again, or take the node from it.
func (s AllocationStatus) Releasing() bool {
	return s == AllocationReleasing || s == AllocationReleaseFailed
}

// The actions on an allocation, as answers name them.
const (
	AllocationActionUpdate           = "update"
	AllocationActionSetKeys          = "set_keys"
	AllocationActionRelease          = "release"
	AllocationActionForceRelease     = "force_release"
	AllocationActionRemoveAssignment = "remove_assignment"
)

// AllocationActions returns what a member of the project may do with an allocation in this state.
func AllocationActions(s AllocationStatus) []string {
	switch s {
	case AllocationReleased, AllocationFailed, AllocationReleasing:
		return []string{AllocationActionUpdate}
	case AllocationActive:
		return []string{AllocationActionUpdate, AllocationActionSetKeys, AllocationActionRelease}
	case AllocationRequested, AllocationProvisioning, AllocationReleaseFailed:
	}
	return []string{AllocationActionUpdate, AllocationActionRelease}
}

// AllocationOperatorActions returns what an operator may do with an allocation in this state.
func AllocationOperatorActions(s AllocationStatus) []string {
	if s.Releasing() {
		return []string{AllocationActionForceRelease, AllocationActionRemoveAssignment}
	}
	return []string{}
}

// AllocationCondition says what is the matter with an allocation, beside its status.
type AllocationCondition string

// The conditions.
const (
	ConditionOK                  AllocationCondition = "ok"
	ConditionStopped             AllocationCondition = "stopped"
	ConditionRebooting           AllocationCondition = "rebooting"
	ConditionReinstalling        AllocationCondition = "reinstalling"
	ConditionDegraded            AllocationCondition = "degraded"
	ConditionMaintenanceRequired AllocationCondition = "maintenance_required"
	ConditionNodeLost            AllocationCondition = "node_lost"
)

// AllocationConditions lists all conditions.
var AllocationConditions = []AllocationCondition{
	ConditionOK, ConditionStopped, ConditionRebooting, ConditionReinstalling, ConditionDegraded, ConditionMaintenanceRequired, ConditionNodeLost,
}

// The states of an allocation as customers see it.
const (
	StatePending             = "pending"
	StateRunning             = "running"
	StateStopping            = "stopping"
	StateStopped             = "stopped"
	StateStarting            = "starting"
	StateTerminating         = "terminating"
	StateTerminated          = "terminated"
	StateDegraded            = "degraded"
	StateMaintenanceRequired = "maintenance_required"
)

// AllocationState returns the state that customers see, from status and condition. A lost node is
// shown as requiring maintenance. StateStopping is for a power call under way; no condition leads
// to it yet.
func AllocationState(status AllocationStatus, condition AllocationCondition) string {
	switch status {
	case AllocationRequested, AllocationProvisioning:
		return StatePending
	case AllocationReleasing, AllocationReleaseFailed:
		return StateTerminating
	case AllocationReleased, AllocationFailed:
		return StateTerminated
	case AllocationActive:
	}
	switch condition {
	case ConditionStopped:
		return StateStopped
	case ConditionRebooting, ConditionReinstalling:
		return StateStarting
	case ConditionDegraded:
		return StateDegraded
	case ConditionMaintenanceRequired, ConditionNodeLost:
		return StateMaintenanceRequired
	case ConditionOK:
	}
	return StateRunning
}

// The outcomes of an allocation that is released.
const (
	OutcomeReleased          = "released"
	OutcomeCancelled         = "cancelled"
	OutcomeAssignmentRemoved = "assignment_removed"
)

// The states of the tenant's access after a release has tried to end it; "" before that.
const (
	AccessRevoked     = "revoked"
	AccessUnconfirmed = "unconfirmed"
)

// The codes of an allocation that failed.
const (
	FailureNoCapacity = "no_capacity"
	FailureProvision  = "provision_failed"
)

// The reasons of releases that the control plane starts by itself.
const (
	ReleaseExpired       = "expired"
	ReleaseProjectClosed = "project_closed"
	ReleaseDecommission  = "node_decommissioned"
)

// The stages of the job that provisions an allocation.
const (
	StageClaimNode         = "claim_node"
	StageCheckNode         = "check_node"
	StageIsolateNode       = "isolate_node"
	StageSnapshotFirmware  = "snapshot_firmware"
	StageRetireCredentials = "retire_credentials"
	StageProbeNetwork      = "probe_network"
	StageCreateAccount     = "create_account"
	StageProveLogin        = "prove_login"
	StageInstallKeys       = "install_keys"
	StageProveKeys         = "prove_keys"
	StageActivate          = "activate"
)

// AllocationProvisionStages lists the stages of the job that provisions an allocation, in order.
func AllocationProvisionStages() []string {
	return []string{
		StageClaimNode, StageCheckNode, StageIsolateNode, StageSnapshotFirmware, StageRetireCredentials, StageProbeNetwork, StageCreateAccount,
		StageProveLogin, StageInstallKeys, StageProveKeys, StageActivate,
	}
}

// The stages of the job that changes the keys on the node of an active allocation, besides
// StageProveKeys.
const (
	StageSetKeys    = "set_keys"
	StageRecordKeys = "record_keys"
)

// AllocationKeysStages lists the stages of the job that changes the keys on the node of an active
// allocation, in order.
func AllocationKeysStages() []string { return []string{StageSetKeys, StageProveKeys, StageRecordKeys} }

// The stages of the job that releases an allocation.
const (
	StageCloseTerminals   = "close_terminals"
	StageRevokeAccess     = "revoke_access"
	StageStopUsage        = "stop_usage"
	StageDetachStorage    = "detach_storage"
	StageValidateFirmware = "validate_firmware"
	StageRotateBMCLogin   = "rotate_bmc_login"
	StageCertify          = "certify"
	StageFreeNode         = "free_node"
)

// AllocationReleaseStages lists the stages of the job that releases an allocation, in order.
func AllocationReleaseStages() []string {
	return []string{
		StageCloseTerminals, StageRevokeAccess, StageStopUsage, StageDetachStorage,
		// The stages of a decommission clean the node: they install it again, or clean the
		// installed system.
		StageLoadSite, StageReleaseMAAS, StageCleanupStorage, StageScrubGPU, StageValidateClean,
		StageValidateFirmware, StageRotateBMCLogin, StageCertify, StageFreeNode,
	}
}

// Occupancy says for what a node was used during a time in its history.
type Occupancy string

// The occupancies of a node.
const (
	OccupancyAllocated   Occupancy = "allocated"
	OccupancyReleasing   Occupancy = "releasing"
	OccupancySanitizing  Occupancy = "sanitizing"
	OccupancyClean       Occupancy = "clean"
	OccupancyFree        Occupancy = "free"
	OccupancyMaintenance Occupancy = "maintenance"
)
