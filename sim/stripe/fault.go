package stripesim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// Phases of a fault of a request: before the effect, or after it.
const (
	Before = simcontrol.Before
	After  = simcontrol.After
)

// The faults. Those of requests replace an answer, those of events change what becomes of an event.
const (
	FaultInternalError = "internal_error"
	FaultUnavailable   = "unavailable"
	FaultRateLimited   = "rate_limited"
	FaultKeyInUse      = "key_in_use"
	FaultReset         = "connection_reset"
	FaultTimeout       = "timeout"
	FaultTruncated     = "truncated_json"
	FaultRedirect      = "redirect_301"
	FaultUnauthorized  = "unauthorized"
	FaultForbidden     = "forbidden"
	FaultHTML          = "html_of_proxy"
	FaultAmount        = "amount_tampered"

	FaultEventNotGenerated = "event_not_generated"
	FaultEventAmount       = "event_amount_tampered"
	FaultEventVersion      = "event_other_version"
	FaultDrop              = "delivery_dropped"
	FaultDuplicate         = "delivery_duplicated"
	FaultDelay             = "delivery_delayed"
	FaultReorder           = "delivery_reordered"
	FaultBadSignature      = "delivery_bad_signature"
	FaultBody              = "delivery_body_tampered"
	FaultStale             = "delivery_stale"
	FaultFuture            = "delivery_future"
)

type faultKind int

const (
	ofRequest  faultKind = iota // replaces an answer
	ofObject                    // changes what an object says
	ofEvent                     // changes an event as it is made
	ofDelivery                  // changes one delivery
)

type faultSpec struct {
	kind   faultKind
	phase  string
	detail string
}

func faultTable() map[string]faultSpec {
	return map[string]faultSpec{
		FaultInternalError: {ofRequest, After, "500; after the effect it is stored with the idempotency key and replayed"},
		FaultUnavailable:   {ofRequest, Before, "503 with Retry-After: `retry_after` (default 3, 0 for none)"},
		FaultRateLimited:   {ofRequest, Before, "429 rate_limit"},
		FaultKeyInUse:      {ofRequest, Before, "409 idempotency_key_in_use"},
		FaultReset:         {ofRequest, Before, "the connection is cut"},
		FaultTimeout:       {ofRequest, After, "no answer for delay (default 30s), then the connection is cut"},
		FaultTruncated:     {ofRequest, After, "half of the body"},
		FaultRedirect:      {ofRequest, Before, "301 to another host"},
		FaultUnauthorized:  {ofRequest, Before, "401, as for a key that was rolled"},
		FaultForbidden:     {ofRequest, Before, "403, as for a restricted key without the right"},
		FaultHTML:          {ofRequest, Before, "502 with HTML, as a proxy answers"},
		FaultAmount:        {ofObject, Before, "a session says amount_total + by (default 1)"},

		FaultEventNotGenerated: {ofEvent, Before, "the event never exists, in the list neither"},
		FaultEventAmount:       {ofEvent, Before, "the object in the event says amount + by (default 1), with a valid signature"},
		FaultEventVersion:      {ofEvent, Before, "the event is of the release `version` (default 2025-11-17.clover)"},
		FaultDrop:              {ofDelivery, Before, "the delivery is never made; the event stays undelivered"},
		FaultDuplicate:         {ofDelivery, Before, "the delivery comes `copies` (default 2) times"},
		FaultDelay:             {ofDelivery, Before, "the delivery comes after delay (virtual, default 1m)"},
		FaultReorder:           {ofDelivery, Before, "the delivery waits until the next one has been made"},
		FaultBadSignature:      {ofDelivery, Before, "signed with another secret"},
		FaultBody:              {ofDelivery, Before, "the body is changed after it was signed"},
		FaultStale:             {ofDelivery, Before, "signed `by` (default 24h) ago"},
		FaultFuture:            {ofDelivery, Before, "signed `by` (default 24h) ahead"},
	}
}

// Fault is one line of the script.
type Fault struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	// Op narrows the fault to an endpoint such as create_session, or to a type of event; "" is any.
	Op string `json:"op,omitempty"`
	// Count is how often it is applied; 0 is once, -1 until it is cleared.
	Count int `json:"count,omitempty"`
	// Phase is before_commit or after_commit, for faults of requests; "" takes the fault's own.
	Phase string `json:"phase,omitempty"`
	// Params refine a fault: delay, by, copies, retry_after, version.
	Params  map[string]string `json:"params,omitempty"`
	Applied int               `json:"applied"` // how often it was applied so far
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
		if err := checkFaultParam(f.Name, name, value); err != nil {
			return 0, err
		}
	}
	if f.Count == 0 {
		f.Count = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Faults++
	f.ID, f.Applied = s.counts.Faults, 0
	s.faults = append(s.faults, &f)
	return f.ID, nil
}

