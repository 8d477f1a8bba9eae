package stripesim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// Phases of a fault of a request.
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

const (
	ofRequest  = iota // replaces an answer
	ofObject          // changes what an object says
	ofEvent           // changes an event as it is made
	ofDelivery        // changes one delivery
)

func faultTable() map[string]simcontrol.FaultSpec {
	return map[string]simcontrol.FaultSpec{
		FaultInternalError: {Kind: ofRequest, Phase: After, Detail: "500; after the effect it is stored with the idempotency key and replayed"},
		FaultUnavailable:   {Kind: ofRequest, Phase: Before, Detail: "503 with Retry-After: `retry_after` (default 3, 0 for none)"},
		FaultRateLimited:   {Kind: ofRequest, Phase: Before, Detail: "429 rate_limit"},
		FaultKeyInUse:      {Kind: ofRequest, Phase: Before, Detail: "409 idempotency_key_in_use"},
		FaultReset:         {Kind: ofRequest, Phase: Before, Detail: "the connection is cut"},
		FaultTimeout:       {Kind: ofRequest, Phase: After, Detail: "no answer for delay (default 30s), then the connection is cut"},
		FaultTruncated:     {Kind: ofRequest, Phase: After, Detail: "half of the body"},
		FaultRedirect:      {Kind: ofRequest, Phase: Before, Detail: "301 to another host"},
		FaultUnauthorized:  {Kind: ofRequest, Phase: Before, Detail: "401, as for a key that was rolled"},
		FaultForbidden:     {Kind: ofRequest, Phase: Before, Detail: "403, as for a restricted key without the right"},
		FaultHTML:          {Kind: ofRequest, Phase: Before, Detail: "502 with HTML, as a proxy answers"},
		FaultAmount:        {Kind: ofObject, Phase: Before, Detail: "a session says amount_total + by (default 1)"},

		FaultEventNotGenerated: {Kind: ofEvent, Phase: Before, Detail: "the event never exists, in the list neither"},
		FaultEventAmount:       {Kind: ofEvent, Phase: Before, Detail: "the object in the event says amount + by (default 1), with a valid signature"},
		FaultEventVersion:      {Kind: ofEvent, Phase: Before, Detail: "the event is of the release `version` (default 2025-11-17.clover)"},
		FaultDrop:              {Kind: ofDelivery, Phase: Before, Detail: "the delivery is never made; the event stays undelivered"},
		FaultDuplicate:         {Kind: ofDelivery, Phase: Before, Detail: "the delivery comes `copies` (default 2) times"},
		FaultDelay:             {Kind: ofDelivery, Phase: Before, Detail: "the delivery comes after delay (virtual, default 1m)"},
		FaultReorder:           {Kind: ofDelivery, Phase: Before, Detail: "the delivery waits until the next one has been made"},
		FaultBadSignature:      {Kind: ofDelivery, Phase: Before, Detail: "signed with another secret"},
		FaultBody:              {Kind: ofDelivery, Phase: Before, Detail: "the body is changed after it was signed"},
		FaultStale:             {Kind: ofDelivery, Phase: Before, Detail: "signed `by` (default 24h) ago"},
		FaultFuture:            {Kind: ofDelivery, Phase: Before, Detail: "signed `by` (default 24h) ahead"},
	}
}

// Fault is one line of the script. Op is an endpoint such as create_session, or a type of event.
// Faults of requests alone have a phase.
type Fault = simcontrol.Fault

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

// ClearFaults removes one line, or all when id is 0. The events that a fault holds back are
// delivered.
func (s *Server) ClearFaults(id int) {
	s.Script.ClearFaults(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseHeld()
}

// take applies the first line of this kind and op that is due, once. Faults of requests are due in
// their phase.
func (s *Server) take(kind int, op, phase string, without ...string) *Fault {
	return s.Take(func(f *Fault, spec simcontrol.FaultSpec) bool {
		return spec.Kind == kind && (f.Op == "" || f.Op == op) && (kind != ofRequest || f.Phase == phase) && !slices.Contains(without, f.Name)
	})
}

// takeRequestFault is take for a request, without the faults named: a replay meets those of the
// network alone.
func (s *Server) takeRequestFault(op, phase string, without ...string) *Fault {
	return s.take(ofRequest, op, phase, without...)
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
		if seconds := f.Number("retry_after", 3); seconds > 0 {
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
		timer := time.NewTimer(f.Duration("delay", 30*time.Second))
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
