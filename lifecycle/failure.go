package lifecycle

// FailureClass names why a stage failed.
type FailureClass string

// The failure classes.
const (
	FailMAASUnavailable       FailureClass = "maas_unavailable"
	FailMAASRejected          FailureClass = "maas_rejected"
	FailMAASMachineDeleted    FailureClass = "maas_machine_deleted"
	FailConflictingCandidates FailureClass = "conflicting_discovery_candidates"
	FailBootDiskNotFound      FailureClass = "boot_disk_not_found"
	FailStorageLayoutRejected FailureClass = "storage_layout_rejected"
	FailPXEUnfixable          FailureClass = "pxe_interface_unfixable"
	FailCommissioning         FailureClass = "commissioning_failed"
	FailDeploy                FailureClass = "deploy_failed"
	FailDeployPower           FailureClass = "deploy_power_failed"
	FailDeployTimeout         FailureClass = "deploy_timeout"
	FailDatasource            FailureClass = "datasource_failure"
	FailDatasourceRepeated    FailureClass = "datasource_failure_repeated"
	FailHWSyncUnhealthy       FailureClass = "hardware_sync_unhealthy"
	FailHWSyncRepeated        FailureClass = "hardware_sync_failure_repeated"
	FailSSHSeed               FailureClass = "ssh_seed_failure"
	FailSSHSeedRepeated       FailureClass = "ssh_seed_failure_repeated"
	FailAgentNotEnrolled      FailureClass = "agent_not_enrolled"
	FailNodeUnhealthy         FailureClass = "node_unhealthy"
	FailStateDisagreement     FailureClass = "state_disagreement"
	FailBMCUnreachable        FailureClass = "bmc_unreachable"
	FailBMCAuthRejected       FailureClass = "bmc_auth_rejected"
	FailBMCLocked             FailureClass = "bmc_locked"
	FailBMCPinMismatch        FailureClass = "bmc_pin_mismatch"
	FailPowerNotConfirmed     FailureClass = "power_not_confirmed"
	FailNodeTaskUncertain     FailureClass = "node_task_uncertain"
	FailNodeTask              FailureClass = "node_task_failed"
	FailScrubUnverified       FailureClass = "scrub_unverified"
	FailDriveUnexpected       FailureClass = "drive_unexpected"
	FailDriveMissing          FailureClass = "drive_missing"
	FailOtherMachine          FailureClass = "other_machine"
	FailFirmwareChanged       FailureClass = "firmware_changed"
	FailNetworkOpen           FailureClass = "network_open"
	FailAccessUnconfirmed     FailureClass = "access_unconfirmed"
	FailCapacity              FailureClass = "capacity_unavailable"
	FailStorageRejected       FailureClass = "storage_rejected"
	FailCommand               FailureClass = "command_failed"
	FailCommandUncertain      FailureClass = "command_uncertain"
	FailNetworkRolledBack     FailureClass = "network_rolled_back"
	FailClusterJoin           FailureClass = "cluster_join_failed"
	FailClusterNotReady       FailureClass = "cluster_not_ready"
	FailInstanceStartup       FailureClass = "instance_startup_timeout"
	FailAgentChecksum         FailureClass = "agent_checksum_failed"
	FailWorkerInstall         FailureClass = "worker_install_failed"
	FailCloudQuota            FailureClass = "cloud_quota"
	FailCloudCapacity         FailureClass = "cloud_capacity"
	FailCloudUnavailable      FailureClass = "cloud_unavailable"
	FailCloudRejected         FailureClass = "cloud_rejected"
	FailCloudUncertain        FailureClass = "cloud_server_uncertain"
	FailPaymentMismatch       FailureClass = "payment_mismatch"
	FailPaymentsUnavailable   FailureClass = "payments_unavailable"
	FailPaymentsRejected      FailureClass = "payments_rejected"
	FailPaymentCredit         FailureClass = "payment_credit_failed"
	FailSecretUnavailable     FailureClass = "secret_unavailable"
	FailConfiguration         FailureClass = "configuration_invalid"
	FailStageDeadline         FailureClass = "stage_deadline_exceeded"
	FailFrozen                FailureClass = "frozen_by_operator"
	FailWorkflowLost          FailureClass = "workflow_lost"
	FailCompensation          FailureClass = "compensation_failed"
	FailStoreUnavailable      FailureClass = "store_unavailable"
	FailInternal              FailureClass = "internal"
)

