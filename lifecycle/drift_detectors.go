package lifecycle

import "slices"

// The sources that the detectors compare.
const (
	sourcePostgres = "postgres"
	sourceMAAS     = "maas"
	sourceBMC      = "bmc"
	sourceAgent    = "agent"
)

// The detectors' names.
const (
	DriftMachineAbsent      = "machine_absent"
	DriftExternallyReleased = "externally_released"
	DriftExternallyDeployed = "externally_deployed"
	DriftBusyWithoutJob     = "deploying_without_job"
	DriftFailedOrBroken     = "maas_failed_or_broken"
	DriftMachineLocked      = "machine_locked"
	DriftOtherOwner         = "other_owner"
	DriftPoweredOff         = "powered_off_while_active"
	DriftPowerUnknown       = "power_unknown"
	DriftHWSyncStale        = "hw_sync_stale"
	DriftHWSyncOff          = "hw_sync_off"
	DriftHostnameChanged    = "hostname_changed"
	DriftMACsChanged        = "macs_changed"
	DriftHardwareChanged    = "hardware_changed"
	DriftAddressesChanged   = "addresses_changed"
	DriftDuplicateMAC       = "duplicate_mac"
	DriftDuplicateSerial    = "duplicate_serial"
	DriftDuplicateBMC       = "duplicate_bmc_address"
	DriftDuplicateBoot      = "duplicate_boot_id"
	DriftIdentityConflict   = "identity_conflict"
	DriftUnknownMachine     = "unknown_machine_in_maas"
	DriftGhost              = "ghost_of_deleted"
	DriftBMCAddressChanged  = "bmc_ip_changed"
	DriftBMCPinChanged      = "bmc_pin_changed"
	DriftBMCUnreachable     = "bmc_unreachable"
	DriftBMCUnhealthy       = "bmc_reports_unhealthy"
	DriftPartsChanged       = "parts_changed"
	DriftDPUMode            = "dpu_mode_changed"
	DriftBMCLoginBlocked    = "bmc_login_blocked"
	DriftBootUnannounced    = "boot_id_changed_unannounced"
	DriftAgentOld           = "agent_version_old"
	DriftAgentCertificate   = "agent_certificate_near_expiry"
	DriftAgentLocked        = "agent_identity_locked"
	DriftAgentElsewhere     = "agent_on_other_hardware"
	DriftAgentSilent        = "agent_silent"
	DriftClockSkew          = "clock_skew"
	DriftGPUCount           = "gpu_count_differs"
	DriftGPUFault           = "gpu_fault"
	DriftMemory             = "memory_differs"
	DriftDisks              = "disks_differ"
	DriftNICs               = "nics_down"
	DriftDriver             = "driver_old"
	DriftOccupancy          = "occupancy_mismatch"
	DriftMAASOccupant       = "maas_occupant_differs"
	DriftAgentOccupant      = "agent_occupant_differs"
	DriftNetworkOpen        = "network_open"
	DriftSiteUnreachable    = "site_unreachable"
	DriftBreakerOpen        = "breaker_open"
	DriftChargeBreaker      = "charge_breaker_open"
)

// serving are the states in which a node must be what was promised; kept those
// in which its machine is still tied to it.
func serving() []NodeStatus { return []NodeStatus{NodeActive, NodeOffline} }
func kept() []NodeStatus {
	return []NodeStatus{NodeActive, NodeOffline, NodeQuarantined, NodeRetired}
}

const (
	untilGone  = "the fault is gone"
	untilAdopt = "the fault is gone or what is observed was adopted"
	lookFirst  = "Look at the machine in MAAS and ask who changed it. "
)

