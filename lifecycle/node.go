package lifecycle

// NodeStatus is the coarse, operator-facing state of a node record.
type NodeStatus string

// The states of a node under lifecycle `maas`.
const (
	NodeBootstrapIssued NodeStatus = "bootstrap_issued"
	NodeEnrolling       NodeStatus = "enrolling"
	NodeActive          NodeStatus = "active"
	NodeOffline         NodeStatus = "offline"
	NodeQuarantined     NodeStatus = "quarantined"
	NodeDraining        NodeStatus = "draining"
	NodeRetired         NodeStatus = "retired"
	NodeRemoving        NodeStatus = "removing"
	NodeDeleted         NodeStatus = "deleted"
)

// The transitions with their owners.
var (
	NodeStartEnrolling = Transition[NodeStatus]{
		Name: "start_enrolling", From: []NodeStatus{NodeBootstrapIssued}, To: NodeEnrolling,
		Owners: []Owner{OwnerAdmin, OwnerOnboarding},
		Doc:    "the onboarding workflow, or the enrolment of a manually bootstrapped node, begins",
	}
	NodeActivate = Transition[NodeStatus]{
		Name: "activate", From: []NodeStatus{NodeEnrolling}, To: NodeActive,
		Owners: []Owner{OwnerOnboarding}, Needs: []Need{NeedEnrolled, NeedHealthy},
		Doc: "agent enrolled and every health check passed",
	}
	NodeBlockOnboarding = Transition[NodeStatus]{
		Name: "block_onboarding", From: []NodeStatus{NodeEnrolling}, To: NodeQuarantined,
		Owners: []Owner{OwnerOnboarding, OwnerAdmin},
		Doc:    "onboarding reached a blocked or unsafe state",
	}
	NodeGoOffline = Transition[NodeStatus]{
		Name: "go_offline", From: []NodeStatus{NodeActive}, To: NodeOffline,
		Owners: []Owner{OwnerHeartbeat, OwnerReconciler}, Needs: []Need{NeedStateDeadline},
		Doc: "heartbeats stopped for longer than the policy allows",
	}
	NodeComeBack = Transition[NodeStatus]{
		Name: "come_back", From: []NodeStatus{NodeOffline}, To: NodeActive,
		Owners: []Owner{OwnerHeartbeat, OwnerReconciler}, Needs: []Need{NeedHealthy},
		Doc: "heartbeats are back and healthy",
	}
	NodeQuarantine = Transition[NodeStatus]{
		Name: "quarantine", From: []NodeStatus{NodeActive, NodeOffline}, To: NodeQuarantined,
		Owners: []Owner{OwnerReconciler, OwnerDecommission, OwnerAdmin},
		Doc:    "drift, a failed clean-up or an investigation",
	}
	NodeUnquarantine = Transition[NodeStatus]{
		Name: "unquarantine", From: []NodeStatus{NodeQuarantined}, To: NodeActive,
		Owners: []Owner{OwnerAdmin, OwnerReconciler, OwnerOnboarding}, Needs: []Need{NeedEnrolled, NeedHealthy},
		Doc: "the node is proven healthy again",
	}
	NodeDrain = Transition[NodeStatus]{
		Name: "drain", From: []NodeStatus{NodeActive, NodeOffline, NodeQuarantined}, To: NodeDraining,
		Owners: []Owner{OwnerAdmin, OwnerCustomer}, Needs: []Need{NeedOwningJob},
		Doc: "an admin starts a resumable drain operation, or the run of an admin or a customer takes the node",
	}
	NodeRetire = Transition[NodeStatus]{
		Name: "retire", From: []NodeStatus{NodeDraining}, To: NodeRetired,
		Owners: []Owner{OwnerDrain, OwnerDecommission},
		Doc:    "the drain completed",
	}
	NodeDrainFallback = Transition[NodeStatus]{
		Name: "drain_fallback", From: []NodeStatus{NodeDraining}, To: NodeOffline,
		Owners: []Owner{OwnerDrain, OwnerDecommission, OwnerAdmin},
		Doc:    "the drain failed, or an operator stops short of retirement",
	}
	NodeReactivate = Transition[NodeStatus]{
		Name: "reactivate", From: []NodeStatus{NodeRetired}, To: NodeOffline,
		Owners: []Owner{OwnerAdmin}, Needs: []Need{NeedIdentityKept},
		Doc: "reuse the same identity; health must prove active",
	}
	NodeRemove = Transition[NodeStatus]{
		Name: "remove", From: []NodeStatus{NodeRetired}, To: NodeRemoving,
		Owners: []Owner{OwnerAdmin, OwnerDecommission}, Needs: []Need{NeedOwningJob},
		Doc: "the remove workflow starts",
	}
	NodeRemoveRollback = Transition[NodeStatus]{
		Name: "remove_rollback", From: []NodeStatus{NodeRemoving}, To: NodeRetired,
		Owners: []Owner{OwnerDecommission, OwnerAdmin},
		Doc:    "uninstall failed, or an operator rolls back",
	}
	NodeDelete = Transition[NodeStatus]{
		Name: "delete", From: []NodeStatus{NodeRemoving}, To: NodeDeleted,
		Owners: []Owner{OwnerDecommission}, Needs: []Need{NeedRevoked},
		Doc: "the agent is uninstalled, or cannot be asked; its identity is revoked and never comes back",
	}
)

// NodeMAAS is the lifecycle of a node that MAAS or an operator provisions.
var NodeMAAS = Machine[NodeStatus]{
	Resource: "node", Lifecycle: "maas",
	Initial: []NodeStatus{NodeBootstrapIssued},
	States: []StateInfo[NodeStatus]{
		{State: NodeBootstrapIssued, Doc: "accepted or bootstrapped by hand; no job has begun and no agent has enrolled"},
		{State: NodeEnrolling, Doc: "onboarding in progress; not schedulable", Transitional: true},
		{State: NodeActive, Doc: "healthy and schedulable"},
		{State: NodeOffline, Doc: "expected to exist, not polling"},
		{State: NodeQuarantined, Doc: "blocked from scheduling"},
		{State: NodeDraining, Doc: "drain in progress; unschedulable", Transitional: true},
		{State: NodeRetired, Doc: "out of scheduling, not being deleted"},
		{State: NodeRemoving, Doc: "remove or uninstall in progress", Transitional: true},
		{State: NodeDeleted, Doc: "outside active inventory", Terminal: true},
	},
	Transitions: []Transition[NodeStatus]{
		NodeStartEnrolling, NodeActivate, NodeBlockOnboarding, NodeGoOffline, NodeComeBack,
		NodeQuarantine, NodeUnquarantine, NodeDrain, NodeRetire, NodeDrainFallback,
		NodeReactivate, NodeRemove, NodeRemoveRollback, NodeDelete,
	},
}
