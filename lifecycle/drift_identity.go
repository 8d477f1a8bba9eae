package lifecycle

// driftOfIdentity find what stands in more than one record, or in none.
func driftOfIdentity() []DriftDetector {
	return []DriftDetector{
		{
			Name: DriftDuplicateMAC, Scope: DriftOfHardware, Severity: DriftCritical, Sources: []string{sourcePostgres, sourceMAAS}, Closes: untilGone,
			Finds: "one MAC address belongs to two machines of the region or to two nodes", Evidence: []string{"mac", "machines", "nodes"},
			Next: "Delete the record that is wrong: MAAS picks one of them when the server boots, and it may be the other.",
		},
		{
			Name: DriftDuplicateSerial, Scope: DriftOfHardware, Severity: DriftWarning, Sources: []string{sourceMAAS}, Closes: untilGone,
			Finds: "two machines of the region have one serial number", Evidence: []string{"serial", "machines"},
			Next: "Find out which record is the server's, and delete the other in MAAS.",
		},
		{
			Name: DriftDuplicateBMC, Scope: DriftOfHardware, Severity: DriftWarning, Sources: []string{sourcePostgres}, Closes: untilGone,
			Finds: "the BMCs of two nodes have one address", Evidence: []string{"address", "nodes"},
			Next: "Correct the address that is wrong: what is meant for one server is done to the other.",
		},
		{
			Name: DriftDuplicateBoot, Scope: DriftOfHardware, Severity: DriftCritical, Sources: []string{sourceAgent}, Closes: untilGone,
			Finds: "the agents of two nodes report the same boot: two identities run on one machine", Evidence: []string{"boot_id", "nodes"},
			Next: "Find out which node the machine is, and remove the other's agent from it.",
		},
		{
			Name: DriftIdentityConflict, Scope: DriftOfHardware, Severity: DriftCritical, Sources: []string{sourcePostgres},
			Closes:   "the keys are no other record's any more, or a certificate proves the node clean after the tenant left the other record",
			Finds:    "a serial number, hardware UUID or MAC address of the node is that of a node that came before it, or of a deleted node that a tenant left; the node is not claimed meanwhile",
			Evidence: []string{"other_node", "same", "differ", "serial", "uuid", "other_serial", "other_uuid"},
			Next:     "Compare the labels of the machines. One machine: decommission the node, whose certificate is the proof. Two machines: correct what is wrong in the BMC or MAAS, or ignore the finding, which lets the node be claimed.",
		},
		{
			Name: DriftUnknownMachine, Scope: DriftOfMachine, Severity: DriftInfo, Sources: []string{sourcePostgres, sourceMAAS},
			Closes: "a node is that machine, or the machine is gone", Finds: "a machine of the region, and of the site's pool where it has one, is no node's",
			Evidence: []string{"system_id", "hostname", "maas_status", "macs"}, Next: "Onboard it, or ignore the finding if it is not Slipway's to manage.",
		},
		{
			Name: DriftGhost, Scope: DriftOfMachine, Severity: DriftWarning, Sources: []string{sourcePostgres, sourceMAAS},
			Closes: "the machine is gone or a node is that machine", Finds: "a machine came back to the region with the MAC addresses of a deleted node: it has enlisted again",
			Evidence: []string{"system_id", "hostname", "maas_status", "macs", "deleted_node"},
			Next:     "The server was left powered on and netbooted. Power it off and delete the record in MAAS, or onboard it as a new node.",
		},
	}
}