// driftOfMachines compare a node with its machine in MAAS.
func driftOfMachines() []DriftDetector {
	of := []string{sourcePostgres, sourceMAAS}
	return []DriftDetector{
		{
			Name: DriftMachineAbsent, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: kept(), Quarantines: true, Closes: untilGone,
			Finds: "the node's machine is not in MAAS any more", Evidence: []string{"system_id"},
			Next: "Find out who deleted it. A deleted machine does not come back under its id: decommission the node and onboard the host again.",
		},
		{
			Name: DriftExternallyReleased, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: serving(), Quarantines: true, Closes: untilGone,
			Finds: "MAAS has the machine as New, Ready or Allocated, and no job released it", Evidence: []string{"maas_status", "owner"},
			Next: lookFirst + "What was on it is gone or about to be: onboard the host again.",
		},
		{
			Name: DriftExternallyDeployed, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: serving(), Quarantines: true, Closes: untilGone,
			Finds: "the machine is Deployed by another deployment than the one that was known", Evidence: []string{"deployed_by", "known", "owner"},
			Next: lookFirst + "Another system runs on it: release the machine in MAAS and onboard the host again.",
		},
		{
			Name: DriftBusyWithoutJob, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: kept(), Quarantines: true, Closes: untilGone,
			Finds:    "MAAS is commissioning, testing, deploying, releasing, erasing or rescuing the machine, and no job asked for it",
			Evidence: []string{"maas_status", "owner"}, Next: lookFirst + "Abort it in MAAS if nobody meant it; what it was on its way to shows in the next pass.",
		},
		{
			Name: DriftFailedOrBroken, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: serving(), Quarantines: true, Closes: untilGone,
			Finds: "MAAS has the machine as failed, Broken, Missing or Retired", Evidence: []string{"maas_status", "maas_error"},
			Next: "Fix what MAAS reports about the machine, then onboard the host again.",
		},
		{
			Name: DriftMachineLocked, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: kept(), Closes: untilGone,
			Finds: "the machine is locked in MAAS, so every job on it will be refused", Evidence: []string{"maas_status"},
			Next: "Ask who locked it and unlock it in MAAS, or ignore the finding if it is meant.",
		},
		{
			Name: DriftOtherOwner, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: serving(), Quarantines: true, Closes: untilGone,
			Finds: "the machine belongs to another user of MAAS than Slipway's", Evidence: []string{"owner", "expected"},
			Next: lookFirst + "Whoever owns it can release it at any time: have it given back, or onboard the host again.",
		},
		{
			Name: DriftPoweredOff, Scope: DriftOfNode, Severity: DriftCritical, Sources: []string{sourcePostgres, sourceMAAS, sourceBMC, sourceAgent}, Expects: serving(),
			Closes: untilGone, Finds: "the machine is off: MAAS says so, its BMC does not contradict and the agent is silent; of a node without MAAS its BMC says so",
			Evidence: []string{"maas_power", "bmc_power", "last_heartbeat"}, Next: "Find out why it is off, then power it on in MAAS or at its BMC.",
		},
		{
			Name: DriftPowerUnknown, Scope: DriftOfNode, Severity: DriftWarning, Sources: []string{sourceMAAS, sourceBMC}, Expects: serving(), Closes: untilGone,
			Finds: "MAAS cannot tell the machine's power, and its BMC was not asked or does not say", Evidence: []string{"maas_power", "bmc_power"},
			Next: "Check the machine's power settings in MAAS and that its BMC can be reached from the rack controller.",
		},
		{
			Name: DriftHWSyncStale, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: serving(), Closes: untilGone,
			Finds: "hardware sync is on and MAAS has heard nothing for one and a half of its intervals", Evidence: []string{"last_sync", "interval"},
			Next: "Look at maas_hardware_sync.timer on the node.",
		},
		{
			Name: DriftHWSyncOff, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: serving(), Closes: untilGone,
			Finds: "the node's profile requires hardware sync and the machine has it switched off", Evidence: []string{"profile_requires"},
			Next: "Switching it on in MAAS installs no agent on the node: deploy the node again, or change the profile.",
		},
		{
			Name: DriftHostnameChanged, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: kept(), Closes: untilAdopt,
			Finds: "the machine has another hostname in MAAS than it had", Evidence: []string{"hostname", "known"},
			Adopts: "accepts the name that MAAS has; the node keeps its own", Next: "Rename the machine back in MAAS, or adopt its new name.",
		},
		{
			Name: DriftMACsChanged, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: kept(), Closes: untilAdopt,
			Finds: "the machine has other network cards in MAAS than it had", Evidence: []string{"macs", "known"},
			Adopts: "records the MAC addresses that MAAS has", Next: "Find out whether a network card was replaced; if so, adopt.",
		},
		{
			Name: DriftHardwareChanged, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: kept(), Closes: untilAdopt,
			Finds: "the machine has another serial number or hardware UUID in MAAS than it had", Evidence: []string{"serial", "uuid", "known_serial", "known_uuid"},
			Adopts: "records the serial number and UUID that MAAS has", Next: "Find out whether the mainboard was replaced; if so, adopt. If not, another server answers in its place.",
		},
		{
			Name: DriftAddressesChanged, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: serving(), Closes: untilAdopt,
			Finds: "the machine has other IP addresses in MAAS than it had", Evidence: []string{"addresses", "known"},
			Adopts: "records the addresses that MAAS has", Next: "Find out who changed the machine's network; adopt when it is meant.",
		},
	}
}

