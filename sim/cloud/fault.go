package cloudsim

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// The faults. Those of requests replace an answer; the others change what becomes of an order.
const (
	FaultInternalError = "internal_error"
	FaultUnavailable   = "unavailable"
	FaultRateLimited   = "rate_limited"
	FaultReset         = "connection_reset"
	FaultForbidden     = "forbidden"
	FaultUnauthorized  = "unauthorized"

	FaultQuota         = "quota_exceeded"
	FaultOutOfStock    = "out_of_stock"
	FaultFallsBack     = "falls_back_to_stopped"
	FaultListLag       = "list_lag"
	FaultNoAddress     = "no_address"
	FaultGroupSyncing  = "group_syncing"
	FaultVolumeStuck   = "volume_updating"
	FaultVolumeError   = "volume_error"
	FaultStuckStopping = "stuck_stopping"
)

type faultSpec struct {
	request bool   // it replaces an answer
	phase   string // its own
	op      string // the only one that it is for; "" any
	detail  string
}

func faultTable() map[string]faultSpec {
	return map[string]faultSpec{
		FaultInternalError: {true, simcontrol.After, "", "500 without a type"},
		FaultUnavailable:   {true, simcontrol.Before, "", "503 without a type"},
		FaultRateLimited:   {true, simcontrol.Before, "", "429 with an empty body"},
		FaultReset:         {true, simcontrol.After, "", "the connection is cut"},
		FaultForbidden:     {true, simcontrol.Before, "", "403, as of a key without the right"},
		FaultUnauthorized:  {true, simcontrol.Before, "", "401, as of a key that was revoked"},

		FaultQuota:         {false, "", "", "create_server or server_action: a quota is used up; `form` old has the older body"},
		FaultOutOfStock:    {false, "", "server_action", "a start finds no free machine"},
		FaultFallsBack:     {false, "", "server_action", "a start is accepted, and the server falls back to stopped"},
		FaultListLag:       {false, "", "create_server", "lists show the new server only after `delay` (virtual, default 1m)"},
		FaultNoAddress:     {false, "", "boot", "the server gets no address"},
		FaultGroupSyncing:  {false, "", "create_group", "the group is syncing for ever"},
		FaultVolumeStuck:   {false, "", "update_volume", "a volume that grows is updating for ever"},
		FaultVolumeError:   {false, "", "update_volume", "a volume that grows ends in error"},
		FaultStuckStopping: {false, "", "server_action", "a server that stops is stopping for ever"},
	}
}

// Fault is one line of the script.
type Fault struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	// Op narrows the fault to a call such as create_server; "" is any.
	Op string `json:"op,omitempty"`
	// Tag narrows it to calls about what has this tag, or is asked to get it; "" is any. A call that names
	// nothing with a tag, such as one for the types, never has it.
	Tag string `json:"tag,omitempty"`
	// Count is how often it is applied; 0 is once, -1 until it is cleared.
	Count int `json:"count,omitempty"`
	// Phase is before_commit or after_commit, for faults of requests; "" takes the fault's own.
	Phase string `json:"phase,omitempty"`
	// Params refine a fault: delay, form.
	Params  map[string]string `json:"params,omitempty"`
	Applied int               `json:"applied"`
}

// FaultNames lists the faults with a line each.
func FaultNames() map[string]string {
	out := map[string]string{}
	for name, f := range faultTable() {
		out[name] = f.detail
	}
	return out
}

// AddFault adds a line to the fault script and returns its id.
func (s *Server) AddFault(f Fault) (int, error) {
	spec, known := faultTable()[f.Name]
	if !known {
		return 0, fmt.Errorf("fault %q is unknown: see FaultNames", f.Name)
	}
	var err error
	if f.Phase, err = simcontrol.CheckPhase(f.Phase, spec.phase); err != nil {
		return 0, err
	}
	for name, value := range f.Params {
		if _, err := time.ParseDuration(value); name != "form" && (name != "delay" || err != nil) {
			return 0, fmt.Errorf("parameter %s=%q is unknown: use delay=30s or form=old", name, value)
		}
	}
	if f.Count == 0 {
		f.Count = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastFault++
	f.ID, f.Applied = s.lastFault, 0
	s.faults = append(s.faults, &f)
	return f.ID, nil
}

// Faults lists the script, spent lines included.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simcontrol.ValuesOf(s.faults)
}

// ClearFaults removes one line, or all when id is 0. What a cleared fault holds back goes on.
func (s *Server) ClearFaults(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return id == 0 || f.ID == id })
	for _, g := range s.groups {
		g.stuck = false
	}
	for _, v := range s.volumes {
		if v.stuck {
			v.stuck, v.size = false, v.wanted
		}
	}
	for _, m := range s.servers {
		if m.state == "stopping" && len(m.way) == 0 {
			m.way = []step{{at: s.clock.Now().Add(stops), state: "stopped"}}
		}
		if m.state == "running" {
			m.address = true
		}
	}
}

