package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
)

const (
	requestTimeout = 30 * time.Second
	maxAnswer      = 1 << 20
)

// refused is an answer of the server other than success.
type refused struct {
	problem    protocol.Problem
	retryAfter time.Duration
}

func (r *refused) Error() string {
	return fmt.Sprintf("the server refused (%d, %s): %s", r.problem.Status, r.problem.Type, r.problem.Detail)
}

// RetryAfter returns how long the server asks to wait, or 0.
func (r *refused) RetryAfter() time.Duration { return r.retryAfter }

func isProblem(err error, types ...string) bool {
	var r *refused
	if !errors.As(err, &r) {
		return false
	}
	for _, t := range types {
		if r.problem.Type == t {
			return true
		}
	}
	return false
}

// client calls the server with one identity, or with none before enrolment.
type client struct {
	url  string
	http *http.Client
	tr   *http.Transport
}

// newClient returns a client that trusts only the CA of the configuration, follows no redirect and
// uses no proxy of the environment: a token must reach only the server for which it is meant.
func newClient(c agentconfig.Config, id *identity, now func() time.Time) (*client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(c.CAPEM)) {
		return nil, errors.New("ca_pem holds no certificate")
	}
	tc := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13, Time: now}
	if id != nil {
		tc.Certificates = []tls.Certificate{id.pair}
	}
	tr := &http.Transport{TLSClientConfig: tc, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: requestTimeout, IdleConnTimeout: 5 * time.Minute, MaxResponseHeaderBytes: 64 << 10}
	return &client{url: strings.TrimRight(c.ServerURL, "/"), tr: tr, http: &http.Client{
		Transport: tr, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (c *client) close() { c.tr.CloseIdleConnections() }

// post sends one request and reads the answer into out. Errors never hold the
// request's body.
func (c *client) post(ctx context.Context, path string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("the server could not be reached: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the server's answer broke off: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(resp, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return errors.New("the server's answer is not the JSON that was expected")
	}
	return nil
}

func refusal(resp *http.Response, body []byte) error {
	r := &refused{}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		_ = json.Unmarshal(body, &r.problem) // a body that is no problem document leaves it empty
	}
	r.problem.Status = resp.StatusCode
	r.problem.Detail = task.Clip(r.problem.Detail, 500)
	if secs, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && secs > 0 {
		r.retryAfter = min(time.Duration(secs)*time.Second, agentconfig.MaxInterval)
	}
	return r
}