const heldElsewhere = "A database that was restored from a backup may be why: a tenant is on the node, or was, of whom the database does not know. " +
	"Ask the tenant, then decommission the node with --mode reimage, which ends whatever is on it. " +
	"Where a tenant has given the node back since the backup, the database charges him: his charge ends with the second pass that MAAS says it, and what was charged since the backup is credited by hand."

// MAASAllocationMark is the workload annotation that names the allocation which has a machine. MAAS
// wipes it when it releases the machine.
const MAASAllocationMark = "slipway-allocation"

// driftOfOccupancy compare a node with the allocations.
func driftOfOccupancy() []DriftDetector {
	return []DriftDetector{{
		Name: DriftOccupancy, Scope: DriftOfNode, Severity: DriftCritical, Sources: []string{sourcePostgres}, Expects: kept(), Closes: untilGone,
		Finds: "the node names another allocation than the one that occupies it", Evidence: []string{"pointer", "occupant"},
		Next: "No claim takes the node meanwhile. A database that was restored in part may be why: decommission the node, which ends whatever is on it.",
	}, {
		Name: DriftMAASOccupant, Scope: DriftOfNode, Severity: DriftCritical, Sources: []string{sourcePostgres, sourceMAAS}, Expects: serving(), Quarantines: true, Closes: untilGone,
		Finds: "MAAS has the machine marked for another allocation than the one that occupies the node, or after a restore for none", Evidence: []string{"held_for", "occupant"}, Next: heldElsewhere,
	}, {
		Name: DriftAgentOccupant, Scope: DriftOfNode, Severity: DriftCritical, Sources: []string{sourcePostgres, sourceAgent}, Expects: serving(), Quarantines: true, Closes: untilGone,
		Finds: "the agent holds the node for another allocation than the one that occupies it, or after a restore for none", Evidence: []string{"held_for", "occupant"}, Next: heldElsewhere,
	}}
}

// IsAgentMade reports whether only the node's agent says what the detector finds. On a node with a
// tenant who is root, that is the tenant's word.
func (d DriftDetector) IsAgentMade() bool {
	return slices.Contains(d.Sources, sourceAgent) && !slices.Contains(d.Sources, sourceMAAS) && !slices.Contains(d.Sources, sourceBMC)
}

