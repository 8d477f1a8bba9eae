package stripe

import (
	"context"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Limits of a webhook.
const (
	// MaxWebhook bounds the body of a webhook, in bytes.
	MaxWebhook = 256 << 10
	// Tolerance is how old a signature may be: what is replayed later is refused.
	Tolerance = 5 * time.Minute
	// AheadTolerance is how far in the future a signature may be, for clocks that differ.
	AheadTolerance = time.Minute

	maxHeader     = 4 << 10
	maxSignatures = 16
	maxSecrets    = 2
	minSecret     = 8
)

// SignatureHeader is the header that carries the signature of a webhook.
const SignatureHeader = "Stripe-Signature"

// RefusalReason says why a webhook is refused.
type RefusalReason string

// The reasons.
const (
	RefusedTooLarge   RefusalReason = "too_large"
	RefusedUnreadable RefusalReason = "unreadable"
	RefusedUnsigned   RefusalReason = "unsigned"
	RefusedHeader     RefusalReason = "bad_header"
	RefusedStale      RefusalReason = "stale"
	RefusedFuture     RefusalReason = "future"
	RefusedSignature  RefusalReason = "bad_signature"
	RefusedNoEvent    RefusalReason = "no_event"
)

// WebhookRefusal is the error of a webhook of which nothing may be stored.
type WebhookRefusal struct {
	Status int // what to answer
	Reason RefusalReason
}

func (r *WebhookRefusal) Error() string {
	return fmt.Sprintf("the webhook is refused: %s", r.Reason)
}

func refuse(status int, reason RefusalReason) error { return &WebhookRefusal{status, reason} }

// Delivery is a webhook with a valid signature. It is stored as it came, also when its event is of
// another mode or release, and decoded later with ParseEvent: an upgrade must not lose it.
type Delivery struct {
	Event providers.PaymentEvent
	// OtherMode says that the event is not of the mode of the account: it is kept and ignored.
	OtherMode bool
	// Body is what was signed, byte by byte.
	Body []byte
}

// Verifier checks webhooks. Its methods may be called from any goroutine.
type Verifier struct {
	secrets []string
	live    bool
	now     func() time.Time
}

// VerifierOptions are what a Verifier is made of.
type VerifierOptions struct {
	// Secrets sign the webhooks: one, or two while one is rolled.
	Secrets []providers.Secret
	// Live says that the events are those of real money.
	Live bool
	// Now is the clock; nil is that of the process.
	Now func() time.Time
}

// NewVerifier returns a verifier. Without a secret there is none: an empty one would accept
// whatever anybody signs with nothing.
func NewVerifier(o VerifierOptions) (*Verifier, error) {
	v := &Verifier{live: o.Live, now: o.Now}
	if v.now == nil {
		v.now = time.Now
	}
	if len(o.Secrets) == 0 || len(o.Secrets) > maxSecrets {
		return nil, invalid("stripe.webhook", "name one signing secret of the webhook, or two while one is rolled")
	}
	for _, s := range o.Secrets {
		value := s.Reveal()
		if len(value) < minSecret || value != strings.TrimSpace(value) {
			return nil, invalid("stripe.webhook", "a signing secret of the webhook is empty, too short, or has spaces around it; store the one that begins with whsec_")
		}
		v.secrets = append(v.secrets, value)
	}
	return v, nil
}

// LoadVerifier resolves the signing secrets and returns a verifier with them.
func LoadVerifier(ctx context.Context, secrets providers.Secrets, refs []string, live bool) (*Verifier, error) {
	o := VerifierOptions{Live: live}
	for _, ref := range refs {
		value, err := secrets.Resolve(ctx, providers.SecretRef(ref), providers.Use{Kind: spec.SecretStripeWebhook})
		if err != nil {
			return nil, err
		}
		o.Secrets = append(o.Secrets, value)
	}
	return NewVerifier(o)
}

// Receive reads and checks the webhook of a request. An error is a *WebhookRefusal: nothing of the
// request may be stored.
func (v *Verifier) Receive(w http.ResponseWriter, r *http.Request) (Delivery, error) {
	headers := r.Header.Values(SignatureHeader)
	switch {
	case len(headers) == 0 || headers[0] == "":
		return Delivery{}, refuse(http.StatusBadRequest, RefusedUnsigned)
	case len(headers) > 1:
		return Delivery{}, refuse(http.StatusBadRequest, RefusedHeader)
	case r.ContentLength > MaxWebhook:
		return Delivery{}, refuse(http.StatusRequestEntityTooLarge, RefusedTooLarge)
	}
	// A body whose header is refused is not read.
	signed, err := v.parse(headers[0])
	if err != nil {
		return Delivery{}, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxWebhook))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return Delivery{}, refuse(http.StatusRequestEntityTooLarge, RefusedTooLarge)
	case err != nil:
		return Delivery{}, refuse(http.StatusBadRequest, RefusedUnreadable)
	}
	return v.check(signed, body)
}

