package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	// Limit bounds one delivery from the question to the name server to the end of the answer.
	Limit = 10 * time.Second

	maxAnswer     = 64 << 10 // bytes of an answer that are read, its header apart
	maxHeader     = 64 << 10
	drainLimit    = time.Second // what comes after the header decides nothing
	maxRetryAfter = time.Hour
)

// Options are what a Sender is made of.
type Options struct {
	// Rule says to which addresses it may connect; spec.PublicAddresses makes one.
	Rule spec.AddressRule
	// Roots are the certificate authorities of endpoints; nil means the system's.
	Roots *x509.CertPool
	// Limit bounds one delivery; 0 means the constant Limit.
	Limit time.Duration
	// Resolver answers for host names; nil means the system's.
	Resolver *net.Resolver
}

// Message is one event for one endpoint.
type Message struct {
	URL     string
	Event   Event
	Secrets []providers.Secret // the current one first
}

// Result is what came of a delivery.
type Result struct {
	// Status is that of the answer, 0 without one.
	Status int
	// Reason says why the delivery failed, fit for the tenant; "" for a success. It holds nothing
	// of the answer and no address.
	Reason string
	// RetryAfter is how long the endpoint asks to wait, at most an hour.
	RetryAfter time.Duration
}

// Delivered reports whether the endpoint has accepted the message.
func (r Result) Delivered() bool { return r.Reason == "" }

// Gone reports whether the endpoint wants no further message.
func (r Result) Gone() bool { return r.Status == http.StatusGone }

// Session sends messages to one endpoint and reuses its connections, which Close ends. So no
// connection outlives a change of the rule for long.
type Session struct {
	options   Options
	client    *http.Client
	transport *http.Transport
}

// NewSession returns a session. Messages may be sent from any goroutine.
func NewSession(o Options) *Session {
	if o.Limit == 0 {
		o.Limit = Limit
	}
	dialer := &net.Dialer{Resolver: o.Resolver, ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" || o.Rule.Check(to) != nil {
			return errNotPublic
		}
		return nil
	}}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{
		Proxy: nil, DialContext: dialer.DialContext, Protocols: protocols, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
		MaxResponseHeaderBytes: maxHeader, DisableCompression: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Session{o, &http.Client{Transport: t, CheckRedirect: refuse}, t}
}

// Close ends idle connections.
func (s *Session) Close() { s.transport.CloseIdleConnections() }

// errNotPublic is the cause of a refused connection.
var errNotPublic = errors.New("the address is not allowed")

// Send signs and posts one message and waits for the answer's header, for Options.Limit at most.
// The Result says what came of it; an error means that nothing could be sent for a reason of our
// own.
func (s *Session) Send(ctx context.Context, m Message) (Result, error) {
	if err := s.options.Rule.CheckWebhookURL(m.URL); err != nil {
		return Result{Reason: "the URL is not allowed: it " + err.Error()}, nil
	}
	body, err := json.Marshal(m.Event)
	if err != nil {
		return Result{}, fmt.Errorf("write event %s: %w", m.Event.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(body))
	if err != nil {
		return Result{Reason: "the URL cannot be used"}, nil //nolint:nilerr // the tenant's mistake, not ours
	}
	req.Header.Set("Content-Type", ContentType)
	req.Header.Set("User-Agent", "Slipway-Webhooks/1")
	if err := sign(req.Header, m.Event.ID, time.Now(), body, m.Secrets); err != nil {
		return Result{}, err
	}
	resp, err := s.client.Do(req) //nolint:bodyclose // drain closes it
	if err != nil {
		return Result{Reason: s.failureReason(err)}, nil
	}
	drain(resp, cancel)
	return checkAnswer(resp), nil
}

// drain reads a small answer, so that its connection can be used again, and cuts any other.
func drain(resp *http.Response, cut context.CancelFunc) {
	timer := time.AfterFunc(drainLimit, cut)
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // the status has decided already
	_ = resp.Body.Close()
}

func checkAnswer(resp *http.Response) Result {
	r := Result{Status: resp.StatusCode}
	switch {
	case r.Status >= 200 && r.Status < 300:
		return r
	case r.Status >= 300 && r.Status < 400:
		r.Reason = fmt.Sprintf("the endpoint answered %d, a redirect; redirects are not followed: give the webhook the final URL", r.Status)
	default:
		r.Reason = fmt.Sprintf("the endpoint answered %d", r.Status)
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.RetryAfter = min(time.Duration(min(seconds, int(maxRetryAfter/time.Second)))*time.Second, maxRetryAfter)
	}
	return r
}

// failureReason says what went wrong, without addresses: a name may resolve differently for the
// control plane than for the tenant, who must not learn how.
func (s *Session) failureReason(err error) string {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.Is(err, errNotPublic), errors.As(err, &name) && !name.IsTimeout:
		return "the host has no public address that can be used"
	case errors.As(err, &certificate):
		return "the certificate of the endpoint is not valid for its name, or no authority that is trusted has signed it"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("the endpoint did not answer within %v", s.options.Limit)
	default:
		return "the connection to the endpoint failed"
	}
}