// driftOfBMCs compare a BMC's record with the BMC and with what MAAS has of it.
func driftOfBMCs() []DriftDetector {
	of := []string{sourcePostgres, sourceBMC}
	return []DriftDetector{
		{
			Name: DriftBMCAddressChanged, Scope: DriftOfBMC, Severity: DriftWarning, Sources: []string{sourcePostgres, sourceMAAS}, Expects: kept(), Closes: untilAdopt,
			Finds: "MAAS reaches the machine's BMC at another address than the record has", Evidence: []string{"address", "known"},
			Adopts: "records the address that MAAS has; the approved certificate still guards the login",
			Next:   "Find out which address the BMC has now; adopt MAAS's, or correct it in MAAS.",
		},
		{
			Name: DriftBMCPinChanged, Scope: DriftOfBMC, Severity: DriftWarning, Sources: of, Expects: kept(), Closes: "the new pin was approved or the approved certificate is back",
			Finds: "the BMC shows another certificate than the approved one", Evidence: []string{"pin_sha256", "approved", "address"},
			Next: "Compare the pin with what the BMC itself shows and approve it with the BMC's action approve-pin; if they differ, find out who answers at its address.",
		},
		{
			Name: DriftBMCUnreachable, Scope: DriftOfBMC, Severity: DriftWarning, Sources: of, Expects: kept(), Closes: untilGone,
			Finds: "the BMC has not answered for three looks in a row", Evidence: []string{"address", "problem", "failures", "last_answer"},
			Next: "Check the BMC's cable, address and power; no job can move the machine's power meanwhile.",
		},
		{
			Name: DriftBMCUnhealthy, Scope: DriftOfBMC, Severity: DriftWarning, Sources: []string{sourceBMC}, Expects: kept(), Closes: "the BMC reports every part that it could tell of as well",
			Finds: "the BMC reports a part of the machine as Warning or Critical: a GPU, drive, fan, power supply, or another system behind it", Evidence: []string{"health", "problems", "read_at"},
			Next: "Look at the part in the BMC and replace it; a node with a critical part is not given to a tenant.",
		},
		{
			Name: DriftPartsChanged, Scope: DriftOfNode, Severity: DriftWarning, Sources: []string{sourceBMC, sourceAgent}, Expects: kept(), Closes: untilAdopt,
			Finds:    "a part of the machine is new, gone or another one, or has other firmware, as its BMC or its agent tells",
			Evidence: []string{"changes", "bmc_parts", "agent_parts", "read_at"},
			Adopts:   "records the parts that were read",
			Next:     "Compare the inventory with what was done to the machine; adopt it, or find out who changed it.",
		},
		{
			Name: DriftDPUMode, Scope: DriftOfNode, Severity: DriftWarning, Sources: []string{sourceBMC}, Expects: kept(), Closes: untilAdopt,
			Finds: "a DPU of the machine is in another mode, NIC or DPU, than it was", Evidence: []string{"dpu_modes", "known"},
			Adopts: "records the modes that were read",
			Next:   "In mode DPU a computer of its own stands before the host's network. Set the mode back, or adopt it where it was meant.",
		},
		{
			Name: DriftBMCLoginBlocked, Scope: DriftOfBMC, Severity: DriftWarning, Sources: []string{sourcePostgres}, Expects: kept(), Closes: untilGone,
			Finds: "logins to the BMC are stopped, since it rejected one", Evidence: []string{"since", "reason"},
			Next: "Correct the stored login or the BMC's account, then clear the block with the BMC's action clear-auth-block.",
		},
	}
}

// driftOfSites are about the pass itself.
func driftOfSites() []DriftDetector {
	return []DriftDetector{
		{
			Name: DriftSiteUnreachable, Scope: DriftOfSite, Severity: DriftCritical, Sources: []string{sourceMAAS}, Closes: "the region's list can be read again",
			Finds: "the region's list of machines could not be read: nothing of the site is closed or quarantined meanwhile", Evidence: []string{"problem"},
			Next: "Check that the region answers and that its API key is good; probe the site.",
		},
		{
			Name: DriftBreakerOpen, Scope: DriftOfSite, Severity: DriftCritical, Sources: []string{sourcePostgres}, Closes: "no finding waits for its quarantine any more",
			Finds:    "more nodes would be quarantined than may be within an hour: the rest stay in service until an operator decides",
			Evidence: []string{"limit", "quarantined", "waiting"},
			Next:     "Many nodes at once are rarely many faults: look for the one cause first. Quarantine by hand what really is broken, ignore what is not.",
		},
		{
			Name: DriftChargeBreaker, Scope: DriftOfSite, Severity: DriftCritical, Sources: []string{sourcePostgres, sourceMAAS}, Closes: "no charge waits for its end any more",
			Finds:    "after a restore MAAS says of more allocations than may be stopped within an hour that they do not have their nodes: all of them go on until an operator decides",
			Evidence: []string{"limit", "capped", "waiting"},
			Next:     "Ask who changed the marks in MAAS. Where tenants did give their nodes back since the backup, release their allocations; where the marks are wrong, correct them.",
		},
	}
}
