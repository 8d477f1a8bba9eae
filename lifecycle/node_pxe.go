package lifecycle

import (
	"slices"
	"strings"
)

// The states of a node that boots from the network and reports itself (seed
// 000, "States"). NodeActive and NodeRetired are shared with lifecycle `maas`.
const (
	NodeDiscovered     NodeStatus = "discovered"
	NodePending        NodeStatus = "pending"
	NodeInstalling     NodeStatus = "installing"
	NodeInstallFailed  NodeStatus = "install_failed"
	NodeInstalled      NodeStatus = "installed"
	NodeReprovision    NodeStatus = "reprovision"
	NodeDeprovisioning NodeStatus = "deprovisioning"
	NodeMigrating      NodeStatus = "migrating"
)

// MaxInstallAttempts is how often an installation may fail before it requires operator action.
const MaxInstallAttempts = 3

// The guards of lifecycle `pxe`.
const (
	NeedWorkflow Need = "install_workflow" // an install workflow is assigned
	NeedForced   Need = "forced"           // the administrator forces it: the retry limit does not apply and the counters start again at zero
)

var notRetired = []NodeStatus{
	NodeDiscovered, NodePending, NodeInstalling, NodeInstallFailed, NodeInstalled, NodeActive, NodeReprovision, NodeDeprovisioning, NodeMigrating,
}

// The transitions of a PXE node.
var (
	PXEApprove = Transition[NodeStatus]{
		Name: "approve", From: []NodeStatus{NodeDiscovered}, To: NodePending,
		Owners: []Owner{OwnerAdmin}, Needs: []Need{NeedWorkflow},
		Doc: "an admin approves the node; it installs at its next boot",
	}
	PXEStart = Transition[NodeStatus]{
		Name: "start_install", From: []NodeStatus{NodePending}, To: NodeInstalling,
		Owners: []Owner{OwnerNodeReport}, Needs: []Need{NeedWorkflow},
		Doc: "the node reports `started`",
	}
	PXEComplete = Transition[NodeStatus]{
		Name: "complete_install", From: []NodeStatus{NodeInstalling}, To: NodeInstalled,
		Owners: []Owner{OwnerNodeReport},
		Doc:    "the node reports `complete`",
	}
	PXEFail = Transition[NodeStatus]{
		Name: "fail_install", From: []NodeStatus{NodeInstalling}, To: NodeInstallFailed,
		Owners: []Owner{OwnerNodeReport, OwnerSystem},
		Doc:    "the third attempt failed: the node reported it, or was silent past its deadline",
	}
	PXEReset = Transition[NodeStatus]{
		Name: "reset_install", From: []NodeStatus{NodeInstallFailed}, To: NodePending,
		Owners: []Owner{OwnerAdmin}, Needs: []Need{NeedWorkflow, NeedForced},
		Doc: "an administrator has fixed the cause (another workflow, or a new drive) and resets by force; the counters start again at zero",
	}
	PXEVerify = Transition[NodeStatus]{
		Name: "verify", From: []NodeStatus{NodeInstalled}, To: NodeActive,
		Owners: []Owner{OwnerAdmin, OwnerSystem},
		Doc:    "an admin verified the installation, or its device group promotes by itself",
	}
	PXEReprovision = Transition[NodeStatus]{
		Name: "reprovision", From: []NodeStatus{NodeActive}, To: NodeReprovision,
		Owners: []Owner{OwnerAdmin},
		Doc:    "marked for re-imaging; it still boots its disk",
	}
	PXERequeue = Transition[NodeStatus]{
		Name: "requeue", From: []NodeStatus{NodeReprovision}, To: NodePending,
		Owners: []Owner{OwnerAdmin, OwnerSystem}, Needs: []Need{NeedWorkflow},
		Doc: "the node may be erased: it installs again at its next boot",
	}
	PXEDeprovision = Transition[NodeStatus]{
		Name: "deprovision", From: []NodeStatus{NodeActive}, To: NodeDeprovisioning,
		Owners: []Owner{OwnerAdmin},
		Doc:    "secure erasure begins",
	}
	PXEErased = Transition[NodeStatus]{
		Name: "finish_deprovisioning", From: []NodeStatus{NodeDeprovisioning}, To: NodeRetired,
		Owners: []Owner{OwnerDecommission, OwnerSystem},
		Doc:    "the erasure is proven",
	}
	PXEMigrate = Transition[NodeStatus]{
		Name: "migrate", From: []NodeStatus{NodeActive}, To: NodeMigrating,
		Owners: []Owner{OwnerAdmin},
		Doc:    "the hardware is being replaced",
	}
	PXEMigrated = Transition[NodeStatus]{
		Name: "finish_migration", From: []NodeStatus{NodeMigrating}, To: NodeActive,
		Owners: []Owner{OwnerAdmin, OwnerDecommission, OwnerSystem},
		Doc:    "the new hardware has taken the node's place",
	}
	PXERetire = Transition[NodeStatus]{
		Name: "retire", From: notRetired, To: NodeRetired,
		Owners: []Owner{OwnerAdmin},
		Doc:    "an admin takes the node out, from any state; its MAC addresses are free again",
	}
)

