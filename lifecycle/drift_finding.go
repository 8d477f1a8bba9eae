package lifecycle

// FindingStatus is the state of a drift finding.
type FindingStatus string

// The states of a drift finding.
const (
	FindingOpen    FindingStatus = "open"
	FindingIgnored FindingStatus = "ignored"
	FindingClosed  FindingStatus = "closed"
)

// The transitions of a drift finding.
var (
	FindingIgnore = Transition[FindingStatus]{
		Name: "ignore", From: []FindingStatus{FindingOpen}, To: FindingIgnored, Owners: []Owner{OwnerAdmin},
		Doc: "an operator keeps the finding quiet until its key changes",
	}
	FindingReopen = Transition[FindingStatus]{
		Name: "reopen", From: []FindingStatus{FindingIgnored}, To: FindingOpen, Owners: []Owner{OwnerReconciler},
		Doc: "a pass found another fault of the same kind",
	}
	FindingClose = Transition[FindingStatus]{
		Name: "close", From: []FindingStatus{FindingOpen, FindingIgnored}, To: FindingClosed, Owners: []Owner{OwnerReconciler},
		Doc: "the fault is gone, or the node is deleted",
	}
	FindingAdopt = Transition[FindingStatus]{
		Name: "adopt", From: []FindingStatus{FindingOpen, FindingIgnored}, To: FindingClosed, Owners: []Owner{OwnerAdmin},
		Doc: "an operator had what was observed recorded",
	}
)

// DriftFinding is the lifecycle of a drift finding.
var DriftFinding = Machine[FindingStatus]{
	Resource: "drift_finding",
	Initial:  []FindingStatus{FindingOpen},
	States: []StateInfo[FindingStatus]{
		{State: FindingOpen, Doc: "the fault lasts"},
		{State: FindingIgnored, Doc: "the fault lasts, and an operator knows of it"},
		{State: FindingClosed, Doc: "ended, the outcome says why; the same fault later is a finding of its own", Terminal: true},
	},
	Transitions: []Transition[FindingStatus]{FindingIgnore, FindingReopen, FindingClose, FindingAdopt},
}
