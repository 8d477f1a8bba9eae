package maas

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// errorBodyCap is how much of a refusal is read: enough for any message.
const errorBodyCap = 64 << 10

// maxRetryAfter bounds what another system may ask us to wait.
const maxRetryAfter = time.Hour

var (
	errTooMany  = errors.New("the call needs more requests than it may send")
	errOutside  = errors.New("the request left the base of the MAAS site")
	errRedirect = errors.New("MAAS answered with a redirect")
	errTooBig   = errors.New("the answer is over the size limit")
)

// exchange is what is known of the last request of a call.
type exchange struct {
	method     string
	path       string // with the op, without other parameters
	sent       bool   // a connection stood: bytes may have reached MAAS
	status     int    // 0 = no answer
	header     http.Header
	retryAfter time.Duration
	traceID    string
	redirectTo string // scheme://host of a refused redirect
	body       []byte // of a refusal only
	err        error  // of the transport, the body or the guard
}

// guard is the http.RoundTripper of one call. It is used by one goroutine.
type guard struct {
	ctx      context.Context
	next     http.RoundTripper
	base     *url.URL
	maxBody  int64
	requests int // still allowed
	stream   bool
	element  int64 // bytes that one element of a stream may have
	log      *slog.Logger
	last     exchange
}

// RoundTrip sends one request under the call's context and bounds.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	g.last = exchange{method: req.Method, path: req.URL.Path}
	if op := req.URL.Query().Get("op"); op != "" {
		g.last.path += "?op=" + op
	}
	if g.requests <= 0 {
		return nil, g.fail(errTooMany)
	}
	g.requests--
	if req.URL.Scheme != g.base.Scheme || req.URL.Host != g.base.Host ||
		!strings.HasPrefix(req.URL.Path, g.base.Path+"/api/2.0/") || strings.Contains(req.URL.Path, "/..") {
		return nil, g.fail(errOutside)
	}
	start := time.Now()
	// The transport's own goroutine reports the connection, hence the atomic.
	var sent atomic.Bool
	ctx := httptrace.WithClientTrace(g.ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	resp, err := g.next.RoundTrip(req.WithContext(ctx))
	g.last.sent = sent.Load()
	if err == nil {
		resp, err = g.receive(resp)
	}
	g.log.LogAttrs(g.ctx, slog.LevelDebug, "maas request",
		slog.String("method", g.last.method), slog.String("path", g.last.path), slog.Int("status", g.last.status),
		slog.String("maas_trace_id", g.last.traceID), slog.Duration("took", time.Since(start)), slog.Bool("failed", err != nil))
	if err != nil {
		return nil, g.fail(err)
	}
	return resp, nil
}

func (g *guard) fail(err error) error {
	g.last.err = err
	return err
}

// receive notes the answer and hands on what gomaasapi may see of it: no
// Retry-After (it would sleep and send again by itself), no redirect, and a
// body that is already in memory and within the bounds of size and depth. It is
// the one place where answers arrive: no decoder sees one before.
func (g *guard) receive(resp *http.Response) (*http.Response, error) {
	x := &g.last
	x.sent = true
	x.status = resp.StatusCode
	x.header = resp.Header
	x.traceID = bounded(resp.Header.Get("MAAS-Trace-Id"), 64)
	x.retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	resp.Header.Del("Retry-After")
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()
		if to, err := resp.Location(); err == nil {
			x.redirectTo = bounded(to.Scheme+"://"+to.Host, 200)
		}
		return nil, errRedirect
	}
	if resp.StatusCode >= 400 {
		return g.receiveRefusal(resp), nil
	}
	if g.stream {
		resp.Body = &cappedBody{ReadCloser: resp.Body, left: g.maxBody, note: g.fail, nesting: nesting{elements: g.element}}
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.ContentLength > g.maxBody {
		return nil, errTooBig
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, g.maxBody+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > g.maxBody {
		return nil, errTooBig
	}
	if err := checkNesting(data); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// receiveRefusal keeps the beginning of an error answer. The status is the
// message; a body that breaks off does not change it, and one that is nested
// too deep is left out.
func (g *guard) receiveRefusal(resp *http.Response) *http.Response {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, errorBodyCap))
	_ = resp.Body.Close()
	if checkNesting(data) != nil {
		data = nil
	}
	g.last.body = data
	resp.ContentLength = int64(len(data))
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp
}

// cappedBody bounds an answer that is decoded while it arrives.
type cappedBody struct {
	io.ReadCloser
	left    int64
	note    func(error) error
	nesting nesting
}

func (b *cappedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.note(errTooBig)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if bad := b.nesting.follow(p[:n]); bad != nil {
		return 0, b.note(bad)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, b.note(err)
	}
	return n, err
}

// parseRetryAfter reads seconds or an HTTP date; anything else is 0.
func parseRetryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if v == "" {
		return 0
	}
	var d time.Duration
	if secs, err := strconv.Atoi(v); err == nil {
		if secs > int(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		d = time.Duration(secs) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}
