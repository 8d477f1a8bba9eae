package maassim

import (
	"time"

	"github.com/slipway-cloud/slipway/internal/simhw"
)

func (c *call) release() *reply { return c.releaseOne(c.rec) }

func (c *call) releaseMany() *reply {
	out := []string{}
	for _, id := range c.form["machines"] {
		m := c.s.machineByID(id)
		if m == nil {
			return text(400, "Unknown machine(s): %s.", id)
		}
		if r := c.releaseOne(m); r.code != 200 {
			return r
		}
		out = append(out, id)
	}
	return jsonReply(out)
}

// releaseOne is a no-op from Ready and Releasing.
func (c *call) releaseOne(m *machine) *reply {
	s := c.s
	if in(m.status, Ready, Releasing) {
		return jsonReply(s.machineJSON(m))
	}
	if !in(m.status, Reserved, Deployed, Broken, Deploying, Allocated, FailedDeployment, FailedReleasing, FailedDiskErasing) {
		return stateConflict("Machine cannot be released in its current state ('%s').", m.status)
	}
	erase, bad := c.boolParam("erase", s.config["enable_disk_erasing_on_release"] == true)
	if bad != nil {
		return bad
	}
	s.count(m, countRelease)
	s.event(m, "User releasing node", info, c.form.Get("comment"))
	if erase && !in(m.status, Allocated) {
		return c.startErase(m)
	}
	out := c.startRelease(m)
	if late := s.take(m, "late_deployed_write", "release"); late != nil {
		s.within(m, time.Second, func(*tx) { s.forceStatus(m, Deployed, "late write of the deploy workflow", bypassTemporal) })
	}
	return out
}

func (c *call) startRelease(m *machine) *reply {
	s := c.s
	if bad := s.setStatus(m, Releasing, "release"); bad != nil {
		return bad
	}
	s.endScripts(m, scriptAborted, "")
	s.event(m, "Releasing", info, "")
	s.expire(m, s.opt.Durations.ReleaseExpiry, "Node operation 'Releasing' timed out after "+minutes(s.opt.Durations.ReleaseExpiry)+" minutes.")
	m.ownerData, m.hwSync, m.syncInterval, m.lastSync, m.osystem, m.series, m.userData = map[string]string{}, false, 0, time.Time{}, "", "", nil
	m.syncGen++
	s.releaseAuto(m)
	out := jsonReply(s.machineJSON(m))
	if s.take(m, "release_power_fail", "release") != nil || s.take(m, "stuck_releasing", "release") != nil {
		if s.peekStuck(m) {
			m.expiry++
		}
		return out
	}
	hw, err := s.bmcOf(m, "release")
	if err != nil {
		s.event(m, "Failed to power off node", failure, err.Error())
		return out
	}
	if hw == nil || hw.Power() == simhw.Off {
		s.finishRelease(c.tx, m)
		return jsonReply(s.machineJSON(m))
	}
	c.stop(m, hw, true)
	return out
}

// peekStuck reports whether the machine is to hang in Releasing for ever.
func (s *Server) peekStuck(m *machine) bool {
	for _, f := range s.faults {
		if f.Name == "stuck_releasing" && f.Struck > 0 && (f.Machine == "" || m.matches(f.Machine)) {
			return true
		}
	}
	return false
}

func (s *Server) powerOffSeen(t *tx, m *machine) { s.finishRelease(t, m) }

// finishRelease ends in Ready, or in New for a machine that MAAS never
// commissioned.
func (s *Server) finishRelease(_ *tx, m *machine) {
	to := Ready
	if !m.commissioned {
		to = StatusNew
	}
	if bad := s.setStatus(m, to, "released"); bad != nil {
		return
	}
	m.owner, m.agentName, m.errorText, m.netboot = "", "", "", true
	s.event(m, "Released", info, "")
}

func (c *call) startErase(m *machine) *reply {
	s := c.s
	if bad := s.setStatus(m, DiskErasing, "release with erase"); bad != nil {
		return bad
	}
	s.event(m, "Disk erasing", info, "")
	out := jsonReply(s.machineJSON(m))
	if s.take(m, "stuck_erasing", "release") != nil {
		return out
	}
	hw, err := s.bmcOf(m, "release")
	if err != nil {
		s.markFailed(c.tx, m, "Failed to power on node: "+err.Error())
		return out
	}
	m.netboot = true
	c.bootEnvironment(m, hw)
	return out
}