// FailureInfo is what is known about a class in advance.
type FailureInfo struct {
	Class FailureClass
	// Manual classes park in failed_manual_intervention at once; the others
	// park in failed_retryable once the automatic attempts are spent.
	Manual bool
	// AutoAttempts is how many times the stage is tried before it parks,
	// the first try included; 1 means no automatic retry.
	AutoAttempts int
	// Recommended is the next action to offer first.
	Recommended Action
	// Next says in a sentence what the operator should do.
	Next string
	// NodeUnsafe asks the job to quarantine its node when it parks.
	NodeUnsafe bool
}

// Runbook is the page under docs/runbooks for the class.
func (f FailureInfo) Runbook() string { return "docs/runbooks/" + string(f.Class) + ".md" }

var failures = []FailureInfo{
	{Class: FailMAASUnavailable, AutoAttempts: 5, Recommended: ActionRetryStage, Next: "Check that the region controller answers, and its racks reach what the message names, then retry the stage."},
	{Class: FailMAASRejected, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "MAAS refused the request; fix the cause it names, then retry the stage."},
	{Class: FailMAASMachineDeleted, Manual: true, AutoAttempts: 1, Recommended: ActionRerun, Next: "The machine is gone from MAAS; find out who deleted it, then rerun, or cancel."},
	{Class: FailConflictingCandidates, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "More than one MAAS machine matches; delete or rename the wrong one in MAAS, then retry the stage."},
	{Class: FailBootDiskNotFound, Manual: true, AutoAttempts: 1, Recommended: ActionRerun, Next: "No disk matches the profile's boot disk rule; fix the hardware or the rule, then rerun: the profile is read and the machine commissioned again."},
	{Class: FailStorageLayoutRejected, Manual: true, AutoAttempts: 1, Recommended: ActionRerun, Next: "MAAS refused the storage layout; correct the profile, then rerun: the profile is read again and what is done is skipped."},
	{Class: FailPXEUnfixable, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "Attach the boot interface to a VLAN with a subnet in MAAS, then retry the stage."},
	{Class: FailCommissioning, AutoAttempts: 2, Recommended: ActionRetryStage, Next: "Read the failed commissioning scripts in the timeline, fix the hardware, then retry the stage."},
	{Class: FailDeploy, AutoAttempts: 1, Recommended: ActionRestartClean, Next: "The installer failed; read the installation log in the timeline, then restart clean."},
	{Class: FailDeployPower, AutoAttempts: 1, Recommended: ActionRerun, Next: "MAAS could not power the machine for its deployment; fix its connection to the BMC, then rerun: the machine is released and deployed again."},
	{Class: FailDeployTimeout, AutoAttempts: 1, Recommended: ActionRestartClean, Next: "The deployment did not end in time and was aborted; look at the console, then restart clean."},
	{Class: FailDatasource, AutoAttempts: 1, Recommended: ActionRestartClean, Next: "cloud-init found no datasource; check the node's network path to MAAS, then restart clean."},
	{Class: FailDatasourceRepeated, Manual: true, AutoAttempts: 1, Recommended: ActionRestartClean, Next: "The datasource failed again after automatic retries; check cabling and VLAN, then restart clean.", NodeUnsafe: true},
	{Class: FailHWSyncUnhealthy, AutoAttempts: 2, Recommended: ActionRetryStage, Next: "Hardware sync could not be switched on or repaired; fix what the message names, then retry the stage: the repair runs again."},
	{Class: FailHWSyncRepeated, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "Hardware sync stays silent after repair; log in to the node and check maas_hardware_sync.timer, then retry the stage."},
	{Class: FailSSHSeed, AutoAttempts: 3, Recommended: ActionRetryStage, Next: "The node does not accept Slipway's SSH key; check that cloud-init ended, then retry the stage."},
	{Class: FailSSHSeedRepeated, Manual: true, AutoAttempts: 1, Recommended: ActionRestartClean, Next: "SSH still fails after retries; check the site's keys and the user-data, then restart clean."},
	{Class: FailAgentNotEnrolled, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The agent did not enrol in time; check that the node reaches the agent API, then retry the stage."},
	{Class: FailNodeUnhealthy, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The node's report does not meet its SKU; fix the hardware named in the message, then retry the stage.", NodeUnsafe: true},
	{Class: FailStateDisagreement, Manual: true, AutoAttempts: 1, Recommended: ActionRerun, Next: "What is there is not what Slipway left: somebody else changed it. Undo what they did, then rerun (each stage first looks), adopt it where the stage allows that, or cancel the job."},
	{Class: FailBMCUnreachable, AutoAttempts: 3, Recommended: ActionRetryStage, Next: "The BMC does not answer; check its address and cabling, then retry the stage."},
	{Class: FailBMCAuthRejected, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The BMC rejected the login and no further login is tried; correct the credential, clear the flag, then retry the stage."},
	{Class: FailBMCLocked, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The BMC account is locked; wait for the lockout to end or reset it, clear the flag, then retry the stage."},
	{Class: FailBMCPinMismatch, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The BMC shows another certificate than the approved one; approve the new pin if it is expected, then retry the stage.", NodeUnsafe: true},
	{Class: FailPowerNotConfirmed, AutoAttempts: 2, Recommended: ActionRetryStage, Next: "The power state asked for was not seen; check the BMC, then retry the stage."},
	{Class: FailNodeTaskUncertain, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "It is not known whether the node finished the task; look at the node, then retry the stage."},
	{Class: FailNodeTask, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The node's agent could not do its task; fix what the message names, then retry the stage: the agent gets a new task."},
	{Class: FailScrubUnverified, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "A device could not be verified clean; see the certificate, fix or replace the device, then retry the stage.", NodeUnsafe: true},
	{Class: FailDriveUnexpected, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "A drive is in the node that its record does not name, and nothing was erased; pull or protect it, or accept the drives that the agent reports, then retry the stage.", NodeUnsafe: true},
	{Class: FailDriveMissing, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "A drive of the node's record is not there; find it and put it back, or destroy it and accept the drives that the agent reports, then retry the stage.", NodeUnsafe: true},
	{Class: FailOtherMachine, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The machine that answers has another serial number or another MAC address than the record says, or tells none, and nothing was changed; find out which machine that is, put the node's disks back or correct the serial number, then retry the stage, or cancel: the node stays quarantined.", NodeUnsafe: true},
	{Class: FailFirmwareChanged, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The BMC's accounts, its network, the boot order, Secure Boot or a firmware version differs from the claim; put back what the message names, then retry the stage.", NodeUnsafe: true},
	{Class: FailNetworkOpen, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The node's network reaches what no tenant may reach; close the network to what the message names, then unquarantine the node.", NodeUnsafe: true},
	{Class: FailAccessUnconfirmed, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "Nothing proves that the tenant's access has ended, and neither the BMC nor MAAS could switch the node off; cut its power or its network by hand, bring the BMC back, then retry the stage.", NodeUnsafe: true},
	{Class: FailCapacity, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "No node is free for this SKU; add capacity, then retry the stage."},
	{Class: FailStorageRejected, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The storage back end refused; fix the cause it names, then retry the stage."},
	{Class: FailCommand, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The command of a step ended with an error, or did not end in time; read the output of the run, fix the cause, then start another run."},
	{Class: FailCommandUncertain, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "It is not known what became of the command; look at the machine, then start another run."},
	{Class: FailNetworkRolledBack, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "Nobody reached the machine with its new network configuration in time, and it restored the one of before; correct the configuration, or ssh_endpoint of the step, then start another run."},
	{Class: FailClusterJoin, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The machine did not join its cluster; read the output of the run and what the message names, fix the cause, then start another run."},
	{Class: FailClusterNotReady, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The machine is no ready node of its cluster; look at the node in the cluster, fix what the message names, then start another run."},
	{Class: FailInstanceStartup, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The worker of the instance was not ready in time, and its server is billed; read what the stage names, then retry the stage, or terminate the instance."},
	{Class: FailAgentChecksum, Manual: true, AutoAttempts: 1, Recommended: ActionCancel, Next: "The agent on the server is not the one that Slipway installed; terminate the instance, and find out who changed it."},
	{Class: FailWorkerInstall, AutoAttempts: 2, Recommended: ActionRetryStage, Next: "The installation of the worker ended with an error; read its last phase and message, fix the cause, then retry the stage, or terminate the instance."},
	{Class: FailCloudQuota, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The provider's quota is used up; terminate what is not needed or ask the provider for more, then create the instance again."},
	{Class: FailCloudCapacity, AutoAttempts: 3, Recommended: ActionRetryStage, Next: "The provider has no server of this type free in the zone; wait, or create the instance in another zone."},
	{Class: FailCloudUnavailable, AutoAttempts: 10, Recommended: ActionRetryStage, Next: "The provider does not answer as it should; check its status page and the network, then retry the stage."},
	{Class: FailCloudRejected, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The provider refused the request; fix the cause it names (key, project, type or image), then retry the stage."},
	{Class: FailCloudUncertain, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "It is not known whether the provider made the server; look for its tag in the provider's console, then retry the stage: it looks again before it creates."},
	{Class: FailPaymentMismatch, Manual: true, AutoAttempts: 1, Recommended: ActionAdopt, Next: "What was paid is not what was asked for; compare it with Stripe's dashboard, then adopt it with the resolution credit, suspense or write_off."},
	{Class: FailPaymentsUnavailable, AutoAttempts: 10, Recommended: ActionRetryStage, Next: "The payment provider does not answer as it should; check its status page and the network, then retry the stage: a request is repeated with its key, so nothing is paid twice."},
	{Class: FailPaymentsRejected, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The payment provider refused the request; fix the cause it names, then retry the stage."},
	{Class: FailPaymentCredit, AutoAttempts: 10, Recommended: ActionRetryStage, Next: "The payment arrived and the ledger did not take its credit; fix what the message names, then retry the stage: a payment is credited once."},
	{Class: FailSecretUnavailable, Manual: true, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "A secret that the site or profile refers to cannot be read; store it under that reference, then retry the stage."},
	{Class: FailConfiguration, Manual: true, AutoAttempts: 1, Recommended: ActionRerun, Next: "The site, profile or SKU is not usable as it stands; correct what the message names, then rerun: they are read again."},
	{Class: FailStageDeadline, AutoAttempts: 1, Recommended: ActionRetryStage, Next: "The stage did not end before its deadline; look at the last observed state, then retry the stage."},
	{Class: FailFrozen, Manual: true, AutoAttempts: 1, Recommended: ActionResume, Next: "An operator froze the job; resume it when the reason is gone."},
	{Class: FailWorkflowLost, AutoAttempts: 1, Recommended: ActionResume, Next: "The workflow was ended from outside; resume starts it again from the projected stage."},
	{Class: FailCompensation, Manual: true, AutoAttempts: 1, Recommended: ActionCancel, Next: "Clean-up did not finish; fix what the message names, then cancel or restart clean again.", NodeUnsafe: true},
	{Class: FailStoreUnavailable, AutoAttempts: 20, Recommended: ActionRetryStage, Next: "Slipway's own database or secret store keeps going away; bring it back, then retry the stage."},
	{Class: FailInternal, AutoAttempts: 3, Recommended: ActionRetryStage, Next: "An internal error; the log holds the detail. Retry the stage, and report it if it comes back."},
}

// Failures returns every class in the order of the documentation.
func Failures() []FailureInfo { return append([]FailureInfo(nil), failures...) }

// Failure returns what is known about a class; an unknown class is internal.
func Failure(c FailureClass) FailureInfo {
	for _, f := range failures {
		if f.Class == c {
			return f
		}
	}
	return Failure(FailInternal)
}

// ParkStatus is the job state in which a failure of this class parks.
func (f FailureInfo) ParkStatus() JobStatus {
	if f.Manual {
		return JobFailedManual
	}
	return JobFailedRetryable
}
