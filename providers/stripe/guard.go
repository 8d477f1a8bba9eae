package stripe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

var (
	errRedirect = errors.New("the answer redirects to another address")
	errForeign  = errors.New("the request is for another host")
	errTooBig   = errors.New("the answer is larger than the limit")
)

// guard is the transport below stripe-go. It bounds answers, refuses redirects, and sends nothing
// about this host.
type guard struct {
	next    http.RoundTripper
	host    string
	maxBody int64
}

// wire is what happened to the last request of a call.
type wire struct {
	answered bool
	status   int
	header   http.Header
}

type wireKey struct{}

// recorded returns a context whose requests are recorded in the returned wire.
func recorded(ctx context.Context) (context.Context, *wire) {
	w := &wire{}
	return context.WithValue(ctx, wireKey{}, w), w
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != g.host {
		return nil, errForeign
	}
	out := req.Clone(req.Context())
	out.Header.Set("User-Agent", "Slipway/1")
	out.Header.Del("X-Stripe-Client-User-Agent") // holds the name and the kernel of this host
	resp, err := g.next.RoundTrip(out)           //nolint:bodyclose // stripe-go closes it
	if err != nil {
		return nil, err
	}
	if w, ok := req.Context().Value(wireKey{}).(*wire); ok {
		w.answered, w.status, w.header = true, resp.StatusCode, resp.Header
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()
		return nil, errRedirect
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: g.maxBody}
	return resp, nil
}

// bounded is a body that fails beyond its limit, where io.LimitReader would only end.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooBig
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("read the answer: %w", errTooBig)
	}
	return n, err
}
