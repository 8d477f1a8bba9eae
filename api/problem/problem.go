// Package problem is the one place where an error becomes a status and a problem document (RFC
// 9457). Every kind has a stable type, and every document a sentence that says what to do. An error
// that is not known here is "internal error" outside and has its detail in the log alone.
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// Kind is the last part of a problem's type; it never changes its meaning.
type Kind string

// The kinds.
const (
	Malformed            Kind = "malformed"
	KeyMissing           Kind = "idempotency-key-missing"
	Unauthenticated      Kind = "unauthenticated"
	Forbidden            Kind = "forbidden"
	StepUpRequired       Kind = "step-up-required"
	NotFound             Kind = "not-found"
	MethodNotAllowed     Kind = "method-not-allowed"
	NotAcceptable        Kind = "not-acceptable"
	RequestTimeout       Kind = "request-timeout"
	Conflict             Kind = "conflict"
	LiveJob              Kind = "live-job"
	IllegalTransition    Kind = "illegal-transition"
	ActionRefused        Kind = "action-refused"
	NoCapacity           Kind = "no-capacity"
	WorkflowGone         Kind = "workflow-gone"
	KeyInFlight          Kind = "idempotency-in-flight"
	Stale                Kind = "stale"
	EventsGone           Kind = "events-gone"
	TooLarge             Kind = "too-large"
	UnsupportedMedia     Kind = "unsupported-media-type"
	Invalid              Kind = "invalid"
	KeyReused            Kind = "idempotency-key-reused"
	VersionMissing       Kind = "version-missing"
	PlanMissing          Kind = "plan-missing"
	PlanStale            Kind = "plan-stale"
	TooManyRequests      Kind = "too-many-requests"
	Internal             Kind = "internal"
	OutsideFailed        Kind = "outside-failed"
	EngineUnavailable    Kind = "engine-unavailable"
	Unavailable          Kind = "unavailable"
	OutcomeUnknown       Kind = "outcome-unknown"
	typePrefix                = "urn:slipway:problem:"
	contentType               = "application/problem+json"
	internalDetail            = "Something went wrong inside Slipway; repeat the request, and if it stays so give the request id to whoever runs the server."
	defaultInvalidDetail      = "The request is not valid; correct what is listed and send it again."
)

// Info is what is fixed for a kind.
type Info struct {
	Kind   Kind
	Status int
	Code   connect.Code // of the gRPC API
	Title  string
}

// Type is the URI of the kind.
func (i Info) Type() string { return typePrefix + string(i.Kind) }

// Kinds lists every kind that the API answers with.
func Kinds() []Info {
	return []Info{
		{Malformed, http.StatusBadRequest, connect.CodeInvalidArgument, "The request cannot be read"},
		{KeyMissing, http.StatusBadRequest, connect.CodeInvalidArgument, "The Idempotency-Key is missing"},
		{Unauthenticated, http.StatusUnauthorized, connect.CodeUnauthenticated, "Not signed in"},
		{Forbidden, http.StatusForbidden, connect.CodePermissionDenied, "Not allowed"},
		{StepUpRequired, http.StatusForbidden, connect.CodePermissionDenied, "A second sign-in is needed"},
		{NotFound, http.StatusNotFound, connect.CodeNotFound, "Not found"},
		{MethodNotAllowed, http.StatusMethodNotAllowed, connect.CodeUnimplemented, "Method not allowed"},
		{NotAcceptable, http.StatusNotAcceptable, connect.CodeInvalidArgument, "No such representation"},
		{RequestTimeout, http.StatusRequestTimeout, connect.CodeDeadlineExceeded, "The request came too slowly"},
		{Conflict, http.StatusConflict, connect.CodeFailedPrecondition, "Something is in the way"},
		{LiveJob, http.StatusConflict, connect.CodeFailedPrecondition, "A live job is in the way"},
		{IllegalTransition, http.StatusConflict, connect.CodeFailedPrecondition, "The state does not allow it"},
		{ActionRefused, http.StatusConflict, connect.CodeFailedPrecondition, "The action is refused"},
		{NoCapacity, http.StatusConflict, connect.CodeResourceExhausted, "No node is free"},
		{WorkflowGone, http.StatusConflict, connect.CodeFailedPrecondition, "The job's workflow is gone"},
		{KeyInFlight, http.StatusConflict, connect.CodeAborted, "A request with this key is being served"},
		{Stale, http.StatusPreconditionFailed, connect.CodeAborted, "The resource was changed meanwhile"},
		{EventsGone, http.StatusGone, connect.CodeOutOfRange, "The stream cannot continue there"},
		{TooLarge, http.StatusRequestEntityTooLarge, connect.CodeResourceExhausted, "The body is too large"},
		{UnsupportedMedia, http.StatusUnsupportedMediaType, connect.CodeInvalidArgument, "The body is not JSON"},
		{Invalid, http.StatusUnprocessableEntity, connect.CodeInvalidArgument, "The request is not valid"},
		{KeyReused, http.StatusUnprocessableEntity, connect.CodeInvalidArgument, "The Idempotency-Key belongs to another request"},
		{VersionMissing, http.StatusPreconditionRequired, connect.CodeInvalidArgument, "The version is missing"},
		{PlanMissing, http.StatusPreconditionRequired, connect.CodeInvalidArgument, "The plan is missing"},
		{PlanStale, http.StatusPreconditionFailed, connect.CodeAborted, "The plan is no longer true"},
		{TooManyRequests, http.StatusTooManyRequests, connect.CodeResourceExhausted, "Too many requests"},
		{Internal, http.StatusInternalServerError, connect.CodeInternal, "Internal error"},
		{OutsideFailed, http.StatusBadGateway, connect.CodeUnavailable, "The other side failed"},
		{EngineUnavailable, http.StatusServiceUnavailable, connect.CodeUnavailable, "Temporal does not answer"},
		{Unavailable, http.StatusServiceUnavailable, connect.CodeUnavailable, "Not available now"},
		{OutcomeUnknown, http.StatusGatewayTimeout, connect.CodeDeadlineExceeded, "No answer in time"},
	}
}

