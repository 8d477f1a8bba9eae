package maas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sort"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

// bodyStart recognises an answer that MAAS does not give for a missing object:
// pages of a proxy and JSON of a gateway. It matters because "absent" makes a
// delete succeed.
var bodyStart = regexp.MustCompile(`^\s*[<{\[]`)

// invalid is a refusal on our side, before anything is sent.
func invalid(op, message string) error {
	return &providers.Error{Kind: providers.KindInvalid, Op: op, Message: message}
}

// answerError is the cause kept for the log: what MAAS said, free of secrets,
// and the id under which its own log has the request.
type answerError struct {
	method, path, traceID, text string
	status                      int
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s %s: HTTP %d, MAAS-trace-id %q: %s", e.method, e.path, e.status, e.traceID, e.text)
}

// refusal is what the dialer said of an address that it refused.
func refusal(err error) string {
	var pe *providers.Error
	if errors.As(err, &pe) {
		return pe.Message
	}
	return "address is refused"
}

// wireError prints a failure of the connection without the call's secrets, and
// still answers errors.Is for the context's errors.
type wireError struct {
	text string
	err  error
}

func (e *wireError) Error() string        { return e.text }
func (e *wireError) Is(target error) bool { return errors.Is(e.err, target) }

// verdict turns the end of a call into a provider error, or nil. mutates says
// that the call may have changed something once it was sent; scrub removes the
// call's secrets from a text.
func verdict(op string, x *exchange, mutates bool, scrub scrubber, err error) error {
	if err == nil {
		return nil
	}
	var own *providers.Error
	if errors.As(err, &own) {
		return own
	}
	e := &providers.Error{Op: op, Status: x.status, RetryAfter: x.retryAfter}
	switch {
	case x.err != nil:
		e.Err = &wireError{text: bounded(scrub.clean(x.err.Error()), 500), err: x.err}
		x.transportVerdict(e, mutates)
	case x.status >= 400:
		x.statusVerdict(e, mutates, scrub)
	case x.status == 0:
		// gomaasclient refused by itself; nothing was sent.
		e.Kind, e.Message = providers.KindInvalid, "the request could not be built"
		e.Err = errors.New(bounded(scrub.clean(err.Error()), 500))
	default:
		e.Kind, e.Message = providers.KindProtocol, "the answer is not what MAAS 2.0 says; check that the URL is a MAAS region"
		if mutates {
			e.Kind, e.Message = providers.KindUncertain, "MAAS took the request but its answer is unreadable; read the state before trying again"
		}
		e.Err = x.cause(bounded(scrub.clean(err.Error()), 500))
	}
	return e
}

func (x *exchange) cause(text string) error {
	return &answerError{method: x.method, path: x.path, traceID: x.traceID, status: x.status, text: text}
}

// transportVerdict covers calls that got no usable answer.
func (x *exchange) transportVerdict(e *providers.Error, mutates bool) {
	var cert *tls.CertificateVerificationError
	var unknownCA x509.UnknownAuthorityError
	var wrongHost x509.HostnameError
	var notTLS tls.RecordHeaderError
	switch {
	case providers.IsRefusedAddress(x.err):
		e.Kind, e.Message = providers.KindInvalid, "the region's "+refusal(x.err)
	case errors.Is(x.err, errTooMany):
		e.Kind, e.Message = providers.KindTooBig, "the call needs more requests than it may send; narrow it"
	case errors.Is(x.err, errOutside):
		e.Kind, e.Message = providers.KindInvalid, "the request would leave the MAAS site"
	case errors.Is(x.err, errRedirect):
		e.Kind, e.Message = providers.KindForeign, "MAAS answered with a redirect"
		if x.redirectTo != "" {
			e.Message += " to " + x.redirectTo
		}
		e.Message += "; set the site's URL to the final address"
	case errors.Is(x.err, errTooBig) && !mutates:
		e.Kind, e.Message = providers.KindTooBig, "the answer of MAAS is over the size limit"
	case errors.Is(x.err, errTooDeep) && !mutates:
		e.Kind, e.Message = providers.KindProtocol, "the answer of MAAS is nested too deep; check that the URL is a MAAS region"
	case errors.As(x.err, &cert), errors.As(x.err, &unknownCA), errors.As(x.err, &wrongHost):
		e.Kind, e.Message = providers.KindPinMismatch, "the certificate of MAAS is not trusted; set the site's CA bundle or correct the host name in its URL"
	case errors.As(x.err, &notTLS):
		e.Kind, e.Message = providers.KindProtocol, "MAAS does not speak TLS there; check scheme and port of the site's URL"
	case !x.sent && errors.Is(x.err, context.Canceled):
		e.Kind, e.Message = providers.KindUnreachable, "the call was cancelled before it was sent"
	case !x.sent:
		e.Kind, e.Message = providers.KindUnreachable, "MAAS cannot be reached; nothing was sent"
	case mutates && errors.Is(x.err, errTooDeep):
		e.Kind, e.Message = providers.KindUncertain, "MAAS took the request but its answer is nested too deep; read the state before trying again"
	case mutates:
		e.Kind, e.Message = providers.KindUncertain, "the request was sent but its outcome is unknown; read the state before trying again"
	case errors.Is(x.err, context.Canceled):
		e.Kind, e.Message = providers.KindUnreachable, "the call was cancelled while MAAS worked on it"
	case errors.Is(x.err, context.DeadlineExceeded):
		e.Kind, e.Message = providers.KindUnreachable, "MAAS did not answer in time"
	default:
		e.Kind, e.Message = providers.KindUnreachable, "the connection to MAAS broke off"
	}
}

