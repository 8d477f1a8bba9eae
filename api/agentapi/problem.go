package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/internal/bounds"
)

// refusal is an answer that is not success.
type refusal struct {
	problem    protocol.Problem
	retryAfter time.Duration
	outcome    string // for the counters
}

func (r *refusal) Error() string { return r.problem.Detail }

func refuse(status int, typ, outcome, format string, args ...any) *refusal {
	return &refusal{outcome: outcome, problem: protocol.Problem{
		Type: typ, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}}
}

func (r *refusal) after(d time.Duration) *refusal { r.retryAfter = d; return r }

func invalid(format string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, protocol.ProblemInvalid, "invalid", format, args...)
}

// endpoint answers with a body or an error. An error that is no refusal is
// logged whole and answered without its text.
type endpoint func(r *http.Request) (any, error)

func (s *Server) serve(name string, e endpoint) http.HandlerFunc {
	admit := s.certificateLimit(name)
	most := s.cfg.MaxBody
	switch name {
	case "heartbeat":
	case "task_result":
		most = min(most, resultBody)
	default:
		most = min(most, smallBody)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, most)
		leave, err := admit(r)
		var body any
		if err == nil {
			defer leave()
			body, err = e(r)
		}
		if err == nil {
			s.metrics.request(name, "ok")
			writeJSON(w, http.StatusOK, "application/json", body)
			return
		}
		var ref *refusal
		if !errors.As(err, &ref) {
			ref = s.failed(r, name, err)
		}
		s.metrics.request(name, ref.outcome)
		writeProblem(w, ref)
	}
}

// failed turns an error that is no refusal into one. An outage is 503, whatever the agent asked
// for: each of its calls may be repeated.
func (s *Server) failed(r *http.Request, name string, err error) *refusal {
	if r.Context().Err() == nil {
		s.cfg.Log.ErrorContext(r.Context(), "agent request failed", "endpoint", name, "error", err)
	}
	p := problem.From(err)
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusGatewayTimeout {
		return refuse(http.StatusServiceUnavailable, protocol.ProblemUnavailable, "unavailable",
			"The server cannot say now whether this was done; repeat it, which does nothing twice.").after(time.Duration(p.RetryAfter) * time.Second)
	}
	return refuse(http.StatusInternalServerError, protocol.ProblemInternal, "internal",
		"The server could not do this now; try again later.").after(5 * time.Second)
}

func writeProblem(w http.ResponseWriter, ref *refusal) {
	if ref.retryAfter > 0 {
		secs := int((ref.retryAfter + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(secs))
	}
	writeJSON(w, ref.problem.Status, "application/problem+json", ref.problem)
}

func writeJSON(w http.ResponseWriter, status int, kind string, body any) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the status is out; a broken connection is the client's to notice
}

// smallBody is the largest body of a request that holds no report and no result, in bytes.
const smallBody = 64 << 10

// decode reads one JSON value and nothing after it. The value is cleaned, and refused where it is
// out of bounds.
func decode(r *http.Request, into any) error {
	body := bounds.NewBody(r.Body)
	raw, err := io.ReadAll(body)
	if err == nil {
		if body.HasTooManyValues() {
			return invalid("%s", bounds.TooManyValues)
		}
		if err = json.Unmarshal(raw, into); err == nil {
			if bad := bounds.Check(into); len(bad) > 0 {
				return invalid("%s %s.", bad[0].Location, bad[0].Message)
			}
			return nil
		}
	}
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return refuse(http.StatusRequestEntityTooLarge, protocol.ProblemTooLarge, "too_large",
			"The body is over the limit of %d bytes.", big.Limit)
	}
	return invalid("The body is not the JSON that this call takes.")
}
