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

// onRequest is the kind of the faults that replace an answer.
const onRequest = 1

func faultTable() map[string]simcontrol.FaultSpec {
	return map[string]simcontrol.FaultSpec{
		FaultInternalError: {Kind: onRequest, Phase: simcontrol.After, Detail: "500 without a type"},
		FaultUnavailable:   {Kind: onRequest, Phase: simcontrol.Before, Detail: "503 without a type"},
		FaultRateLimited:   {Kind: onRequest, Phase: simcontrol.Before, Detail: "429 with an empty body"},
		FaultReset:         {Kind: onRequest, Phase: simcontrol.After, Detail: "the connection is cut"},
		FaultForbidden:     {Kind: onRequest, Phase: simcontrol.Before, Detail: "403, as of a key without the right"},
		FaultUnauthorized:  {Kind: onRequest, Phase: simcontrol.Before, Detail: "401, as of a key that was revoked"},

		FaultQuota:         {Detail: "create_server or server_action: a quota is used up; `form` old has the older body"},
		FaultOutOfStock:    {Detail: "server_action: a start finds no free machine"},
		FaultFallsBack:     {Detail: "server_action: a start is accepted, and the server falls back to stopped"},
		FaultListLag:       {Detail: "create_server: lists show the new server only after `delay` (virtual, default 1m)"},
		FaultNoAddress:     {Detail: "boot: the server gets no address"},
		FaultGroupSyncing:  {Detail: "create_group: the group is syncing for ever"},
		FaultVolumeStuck:   {Detail: "update_volume: a volume that grows is updating for ever"},
		FaultVolumeError:   {Detail: "update_volume: a volume that grows ends in error"},
		FaultStuckStopping: {Detail: "server_action: a server that stops is stopping for ever"},
	}
}

// Fault is one line of the script. Op is a call such as create_server.
type Fault = simcontrol.Fault

func (s *Server) script() simcontrol.Script {
	return simcontrol.Script{Lock: &s.mu, Specs: faultTable(), Selector: "tag", CheckParam: func(_, name, value string) error {
		if _, err := time.ParseDuration(value); name != "form" && (name != "delay" || err != nil) {
			return fmt.Errorf("parameter %s=%q is unknown: use delay=30s or form=old", name, value)
		}
		return nil
	}}
}

// ClearFaults removes one line, or all when id is 0. An action that a cleared fault holds back goes
// on.
func (s *Server) ClearFaults(id int) {
	s.Script.ClearFaults(id)
	s.mu.Lock()
	defer s.mu.Unlock()
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

func isFor(f *Fault, r *request) bool {
	return (f.Op == "" || f.Op == r.op) && (f.Tag == "" || slices.Contains(r.about, f.Tag))
}

// tagsOf returns the tags of what a request is about: those that it gives or filters by, and those
// of the thing that its path names, with those of the server that a volume is attached to.
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
	return s.Take(func(f *Fault, spec simcontrol.FaultSpec) bool {
		return spec.Kind == onRequest && f.Phase == phase && isFor(f, r)
	})
}

// takeState applies a fault of a name that is due, once.
func (s *Server) takeState(name string, r *request) *Fault {
	return s.Take(func(f *Fault, _ simcontrol.FaultSpec) bool { return f.Name == name && isFor(f, r) })
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

// Act is something that happens at the provider without us: delete_server takes a server away, lock
// keeps it from being changed, unlock ends that, attach_volume gives it a volume of somebody else,
// orphan makes a server with the tags given that nobody asked for.
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
	simcontrol.HandleFaults(mux, s)
	simcontrol.HandleClock(mux, s.clock)
	simcontrol.HandleView(mux, "/_sim/billed", func() any { return s.Billed() })
	simcontrol.HandleView(mux, "/_sim/counters", func() any { return s.Counts() })
	simcontrol.HandleAct(mux, "/_sim/acts", s.Do)
	return mux
}
