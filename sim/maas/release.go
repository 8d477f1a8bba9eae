package maassim

import (
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

func releasable(s Status) bool {
	return in(s, Reserved, Deployed, Broken, Deploying, Allocated, FailedDeployment, FailedReleasing, FailedDiskErasing)
}

// release is a no-op from Ready and Releasing; Disk erasing is refused.
func (c *call) release() *reply {
	m, s := c.rec, c.s
	var erase bool
	for _, name := range []string{"erase", "secure_erase", "quick_erase"} {
		v, bad := c.boolParam(name, false)
		if bad != nil {
			return bad
		}
		erase = erase || (v && name == "erase")
	}
	if _, bad := c.boolParam("force", false); bad != nil {
		return bad
	}
	if in(m.status, Ready, Releasing) {
		return jsonReply(s.machineJSON(m))
	}
	if !releasable(m.status) {
		return stateConflict("Machine cannot be released in its current state ('%s').", m.status)
	}
	if m.owner != "" && m.owner != s.opt.User && s.opt.Unprivileged {
		return text(403, "")
	}
	if bad := c.startRelease(m, erase); bad != nil {
		return bad
	}
	return jsonReply(s.machineJSON(m))
}

// startRelease begins erasing or releasing; nil means it began.
func (c *call) startRelease(m *machine, erase bool) *reply {
	s := c.s
	if on, _ := s.config["enable_disk_erasing_on_release"].(bool); on {
		erase = true
	}
	s.count(m, countRelease)
	if erase && Allowed(m.status, DiskErasing) {
		return c.startErase(m)
	}
	return s.beginRelease(c.tx, m, "release")
}

func (c *call) startErase(m *machine) *reply {
	s, from := c.s, m.status
	if bad := s.setStatus(m, DiskErasing, "release with erase"); bad != nil {
		return bad
	}
	s.event(m, "Disk erasing", info, "")
	if s.take(m, "stuck_erasing", "stage:erasing") != nil {
		return nil
	}
	hw, err := s.bmcOf(m, "release")
	if err != nil {
		s.forceStatus(m, from, "power failed: "+err.Error(), bypassSetStatus)
		return powerError(m, err)
	}
	c.bootEnvironment(m, hw)
	return nil
}

func (s *Server) endErase(t *tx, m *machine, hw *simhw.Machine) {
	s.event(m, "Disks erased", info, "")
	t.do(hw.Erase)
	_ = s.beginRelease(t, m, "disks erased") // 14 -> 12 is in the table; a BMC error leaves it to the timer
}

// beginRelease enters Releasing and powers off; a machine that is off, or whose
// power MAAS cannot control, is finished at once.
func (s *Server) beginRelease(t *tx, m *machine, cause string) *reply {
	if bad := s.setStatus(m, Releasing, cause); bad != nil {
		return bad
	}
	s.endScripts(m, scriptAborted, "")
	s.event(m, "Releasing", info, "")
	s.clearTenant(m)
	s.lateWrite(m)
	if !s.stage(t, m, "releasing") {
		return nil
	}
	if m.stuck = s.take(m, "stuck_releasing", "stage:releasing") != nil; m.stuck {
		return nil
	}
	if s.take(m, "release_power_fail", "stage:releasing") != nil {
		s.event(m, "Failed to power off node", failure, "")
		s.armReleaseTimer(m)
		return nil
	}
	hw, err := s.bmcOf(m, "release")
	if err != nil {
		s.event(m, "Failed to power off node", failure, err.Error())
		s.armReleaseTimer(m)
		return powerError(m, err)
	}
	if hw == nil || hw.Power() == simhw.Off {
		s.finishRelease(m)
		return nil
	}
	s.armReleaseTimer(m)
	t.stop(m, hw, true)
	return nil
}

// armReleaseTimer: the status monitor only sweeps every minute.
func (s *Server) armReleaseTimer(m *machine) {
	d := s.opt.Durations
	s.expire(m, d.ReleaseExpiry+d.Sweep, "Node operation 'Releasing' timed out after "+minutes(d.ReleaseExpiry)+" minutes.")
}

// lateWrite is the deploy workflow's set-status that arrives after a release
// began: it goes past the table.
func (s *Server) lateWrite(m *machine) {
	if s.take(m, "late_deployed_write", "release") == nil {
		return
	}
	s.later(m, 1, func() bool { return true }, func(t *tx) {
		if in(m.status, Releasing, Ready) {
			s.forceStatus(m, Deployed, "late write of the deploy workflow", bypassTemporal)
			s.event(m, "Deployed", info, "")
		}
	})
}

// finishRelease ends in Ready, or in New for a machine that MAAS never
// commissioned.
func (s *Server) finishRelease(m *machine) {
	to := Ready
	if !m.commissioned {
		to = StatusNew
	}
	if bad := s.setStatus(m, to, "released"); bad != nil {
		return
	}
	m.owner, m.errorText = "", ""
	s.event(m, "Released", info, "")
}

// clearTenant wipes what belonged to the tenant. Storage layout and the
// definitions of links stay; AUTO addresses go. The owner stays until the end.
func (s *Server) clearTenant(m *machine) {
	m.agentName, m.osystem, m.series, m.hweKernel = "", "", "", ""
	m.ownerData, m.userData, m.netboot = map[string]string{}, nil, true
	s.setHWSync(m, false)
	s.freeAddresses(m)
}

// abort answers with the old status; the new one is written afterwards by the
// callback, past the table.
func (c *call) abort() *reply {
	m, s := c.rec, c.s
	var to Status
	var kind string
	switch m.status {
	case Deploying:
		to, kind = Allocated, "Aborted deployment"
	case Commissioning:
		to, kind = StatusNew, "Aborted commissioning"
	case Testing:
		to, kind = Ready, "Aborted testing"
	case DiskErasing:
		to, kind = FailedDiskErasing, "Aborted disk erasing"
	default:
		return stateConflict("Cannot abort in current state: node %s is in state %s.", m.id, m.status)
	}
	out := jsonReply(s.machineJSON(m)) // rendered before the effect
	s.count(m, countAbort)
	s.event(m, kind, info, c.form.Get("comment"))
	hw, err := s.bmcOf(m, "abort")
	if err != nil {
		return powerError(m, err)
	}
	from := m.status
	s.endScripts(m, scriptAborted, "")
	s.forceStatus(m, to, "abort", bypassSetStatus)
	switch from {
	case Deploying:
		s.freeAddresses(m)
		m.osystem, m.series, m.userData = "", "", nil
		s.setHWSync(m, false)
	case Commissioning:
		m.owner = ""
	default:
	}
	c.stop(m, hw, true)
	return out
}
