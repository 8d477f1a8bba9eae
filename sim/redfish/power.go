package redfishsim

import (
	"net/http"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// by is how the BMC names itself in the machine's events.
const by = "redfish"

// onEvent follows the machine, whoever moved it.
func (s *Server) onEvent(e simhw.Event) {
	if e.Kind != simhw.EventPower {
		if e.Kind == simhw.EventBoot {
			s.log("OK", "The system has booted from "+string(e.Source)+".")
		}
		return
	}
	s.mu.Lock()
	cycle := false
	if e.Power == simhw.Off {
		s.offAt = s.now()
		cycle, s.cycle = s.cycle, false
	}
	s.mu.Unlock()
	s.log("OK", "Power state: "+string(e.Power)+".")
	if cycle {
		s.m.PowerOn(by)
	}
}

// reset is ComputerSystem.Reset.
func (s *Server) reset(c *call) reply {
	o, ok := c.object()
	if !ok {
		return s.malformed()
	}
	kind, ok := o["ResetType"].(string)
	if !ok {
		return s.fail(http.StatusBadRequest, "ActionParameterMissing", "The action Reset requires the parameter ResetType.", "Reset", "ResetType")
	}
	if !s.p.allows(s.p.ResetTypes, kind) {
		return s.fail(http.StatusBadRequest, "ActionParameterNotSupported", "The value "+kind+" of ResetType is not supported.", kind, "ResetType")
	}
	if rep := s.resetRefused(c, kind); rep != nil {
		return *rep
	}
	if rep := s.resetNoop(kind); rep != nil {
		return *rep
	}
	if s.resetIgnored(c, kind) {
		return s.done()
	}
	s.mu.Lock()
	s.counts.Resets[kind]++
	if kind == "PowerCycle" || kind == "ForceRestart" || kind == "GracefulRestart" {
		s.counts.PowerCycles++
	}
	s.mu.Unlock()
	if f := s.take(FaultDelayedPower, c); f != nil {
		s.clock.AfterFunc(s.ctx, orDefault(f.Delay, 10*time.Second), func() { s.applyReset(kind) })
	} else {
		s.applyReset(kind)
	}
	return s.actionDone(c)
}

// resetRefused holds the vendor's window after a power-off and the fault of
// the same form.
func (s *Server) resetRefused(c *call, kind string) *reply {
	if kind != "On" && kind != "ForceOn" {
		return nil
	}
	conflict := func(status int) *reply {
		rep := s.fail(status, "ActionParameterValueConflict", "The parameter ResetType with the requested value of "+kind+" does not meet the constraints of the implementation.", "ResetType", kind)
		return &rep
	}
	if f := s.take(FaultConflictOn, c); f != nil {
		return conflict(orStatus(f.Status, http.StatusConflict))
	}
	s.mu.Lock()
	offAt := s.offAt
	s.mu.Unlock()
	if s.m.Power() == simhw.Off && !offAt.IsZero() && s.now().Sub(offAt) < s.p.OnHoldOff {
		return conflict(http.StatusConflict)
	}
	return nil
}

// resetNoop answers a reset that asks for what is already so.
func (s *Server) resetNoop(kind string) *reply {
	p := s.m.Power()
	up := p == simhw.On || p == simhw.PoweringOn
	already := false
	switch kind {
	case "On", "ForceOn":
		already = up
	case "ForceOff", "GracefulShutdown", "ForceRestart", "GracefulRestart", "PowerCycle", "Nmi":
		already = !up && !(kind == "ForceOff" && p == simhw.PoweringOff)
	}
	if !already {
		return nil
	}
	restart := kind != "On" && kind != "ForceOn" && kind != "ForceOff" && kind != "GracefulShutdown"
	var rep reply
	switch {
	case restart && s.p.AlreadyStatus == http.StatusNoContent:
		rep = s.fail(http.StatusConflict, "ResetNotPermittedInState", "The reset type "+kind+" is not possible while the system is off.", kind)
	case s.p.AlreadyStatus == http.StatusNoContent:
		rep = reply{status: http.StatusNoContent}
	case s.p.Name == "HPE":
		rep = s.fail(s.p.AlreadyStatus, "InvalidOperationForSystemState", "The operation was not successful due to the current power state (for example, attempting to turn the power off when it is already off).")
	default:
		rep = s.fail(s.p.AlreadyStatus, "ActionParameterValueConflict", "The system is already in the requested power state.", "ResetType", kind)
	}
	return &rep
}

func (s *Server) resetIgnored(c *call, kind string) bool {
	graceful := kind == "GracefulShutdown" || kind == "GracefulRestart" || kind == "PushPowerButton"
	return s.take(FaultIgnoredPower, c) != nil || graceful && s.take(FaultIgnoredGraceful, c) != nil
}

func (s *Server) applyReset(kind string) {
	s.mu.Lock()
	s.cycle = kind == "PowerCycle"
	s.mu.Unlock()
	switch kind {
	case "On", "ForceOn":
		s.m.PowerOn(by)
	case "ForceOff", "PowerCycle":
		s.m.PowerOff(by, true)
	case "GracefulShutdown":
		s.m.PowerOff(by, false)
	case "ForceRestart", "GracefulRestart":
		s.m.Reset(by)
	case "PushPowerButton":
		if p := s.m.Power(); p == simhw.On || p == simhw.PoweringOn {
			s.m.PowerOff(by, false)
		} else {
			s.m.PowerOn(by)
		}
	case "Nmi":
		s.log("Critical", "A diagnostic interrupt (NMI) was sent.")
	}
}

// actionDone is the answer to an action that took effect: at once, or by a
// task under the faults of that form.
func (s *Server) actionDone(c *call) reply {
	if f := s.take(FaultAsyncNoLocation, c); f != nil {
		t := s.newTask()
		return reply{status: http.StatusAccepted, body: s.taskObject(t)}
	}
	if f := s.take(FaultAsyncAbsolute, c); f != nil {
		t := s.newTask()
		base := f.URL
		if base == "" {
			base = s.baseURL(c)
		}
		return reply{status: http.StatusAccepted, body: s.taskObject(t), header: map[string]string{"Location": base + t.monitor()}}
	}
	return s.done()
}

// baseURL is this server as the client addressed it.
func (s *Server) baseURL(c *call) string {
	scheme := "http"
	if c.r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + c.r.Host
}
