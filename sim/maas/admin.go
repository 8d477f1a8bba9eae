package maassim

import (
	"fmt"
	"maps"
	"net/http"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// View is one record in the form that tests need. It has no power credentials and no user-data.
type View struct {
	SystemID    string      `json:"system_id"`
	Hostname    string      `json:"hostname"`
	Status      Status      `json:"status"`
	StatusName  string      `json:"status_name"`
	Owner       string      `json:"owner"`
	PowerState  string      `json:"power_state"`
	Locked      bool        `json:"locked"`
	Error       string      `json:"error,omitempty"`
	BootDisk    string      `json:"boot_disk"` // name; "" = null
	RootDisk    string      `json:"root_disk"` // physical disk below "/"
	HWSync      bool        `json:"enable_hw_sync"`
	SyncAgent   bool        `json:"sync_agent"` // the node has the units
	SyncHealthy bool        `json:"sync_healthy"`
	LastSync    time.Time   `json:"last_sync"`
	Fleet       string      `json:"fleet_id"` // of the physical machine; "" = unknown
	Hardware    simhw.Power `json:"hardware_power"`

	OwnerData map[string]string `json:"owner_data,omitempty"`
}

// Machine returns one record by system_id, hostname or MAC.
func (s *Server) Machine(sel string) (View, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(sel)
	if m == nil {
		return View{}, false
	}
	return s.view(m), true
}

// Machines lists all records, oldest first.
func (s *Server) Machines() []View {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []View{}
	for _, m := range s.machines {
		out = append(out, s.view(m))
	}
	return out
}

func (s *Server) view(m *machine) View {
	v := View{
		SystemID: m.id, Hostname: m.hostname, Status: m.status, StatusName: m.status.String(), Owner: m.owner, PowerState: m.powerState,
		OwnerData: maps.Clone(m.ownerData),
		Locked:    m.locked, Error: m.errorText, HWSync: m.hwSync, SyncAgent: m.syncAgent, SyncHealthy: m.syncHealthy, LastSync: m.lastSync,
	}
	if d := m.diskByID(m.bootDisk); d != nil {
		v.BootDisk = d.name
	}
	if d := m.mounted("/"); d != nil {
		v.RootDisk = d.name
	}
	for _, n := range m.nics {
		if hw := s.fleet.ByMAC(n.mac); hw != nil && v.Fleet == "" {
			v.Fleet, v.Hardware = hw.Spec().ID, hw.Power()
		}
	}
	return v
}

// RevokeToken makes every further request fail with 401 until ClearFaults(0).
func (s *Server) RevokeToken() { s.mu.Lock(); defer s.mu.Unlock(); s.revoked = true }

// AdminAPI is scenario control. It has no authentication: bind it to loopback.
//
//	GET    /_sim/faults/            the script; GET /_sim/fault-names lists what there is
//	POST   /_sim/faults/            a Fault as JSON -> 201 {"id": n}
//	DELETE /_sim/faults/{id}        one line; DELETE /_sim/faults/ all and the revocation
//	GET    /_sim/state              every record as the API shows it
//	GET    /_sim/machines           every record with its physical machine
//	GET    /_sim/history            every status change with its cause
//	GET    /_sim/counters           effects and requests
//	GET    /_sim/clock              {"now", "speed"}; POST /_sim/clock/step?by=10m steps it
//	POST   /_sim/external           {"act": ..., "machine": ...}: another operator
//	POST   /_sim/hwsync             {"machine": system_id, "healthy": bool}
//	POST   /_sim/revoke-token
func (s *Server) AdminAPI() http.Handler {
	mux := http.NewServeMux()
	simcontrol.HandleView(mux, "/_sim/counters", func() any { return s.Counters() })
	simcontrol.HandleView(mux, "/_sim/history", func() any { return s.History() })
	simcontrol.HandleView(mux, "/_sim/state", func() any { return s.State() })
	simcontrol.HandleView(mux, "/_sim/machines", func() any { return s.Machines() })
	simcontrol.HandleFaults(mux, s)
	simcontrol.HandleClock(mux, s.fleet.Clock())
	simcontrol.HandleAct(mux, "/_sim/external", func(in struct{ Act, Machine string }) error { return s.External(in.Act, in.Machine) })
	simcontrol.HandleAct(mux, "/_sim/hwsync", func(in struct {
		Machine string
		Healthy bool
	},
	) error {
		if !s.SetHWSyncAgent(in.Machine, in.Healthy) {
			return fmt.Errorf("machine %q: %w", in.Machine, ErrNoEffect)
		}
		return nil
	})
	mux.HandleFunc("POST /_sim/revoke-token", func(w http.ResponseWriter, _ *http.Request) {
		s.RevokeToken()
		simcontrol.Answer(w, map[string]bool{"revoked": true}, nil)
	})
	return mux
}

// State returns every record as the API shows it, without power parameters.
func (s *Server) State() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []map[string]any{}
	for _, m := range s.machines {
		out = append(out, s.machineJSON(m))
	}
	return out
}