// Verify checks a body with the header that came with it. An error is a *WebhookRefusal.
func (v *Verifier) Verify(header string, body []byte) (Delivery, error) {
	if header == "" {
		return Delivery{}, refuse(http.StatusBadRequest, RefusedUnsigned)
	}
	if len(body) > MaxWebhook {
		return Delivery{}, refuse(http.StatusRequestEntityTooLarge, RefusedTooLarge)
	}
	signed, err := v.parse(header)
	if err != nil {
		return Delivery{}, err
	}
	return v.check(signed, body)
}

// signatures are the header of a webhook.
type signatures struct {
	at     time.Time
	values [][]byte
}

// parse reads the header t=...,v1=...,v1=... and checks its time. Signatures of other schemes are
// ignored: v0 is that of test deliveries, and would let the sender choose the weaker one.
func (v *Verifier) parse(header string) (signatures, error) {
	bad := refuse(http.StatusBadRequest, RefusedHeader)
	if len(header) > maxHeader {
		return signatures{}, bad
	}
	var s signatures
	dated := false
	for pair := range strings.SplitSeq(header, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case !found:
			return s, bad
		case name == "t":
			seconds, err := strconv.ParseInt(value, 10, 64)
			if err != nil || dated || seconds < 0 || seconds > lastSecond {
				return s, bad
			}
			s.at, dated = time.Unix(seconds, 0), true
		case name == "v1":
			if sum, err := hex.DecodeString(value); err == nil && len(s.values) < maxSignatures {
				s.values = append(s.values, sum)
			}
		}
	}
	age := v.now().Sub(s.at)
	switch {
	case !dated || len(s.values) == 0:
		return s, bad
	case age > Tolerance:
		return s, refuse(http.StatusBadRequest, RefusedStale)
	case age < -AheadTolerance:
		return s, refuse(http.StatusBadRequest, RefusedFuture)
	}
	return s, nil
}

func (v *Verifier) check(s signatures, body []byte) (Delivery, error) {
	if !v.isSigned(s, body) {
		return Delivery{}, refuse(http.StatusBadRequest, RefusedSignature)
	}
	event, ok := ParseEvent(body)
	if !ok {
		return Delivery{}, refuse(http.StatusBadRequest, RefusedNoEvent)
	}
	return Delivery{Event: event, OtherMode: event.Live != v.live, Body: body}, nil
}

// isSigned reports whether one of the secrets made one of the signatures.
func (v *Verifier) isSigned(s signatures, body []byte) bool {
	valid := false
	for _, secret := range v.secrets {
		expected := webhook.ComputeSignature(s.at, body, secret)
		for _, given := range s.values {
			valid = hmac.Equal(expected, given) || valid
		}
	}
	return valid
}

// ParseEvent reads the fields of an event that all releases have. It reports false for what is no
// event of Stripe. Its object is decoded only by who knows the release.
func ParseEvent(body []byte) (providers.PaymentEvent, bool) {
	var in struct {
		ID         string          `json:"id"`
		Object     string          `json:"object"`
		Type       string          `json:"type"`
		APIVersion string          `json:"api_version"`
		Created    json.RawMessage `json:"created"` // seconds, or a date in an event of the API v2
		Livemode   bool            `json:"livemode"`
		Data       struct {
			Object json.RawMessage `json:"object"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &in) != nil || in.Object != "event" && in.Object != "v2.core.event" {
		return providers.PaymentEvent{}, false
	}
	fields := eventFields{ID: in.ID, Type: in.Type, APIVersion: in.APIVersion, Livemode: in.Livemode}
	var date time.Time
	switch {
	case json.Unmarshal(in.Created, &fields.Created) == nil:
	case json.Unmarshal(in.Created, &date) == nil:
		fields.Created = date.Unix()
	default:
		return providers.PaymentEvent{}, false
	}
	return newEvent(fields, in.Data.Object)
}
