package redfish

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// operation is one call of the BMC interface: its name for errors, and how many requests it may
// still make.
type operation struct {
	name   string
	budget atomic.Int64
	kept   *keptDocs // nil keeps none
}

func newOperation(name string, budget int) *operation {
	op := &operation{name: "redfish." + name}
	op.budget.Store(int64(budget))
	return op
}

// call is one request. The guard records its outcome, since gofish drops headers and status of a
// refused request.
type call struct {
	op        *operation
	anonymous bool // no credential is attached
	login     bool // the body carries the credential

	sent   atomic.Bool // a connection was there: the request may have arrived
	answer *answer
}

// answer is a whole answer, body included.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// credential is what the guard attaches: a session token, or a Basic login.
type credential struct {
	token          string
	user, password string
}

// guard is the http.RoundTripper under gofish. It is the only place where a
// credential is attached, after the request was found to go to the BMC itself.
type guard struct {
	base      origin
	transport *http.Transport
	opts      Options
	secrets   *redactor

	passwordLeft atomic.Bool // a request that carried the password had a connection

	mu   sync.Mutex
	cred credential
	stop error // set by the first rejection: nothing is sent any more
}

func newTransport(cfg *tls.Config, rule spec.AddressRule, opts Options) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // BMC networks are reached directly, never through the environment's proxy
		DialContext:            providers.NewDialer(rule, opts.ConnectTimeout).DialContext,
		TLSClientConfig:        cfg,
		TLSHandshakeTimeout:    opts.ConnectTimeout,
		ResponseHeaderTimeout:  opts.RequestTimeout,
		IdleConnTimeout:        opts.RequestTimeout,
		MaxIdleConns:           2,
		MaxConnsPerHost:        2,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

func (g *guard) client() *http.Client {
	return &http.Client{
		Transport:     g,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RoundTrip sends one request of a call to the BMC itself and returns its
// answer with the body already read.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, &providers.Error{Kind: providers.KindProtocol, Op: "redfish.guard", Message: "a request outside any operation was refused"}
	}
	if req.URL.User != nil || originOf(req.URL) != g.base {
		return nil, c.fail(providers.KindForeign, "a request to another host than the BMC was refused")
	}
	if c.op.budget.Add(-1) < 0 {
		return nil, c.fail(providers.KindTooBig, "the BMC needs more requests than this operation may make")
	}
	ctx, cancel := context.WithTimeout(req.Context(), g.opts.RequestTimeout)
	defer cancel()
	password := c.login || !c.anonymous && g.basic()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			c.sent.Store(true)
			if password {
				g.passwordLeft.Store(true)
			}
		},
	})
	out := req.Clone(ctx)
	if err := g.attach(out, c); err != nil {
		return nil, err
	}
	resp, err := g.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return g.read(resp, c)
}

// attach adds the credential unless the call goes without one.
func (g *guard) attach(req *http.Request, c *call) error {
	if c.anonymous && !c.login {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop != nil {
		return g.stop
	}
	switch {
	case c.login:
	case g.cred.token != "":
		req.Header.Set("X-Auth-Token", g.cred.token)
	case g.cred.user != "":
		req.SetBasicAuth(g.cred.user, g.cred.password)
	}
	return nil
}

func (g *guard) read(resp *http.Response, c *call) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, g.opts.MaxBody+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > g.opts.MaxBody {
		return nil, c.fail(providers.KindTooBig, "the BMC sent a larger answer than is accepted")
	}
	c.answer = &answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, c.fail(providers.KindForeign, "the BMC answered with a redirect, which is never followed")
	}
	if err := g.stopAfterRejection(c); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	return resp, nil
}

// errSessionEnded marks a session that was opened and then was refused: it expired
// or the BMC restarted. A new BMC value may log in again.
var errSessionEnded = errors.New("session ended")

// stopAfterRejection checks whether the BMC has rejected the credential, and stops all logins after
// the first rejection.
func (g *guard) stopAfterRejection(c *call) error {
	if c.anonymous && !c.login {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := c.answer
	locked := (a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden) && saysLocked(a.Body)
	switch {
	case locked:
		g.stop = c.failWith(a, providers.KindLocked, "the BMC says that the account is locked; wait until the lock ends, then check the password")
	case a.Status == http.StatusUnauthorized && !c.login && g.cred.token != "":
		// The BMC gave a token for the password, so the password is valid.
		e := c.failWith(a, providers.KindUnavailable, "the BMC ended the session; open it again")
		e.Err = errSessionEnded
		g.stop = e
	case a.Status == http.StatusUnauthorized:
		g.stop = c.failWith(a, providers.KindUnauthorized, "the BMC rejected the user name or password; correct them before any further login")
	default:
		return nil
	}
	return g.stop
}

// basic reports whether requests carry the password itself.
func (g *guard) basic() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cred.user != "" && g.cred.token == ""
}

func (g *guard) use(cred credential) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cred = cred
}

// stopped returns the rejection that stopped the logins, or nil.
func (g *guard) stopped() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stop
}

func (c *call) fail(kind providers.Kind, message string) *providers.Error {
	return &providers.Error{Kind: kind, Op: c.op.name, Message: message}
}

func (c *call) failWith(a *answer, kind providers.Kind, message string) *providers.Error {
	return &providers.Error{Kind: kind, Op: c.op.name, Status: a.Status, Message: message}
}
