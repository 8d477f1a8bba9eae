package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// NodeAction is an operator's action on a node.
type NodeAction string

// The seven actions.
const (
	NodeActionDrain        NodeAction = "drain"
	NodeActionRetire       NodeAction = "retire"
	NodeActionReactivate   NodeAction = "reactivate"
	NodeActionQuarantine   NodeAction = "quarantine"
	NodeActionUnquarantine NodeAction = "unquarantine"
	NodeActionRemove       NodeAction = "remove"
	NodeActionResume       NodeAction = "resume"
)

// NodeActionInfo describes what an action does.
type NodeActionInfo struct {
	Action NodeAction
	// From lists the states of the node in which the action may be requested.
	From []NodeStatus
	// Mode is the operation whose job the action creates; "" for none.
	Mode DecommissionMode
	// Move is the transition that the action itself makes; resume makes none.
	Move *Transition[NodeStatus]
	// Done lists the states in which there is nothing to do. The action then succeeds without an
	// effect.
	Done []NodeStatus
	// BesideJob allows the action while a job holds the node, unless the node is in a state of
	// UnlessIn.
	BesideJob bool
	UnlessIn  []NodeStatus
	// Reason means that the action requires a reason.
	Reason bool
	// Needs is what the action needs beyond the state, checked when it is requested; "" for
	// nothing.
	Needs string
	Doc   string
}

var nodeActions = []NodeActionInfo{
	{
		Action: NodeActionDrain, From: inService, Mode: ModeDrain, Move: &NodeDrain, Done: []NodeStatus{NodeRetired},
		Doc: "take no new work, wait for the allocation to end, then retire the node",
	},
	{
		Action: NodeActionRetire, From: inService, Mode: ModeRetire, Move: &NodeDrain, Done: []NodeStatus{NodeRetired},
		Doc: "as drain, without waiting: a live allocation is ended by force",
	},
	{
		Action: NodeActionReactivate, From: NodeReactivate.From, Move: &NodeReactivate, Done: []NodeStatus{NodeOffline},
		Needs: "an agent that was not uninstalled, and no erasure left unproven",
		Doc:   "use a retired node again under the identity that it kept; health must prove it active, and after a tenant a certificate that it is clean",
	},
	{
		// An onboarding ends with the node active and lifts a quarantine, so it must not be under
		// way.
		Action: NodeActionQuarantine, From: slices.Concat(NodeBlockOnboarding.From, NodeQuarantine.From), Move: &NodeQuarantine, Done: []NodeStatus{NodeQuarantined},
		BesideJob: true, UnlessIn: NodeBlockOnboarding.From, Reason: true,
		Doc: "keep the node from scheduling, whether or not it is allocated",
	},
	{
		Action: NodeActionUnquarantine, From: NodeUnquarantine.From, Move: &NodeUnquarantine, Done: []NodeStatus{NodeActive},
		Needs: "a healthy agent: enrolled, heard lately, with a report that meets the SKU, no erasure left unproven, and nothing left of a tenant",
		Doc:   "put the node back to use; its agent and a fresh report must prove it healthy",
	},
	{
		Action: NodeActionRemove, From: NodeRemove.From, Mode: ModeRemove, Move: &NodeRemove, Done: []NodeStatus{NodeDeleted},
		Doc: "uninstall the agent of a retired node and delete its record, for good",
	},
	{
		Action: NodeActionResume, From: []NodeStatus{NodeDraining, NodeRemoving}, BesideJob: true,
		Doc: "see to it that a node that is draining or being removed has a job that goes on",
	},
}

// NodeActions lists the actions.
func NodeActions() []NodeActionInfo { return slices.Clone(nodeActions) }

// NodeActionOf returns the description of an action.
func NodeActionOf(a NodeAction) (NodeActionInfo, bool) {
	i := slices.IndexFunc(nodeActions, func(n NodeActionInfo) bool { return n.Action == a })
	if i < 0 {
		return NodeActionInfo{}, false
	}
	return nodeActions[i], true
}

// AllowsJob reports whether the action is allowed while a job holds a node in this state.
func (a NodeActionInfo) AllowsJob(s NodeStatus) bool {
	return a.BesideJob && !slices.Contains(a.UnlessIn, s)
}