// driftOfAgents compare a node with what its agent reports.
func driftOfAgents() []DriftDetector {
	of := []string{sourcePostgres, sourceAgent}
	report := func(name, finds, next string, quarantines bool) DriftDetector {
		d := DriftDetector{
			Name: name, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: serving(), Closes: untilGone,
			Finds: finds, Evidence: []string{"expected", "reported", "reported_at"}, Next: next, Quarantines: quarantines,
		}
		if quarantines {
			d.Severity = DriftCritical
		}
		return d
	}
	return []DriftDetector{
		{
			Name: DriftBootUnannounced, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: serving(),
			Closes: "adopted, or a job has worked on the node since", Finds: "the node has booted again and no job or task asked for it",
			Evidence: []string{"boot_id", "known_boot_id"}, Adopts: "accepts the new boot",
			Next: "Look at the node's logs and its BMC's event log for why it booted; adopt when it is explained.",
		},
		{
			Name: DriftAgentOld, Scope: DriftOfNode, Severity: DriftInfo, Sources: of, Expects: serving(), Closes: untilGone,
			Finds: "the agent is older than this installation's minimum", Evidence: []string{"version", "minimum"},
			Next: "Update the agent with the task agent.update.",
		},
		{
			Name: DriftAgentCertificate, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: serving(), Closes: untilGone,
			Finds: "less than a fifth of the lifetime of the agent's certificate is left: it should have renewed it", Evidence: []string{"not_after", "generation"},
			Next: "Look at the agent's log on the node. It renews by itself, also for a while after the end (agent.renew_grace); later give it a new identity (reissue-agent).",
		},
		{
			Name: DriftAgentLocked, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: kept(), Closes: untilGone,
			Finds: "the agent's identity is locked, since somebody showed a certificate of the past", Evidence: []string{"since", "reason"},
			Next: "Find out whether the node was cloned or restored from an image; then give its agent a new identity (reissue-agent).",
		},
		{
			Name: DriftAgentElsewhere, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: serving(), Quarantines: true, Closes: untilGone,
			Finds: "the agent reports network cards of which the node has none: its system runs on another machine", Evidence: []string{"reported", "known"},
			Next: "Find out whether the disks were moved or the image cloned. The identity must not be used on two machines.",
		},
		{
			Name: DriftAgentSilent, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: serving(), Closes: untilGone,
			Finds: "the agent of a node in service has sent no heartbeat for ten minutes", Evidence: []string{"last_heartbeat"},
			Next: "See whether the machine runs and reaches the agent API, then look at the agent's log on the node.",
		},
		{
			Name: DriftClockSkew, Scope: DriftOfNode, Severity: DriftWarning, Sources: of, Expects: serving(), Closes: untilGone,
			Finds: "the node's clock differs from the server's by more than 30 s", Evidence: []string{"skew"},
			Next: "Look at time synchronisation on the node; beyond five minutes MAAS refuses its requests.",
		},
		{
			Name: DriftNetworkOpen, Scope: DriftOfNode, Severity: DriftCritical, Sources: of, Expects: serving(), Closes: untilGone,
			Finds: "the node's network reaches the control plane, MAAS, a BMC or another node; the node is not claimed meanwhile", Evidence: []string{"open", "tried", "probed_at"},
			Next: "Close the network for nodes: a tenant on it would reach what is named. A later pass tries again. Ignore the finding, or name the target in network_probe.allowed, only if it is meant.",
		},
		report(DriftGPUCount, "the agent reports another number of GPUs than the SKU has", "Check the GPUs on the node (nvidia-smi, dmesg); fix them and unquarantine the node.", true),
		report(DriftGPUFault, "a GPU has a failed or pending row remap or more uncorrected errors than the SKU allows", "Reset or replace the GPU, then unquarantine the node.", true),
		report(DriftMemory, "the agent reports less memory than the SKU has", "Look for a failed memory module in the BMC's event log.", false),
		report(DriftDisks, "the agent reports fewer data disks than the SKU has", "Look for a failed drive in the BMC's inventory.", false),
		report(DriftNICs, "fewer network cards are up than the SKU has", "Look at cables and switch ports.", false),
		report(DriftDriver, "the GPU driver is older than the SKU asks for", "Reimage the node with an image that has the driver.", false),
	}
}
