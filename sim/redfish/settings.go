package redfishsim

import (
	"net/http"
	"slices"
	"strings"
)

// settingsNodes are what root on the machine could change in the BMC, or through it: Secure Boot,
// and the interface between the machine's own system and the BMC.
func (s *Server) settingsNodes(t map[string]*node) {
	secure := s.systemPath() + "/SecureBoot"
	add(t, secure, func() obj {
		o := resource(secure, "SecureBoot.v1_1_0.SecureBoot", "SecureBoot", "UEFI Secure Boot")
		o["SecureBootEnable"], o["SecureBootMode"], o["SecureBootCurrentBoot"] = true, "UserMode", "Enabled"
		return o
	})
	base := s.managerPath() + "/HostInterfaces"
	path := base + "/1"
	n := add(t, path, func() obj {
		s.mu.Lock()
		defer s.mu.Unlock()
		o := resource(path, "HostInterface.v1_3_0.HostInterface", "1", "Host Interface")
		o["HostInterfaceType"], o["InterfaceEnabled"] = "NetworkHostInterface", !s.hostOff
		return o
	})
	n.patch = func(_ *call, o obj) reply {
		on, ok := o["InterfaceEnabled"].(bool)
		if !ok || len(o) != 1 {
			return s.fail(http.StatusBadRequest, "PropertyUnknown", "Only InterfaceEnabled can be written.", "InterfaceEnabled")
		}
		s.mu.Lock()
		s.hostOff = !on
		s.mu.Unlock()
		return s.patched(n)
	}
	addCollection(t, base, "HostInterfaceCollection", "Host Interfaces", func() []string { return []string{"1"} })
}

// SetDirectory has the BMC accept the accounts of an LDAP server, "" of none.
func (s *Server) SetDirectory(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.directory = address
}

// directoryServers must run under mu.
func (s *Server) directoryServers() []string {
	if s.directory == "" {
		return []string{}
	}
	return []string{s.directory}
}

// PlantMedia inserts an image into the first slot, as somebody does who knows a login of the BMC.
func (s *Server) PlantMedia(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.media[s.p.Media[0].ID] = mediaState{image: image}
}

// SetFirmware gives a component of the firmware inventory another version, as a tenant does who
// flashes it.
func (s *Server) SetFirmware(component, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flashed == nil {
		s.flashed = map[string]string{}
	}
	s.flashed[component] = version
}

// firmwareVersion returns the version that a component has now.
func (s *Server) firmwareVersion(component, shipped string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.flashed[component]; v != "" {
		return v
	}
	return shipped
}

// AddAccount adds an account of an administrator, as root on the machine does by the BMC's own
// channel.
func (s *Server) AddAccount(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		if !a.main && a.user == "" {
			a.user, a.password, a.role, a.enabled = user, password, "Administrator", true
			return
		}
	}
	s.nextID++
	s.accounts = append(s.accounts, &account{id: "t" + itoa(s.nextID), user: user, password: password, role: "Administrator", enabled: true})
}

// RemoveAccount removes an account that AddAccount added.
func (s *Server) RemoveAccount(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.accounts {
		switch {
		case a.main || a.user != user:
		case strings.HasPrefix(a.id, "t"):
			s.accounts = slices.Delete(s.accounts, i, i+1)
			return
		default: // a slot of the BMC's, which stays
			a.user, a.password, a.role, a.enabled = "", "", "", false
			return
		}
	}
}

// SetBootOrder replaces the order of boot.
func (s *Server) SetBootOrder(order ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = order
}
