package maassim

import "slices"

// act is what someone else does to a machine; it reports whether it was done.
func (s *Server) act(t *tx, f *Fault, m *machine, selectors []string) bool {
	switch f.Name {
	case "enlist_race":
		return s.enlistFirst(selectors)
	case "conflicting_candidates":
		return s.twin(f, selectors)
	}
	if m == nil {
		return false
	}
	switch f.Name {
	case "machine_deleted":
		s.remove(m)
		return true
	case "externally_released":
		if !in(m.status, Deployed, Deploying, Allocated, FailedDeployment) {
			return false
		}
		c := &call{tx: t, rec: m}
		return c.startRelease(m).code == 200
	case "externally_deployed":
		return s.otherDeploys(m)
	case "locked":
		m.locked = true
		return true
	case "owned_by_other":
		if m.status != Ready || s.setStatus(m, Allocated, "another user") != nil {
			return false
		}
		m.owner = "somebody-else"
		return true
	}
	return false
}

// enlistFirst registers the machine that a create is about to name.
func (s *Server) enlistFirst(selectors []string) bool {
	for _, sel := range selectors {
		if hw := s.fleet.ByMAC(sel); hw != nil && s.recordOf(hw) == nil {
			s.enlisted(hw, hw.Spec().NICs)
			return true
		}
	}
	return false
}

// twin makes a second record that matches the same machine.
func (s *Server) twin(f *Fault, selectors []string) bool {
	for _, sel := range selectors {
		hw := s.fleet.ByMAC(sel)
		if hw == nil {
			continue
		}
		spec := hw.Spec()
		if f.is("serial") {
			for range 2 {
				m := s.newMachine("", spec.Architecture)
				m.info["system_serial"] = spec.Serial
			}
			return true
		}
		first, second := spec.NICs[:1], spec.NICs[1:2]
		s.enlisted(hw, slices.Clone(first))
		s.enlisted(hw, slices.Clone(second))
		return true
	}
	return false
}

func (s *Server) otherDeploys(m *machine) bool {
	for _, to := range []Status{Allocated, Deploying, Deployed} {
		if m.status == to || !Allowed(m.status, to) {
			continue
		}
		if s.setStatus(m, to, "another user") != nil {
			return false
		}
	}
	m.owner, m.osystem, m.series = "somebody-else", "ubuntu", "jammy"
	return m.status == Deployed
}
