package maassim

import (
	"fmt"
	"slices"
	"strings"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// otherUser is who acts in the acts of others.
const otherUser = "other"

// ErrNoEffect is an act of someone else that the region refuses in the present
// state, or whose machine does not exist.
var ErrNoEffect = simcontrol.ErrNoEffect

// Acts lists what External can do.
var actNames = [...]string{"release", "deploy", "delete", "lock", "unlock", "allocate", "mark_broken", "mark_fixed", "enlist"}

// External does what another operator would do: release, deploy, delete, lock, unlock, allocate (as
// user "other"), mark_broken, mark_fixed or enlist. sel is a system_id, hostname or MAC; for enlist
// the MAC or fleet id of a machine that MAAS does not know. lock works in any state, unlike the
// API's.
func (s *Server) External(act, sel string) error {
	if !slices.Contains(actNames[:], act) {
		return fmt.Errorf("act %q is unknown: use one of %s", act, strings.Join(actNames[:], ", "))
	}
	ok := false
	s.commit(func(t *tx) *reply {
		ok = s.external(t, act, s.find(sel), []string{sel})
		return nil
	})
	if !ok {
		return fmt.Errorf("%s of %q: %w", act, sel, ErrNoEffect)
	}
	return nil
}

// SetConfig changes a setting of the region, as another administrator does.
func (s *Server) SetConfig(name string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.config[name]; !ok {
		return fmt.Errorf("setting %q: %w", name, ErrNoEffect)
	}
	s.config[name] = value
	return nil
}

func (s *Server) find(sel string) *machine {
	for _, m := range s.machines {
		if m.matches(sel) {
			return m
		}
	}
	return nil
}

// external reports whether the act changed anything.
func (s *Server) external(t *tx, act string, m *machine, selectors []string) bool {
	if act == "enlist" {
		return s.enlistBySelector(selectors)
	}
	if m == nil {
		return false
	}
	switch act {
	case "release":
		return releasable(m.status) && s.beginRelease(t, m, "released by "+otherUser) == nil
	case "deploy":
		return s.deployByOther(t, m)
	case "delete":
		s.remove(m)
		return true
	case "lock":
		m.locked = true
		return true
	case "unlock":
		m.locked = false
		return true
	case "allocate":
		if m.status != Ready || s.setStatus(m, Allocated, "allocated by "+otherUser) != nil {
			return false
		}
		m.owner = otherUser
		return true
	case "mark_broken":
		return s.markBroken(t, m)
	case "mark_fixed":
		to := Ready
		if m.osystem != "" {
			to = Deployed
		}
		return m.status == Broken && s.setStatus(m, to, act) == nil
	default:
		return false
	}
}

// markBroken releases what can be released first. A machine that was deployed keeps its image, to
// which mark_fixed returns it.
func (s *Server) markBroken(t *tx, m *machine) bool {
	if m.status == Broken || !Allowed(m.status, Broken) {
		return false
	}
	if releasable(m.status) && Allowed(m.status, Releasing) {
		os, series := m.osystem, m.series
		if m.status != Deployed {
			os, series = "", ""
		}
		if s.setStatus(m, Releasing, "mark_broken") != nil {
			return false
		}
		if hw, err := s.peekBMC(m); err == nil {
			t.stop(m, hw, true)
		}
		s.clearTenant(m)
		m.osystem, m.series = os, series
	}
	if s.setStatus(m, Broken, "mark_broken") != nil {
		return false
	}
	m.owner, m.errorText = "", "marked broken by "+otherUser
	s.event(m, "Marking node broken", info, m.errorText)
	return true
}

func (s *Server) deployByOther(t *tx, m *machine) bool {
	if !in(m.status, Ready, Allocated) || len(s.opt.Images) == 0 || s.deployable(m) != nil {
		return false
	}
	for _, to := range []Status{Allocated, Deploying} {
		if s.setStatus(m, to, "deployed by "+otherUser) != nil {
			return false
		}
	}
	os, series, _ := strings.Cut(s.opt.Images[0], "/")
	m.owner, m.osystem, m.series, m.userData, m.netboot = otherUser, os, series, nil, true
	m.ownerData = map[string]string{}
	s.setHWSync(m, false)
	s.newScripts(m, typeInstallation)
	s.event(m, "Deploying", info, "")
	s.armDeployTimer(m)
	if hw, err := s.peekBMC(m); err == nil {
		t.bootEnvironment(m, hw)
	}
	return true
}

// enlistBySelector makes the New record of a machine of the fleet that none has.
func (s *Server) enlistBySelector(selectors []string) bool {
	for _, sel := range selectors {
		for _, v := range splitList(sel) {
			hw := s.fleet.ByMAC(v)
			if hw == nil {
				hw = s.fleet.ByID(v)
			}
			if hw != nil && s.recordOf(hw) == nil {
				s.enlisted(hw, hw.Spec().NICs)
				return true
			}
		}
	}
	return false
}

// act runs a byOthers fault; it reports whether anything changed.
func (s *Server) act(t *tx, f *Fault, m *machine, selectors []string) bool {
	if f.Machine != "" {
		selectors = append([]string{f.Machine}, selectors...)
		if m == nil {
			m = s.find(f.Machine)
		}
	}
	switch f.Name {
	case "machine_deleted":
		return s.external(t, "delete", m, nil)
	case "externally_released":
		return s.external(t, "release", m, nil)
	case "externally_deployed":
		return s.external(t, "deploy", m, nil)
	case "locked":
		return s.external(t, "lock", m, nil)
	case "owned_by_other":
		return s.external(t, "allocate", m, nil)
	case "enlist_race":
		return s.external(t, "enlist", nil, selectors)
	case "conflicting_candidates":
		return s.conflict(f, selectors)
	default:
		return false
	}
}

// conflict leaves two records for one physical machine: the boot card's MAC in
// one and the last card's in the other, or the same serial in both.
func (s *Server) conflict(f *Fault, selectors []string) bool {
	for _, sel := range selectors {
		hw := s.fleet.ByMAC(sel)
		if hw == nil {
			if m := s.find(sel); m != nil && len(m.nics) > 0 {
				hw = s.fleet.ByMAC(m.nics[0].mac)
			}
		}
		if hw == nil {
			continue
		}
		cards := hw.Spec().NICs
		if f.Is("serial") {
			s.firstRecord(hw, cards)
			s.enlisted(hw, []simhw.NIC{{Name: "eth0", MAC: s.strayMAC()}})
			return true
		}
		if len(cards) < 2 {
			return false
		}
		last := len(cards) - 1
		if first := s.firstRecord(hw, cards[:last]); first != nil {
			first.nics = slices.DeleteFunc(first.nics, func(n *nic) bool { return strings.EqualFold(n.mac, cards[last].MAC) })
		}
		s.enlisted(hw, cards[last:])
		return true
	}
	return false
}

func (s *Server) firstRecord(hw *simhw.Machine, cards []simhw.NIC) *machine {
	if m := s.recordOf(hw); m != nil {
		return m
	}
	return s.enlisted(hw, cards)
}

func (s *Server) strayMAC() string {
	h := s.random(hex, 6)
	return "52:54:ff:" + h[:2] + ":" + h[2:4] + ":" + h[4:]
}
