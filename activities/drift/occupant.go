package drift

// maasOccupant finds a machine that MAAS has marked for another allocation than the one that
// occupies the node. A mark that is missing says nothing, since a release of the machine in MAAS
// wipes it. After a restore it says that the node may have been given back since the backup.
func maasOccupant(f Facts) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		return differentOccupant(f, m.Allocation, "MAAS has the machine marked for")
	})
}

// agentOccupant finds a node whose agent says that it is held for another allocation than the one
// that occupies it.
func agentOccupant(f Facts) Verdict {
	if !f.agentAlive() || f.Heartbeat.Allocation == nil || !f.settled() {
		return unknown()
	}
	return differentOccupant(f, *f.Heartbeat.Allocation, "the agent holds the node for")
}

func differentOccupant(f Facts, held, says string) Verdict {
	switch {
	case held == f.Node.Occupant, held == "" && !f.mayHaveLeft():
		return clean()
	}
	return found(held+"/"+f.Node.Occupant, says+" "+allocationOrNobody(held)+", and the database says "+allocationOrNobody(f.Node.Occupant),
		"held_for", held, "occupant", f.Node.Occupant)
}

func allocationOrNobody(id string) string {
	if id == "" {
		return "nobody"
	}
	return "allocation " + id
}

// mayHaveLeft reports whether the allocation that occupies the node came before the last restore,
// and the region was read after it: the tenant may have given the node back after the backup was
// made.
func (f Facts) mayHaveLeft() bool {
	r := f.RestoredAt
	return r != nil && f.Node.OccupiedSince != nil && f.Node.OccupiedSince.Before(*r) && f.Listed.After(*r) && f.settled()
}

// agrees reports whether MAAS and the agent have said since the last restore what the database
// says: who is on the node. Neither may be silent.
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
