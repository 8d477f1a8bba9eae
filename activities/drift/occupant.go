package drift

// maasOccupant finds a machine that MAAS has marked for another allocation than the one that occupies
// the node. A mark that is missing says nothing: a release of the machine in MAAS wipes it.
func maasOccupant(f Facts) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		return differentOccupant(f, m.Allocation, "MAAS has the machine marked for")
	})
}

// agentOccupant finds a node whose agent says that it is held for another allocation than the one that
// occupies it.
func agentOccupant(f Facts) Verdict {
	if !f.agentAlive() || f.Heartbeat.Allocation == nil || !f.settled() {
		return unknown()
	}
	return differentOccupant(f, *f.Heartbeat.Allocation, "the agent holds the node for")
}

func differentOccupant(f Facts, held, says string) Verdict {
	switch held {
	case "", f.Node.Occupant:
		return clean()
	}
	here := f.Node.Occupant
	if here == "" {
		here = "nobody"
	}
	return found(held+"/"+f.Node.Occupant, says+" allocation "+held+", and the database says "+here, "held_for", held, "occupant", f.Node.Occupant)
}

// agrees reports whether MAAS and the agent have said since the last restore what the database says:
// who is on the node. Neither may be silent.
func (f Facts) agrees() bool {
	if f.RestoredAt == nil || f.LiveJob != "" || !f.settled() || f.Listed.Before(*f.RestoredAt) {
		return false
	}
	h := f.Heartbeat
	if !f.agentAlive() || h.Allocation == nil || h.ReceivedAt.Before(*f.RestoredAt) {
		return false
	}
	return f.Machine != nil && f.Node.Pointer == f.Node.Occupant && f.Machine.Allocation == f.Node.Occupant && *h.Allocation == f.Node.Occupant
}
