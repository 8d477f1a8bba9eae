package lifecycle

import "slices"

// NodePath lists the states through which this owner may lead a node of a
// lifecycle from where it is to another state: to alone where an edge leads
// there, else by way of the states of via that are still ahead. It is from alone
// when the node is there already, and nil when there is no such way.
func NodePath(lifecycle string, from, to NodeStatus, via []NodeStatus, owner Owner) []NodeStatus {
	if from == to {
		return []NodeStatus{from}
	}
	if _, ok := NodeEdge(lifecycle, from, to, owner); ok {
		return []NodeStatus{to}
	}
	for i, first := range via {
		if _, ok := NodeEdge(lifecycle, from, first, owner); !ok {
			continue
		}
		if rest := NodePath(lifecycle, first, to, via[i+1:], owner); len(rest) > 0 {
			return append([]NodeStatus{first}, rest...)
		}
	}
	return nil
}

// NodeEdge is the transition of a lifecycle that leads a node from one state
// directly to another by this owner; ok is false when there is none.
func NodeEdge(lifecycle string, from, to NodeStatus, owner Owner) (t Transition[NodeStatus], ok bool) {
	m, _ := NodeMachine(lifecycle)
	i := slices.IndexFunc(m.Transitions, func(t Transition[NodeStatus]) bool {
		return t.To == to && slices.Contains(t.From, from) && slices.Contains(t.Owners, owner)
	})
	if i < 0 {
		return t, false
	}
	return m.Transitions[i], true
}