// MoveFrom returns the transition that the action makes itself from a state.
func (a NodeActionInfo) MoveFrom(s NodeStatus) Transition[NodeStatus] {
	if a.Action == NodeActionQuarantine && slices.Contains(NodeBlockOnboarding.From, s) {
		return NodeBlockOnboarding
	}
	return *a.Move
}

// AllowedNodeActions returns the actions that a node's state allows now. Set busy when a live job
// holds the node. Further needs of an action, such as proof of health, are checked when the action
// is requested (NodeActionNeeds).
func AllowedNodeActions(s NodeStatus, busy bool) []NodeAction {
	out := []NodeAction{}
	for _, a := range nodeActions {
		if slices.Contains(a.From, s) && (!busy || a.AllowsJob(s)) {
			out = append(out, a.Action)
		}
	}
	return out
}

// NodeActionNeeds returns, by action, what an action needs beyond the node's state. Actions that
// need no more are not in it.
func NodeActionNeeds(actions []NodeAction) map[NodeAction]string {
	out := map[NodeAction]string{}
	for _, a := range actions {
		if info, known := NodeActionOf(a); known && info.Needs != "" {
			out[a] = info.Needs
		}
	}
	return out
}

// AllowedDecommissions lists the modes that a decommission may be started with.
func AllowedDecommissions(s NodeStatus, busy bool) []DecommissionMode {
	out := []DecommissionMode{}
	for _, m := range decommissionModes {
		if !m.Operation && !busy && slices.Contains(m.From, s) {
			out = append(out, m.Mode)
		}
	}
	return out
}

// ResumeOf returns what resume does for a node that is draining or being removed: the operation
// that completes the change of state, and the task that the agent may have lost. It returns false
// for a node in any other state.
func ResumeOf(s NodeStatus) (mode DecommissionMode, task TaskKind, ok bool) {
	switch s {
	case NodeDraining:
		return ModeDrain, TaskKindDrain, true
	case NodeRemoving:
		return ModeRemove, TaskKindUninstall, true
	default:
		return "", "", false
	}
}

// Entry returns the transition that is made when a request of this mode is accepted. moves is false
// when the node keeps its state until the job changes it. ok is false for a state in which the mode
// cannot be started.
func (m DecommissionModeInfo) Entry(from NodeStatus) (t Transition[NodeStatus], moves, ok bool) {
	if !slices.Contains(m.From, from) {
		return t, false, false
	}
	machine, _ := NodeMachine(m.Lifecycle)
	i := slices.IndexFunc(machine.Transitions, func(t Transition[NodeStatus]) bool { return t.To == m.Enters && slices.Contains(t.From, from) })
	if i < 0 {
		return t, false, true
	}
	return machine.Transitions[i], true, true
}

// OwnsNodeState reports whether a job of this kind may own a node that is draining or being
// removed.
func OwnsNodeState(jobKind string) bool {
	return jobKind == string(OwnerDecommission) || jobKind == "node_operation"
}

// DocumentNodeActions renders the actions on a node and when they are allowed.
func DocumentNodeActions() string {
	var b strings.Builder
	b.WriteString("# Actions on a node\n\nGenerated from package lifecycle. Do not edit; `make generate` writes it.\n\n" +
		"Each is a call of the API and a command of the same name. Repeating one that is done, or under way, succeeds and does nothing.\n\n" +
		"| action | asked for in | creates | while a job holds the node | meaning |\n|---|---|---|---|---|\n")
	for _, a := range nodeActions {
		creates, busy := "–", "refused"
		if a.Mode != "" {
			creates = fmt.Sprintf("job `%s`", a.Mode)
		}
		if a.BesideJob {
			busy = "allowed"
		}
		if len(a.UnlessIn) > 0 {
			busy += ", but not in " + codes(a.UnlessIn)
		}
		meaning := a.Doc
		if a.Needs != "" {
			meaning += ". It needs " + a.Needs
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", a.Action, codes(a.From), creates, busy, meaning)
	}
	return b.String()
}
