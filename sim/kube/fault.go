package kubesim

import (
	"fmt"
	"net/http"
	"slices"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// The faults. Those of requests replace an answer; the others are a state of the cluster while they are on.
const (
	FaultInternalError = "internal_error"
	FaultUnavailable   = "unavailable"
	FaultTooMany       = "too_many_requests"
	FaultReset         = "connection_reset"
	FaultForbidden     = "forbidden"
	FaultUnauthorized  = "unauthorized"

	FaultUnsigned   = "cluster_info_unsigned"
	FaultWrongCA    = "cluster_info_wrong_ca"
	FaultCSRPending = "csr_pending"
	FaultCSRDenied  = "csr_denied"
	FaultNotReady   = "node_not_ready"
	FaultSilent     = "kubelet_silent"
	FaultBudget     = "disruption_budget"
)

type faultSpec struct {
	request bool   // it replaces an answer
	phase   string // its own
	detail  string
}

func faultTable() map[string]faultSpec {
	return map[string]faultSpec{
		FaultInternalError: {true, simcontrol.After, "500"},
		FaultUnavailable:   {true, simcontrol.Before, "503"},
		FaultTooMany:       {true, simcontrol.Before, "429 with Retry-After"},
		FaultReset:         {true, simcontrol.After, "the connection is cut"},
		FaultForbidden:     {true, simcontrol.Before, "403, as of a right that was taken away"},
		FaultUnauthorized:  {true, simcontrol.Before, "401, as of a login that was revoked"},

		FaultUnsigned:   {false, "", "nothing signs cluster-info"},
		FaultWrongCA:    {false, "", "cluster-info has the CA of another cluster"},
		FaultCSRPending: {false, "", "nothing approves requests for certificates"},
		FaultCSRDenied:  {false, "", "requests for certificates are denied"},
		FaultNotReady:   {false, "", "nodes do not become Ready: they have no network plugin"},
		FaultSilent:     {false, "", "kubelets send no heartbeats"},
		FaultBudget:     {false, "", "a disruption budget forbids each eviction"},
	}
}

// Fault is one line of the script.
type Fault struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	// Op narrows a fault of requests to a verb and a resource, such as "create secrets"; "" is any.
	Op string `json:"op,omitempty"`
	// Count is how often a fault of requests is applied; 0 is once, -1 until it is cleared.
	Count   int    `json:"count,omitempty"`
	Phase   string `json:"phase,omitempty"`
	Applied int    `json:"applied"`

	other []byte // of another CA
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

// ClearFaults removes one line, or all when id is 0.
func (s *Server) ClearFaults(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return id == 0 || f.ID == id })
}

// take applies the first fault of a request that is due in this phase, once.
func (s *Server) take(op, phase string) *Fault {
	for _, f := range s.faults {
		if faultTable()[f.Name].request && f.Phase == phase && (f.Count < 0 || f.Applied < f.Count) && (f.Op == "" || f.Op == op) {
			f.Applied++
			return f
		}
	}
	return nil
}

// active returns a fault of the cluster's state that is on, nil for none.
func (s *Server) active(name string) *Fault {
	for _, f := range s.faults {
		if f.Name == name {
			f.Applied++
			return f
		}
	}
	return nil
}

// misbehave answers as a fault says.
func (s *Server) misbehave(w http.ResponseWriter, c *call, f *Fault) {
	var err error
	switch f.Name {
	case FaultInternalError:
		err = refuse(http.StatusInternalServerError, "InternalError", "Internal error occurred: etcdserver: request timed out")
	case FaultUnavailable:
		err = refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "the server is currently unable to handle the request")
	case FaultTooMany:
		err = &status{http.StatusTooManyRequests, "TooManyRequests", "too many requests", 1}
	case FaultForbidden:
		err = refuse(http.StatusForbidden, "Forbidden", "%s is forbidden", c.resource)
	case FaultUnauthorized:
		err = refuse(http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	default:
		panic(http.ErrAbortHandler)
	}
	s.answer(w, c, 0, nil, err)
}

// AdminAPI is scenario control. It has no login.
func (s *Server) AdminAPI() http.Handler {
	mux := http.NewServeMux()
	simcontrol.HandleFaults[Fault](mux, s, FaultNames)
	simcontrol.HandleView(mux, "/_sim/tokens", func() any { return s.Tokens() })
	simcontrol.HandleView(mux, "/_sim/requests", func() any { return s.Requests() })
	return mux
}
