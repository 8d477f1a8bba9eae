package redfishsim

import (
	"encoding/json"
	"net/http"
	"time"
)

// AdminHandler steers the simulator over HTTP, away from the Redfish port:
//
//	GET    /counters                          Counters
//	GET    /faults                            []Fault, as armed
//	POST   /faults                            a Fault (delay in nanoseconds)
//	DELETE /faults                            disarm all
//	POST   /health    {"path","health"}       SetHealth
//	POST   /dpu       {"index","mode"}        SetDPUMode
//	POST   /field     {"path","property","value"} SetField
//	POST   /log       {"severity","message"}  AddLogEntry
//	POST   /down      {"down":true}           the BMC stops or starts answering
//	POST   /clock     {"step":"30s"}          move the machine's clock forward
//
// It has no login: listen on a loopback address only.
func (s *Server) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /counters", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Counters()) })
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Faults()) })
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /faults", accept(s.AddFault))
	mux.HandleFunc("POST /health", accept(func(in struct{ Path, Health string }) error { return s.SetHealth(in.Path, in.Health) }))
	mux.HandleFunc("POST /dpu", accept(func(in struct {
		Index int
		Mode  string
	}) error {
		return s.SetDPUMode(in.Index, in.Mode)
	}))
	mux.HandleFunc("POST /field", accept(func(in struct {
		Path, Property string
		Value          any
	}) error {
		return s.SetField(in.Path, in.Property, in.Value)
	}))
	mux.HandleFunc("POST /log", accept(func(in struct{ Severity, Message string }) error {
		s.AddLogEntry(in.Severity, in.Message)
		return nil
	}))
	mux.HandleFunc("POST /down", accept(func(in struct{ Down bool }) error {
		s.m.SetBMCDown(in.Down)
		return nil
	}))
	mux.HandleFunc("POST /clock", accept(func(in struct{ Step string }) error {
		d, err := time.ParseDuration(in.Step)
		if err == nil {
			s.clock.Step(d)
		}
		return err
	}))
	return mux
}

// accept decodes a JSON body into T and runs f: 204, or 400 with the reason.
func accept[T any](f func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
		dec.DisallowUnknownFields()
		err := dec.Decode(&in)
		if err == nil {
			err = f(in)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
