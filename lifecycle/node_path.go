package lifecycle

import "slices"

// NodePath lists the states through which this owner may lead a node from where
// it is to another state: to alone where an edge leads there, else by way of the
// states of via that are still ahead. It is from alone when the node is there
// already, and nil when there is no such way.
func NodePath(from, to NodeStatus, via []NodeStatus, owner Owner) []NodeStatus {
	if from == to {
		return []NodeStatus{from}
	}
	leads := func(a, b NodeStatus) bool {
		return slices.ContainsFunc(NodeMAAS.Transitions, func(t Transition[NodeStatus]) bool {
			return t.To == b && slices.Contains(t.From, a) && slices.Contains(t.Owners, owner)
		})
	}
	if leads(from, to) {
		return []NodeStatus{to}
	}
	for i, first := range via {
		if !leads(from, first) {
			continue
		}
		if rest := NodePath(first, to, via[i+1:], owner); len(rest) > 0 {
			return append([]NodeStatus{first}, rest...)
		}
	}
	return nil
}

// NodeEdge is the transition that leads a node from one state directly to
// another by this owner; ok is false when there is none.
func NodeEdge(from, to NodeStatus, owner Owner) (t Transition[NodeStatus], ok bool) {
	i := slices.IndexFunc(NodeMAAS.Transitions, func(t Transition[NodeStatus]) bool {
		return t.To == to && slices.Contains(t.From, from) && slices.Contains(t.Owners, owner)
	})
	if i < 0 {
		return t, false
	}
	return NodeMAAS.Transitions[i], true
}
