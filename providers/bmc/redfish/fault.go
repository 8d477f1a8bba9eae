package redfish

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// redactor holds the values that no text may repeat. A BMC may echo the request with the password,
// or answer with its own token.
type redactor struct {
	mu      sync.Mutex
	secrets []providers.Secret
	known   providers.Redaction
}

func newRedactor(user string, password providers.Secret) *redactor {
	r := &redactor{}
	if p := password.Reveal(); p != "" {
		r.add(p)
		r.add(base64.StdEncoding.EncodeToString([]byte(user + ":" + p)))
	}
	return r
}

// add makes a value and its usual encodings secret.
func (r *redactor) add(secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = append(r.secrets, providers.NewSecret(secret))
	r.known = providers.NewRedaction(r.secrets...)
}

func (r *redactor) redaction() providers.Redaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

func (r *redactor) secretIn(s string) bool { return r.redaction().Found(s) }

// scrub hides secrets in a result, which a pointer leads to.
func (r *redactor) scrub(result any) { r.redaction().Scrub(result) }

// text bounds s and withholds all of it when any part is a secret.
func (r *redactor) text(s string) string {
	if r.secretIn(s) {
		return "[withheld: it repeats a secret]"
	}
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "..."
	}
	return s
}

// cause keeps the kind of an error for errors.Is, that of the operating system too, and drops its
// text when the text may quote the BMC.
func (r *redactor) cause(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return known
		}
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	text := r.text(err.Error())
	var number syscall.Errno
	if errors.As(err, &number) {
		return fmt.Errorf("%s%w", strings.TrimSuffix(text, number.Error()), number)
	}
	return errors.New(text)
}

// messageID is the shape of a Redfish message id: Registry.Major.Minor.Key.
var messageID = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,40}(\.[0-9]{1,4}){0,3}\.[A-Za-z0-9_]{1,60}$`)

type extendedInfo struct {
	MessageID string `json:"MessageId"`
	Message   string `json:"Message"`
}

// messagesOf reads the messages of an error answer or of a task. It never fails, because an error
// that cannot be read is still an error.
func messagesOf(body []byte) []extendedInfo {
	d, err := parseDoc(body)
	if err != nil {
		return nil
	}
	var out []extendedInfo
	take := func(list []any) {
		for _, m := range list {
			if e, ok := m.(map[string]any); ok {
				out = append(out, extendedInfo{MessageID: doc(e).text("MessageId"), Message: doc(e).text("Message")})
			}
		}
	}
	if e := d.sub("error"); e != nil {
		out = append(out, extendedInfo{MessageID: e.text("code"), Message: e.text("message")})
		take(e.list("@Message.ExtendedInfo"))
	}
	take(d.list("@Message.ExtendedInfo"))
	take(d.list("Messages"))
	return out
}

// ids lists the message ids that are safe to show.
func (r *redactor) ids(body []byte) string {
	var out []string
	for _, m := range messagesOf(body) {
		if messageID.MatchString(m.MessageID) && r.text(m.MessageID) == m.MessageID && len(out) < 4 &&
			!slices.Contains(out, m.MessageID) {
			out = append(out, m.MessageID)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " [" + strings.Join(out, ", ") + "]"
}

var (
	lockWords = regexp.MustCompile(`(?i)locked|lock-?out|lockout|\bblocked\b`)
	postWords = regexp.MustCompile(`(DuringSystemPOST|InPOST|PostInProgress|SystemInPost)|(?i:\b(during|in|completed?|finish\w*)\b.{0,30}\bPOST\b)`)
	pwdWords  = regexp.MustCompile(`PasswordChangeRequired`)
)

func anyMessage(body []byte, re *regexp.Regexp) bool {
	for _, m := range messagesOf(body) {
		if re.MatchString(m.MessageID) || re.MatchString(m.Message) {
			return true
		}
	}
	return false
}

func saysLocked(body []byte) bool { return anyMessage(body, lockWords) }

func hasMessage(body []byte, key string) bool {
	for _, m := range messagesOf(body) {
		if strings.HasSuffix(m.MessageID, "."+key) {
			return true
		}
	}
	return false
}

// refusal turns a status of 400 and above into an error. The text of the BMC
// is left out, its message ids are kept.
func (r *redactor) refusal(op string, a *answer) *providers.Error {
	kind, message := refusalKind(a)
	return &providers.Error{Kind: kind, Op: op, Status: a.Status, RetryAfter: retryAfter(a.Header),
		Message: message + r.ids(a.Body)}
}

func refusalKind(a *answer) (providers.Kind, string) {
	switch {
	case a.Status == http.StatusForbidden && anyMessage(a.Body, pwdWords):
		return providers.KindPasswordChangeRequired, "the BMC wants its factory password changed before anything else"
	case (a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized) && saysLocked(a.Body):
		return providers.KindLocked, "the BMC says that the account is locked; wait until the lock ends"
	case a.Status == http.StatusUnauthorized:
		return providers.KindUnauthorized, "the BMC rejected the login"
	case a.Status == http.StatusForbidden:
		return providers.KindForbidden, "the account may not do this; give it the operator role on the BMC"
	case a.Status >= 400 && (anyMessage(a.Body, postWords) || hasMessage(a.Body, "ResourceInUse")):
		return providers.KindBusy, "the system is in its power-on self-test or otherwise busy; try again later"
	}
	switch a.Status {
	case http.StatusNotFound, http.StatusGone:
		return providers.KindNotFound, "the BMC does not have this resource"
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return providers.KindUnsupported, "the BMC does not offer this"
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return providers.KindStateConflict, "the BMC refused this in its present state"
	case http.StatusTooManyRequests:
		return providers.KindUnavailable, "the BMC asks for fewer requests"
	}
	switch {
	case a.Status >= 500:
		return providers.KindUnavailable, "the BMC answered that it cannot do this now"
	case a.Status >= 400:
		return providers.KindInvalid, "the BMC refused the request as wrong"
	}
	return providers.KindProtocol, "the BMC answered with a status that Redfish does not use"
}

func retryAfter(h http.Header) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	var d time.Duration
	if s, err := strconv.Atoi(v); err == nil {
		d = time.Duration(min(s, 3600)) * time.Second
	} else if t, err := http.ParseTime(v); err == nil {
		d = time.Until(t)
	}
	return max(0, min(d, time.Hour))
}

// lost turns a request without an answer into an error: uncertain for a change
// that may have arrived, unreachable otherwise.
func (r *redactor) lost(c *call, change bool, err error) *providers.Error {
	var pe *providers.Error
	if errors.As(err, &pe) {
		out := *pe
		out.Op = c.op.name
		return &out
	}
	out := &providers.Error{Op: c.op.name, Err: r.cause(err)}
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &cert):
		out.Kind, out.Message = providers.KindPinMismatch, "the BMC's certificate is not signed by the CA bundle of the site, or not for this host"
	case errors.As(err, &record):
		out.Kind, out.Message = providers.KindProtocol, "the BMC does not speak TLS on this port"
	case change && c.sent.Load():
		out.Kind, out.Message = providers.KindUncertain, "the change was sent but no answer came back; read the state before repeating it"
	default:
		out.Kind, out.Message = providers.KindUnreachable, "the BMC did not answer; check its address, cable and power"
	}
	return out
}
