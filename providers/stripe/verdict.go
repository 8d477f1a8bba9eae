package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v85"

	"github.com/slipway-cloud/slipway/providers"
)

func invalid(op, message string) *providers.Error {
	return &providers.Error{Kind: providers.KindInvalid, Op: op, Message: message}
}

// shape says what kind of call is made.
type shape struct {
	op      string
	mutates bool
	// conflicts says that a refusal of well-formed parameters comes from the state of the object.
	conflicts bool
}

const (
	maxMessage    = 300 // bytes of Stripe's text in an error
	maxRetryAfter = time.Minute
)

// verdict turns what a call ended in into a typed error; nil stays nil.
func verdict(s shape, w *wire, err error, redaction providers.Redaction) error {
	if err == nil {
		return nil
	}
	var typed *providers.Error
	if errors.As(err, &typed) { // of the dialer, or of a check of ours
		out := *typed
		out.Op = s.op
		return &out
	}
	out := &providers.Error{Op: s.op}
	var refused *stripego.Error
	switch {
	case errors.As(err, &refused):
		classifyRefusal(out, s, w, refused)
	case errors.Is(err, errRedirect), errors.Is(err, errForeign):
		out.Kind, out.Status, out.Message = providers.KindForeign, w.status, "the answer redirects; correct the URL of Stripe's API"
	case errors.Is(err, errTooBig):
		out.Kind, out.Message = providers.KindTooBig, "the answer is larger than the limit"
	case w.answered && w.status >= http.StatusBadRequest:
		fromStatus(out, s, w, "Stripe, or a proxy before it, answered without Stripe's error form")
	case w.answered:
		out.Kind, out.Status, out.Message = uncertainOr(s, providers.KindProtocol), w.status, "the answer is not what Stripe's API says"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		out.Kind, out.Message = uncertainOr(s, providers.KindUnreachable), "Stripe did not answer in time"
	default:
		out.Kind, out.Message = uncertainOr(s, providers.KindUnreachable), "the connection to Stripe failed"
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			out.Kind, out.Message = providers.KindUnreachable, "Stripe cannot be reached"
		}
	}
	if out.Kind == providers.KindTooBig && s.mutates {
		out.Kind = providers.KindUncertain
	}
	out.Message = redaction.Clean(out.Message)
	return out
}

// uncertainOr returns KindUncertain for a mutation, whose effect may have taken place.
func uncertainOr(s shape, otherwise providers.Kind) providers.Kind {
	if s.mutates {
		return providers.KindUncertain
	}
	return otherwise
}

// classifyRefusal fills in what an answer in Stripe's error form means. The cause holds no object
// of Stripe, which may carry secrets of a payment.
func classifyRefusal(out *providers.Error, s shape, w *wire, e *stripego.Error) {
	text := e.Msg
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	fromStatus(out, s, w, "Stripe refused: "+text)
	cause := fmt.Errorf("stripe: type %q, code %q, parameter %q, request %q", e.Type, e.Code, e.Param, e.RequestID)
	out.Err = cause
	if w.header.Get("Idempotent-Replayed") == "true" { // the same failure for as long as the key is kept
		out.Err = errors.Join(providers.ErrKeySpent, cause)
	}
	switch {
	case e.Code == stripego.ErrorCodeResourceMissing:
		out.Kind = providers.KindNotFound
	case e.Code == stripego.ErrorCodeLockTimeout, e.Code == stripego.ErrorCodeIdempotencyKeyInUse:
		out.Kind = providers.KindBusy
	case e.Type == stripego.ErrorTypeIdempotency:
		out.Kind, out.Err = providers.KindInvalid, errors.Join(providers.ErrKeySpent, cause)
	case out.Kind == providers.KindInvalid && s.conflicts && w.status == http.StatusBadRequest:
		out.Kind = providers.KindStateConflict
	}
}

// unfinished are the statuses of a client's error by which a server or a proxy says that it did not
// see a request to its end: the effect may have taken place.
var unfinished = []int{http.StatusRequestTimeout, http.StatusFailedDependency, http.StatusTooEarly, 499}

// fromStatus fills in what a status alone means.
func fromStatus(out *providers.Error, s shape, w *wire, message string) {
	out.Status, out.Message, out.RetryAfter = w.status, message, retryAfter(w.header)
	switch {
	case w.status == http.StatusUnauthorized:
		out.Kind = providers.KindUnauthorized
	case w.status == http.StatusForbidden:
		out.Kind = providers.KindForbidden
	case w.status == http.StatusNotFound:
		out.Kind = providers.KindNotFound
	case w.status == http.StatusConflict, w.status == http.StatusTooManyRequests:
		out.Kind = providers.KindBusy
	case w.status >= http.StatusInternalServerError, slices.Contains(unfinished, w.status):
		out.Kind = uncertainOr(s, providers.KindUnavailable)
	default:
		out.Kind = providers.KindInvalid
	}
}

func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds <= 0 {
		return 0
	}
	return min(time.Duration(min(seconds, int(maxRetryAfter/time.Second)))*time.Second, maxRetryAfter)
}

// mayRepeat reports whether another try within the call may help. Each mutation has a key, so that
// it may be repeated although its outcome is not known.
func mayRepeat(err error) bool {
	switch providers.KindOf(err) {
	case providers.KindUnreachable, providers.KindUnavailable, providers.KindBusy, providers.KindUncertain:
		return !providers.IsKeySpent(err)
	default:
		return false
	}
}

// isObject reports whether raw JSON is an object, not a text or null.
func isObject(raw json.RawMessage) bool {
	return strings.HasPrefix(strings.TrimLeft(string(raw[:min(len(raw), 16)]), " \t\r\n"), "{")
}