func infoOf(k Kind) Info {
	for _, i := range Kinds() {
		if i.Kind == k {
			return i
		}
	}
	return Info{Internal, http.StatusInternalServerError, connect.CodeInternal, "Internal error"}
}

// Field is one thing that is wrong with a request. The value is never repeated:
// it may be a secret.
type Field struct {
	Location string `json:"location,omitempty" doc:"Where: body.hostname, query.limit, header.If-Match"`
	Message  string `json:"message"`
}

// Problem is a problem document. It is an error, and huma answers with it.
type Problem struct {
	Type       string   `json:"type" doc:"Stable URI of the kind of problem" example:"urn:slipway:problem:live-job"`
	Title      string   `json:"title" doc:"The kind in words"`
	Status     int      `json:"status" doc:"HTTP status"`
	Detail     string   `json:"detail" doc:"What happened and what to do"`
	RequestID  string   `json:"request_id,omitempty" doc:"Names this request in the server's log"`
	Errors     []Field  `json:"errors,omitempty" doc:"Everything that is wrong with the request"`
	Allowed    []string `json:"allowed,omitempty" doc:"The states or actions that are allowed now"`
	Existing   string   `json:"existing,omitempty" doc:"The id of what is in the way, such as the live job"`
	RetryAfter int      `json:"retry_after_seconds,omitempty" doc:"When to come back, where too much is asked for or something does not answer"`
	// FailureClass and Runbook stand in a document of an outside system's failure.
	FailureClass lifecycle.FailureClass `json:"failure_class,omitempty" doc:"Why an outside system failed: the class with which a job parks for the same reason"`
	Runbook      string                 `json:"runbook,omitempty" doc:"URL of the page that says what to do"`
	OldestCursor int64                  `json:"oldest_cursor,omitempty" doc:"Where a stream of events cannot continue: the cursor of the oldest event that is kept"`
	PlanHash     string                 `json:"plan_hash,omitempty" doc:"The hash of the plan as it is now, where the one that was sent is missing or no longer true"`
	Shortfall    *Shortfall             `json:"shortfall,omitempty" doc:"How much the balance lacks, for callers who may read the balance"`
}

// Shortfall is how much the balance of a billing account lacks for a request.
type Shortfall struct {
	MissingMinor     int64  `json:"missing_minor" doc:"What has to be added to the balance at least"`
	RateMinorPerHour int64  `json:"rate_minor_per_hour" doc:"What the node or instance costs an hour"`
	HoldMinor        int64  `json:"hold_minor" doc:"What it holds back of the balance"`
	Currency         string `json:"currency"`
	Exponent         int    `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
}

// New makes a problem of a kind with its sentence.
func New(k Kind, detail string) *Problem {
	i := infoOf(k)
	p := &Problem{Type: i.Type(), Title: i.Title, Status: i.Status, Detail: sentence(detail)}
	if i.Status == http.StatusServiceUnavailable || i.Status == http.StatusGatewayTimeout {
		p.RetryAfter = retryAfter()
	}
	return p
}

// NewInvalid makes an Invalid problem that lists what is wrong.
func NewInvalid(fields ...Field) *Problem {
	p := New(Invalid, defaultInvalidDetail)
	p.Errors = fields
	return p
}

// With adds the id of what is in the way.
func (p *Problem) With(existing string) *Problem { p.Existing = existing; return p }

// Allow adds the states or actions allowed now.
func (p *Problem) Allow(allowed []string) *Problem { p.Allowed = allowed; return p }

// After says when to come back, in seconds.
func (p *Problem) After(seconds int) *Problem { p.RetryAfter = seconds; return p }

// RateLimited says what there is too much of, and when there may be more.
func RateLimited(detail string, wait time.Duration) *Problem {
	return New(TooManyRequests, detail+"; wait, then try again").After(int(wait/time.Second) + 1)
}

// Class says why an outside system failed, and names the page about it as a file of the repository.
func (p *Problem) Class(c lifecycle.FailureClass) *Problem {
	p.FailureClass, p.Runbook = c, lifecycle.Failure(c).Runbook()
	return p
}

// Code returns the gRPC code of the problem's kind.
func (p *Problem) Code() connect.Code {
	return infoOf(Kind(strings.TrimPrefix(p.Type, typePrefix))).Code
}

// Of reports whether p is of kind k.
func (p *Problem) Of(k Kind) bool { return p.Type == typePrefix+string(k) }

func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status, for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of problem documents, for huma.
func (p *Problem) ContentType(string) string { return contentType }

// GetHeaders are the headers that go with the status, for huma.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="slipway"`)
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Of(KeyInFlight) {
		h.Set("Retry-After", "1")
	}
	return h
}

// Write answers a request with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the status is out; a broken connection is the client's to notice
}

// sentence begins with a capital and ends with a stop.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return s
	}
	if first, _, _ := strings.Cut(s, " "); !strings.Contains(first, "_") { // a name such as retry_stage stays as it is written
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}