func checkFaultParam(fault, name, value string) error {
	isTime := name == "delay" || name == "by" && (fault == FaultStale || fault == FaultFuture)
	switch {
	case isTime:
		if d, err := time.ParseDuration(value); err != nil || d <= 0 {
			return fmt.Errorf("%s %q is no duration such as 30s", name, value)
		}
	case name == "by", name == "copies", name == "retry_after":
		if n, err := strconv.ParseInt(value, 10, 32); err != nil || name == "copies" && (n < 1 || n > 1000) {
			return fmt.Errorf("%s %q is no number that the fault takes", name, value)
		}
	case name != "version":
		return fmt.Errorf("parameter %q is unknown: use delay, by, copies, retry_after or version", name)
	}
	return nil
}

// Faults lists the script, spent lines included.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simcontrol.ValuesOf(s.faults)
}

// ClearFaults removes one line, or all when id is 0. What a fault holds back is delivered.
func (s *Server) ClearFaults(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return id == 0 || f.ID == id })
	s.releaseHeld()
}

// take applies the first line of this kind and op that is due, once. Faults of requests are due in
// their phase.
func (s *Server) take(kind faultKind, op, phase string, without ...string) *Fault {
	for _, f := range s.faults {
		spec := faultTable()[f.Name]
		switch {
		case spec.kind != kind, f.Count >= 0 && f.Applied >= f.Count, f.Op != "" && f.Op != op:
		case kind == ofRequest && f.Phase != phase, slices.Contains(without, f.Name):
		default:
			f.Applied++
			return f
		}
	}
	return nil
}

// takeRequestFault is take for a request, without the faults named: a replay meets those of the
// network alone.
func (s *Server) takeRequestFault(op, phase string, without ...string) *Fault {
	return s.take(ofRequest, op, phase, without...)
}

func (f *Fault) duration(name string, fallback time.Duration) time.Duration {
	if d, err := time.ParseDuration(f.Params[name]); err == nil {
		return d
	}
	return fallback
}

func (f *Fault) number(name string, fallback int64) int64 {
	if n, err := strconv.ParseInt(f.Params[name], 10, 64); err == nil {
		return n
	}
	return fallback
}

// applyRequestFault answers in place of the endpoint. It reports whether the request is answered.
func (s *Server) applyRequestFault(w http.ResponseWriter, r *http.Request, f *Fault, requestID string, body []byte) bool {
	fail := func(status int, kind, code, message string) {
		e := &apiError{status: status, kind: kind, code: code, message: message}
		w.WriteHeader(status)
		_, _ = w.Write(encode(e.object(requestID)))
	}
	switch f.Name {
	case FaultInternalError:
		fail(http.StatusInternalServerError, kindAPI, "", internalError(0).message)
	case FaultUnavailable:
		if seconds := f.number("retry_after", 3); seconds > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
		}
		fail(http.StatusServiceUnavailable, kindAPI, "", "Stripe is temporarily unavailable.")
	case FaultRateLimited:
		fail(http.StatusTooManyRequests, kindInvalid, "rate_limit", "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits.")
	case FaultKeyInUse:
		fail(http.StatusConflict, kindIdempotency, "idempotency_key_in_use", "There is currently another in-progress request using this Stripe-Idempotency-Key (that probably means you submitted twice, and the other request is still going through).")
	case FaultUnauthorized:
		fail(http.StatusUnauthorized, kindInvalid, "api_key_expired", "Expired API Key provided: "+masked(s.opt.Key))
	case FaultForbidden:
		fail(http.StatusForbidden, kindInvalid, "", "The provided key does not have the required permissions for this endpoint.")
	case FaultRedirect:
		w.Header().Set("Location", "https://192.0.2.1"+r.URL.Path)
		w.WriteHeader(http.StatusMovedPermanently)
	case FaultHTML:
		for _, name := range []string{"Idempotent-Replayed", "Original-Request", "Idempotency-Key", "Request-Id", "Stripe-Version"} {
			w.Header().Del(name) // the proxy has not heard from Stripe
		}
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<html><body><h1>502 Bad Gateway</h1></body></html>"))
	case FaultTruncated:
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body[:len(body)/2])
	case FaultTimeout:
		timer := time.NewTimer(f.duration("delay", 30*time.Second))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		case <-s.ctx.Done():
		}
		panic(http.ErrAbortHandler)
	case FaultReset:
		panic(http.ErrAbortHandler)
	default:
		return false
	}
	return true
}
