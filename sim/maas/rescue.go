package maassim

// rescueMode boots the rescue environment. The exit restores the status before it.
func (c *call) rescueMode() *reply {
	m, s := c.rec, c.s
	if !Allowed(m.status, EnteringRescueMode) {
		return field("__all__", "Rescue mode is not available because of the current state of the node.")
	}
	from := m.status
	if bad := s.setStatus(m, EnteringRescueMode, "rescue_mode"); bad != nil {
		return bad
	}
	if from != FailedEnteringRescueMode {
		m.back = from
	}
	m.owner = s.opt.User
	s.event(m, "Entering rescue mode", info, "")
	out := jsonReply(s.machineJSON(m))
	hw, err := s.bmcOf(m, "rescue_mode")
	if err != nil {
		s.forceStatus(m, from, "power failed: "+err.Error(), bypassSetStatus)
		return powerError(m, err)
	}
	s.heartbeat(m)
	c.bootEnvironment(m, hw)
	return out
}

func (c *call) exitRescueMode() *reply {
	m, s := c.rec, c.s
	if !in(m.status, RescueMode, FailedEnteringRescueMode, FailedExitingRescueMode) {
		return field("__all__", "Exit rescue mode is not available because of the current state of the node.")
	}
	from := m.status
	if bad := s.setStatus(m, ExitingRescueMode, "exit_rescue_mode"); bad != nil {
		return bad
	}
	s.event(m, "Exiting rescue mode", info, "")
	out := jsonReply(s.machineJSON(m))
	hw, err := s.bmcOf(m, "exit_rescue_mode")
	if err != nil {
		s.forceStatus(m, from, "power failed: "+err.Error(), bypassSetStatus)
		return powerError(m, err)
	}
	s.expire(m, s.opt.Durations.RescueExpiry+s.opt.Durations.Sweep, "Node operation 'Exiting rescue mode' timed out after 5 minutes.")
	switch {
	case m.back == Deployed:
		c.bootEnvironment(m, hw) // netboot is off: it boots its disk
	case hw != nil && powerWord(hw.Power()) == "off":
		s.leftRescue(m)
	default:
		c.stop(m, hw, true)
	}
	return out
}

// leftRescue ends rescue mode in the status before it. Deployed clears the owner
// of nothing; any other status had none unless it was allocated.
func (s *Server) leftRescue(m *machine) {
	to := m.back
	if !Allowed(ExitingRescueMode, to) {
		to = Ready
	}
	if bad := s.setStatus(m, to, "left rescue mode"); bad != nil {
		return
	}
	if !in(to, Deployed, Allocated, Reserved, FailedDeployment, FailedDiskErasing) {
		m.owner = ""
	}
	s.event(m, "Exited rescue mode", info, "")
}

// markBroken is for the owner only; it releases what can be released first.
func (c *call) markBroken() *reply {
	m, s := c.rec, c.s
	if m.owner != s.opt.User {
		return text(403, "")
	}
	if !Allowed(m.status, Broken) && m.status != Broken {
		return stateConflict("Invalid transition: %s -> %s.", m.status, Broken)
	}
	if releasable(m.status) && m.status != Broken && Allowed(m.status, Releasing) {
		wasDeployed := m.status == Deployed
		if bad := s.setStatus(m, Releasing, "mark_broken"); bad != nil {
			return bad
		}
		if hw, err := s.bmcOf(m, "release"); err == nil {
			c.stop(m, hw, true)
		}
		os, series := m.osystem, m.series
		s.clearTenant(m)
		if wasDeployed { // mark_fixed looks at it
			m.osystem, m.series = os, series
		}
	}
	if bad := s.setStatus(m, Broken, "mark_broken"); bad != nil {
		return bad
	}
	m.owner, m.errorText = "", c.form.Get("comment")
	s.event(m, "Marking node broken", info, m.errorText)
	return jsonReply(s.machineJSON(m))
}

func (c *call) markFixed() *reply {
	m, s := c.rec, c.s
	if m.status != Broken {
		return stateConflict("Can't mark a non-broken node as 'Ready'.")
	}
	to := Ready
	if m.osystem != "" {
		to = Deployed
	}
	if bad := s.setStatus(m, to, "mark_fixed"); bad != nil {
		return bad
	}
	m.errorText = ""
	s.event(m, "Marking node fixed", info, c.form.Get("comment"))
	return jsonReply(s.machineJSON(m))
}