// NodePXE is the lifecycle of a node that no MAAS manages.
var NodePXE = Machine[NodeStatus]{
	Resource: "node", Lifecycle: "pxe",
	Initial: []NodeStatus{NodeDiscovered},
	States: []StateInfo[NodeStatus]{
		{State: NodeDiscovered, Doc: "booted from the network, MAC registered, awaits approval"},
		{State: NodePending, Doc: "approved, workflow assigned, waits to install"},
		{State: NodeInstalling, Doc: "installation in progress"},
		{State: NodeInstallFailed, Doc: "three attempts failed; requires operator action"},
		{State: NodeInstalled, Doc: "installed, awaits verification"},
		{State: NodeActive, Doc: "in production use"},
		{State: NodeReprovision, Doc: "marked for re-imaging"},
		{State: NodeDeprovisioning, Doc: "secure erasure in progress"},
		{State: NodeMigrating, Doc: "hardware is being replaced"},
		{State: NodeRetired, Doc: "decommissioned", Terminal: true},
	},
	Transitions: []Transition[NodeStatus]{
		PXEApprove, PXEStart, PXEComplete, PXEFail, PXEReset, PXEVerify, PXEReprovision, PXERequeue, PXEDeprovision, PXEErased, PXEMigrate,
		PXEMigrated, PXERetire,
	},
}

// NodeMachine is the lifecycle of that name; false when there is none.
func NodeMachine(name string) (Machine[NodeStatus], bool) {
	for _, m := range []Machine[NodeStatus]{NodeMAAS, NodePXE} {
		if m.Lifecycle == name {
			return m, true
		}
	}
	return Machine[NodeStatus]{}, false
}

// IsNodeStatus reports whether s is a state of a node of any lifecycle.
func IsNodeStatus(s string) bool {
	return NodeMAAS.Has(NodeStatus(s)) || NodePXE.Has(NodeStatus(s))
}

// LabelDeviceGroup is the label that puts a node into a device group.
const LabelDeviceGroup = "device-group"

// LabelProtectSerials is the label that lists drives of a node which no job erases, by serial
// number or WWN, separated by commas.
const LabelProtectSerials = "protect-serials"

// ProtectedFromRelease says why MAAS must not release the machine of a node with protected drives.
// It names the modes that keep the installed system only where they may be used instead: not after
// a tenant who was root.
func ProtectedFromRelease(serials []string, systemMayStay bool) string {
	instead := "pull the drives and take them"
	if systemMayStay {
		instead = "use soft_reset or storage_cleanup, or " + instead
	}
	return "MAAS erases every disk of a machine that it releases, and drives of the node are protected (" + strings.Join(serials, ", ") +
		"): " + instead + " out of the label " + LabelProtectSerials + ", the profile and the SKU"
}

// ReachableBy is Reachable for one owner: what may be set by it from here.
func (m Machine[S]) ReachableBy(from S, owner Owner) []string {
	var out []string
	for _, t := range m.Transitions {
		if slices.Contains(t.From, from) && slices.Contains(t.Owners, owner) && !slices.Contains(out, string(t.To)) {
			out = append(out, string(t.To))
		}
	}
	return out
}

// AdmitsAgent reports whether the agent of a node in this state is served: it
// enrols, is heard and gets tasks. A PXE node that waits for its installation has
// no system that counts; a retired one is gone for good, as a deleted one is.
func AdmitsAgent(machine string, s NodeStatus) bool {
	if machine != NodePXE.Lifecycle {
		return s != NodeDeleted
	}
	switch s {
	case NodeInstalling, NodeInstalled, NodeActive, NodeReprovision, NodeDeprovisioning, NodeMigrating:
		return true
	default:
		return false
	}
}