func (f *Fault) isDue(r *request) bool {
	return (f.Count < 0 || f.Applied < f.Count) && (f.Op == "" || f.Op == r.op) && (f.Tag == "" || slices.Contains(r.about, f.Tag))
}

// tagsOf returns the tags of what a request is about: those that it gives or filters by, and those of the
// thing that its path names, with those of the server that a volume is attached to.
func (s *Server) tagsOf(r *request) []string {
	out := r.texts("tags")
	for _, filter := range r.URL.Query()["tags"] {
		out = append(out, strings.Split(filter, ",")...)
	}
	id := r.PathValue("id")
	for _, v := range s.volumes {
		if v.id == id {
			id, out = v.server, append(out, v.tags...)
		}
	}
	for _, m := range s.servers {
		if m.id == id {
			out = append(out, m.tags...)
		}
	}
	if g := s.group(id); g != nil {
		out = append(out, g.tags...)
	}
	return out
}

// take applies the first fault of a request that is due in this phase, once.
func (s *Server) take(r *request, phase string) *Fault {
	for _, f := range s.faults {
		if faultTable()[f.Name].request && f.Phase == phase && f.isDue(r) {
			f.Applied++
			return f
		}
	}
	return nil
}

// takeState applies a fault of a name that is due, once.
func (s *Server) takeState(name string, r *request) *Fault {
	for _, f := range s.faults {
		if f.Name == name && f.isDue(r) {
			f.Applied++
			return f
		}
	}
	return nil
}

func (f *Fault) duration(name string, fallback time.Duration) time.Duration {
	if d, err := time.ParseDuration(f.Params[name]); err == nil {
		return d
	}
	return fallback
}

// misbehave answers as a fault says.
func misbehave(w http.ResponseWriter, f *Fault) {
	switch f.Name {
	case FaultInternalError:
		write(w, http.StatusInternalServerError, object{"message": "internal error"})
	case FaultUnavailable:
		write(w, http.StatusServiceUnavailable, object{"message": "service unavailable"})
	case FaultRateLimited:
		w.Header().Set("X-Envoy-Ratelimited", "true")
		w.WriteHeader(http.StatusTooManyRequests)
	case FaultForbidden:
		write(w, http.StatusForbidden, object{"type": "permissions_denied", "message": "insufficient permissions", "details": []object{{"action": "read", "resource": "instance"}}})
	case FaultUnauthorized:
		write(w, http.StatusUnauthorized, object{"type": "denied_authentication", "method": "api_key", "reason": "expired", "message": "authentication is denied"})
	default:
		panic(http.ErrAbortHandler)
	}
}

func quotaExceeded(f *Fault, resource string) error {
	if f.Params["form"] == "old" {
		return &refusal{http.StatusForbidden, object{"type": "invalid_request_error", "message": "Quota exceeded for this resource."}}
	}
	return &refusal{http.StatusForbidden, object{
		"type": "quotas_exceeded", "message": "quota(s) exceeded", "details": []object{{"resource": resource, "quota": 1, "current": 1}},
	}}
}

// Act is something that happens at the provider without us: delete_server takes a server away, lock keeps
// it from being changed, unlock ends that, attach_volume gives it a volume of somebody else, orphan makes a server with the tags given that nobody asked for.
type Act struct {
	Act  string   `json:"act"`
	ID   string   `json:"id,omitempty"`
	Tags []string `json:"tags,omitempty"`
}

// Do carries out an act.
func (s *Server) Do(a Act) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	if a.Act == "orphan" {
		now := s.clock.Now()
		s.servers = append(s.servers, &machine{
			id: newID(), name: "orphan", kind: "L4-1-24G", image: imageID, tags: a.Tags, state: "running", created: now, modified: now, listed: now, userData: map[string]string{},
		})
		return nil
	}
	i := slices.IndexFunc(s.servers, func(m *machine) bool { return m.id == a.ID })
	if i < 0 {
		return fmt.Errorf("there is no server %q: %w", a.ID, simcontrol.ErrNoEffect)
	}
	switch m := s.servers[i]; a.Act {
	case "delete_server":
		s.remove(m)
	case "lock", "unlock":
		m.locked = a.Act == "lock"
	case "attach_volume":
		v := &volume{id: newID(), name: "data", size: 10_000_000_000, created: s.clock.Now(), tags: []string{}, server: m.id}
		m.volumes = append(m.volumes, v.id)
		s.volumes = append(s.volumes, v)
	default:
		return errors.New("the act must be delete_server, lock, unlock, attach_volume or orphan")
	}
	return nil
}

// AdminAPI is scenario control. It has no login.
func (s *Server) AdminAPI() http.Handler {
	mux := http.NewServeMux()
	simcontrol.HandleFaults[Fault](mux, s, FaultNames)
	simcontrol.HandleClock(mux, s.clock)
	simcontrol.HandleView(mux, "/_sim/billed", func() any { return s.Billed() })
	simcontrol.HandleView(mux, "/_sim/counters", func() any { return s.Counts() })
	simcontrol.HandleAct(mux, "/_sim/acts", s.Do)
	return mux
}
