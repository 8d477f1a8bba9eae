package lifecycle

// MachinePhase is the explicit state of a machine. Errors are conditions, not phases.
type MachinePhase string

// The phases of a machine, in the spelling of the API.
const (
	MachineFactoryReady MachinePhase = "FACTORY_READY"
	MachineReady        MachinePhase = "READY"
	MachineProvisioning MachinePhase = "PROVISIONING"
	MachineInService    MachinePhase = "IN_SERVICE"
	MachineMaintenance  MachinePhase = "MAINTENANCE"
	MachineRMA          MachinePhase = "RMA"
	MachineRetired      MachinePhase = "RETIRED"
)

// The transitions of a machine. A run moves it as a job; the node that it is linked to moves it as
// the system.
var (
	MachineStartRun = machineMove("start_run", MachineProvisioning, []Owner{OwnerJob}, "a run starts; the phase before is kept",
		MachineFactoryReady, MachineReady, MachineInService, MachineMaintenance, MachineRMA)
	MachineFailRun = machineMove("fail_run", MachineMaintenance, []Owner{OwnerJob}, "the run failed or was cancelled, or it began in this phase",
		MachineProvisioning)
	MachineFinishFactoryReady = machineMove("finish_factory_ready", MachineFactoryReady, []Owner{OwnerJob}, "the run succeeded; the phase before returns",
		MachineProvisioning)
	MachineFinishReady     = machineMove("finish_ready", MachineReady, []Owner{OwnerJob}, "the run succeeded", MachineProvisioning)
	MachineFinishInService = machineMove("finish_in_service", MachineInService, []Owner{OwnerJob},
		"the run succeeded and proved that the machine is in its cluster, or it was before", MachineProvisioning)
	MachineFinishRMA = machineMove("finish_rma", MachineRMA, []Owner{OwnerJob}, "the run took the machine out of service", MachineProvisioning)

	MachineSetFactoryReady = machineMove("set_factory_ready", MachineFactoryReady, []Owner{OwnerSystem}, "the linked node is being installed again",
		MachineReady, MachineInService, MachineMaintenance, MachineRMA)
	MachineSetReady = machineMove("set_ready", MachineReady, []Owner{OwnerAdmin, OwnerSystem}, "it can be managed",
		MachineFactoryReady, MachineInService, MachineMaintenance, MachineRMA)
	MachineSetInService = machineNeeds(machineMove("set_in_service", MachineInService, []Owner{OwnerAdmin, OwnerSystem}, "it serves in its cluster",
		MachineFactoryReady, MachineReady, MachineMaintenance), NeedInCluster)
	MachineSetMaintenance = machineMove("set_maintenance", MachineMaintenance, []Owner{OwnerAdmin, OwnerSystem}, "it is out of service for work on it",
		MachineFactoryReady, MachineReady, MachineInService, MachineRMA)
	MachineSetRMA = machineMove("set_rma", MachineRMA, []Owner{OwnerAdmin}, "it goes back to its vendor",
		MachineFactoryReady, MachineReady, MachineInService, MachineMaintenance)
	MachineRetire = machineMove("retire", MachineRetired, []Owner{OwnerAdmin, OwnerSystem}, "it leaves the inventory",
		MachineFactoryReady, MachineReady, MachineInService, MachineMaintenance, MachineRMA)
)

func machineMove(name string, to MachinePhase, owners []Owner, doc string, from ...MachinePhase) Transition[MachinePhase] {
	return Transition[MachinePhase]{Name: name, From: from, To: to, Owners: owners, Doc: doc}
}

func machineNeeds(t Transition[MachinePhase], needs ...Need) Transition[MachinePhase] {
	t.Needs = needs
	return t
}

// MachinePhases is the lifecycle of a machine.
var MachinePhases = Machine[MachinePhase]{
	Resource: "machine",
	Initial:  []MachinePhase{MachineFactoryReady, MachineReady},
	States: []StateInfo[MachinePhase]{
		{State: MachineFactoryReady, Doc: "arrived with an operating system and networking"},
		{State: MachineReady, Doc: "imported; it can be managed"},
		{State: MachineProvisioning, Doc: "a run is changing it", Transitional: true},
		{State: MachineInService, Doc: "serves workloads in the customer's cluster"},
		{State: MachineMaintenance, Doc: "drained; disruptive operations are allowed"},
		{State: MachineRMA, Doc: "out of service, for return or replacement"},
		{State: MachineRetired, Doc: "out of the inventory; no operation is allowed", Terminal: true},
	},
	Transitions: []Transition[MachinePhase]{
		MachineStartRun, MachineFailRun, MachineFinishFactoryReady, MachineFinishReady, MachineFinishInService, MachineFinishRMA,
		MachineSetFactoryReady, MachineSetReady, MachineSetInService, MachineSetMaintenance, MachineSetRMA, MachineRetire,
	},
}

// MachinePhaseOfNode returns the phase of a machine that is linked to a node, while no run is
// active on it. inCluster is the machine's condition InCustomerCluster.
func MachinePhaseOfNode(node NodeStatus, inCluster bool) MachinePhase {
	switch node {
	case NodeBootstrapIssued, NodeEnrolling:
		return MachineFactoryReady
	case NodeActive, NodeOffline:
		if inCluster {
			return MachineInService
		}
		return MachineReady
	case NodeDeleted:
		return MachineRetired
	default: // quarantined, draining, retired, removing, and what a later lifecycle adds
		return MachineMaintenance
	}
}

// MachinePhaseAfterRun returns the transition that ends a run in the phase end. before is the phase
// in which the run began, and verified whether the plan has a step that proved the machine to be in
// its cluster. It returns false when the run has not ended.
func MachinePhaseAfterRun(t RunType, end RunPhase, before MachinePhase, verified bool) (Transition[MachinePhase], bool) {
	switch end {
	case RunFailed, RunCanceled:
		return MachineFailRun, true
	case RunSucceeded:
	case RunPending, RunRunning:
		return Transition[MachinePhase]{}, false
	default:
		return Transition[MachinePhase]{}, false
	}
	switch t {
	case RunTypeRMA:
		return MachineFinishRMA, true
	case RunTypeRepave:
		if verified {
			return MachineFinishInService, true
		}
		return MachineFinishReady, true
	case RunTypeReboot, RunTypeUpgrade, RunTypeNetReconfig:
	}
	switch before {
	case MachineFactoryReady:
		return MachineFinishFactoryReady, true
	case MachineReady:
		return MachineFinishReady, true
	case MachineInService:
		return MachineFinishInService, true
	case MachineRMA:
		return MachineFinishRMA, true
	case MachineMaintenance, MachineProvisioning, MachineRetired:
	}
	return MachineFailRun, true // leads to MAINTENANCE, which is also where nothing is assumed
}
