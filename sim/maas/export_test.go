package maassim

// PutStatus gives a machine a status past every rule, as if it had come there: with the default
// links and no timer of another status.
func (s *Server) PutStatus(id string, status Status, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(id)
	s.clearTenant(m)
	s.defaultLinks(m)
	s.endScripts(m, scriptAborted, "")
	m.errorText = ""
	s.writeStatus(m, status, "put by a test", bypassSetStatus)
	m.owner = owner
}