// statusVerdict maps an error status.
func (x *exchange) statusVerdict(e *providers.Error, mutates bool, scrub scrubber) {
	text := scrub.clean(refusalText(x.body, x.header.Get("Content-Type")))
	e.Err = x.cause(bounded(text, 2000))
	short := bounded(text, 300)
	set := func(k providers.Kind, message string) {
		e.Kind, e.Message = k, message
		if short != "" {
			e.Message += ": " + short
		}
	}
	html := isHTML(x.body, x.header.Get("Content-Type"))
	switch s := x.status; {
	case s == http.StatusBadRequest:
		x.badRequest(set, text)
	case s == http.StatusUnauthorized:
		set(providers.KindUnauthorized, "MAAS rejects the API key")
		if strings.Contains(text, "Expired timestamp") {
			set(providers.KindUnauthorized, "MAAS rejects the request because the clocks differ by more than five minutes")
		}
	case s == http.StatusForbidden:
		set(providers.KindForbidden, "MAAS does not allow this: the machine is locked or belongs to another user, or the API key is no administrator's")
	case s == http.StatusNotFound && (bodyStart.Match(x.body) || strings.HasPrefix(text, "Unknown API endpoint")):
		set(providers.KindProtocol, "there is no MAAS 2.0 API at this address; check the site's URL")
	case s == http.StatusNotFound:
		set(providers.KindNotFound, "MAAS knows no such object")
	case s == http.StatusConflict && (x.retryAfter > 0 || html):
		set(providers.KindBusy, "MAAS is busy with conflicting changes; try again")
	case s == http.StatusConflict:
		set(providers.KindStateConflict, "MAAS refuses this in the machine's present state")
	case s == http.StatusRequestTimeout || s == http.StatusTooManyRequests:
		set(providers.KindUnavailable, "MAAS cannot take the request now")
	case s == http.StatusRequestEntityTooLarge || s == http.StatusUnsupportedMediaType || s == http.StatusUnprocessableEntity:
		set(providers.KindInvalid, "MAAS refuses the request")
	case s < 500:
		set(providers.KindProtocol, "MAAS gave an answer that its API does not know")
	case mutates:
		// The database commits before the power action runs, and a proxy gives
		// up before MAAS does: an error does not mean that nothing happened.
		set(providers.KindUncertain, "MAAS failed after it took the request; read the state before trying again")
	default:
		set(providers.KindUnavailable, "MAAS cannot answer now")
	}
}

// badRequest sorts out the three 400s that are no ordinary validation error.
func (x *exchange) badRequest(set func(providers.Kind, string), text string) {
	switch {
	case strings.Contains(text, "because of the current state of the node"):
		set(providers.KindStateConflict, "MAAS refuses this in the machine's present state")
	case strings.Contains(text, "Unrecognised signature") && strings.Contains(text, "op=None"):
		// The anonymous handlers lack plain methods that every user has, so the
		// credentials got lost.
		set(providers.KindUnauthorized, "MAAS saw no API key; a proxy may remove the Authorization header")
	case strings.Contains(text, "Unrecognised signature"):
		set(providers.KindUnsupported, "MAAS does not know the operation: its version is too old, or a proxy removes the Authorization header")
	default:
		set(providers.KindInvalid, "MAAS refuses the request as wrong")
	}
}

func isHTML(body []byte, contentType string) bool {
	return strings.Contains(strings.ToLower(contentType), "html") || strings.HasPrefix(strings.TrimSpace(string(body)), "<")
}

// refusalText renders the body of a refusal for operators: the messages of a
// validation error by field, plain text as it is, nothing of a page.
func refusalText(body []byte, contentType string) string {
	text := strings.TrimSpace(string(body))
	var fields map[string]any
	var list []any
	switch {
	case strings.HasPrefix(text, "<"):
		return ""
	case json.Unmarshal(body, &fields) == nil:
		names := make([]string, 0, len(fields))
		for name := range fields {
			names = append(names, name)
		}
		sort.Strings(names)
		parts := make([]string, 0, len(names))
		for _, name := range names {
			parts = append(parts, name+": "+flat(fields[name]))
		}
		return plain(strings.Join(parts, "; "))
	case json.Unmarshal(body, &list) == nil:
		return plain(flat(list))
	case strings.Contains(strings.ToLower(contentType), "html") && strings.Contains(text, "<"):
		return ""
	}
	return plain(text)
}

// flat joins the messages below one field.
func flat(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		parts := make([]string, 0, len(v))
		for _, p := range v {
			parts = append(parts, flat(p))
		}
		return strings.Join(parts, " ")
	default:
		return fmt.Sprint(v)
	}
}
