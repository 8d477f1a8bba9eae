package maassim

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Addresses are where a started region listens.
type Addresses struct{ API, Admin string }

// Start serves the API and the scenario port until stop is called or ctx ends.
func (s *Server) Start(ctx context.Context, api, admin string) (Addresses, func(), error) {
	var lc net.ListenConfig
	a, err := lc.Listen(ctx, "tcp", api)
	if err != nil {
		return Addresses{}, nil, err
	}
	b, err := lc.Listen(ctx, "tcp", admin)
	if err != nil {
		_ = a.Close()
		return Addresses{}, nil, err
	}
	servers := []*http.Server{
		{Handler: s.API(), ReadHeaderTimeout: 10 * time.Second}, {Handler: s.AdminAPI(), ReadHeaderTimeout: 10 * time.Second},
	}
	for i, l := range []net.Listener{a, b} {
		go func() { _ = servers[i].Serve(l) }() // ends with Close
	}
	stop := func() {
		s.Close()
		for _, srv := range servers {
			_ = srv.Close()
		}
	}
	context.AfterFunc(ctx, stop)
	return Addresses{a.Addr().String(), b.Addr().String()}, stop, nil
}

// AdminAPI is the scenario port: it has no login and belongs on loopback.
func (s *Server) AdminAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sim/counters", func(w http.ResponseWriter, _ *http.Request) { send(w, 200, s.Counters()) })
	mux.HandleFunc("GET /_sim/history", func(w http.ResponseWriter, _ *http.Request) { send(w, 200, s.History()) })
	mux.HandleFunc("GET /_sim/state", func(w http.ResponseWriter, _ *http.Request) { send(w, 200, s.State()) })
	mux.HandleFunc("GET /_sim/fault-names", func(w http.ResponseWriter, _ *http.Request) { send(w, 200, FaultNames()) })
	mux.HandleFunc("GET /_sim/faults/", func(w http.ResponseWriter, _ *http.Request) { send(w, 200, s.Faults()) })
	mux.HandleFunc("POST /_sim/faults/", s.addFault)
	mux.HandleFunc("DELETE /_sim/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, _ := strconv.Atoi(r.PathValue("id"))
		s.ClearFaults(id)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_sim/faults/", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults(0)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_sim/clock/step", s.stepClock)
	return mux
}

func send(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that went away is the client's matter
}

func (s *Server) addFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&f); err != nil {
		send(w, 400, map[string]string{"error": err.Error()})
		return
	}
	id, err := s.AddFault(f)
	if err != nil {
		send(w, 400, map[string]string{"error": err.Error()})
		return
	}
	send(w, 201, map[string]int{"id": id})
}

func (s *Server) stepClock(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("by"))
	if err != nil || d <= 0 {
		send(w, 400, map[string]string{"error": "by must be a duration, for example ?by=5m"})
		return
	}
	s.fleet.Clock().Step(d)
	send(w, 200, map[string]any{"now": s.now()})
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
