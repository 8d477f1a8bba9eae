package agentapi

// Queue puts a beat in line as the heartbeat endpoint does.
func (s *Server) Queue(b Beat) error { return s.beats.add(b) }
