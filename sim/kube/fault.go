package kubesim

import (
	"net/http"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// The faults. Those of requests replace an answer; the others are a state of the cluster while they
// are on.
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

// onRequest is the kind of the faults that replace an answer.
const onRequest = 1

func faultTable() map[string]simcontrol.FaultSpec {
	return map[string]simcontrol.FaultSpec{
		FaultInternalError: {Kind: onRequest, Phase: simcontrol.After, Detail: "500"},
		FaultUnavailable:   {Kind: onRequest, Phase: simcontrol.Before, Detail: "503"},
		FaultTooMany:       {Kind: onRequest, Phase: simcontrol.Before, Detail: "429 with Retry-After"},
		FaultReset:         {Kind: onRequest, Phase: simcontrol.After, Detail: "the connection is cut"},
		FaultForbidden:     {Kind: onRequest, Phase: simcontrol.Before, Detail: "403, as of a right that was taken away"},
		FaultUnauthorized:  {Kind: onRequest, Phase: simcontrol.Before, Detail: "401, as of a login that was revoked"},

		FaultUnsigned:   {Detail: "nothing signs cluster-info"},
		FaultWrongCA:    {Detail: "cluster-info has the CA of another cluster"},
		FaultCSRPending: {Detail: "nothing approves requests for certificates"},
		FaultCSRDenied:  {Detail: "requests for certificates are denied"},
		FaultNotReady:   {Detail: "nodes do not become Ready: they have no network plugin"},
		FaultSilent:     {Detail: "kubelets send no heartbeats"},
		FaultBudget:     {Detail: "a disruption budget forbids each eviction"},
	}
}

// Fault is one line of the script. Op is a verb and a resource, such as "create secrets". Faults of
// the cluster's state are on until they are cleared.
type Fault = simcontrol.Fault

// take applies the first fault of a request that is due in this phase, once.
func (s *Server) take(op, phase string) *Fault {
	return s.Take(func(f *Fault, spec simcontrol.FaultSpec) bool {
		return spec.Kind == onRequest && f.Phase == phase && (f.Op == "" || f.Op == op)
	})
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
	simcontrol.HandleFaults(mux, s)
	simcontrol.HandleView(mux, "/_sim/tokens", func() any { return s.Tokens() })
	simcontrol.HandleView(mux, "/_sim/requests", func() any { return s.Requests() })
	return mux
}
