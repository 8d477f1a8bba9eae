package maassim

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// View is one record as a test wants to see it. Power credentials and user-data
// are not in it.
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
	show := func(path string, f func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { simcontrol.Answer(w, f(), nil) })
	}
	show("/_sim/counters", func() any { return s.Counters() })
	show("/_sim/history", func() any { return s.History() })
	show("/_sim/state", func() any { return s.State() })
	show("/_sim/machines", func() any { return s.Machines() })
	show("/_sim/fault-names", func() any { return FaultNames() })
	show("/_sim/faults/{$}", func() any { return s.Faults() })
	show("/_sim/clock", func() any { return s.clockView() })
	mux.HandleFunc("POST /_sim/faults/{$}", s.adminAddFault)
	mux.HandleFunc("DELETE /_sim/faults/{$}", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults(0)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_sim/faults/{id}", s.adminClear)
	mux.HandleFunc("POST /_sim/clock/step", s.adminStep)
	mux.HandleFunc("POST /_sim/external", s.adminExternal)
	mux.HandleFunc("POST /_sim/hwsync", s.adminSync)
	mux.HandleFunc("POST /_sim/revoke-token", func(w http.ResponseWriter, _ *http.Request) {
		s.RevokeToken()
		simcontrol.Answer(w, map[string]bool{"revoked": true}, nil)
	})
	return mux
}

// State is every record as the API would show it, without power parameters.
func (s *Server) State() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []map[string]any{}
	for _, m := range s.machines {
		out = append(out, s.machineJSON(m))
	}
	return out
}

func (s *Server) clockView() map[string]any {
	return map[string]any{"now": s.now(), "speed": s.fleet.Clock().Speed()}
}

func (s *Server) adminAddFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if err := simcontrol.ReadJSON(w, r, &f); err != nil {
		simcontrol.Answer(w, nil, err)
		return
	}
	id, err := s.AddFault(f)
	if err != nil {
		simcontrol.Answer(w, nil, err)
		return
	}
	simcontrol.Respond(w, http.StatusCreated, map[string]int{"id": id})
}

func (s *Server) adminClear(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || id < 1 {
		simcontrol.Answer(w, nil, errors.New("the id must be the number that adding the fault returned"))
		return
	}
	s.ClearFaults(id)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) adminStep(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("by"))
	if err != nil || d <= 0 {
		simcontrol.Answer(w, nil, errors.New("by must be a duration, for example ?by=5m"))
		return
	}
	s.fleet.Clock().Step(d)
	simcontrol.Answer(w, s.clockView(), nil)
}

func (s *Server) adminExternal(w http.ResponseWriter, r *http.Request) {
	var in struct{ Act, Machine string }
	err := simcontrol.ReadJSON(w, r, &in)
	if err == nil {
		err = s.External(in.Act, in.Machine)
	}
	simcontrol.Answer(w, map[string]bool{"done": true}, err)
}

func (s *Server) adminSync(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Machine string
		Healthy bool
	}
	err := simcontrol.ReadJSON(w, r, &in)
	if err == nil && !s.SetHWSyncAgent(in.Machine, in.Healthy) {
		err = fmt.Errorf("machine %q: %w", in.Machine, ErrNoEffect)
	}
	simcontrol.Answer(w, map[string]bool{"done": true}, err)
}
