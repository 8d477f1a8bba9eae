package redfishsim

import (
	"net/http"
	"slices"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// bootFields are the override as a system or settings object shows it.
func (s *Server) bootFields() obj {
	ov := s.m.BootOverride()
	b := obj{
		"BootSourceOverrideTarget": ov.Target, "BootSourceOverrideEnabled": ov.Enabled,
		"BootSourceOverrideTarget@Redfish.AllowableValues": s.p.BootTargets,
	}
	if s.p.Name == "Lenovo" {
		b["BootSourceOverrideEnabled@Redfish.AllowableValues"] = s.p.BootEnabled
	}
	if s.p.BootMode {
		b["BootSourceOverrideMode"] = ov.Mode
		if ov.Mode == "" {
			b["BootSourceOverrideMode"] = "UEFI"
		}
	}
	return b
}

func (s *Server) bootOrder() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := s.order
	if order == nil {
		order = []string{"Boot0000", "Boot0001", "Boot0002"}
	}
	for _, e := range s.m.BootEntries() { // firmware puts what it finds new last
		if !slices.Contains(order, e) {
			order = append(slices.Clone(order), e)
		}
	}
	return order
}

func (s *Server) inPOST() bool { return s.m.Power() == simhw.PoweringOn }

// patchBoot applies the Boot object of a PATCH; nil when it was applied.
// viaSettings says that it came to the settings object.
func (s *Server) patchBoot(c *call, v any, viaSettings bool) *reply {
	refuse := func(status int, id, text string, args ...string) *reply {
		rep := s.fail(status, id, text, args...)
		return &rep
	}
	b, ok := v.(obj)
	if !ok {
		return refuse(http.StatusBadRequest, "PropertyValueTypeError", "Boot must be an object.", "Boot")
	}
	if s.p.PostLock && s.inPOST() || s.take(FaultPOST, c) != nil {
		return refuse(http.StatusBadRequest, "UnableToModifyDuringSystemPOST", "Unable to make changes while the system is in POST. Retry after POST is complete.")
	}
	if s.p.Settings == SettingsOnly && !viaSettings {
		return refuse(http.StatusBadRequest, "OperationSupportedInFutureStateURI", "The property Boot can only be written at the settings object "+s.settingsPath()+".", s.settingsPath())
	}
	next := s.m.BootOverride()
	for k, v := range b {
		if rep := s.bootProperty(&next, k, v, viaSettings); rep != nil {
			return rep
		}
	}
	if order, ok := b["BootOrder"].([]any); ok {
		s.setOrder(order)
	}
	if s.take(FaultIgnoredOverride, c) != nil {
		return nil
	}
	if !overrides(b) {
		return nil
	}
	_, hasEnabled := b["BootSourceOverrideEnabled"]
	_, hasMode := b["BootSourceOverrideMode"]
	if s.p.BootNeedsAll && !(hasEnabled && hasMode) && next.Enabled != "Disabled" {
		next.Enabled = "Disabled" // taken with 200, then gone: what the vendor does to a partial PATCH
	}
	if next.Enabled == "Disabled" || next.Target == "None" {
		next.Enabled, next.Target = "Disabled", "None"
	}
	s.m.SetBootOverride(next)
	return nil
}

func overrides(b obj) bool {
	for k := range b {
		if strings.HasPrefix(k, "BootSourceOverride") {
			return true
		}
	}
	return false
}

// bootProperty checks one property and puts it into next.
func (s *Server) bootProperty(next *simhw.Override, k string, v any, viaSettings bool) *reply {
	refuse := func(id, text string) *reply {
		rep := s.fail(http.StatusBadRequest, id, text, k)
		return &rep
	}
	pending := s.p.Settings == SettingsPending && viaSettings
	word, isWord := v.(string)
	allowed := map[string][]string{
		"BootSourceOverrideTarget": s.p.BootTargets, "BootSourceOverrideEnabled": s.p.BootEnabled,
		"BootSourceOverrideMode": {"UEFI", "Legacy"},
	}
	switch values, known := allowed[k]; {
	case k == "BootOrder":
		if _, ok := v.([]any); !ok {
			return refuse("PropertyValueTypeError", "The property BootOrder must be a list.")
		}
	case !known, pending, k == "BootSourceOverrideMode" && !s.p.BootMode:
		return refuse("PropertyUnknown", "The property "+k+" is not in the list of valid properties for the resource.")
	case !isWord:
		return refuse("PropertyValueTypeError", "The value of the property "+k+" is of a different type than the property can accept.")
	case !s.p.allows(values, word):
		return refuse("PropertyValueNotInList", "The value "+word+" for the property "+k+" is not in the list of acceptable values.")
	case k == "BootSourceOverrideTarget":
		next.Target = word
	case k == "BootSourceOverrideEnabled":
		next.Enabled = word
	default:
		next.Mode = word
	}
	return nil
}

func (s *Server) setOrder(order []any) {
	var ids []string
	for _, e := range order {
		if id, ok := e.(string); ok {
			ids = append(ids, id)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = ids
}

func (s *Server) settingsPath() string { return s.systemPath() + "/" + s.p.SettingsName }

// settings is the settings object of the system.
func (s *Server) settings() obj {
	o := resource(s.settingsPath(), "ComputerSystem.v1_11_0.ComputerSystem", s.p.SettingsName, "Pending Settings")
	boot := obj{"BootOrder": s.bootOrder()}
	if s.p.Settings != SettingsPending {
		for k, v := range s.bootFields() {
			boot[k] = v
		}
	}
	o["Boot"] = boot
	return o
}

func (s *Server) patchSettings(c *call, n *node, o obj) reply {
	for k := range o {
		if k != "Boot" {
			return s.fail(http.StatusBadRequest, "PropertyUnknown", "The property "+k+" is not in the list of valid properties for the resource.", k)
		}
	}
	if rep := s.patchBoot(c, o["Boot"], true); rep != nil {
		return *rep
	}
	return s.patched(n)
}