func (s *Server) endErase(t *tx, m *machine, hw *simhw.Machine) {
	s.event(m, "Disks erased", info, "")
	t.do(hw.Wipe)
	c := &call{tx: t, rec: m}
	_ = c.startRelease(m) // the edge is in the table
}

// abort answers with the old status.
func (c *call) abort() *reply {
	s, m := c.s, c.rec
	out := jsonReply(s.machineJSON(m))
	was := m.status
	switch was {
	case Deploying:
		s.forceStatus(m, Allocated, "abort", bypassSetStatus)
		s.releaseAuto(m)
	case Commissioning:
		s.forceStatus(m, StatusNew, "abort", bypassSetStatus)
		m.owner = ""
	case Testing:
		s.forceStatus(m, m.back, "abort", bypassSetStatus)
	case DiskErasing:
		s.forceStatus(m, FailedDiskErasing, "abort", bypassSetStatus)
	default:
		return stateConflict("Cannot abort in current state: node %s is in state %s.", m.id, m.status)
	}
	s.endScripts(m, scriptAborted, "")
	s.count(m, countAbort)
	s.event(m, "Aborted "+was.String(), info, c.form.Get("comment"))
	c.stopQuietly(m, "abort")
	return out
}

func (c *call) markBroken() *reply {
	s, m := c.s, c.rec
	if m.owner != "" && m.owner != s.opt.User {
		return text(403, "")
	}
	if bad := s.setStatus(m, Broken, "mark_broken"); bad != nil {
		return bad
	}
	m.errorText, m.owner = c.form.Get("comment"), ""
	s.event(m, "Marking node broken", info, m.errorText)
	return jsonReply(s.machineJSON(m))
}

func (c *call) markFixed() *reply {
	s, m := c.s, c.rec
	if m.status != Broken {
		return stateConflict("Cannot mark a machine fixed that is not Broken.")
	}
	to := Ready
	if m.osystem != "" {
		to = Deployed
	}
	if bad := s.setStatus(m, to, "mark_fixed"); bad != nil {
		return bad
	}
	m.errorText = ""
	return jsonReply(s.machineJSON(m))
}

func (c *call) rescueMode() *reply {
	s, m := c.s, c.rec
	from := m.status
	if !Allowed(from, EnteringRescueMode) {
		return stateConflict("Cannot enter rescue mode from '%s'.", from)
	}
	hw, err := s.bmcOf(m, "rescue_mode")
	if err != nil {
		return powerError(m, err)
	}
	if bad := s.setStatus(m, EnteringRescueMode, "rescue_mode"); bad != nil {
		return bad
	}
	m.back = from
	s.heartbeat(m)
	out := jsonReply(s.machineJSON(m))
	c.bootEnvironment(m, hw)
	return out
}

func (c *call) exitRescueMode() *reply {
	s, m := c.s, c.rec
	if !in(m.status, RescueMode, EnteringRescueMode, FailedEnteringRescueMode, FailedExitingRescueMode) {
		return stateConflict("Cannot exit rescue mode from '%s'.", m.status)
	}
	hw, err := s.bmcOf(m, "exit_rescue_mode")
	if err != nil {
		return powerError(m, err)
	}
	if bad := s.setStatus(m, ExitingRescueMode, "exit_rescue_mode"); bad != nil {
		return bad
	}
	s.expire(m, s.opt.Durations.RescueExpiry, "Node operation 'Exiting rescue mode' timed out.")
	out := jsonReply(s.machineJSON(m))
	if m.back == Deployed {
		s.within(m, s.opt.Durations.ExitRescue, func(*tx) { s.leftRescue(m) })
		c.bootEnvironment(m, hw)
		return out
	}
	c.stop(m, hw, true)
	return out
}

func (s *Server) leftRescue(m *machine) {
	if bad := s.setStatus(m, m.back, "left rescue mode"); bad == nil {
		s.event(m, "Exited rescue mode", info, "")
	}
}
