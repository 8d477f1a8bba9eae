package maassim

import (
	"slices"
	"strconv"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// onHardware hears everything that happens to a machine of the fleet. It runs
// outside every lock.
func (s *Server) onHardware(hw *simhw.Machine, ev simhw.Event) {
	if s.ctx.Err() != nil {
		return
	}
	s.commit(func(t *tx) *reply {
		m := s.recordOf(hw)
		switch ev.Kind {
		case simhw.EventPower:
			if m != nil {
				s.onPower(m, hw, ev)
			}
		case simhw.EventBoot:
			if ev.Source == simhw.BootNetwork {
				s.onNetworkBoot(m, hw, ev.BootID)
			}
		case simhw.EventOSUp:
			if m != nil {
				s.onDiskBoot(t, m, hw, ev)
			}
		case simhw.EventOSDown, simhw.EventErased: // MAAS does not see it
		}
		return nil
	})
}

// onPower: MAAS knows at once of the power that it moved itself, and of what
// others moved at its next poll.
func (s *Server) onPower(m *machine, hw *simhw.Machine, ev simhw.Event) {
	if ev.Power != simhw.On && ev.Power != simhw.Off {
		return
	}
	if _, err := s.peekBMC(m); err != nil {
		return
	}
	delay := s.opt.Durations.PowerPoll
	if ev.By == byMAAS {
		delay = 0
		if ev.Power == simhw.Off && m.status == Releasing {
			delay = s.opt.Durations.ReleasePoll
		}
	}
	if delay == 0 {
		s.seePower(m, powerWord(ev.Power))
		return
	}
	s.later(m, delay, func() bool { return true }, func(*tx) { s.seePower(m, powerWord(hw.Power())) })
}

// peekBMC is bmcOf without consuming faults.
func (s *Server) peekBMC(m *machine) (*simhw.Machine, error) {
	if m.powerType == "" || m.powerType == "manual" {
		return nil, simhw.ErrBMCUnreachable
	}
	hw := s.fleet.ByBMC(m.power["power_address"])
	if hw == nil {
		return nil, simhw.ErrBMCUnreachable
	}
	return hw, hw.CheckBMC(m.power["power_user"], m.power["power_pass"])
}

// seePower writes the power state that MAAS believes in.
func (s *Server) seePower(m *machine, state string) {
	if m.powerState != state {
		m.powerState = state
		s.event(m, "Node powered "+state, debug, "")
	}
	if state == "off" && m.status == Releasing && !m.stuck {
		s.finishRelease(m)
	}
}

// onNetworkBoot answers a PXE request: an ephemeral environment when the status
// asks for one, enlistment for an unknown machine, else "boot from disk".
func (s *Server) onNetworkBoot(m *machine, hw *simhw.Machine, boot string) {
	cable := slices.ContainsFunc(hw.Spec().NICs, func(n simhw.NIC) bool { return n.Boot && n.VLAN != 0 })
	d := s.opt.Durations
	switch {
	case !cable: // nobody hears the request
		s.localBoot(hw, boot)
	case m == nil:
		s.fleet.Clock().AfterFunc(s.ctx, d.NetBoot+d.Enlist, func() { s.enlist(hw, boot) })
	case s.wantsEnvironment(m):
		s.adoptHardware(m, hw)
		s.event(m, "Performing PXE boot", info, "")
		s.onBoot(m, hw, boot, d.NetBoot, func(t *tx) { s.environmentUp(t, m, hw, boot) })
	default:
		s.localBoot(hw, boot)
	}
}

func (s *Server) localBoot(hw *simhw.Machine, boot string) {
	s.fleet.Clock().AfterFunc(s.ctx, s.opt.Durations.LocalBoot, func() {
		if hw.BootID() == boot {
			hw.BootFromDisk()
		}
	})
}

func (s *Server) wantsEnvironment(m *machine) bool {
	if m.status == Deploying {
		return m.netboot
	}
	return in(m.status, Commissioning, Testing, DiskErasing)
}

// adoptHardware merges a first network boot into a record that was made without
// MAC addresses.
func (s *Server) adoptHardware(m *machine, hw *simhw.Machine) {
	spec := hw.Spec()
	for _, n := range spec.NICs {
		if n.Boot && m.nicByMAC(n.MAC) == nil {
			m.nics = append(m.nics, s.newNIC(n.Name, n.MAC))
		}
	}
	if m.arch == "" {
		m.arch = spec.Architecture
	}
}

// environmentUp starts what the status asks for, once the ephemeral system runs.
func (s *Server) environmentUp(t *tx, m *machine, hw *simhw.Machine, boot string) {
	d := s.opt.Durations
	s.event(m, "Loading ephemeral", info, "")
	switch m.status {
	case Commissioning:
		s.heartbeat(m)
		s.startScripts(m, typeCommissioning)
		if s.stage(t, m, "commissioning") {
			s.onBoot(m, hw, boot, d.Commission, func(t *tx) { s.endCommissioning(t, m, hw, boot) })
		}
	case Testing:
		s.startTesting(t, m, hw, boot)
	case Deploying:
		s.startInstall(t, m, hw, boot)
	case DiskErasing:
		if s.stage(t, m, "erasing") {
			s.onBoot(m, hw, boot, d.Erase, func(t *tx) { s.endErase(t, m, hw) })
		}
	default: // nothing to do: the machine was released or deleted meanwhile
	}
}

// enlist is the anonymous registration of a machine that netbooted unknown. A
// record that appeared meanwhile is left alone.
func (s *Server) enlist(hw *simhw.Machine, boot string) {
	if hw.BootID() != boot || hw.Power() != simhw.On {
		return
	}
	s.commit(func(t *tx) *reply {
		if s.recordOf(hw) == nil {
			m := s.enlisted(hw, hw.Spec().NICs)
			t.stopQuietly(m, "enlist")
		}
		return nil
	})
}

// enlisted makes the New record of an unknown machine with the given NICs. Its power account is the
// one that the enlistment environment made on the BMC in-band.
func (s *Server) enlisted(hw *simhw.Machine, nics []simhw.NIC) *machine {
	spec := hw.Spec()
	m := s.newMachine("", spec.Architecture)
	for _, n := range nics {
		m.nics = append(m.nics, s.newNIC(n.Name, n.MAC))
	}
	if spec.BMCAddress != "" {
		m.powerType = "redfish"
		m.power = map[string]string{"power_address": spec.BMCAddress, "power_user": inBandUser, "power_pass": s.random(znums, 16), "node_id": ""}
		hw.AddBMCLogin(inBandUser, m.power["power_pass"]) // sends no event
	}
	m.uuid = spec.UUID
	m.info["system_serial"] = spec.Serial
	s.count(m, countEnlist)
	s.event(m, "New", info, "")
	return m
}

// heartbeat restarts the status monitor. Without another heartbeat the machine fails after
// NodeTimeout.
func (s *Server) heartbeat(m *machine) {
	d := s.opt.Durations.NodeTimeout
	s.expire(m, d, "Node has not been heard from for the last "+minutes(d)+" minutes")
}

func minutes(d time.Duration) string { return strconv.Itoa(int(d / time.Minute)) }

// expire fails the machine unless its status changes or a heartbeat comes.
func (s *Server) expire(m *machine, d time.Duration, comment string) {
	m.expiry++
	gen, expiry := m.gen, m.expiry
	s.later(m, d, func() bool { return m.gen == gen && m.expiry == expiry }, func(t *tx) { s.markFailed(t, m, comment) })
}

// markFailed moves a machine from a working status to its failed one.
func (s *Server) markFailed(t *tx, m *machine, comment string) {
	to := map[Status]Status{
		Commissioning: FailedCommissioning, Deploying: FailedDeployment, Releasing: FailedReleasing, DiskErasing: FailedDiskErasing,
		Testing: FailedTesting,
	}
	next, ok := to[m.status]
	if !ok {
		return
	}
	was := m.status
	if bad := s.setStatus(m, next, comment); bad != nil {
		return
	}
	m.errorText = comment
	s.endScripts(m, scriptTimeout, "")
	s.event(m, "Marking node failed", failure, comment)
	switch was {
	case Commissioning:
		s.event(m, "Failed commissioning", failure, comment)
		m.owner = ""
		t.stopQuietly(m, "commission")
	case Testing:
		s.event(m, "Failed testing", failure, comment)
		t.stopQuietly(m, "test")
	default:
	}
}
