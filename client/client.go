package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/slipway-cloud/slipway/internal/poll"
)

const (
	// MaxAnswer is the longest answer, and the longest line of a stream, that is read.
	MaxAnswer = 32 << 20
	// DefaultTimeout is how long a request may take where nothing else is said.
	DefaultTimeout = time.Minute
	// maxLater bounds how long a server may ask to wait before a read is repeated.
	maxLater    = 30 * time.Second
	contentJSON = "application/json"
)

// Doer sends requests, as http.Client does.
type Doer interface {
	Do(req *http.Request) (*http.Response, error)
}

// Config says where the API is and who asks.
type Config struct {
	// Server is the URL before /api/v1, such as https://slipway.example.com.
	Server string
	// Token is an API token or an ID token; "" leaves it to HTTP.
	Token string
	// HTTP sends the requests; nil is a client that follows no redirect, which could take the token
	// to another server.
	HTTP Doer
	// UserAgent names the program.
	UserAgent string
	// Key makes the Idempotency-Key of a POST that has none; nil makes a new one for each.
	Key func() string
}

// Client calls the API: it has a method for each operation. A POST has an Idempotency-Key, and a
// read is repeated while the server asks to come back later and the time of the request is not
// over.
type Client struct {
	// Timeout is how long one request may take with its repetitions; it does not bound a stream.
	Timeout time.Duration
	cfg     Config
}

// New returns a client. It returns an error when the URL of the server is not one.
func New(cfg Config) (*Client, error) {
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if cfg.Key == nil {
		cfg.Key = uuid.NewString
	}
	if _, err := url.Parse(cfg.Server); err != nil {
		return nil, fmt.Errorf("the URL of the server: %w", err)
	}
	return &Client{Timeout: DefaultTimeout, cfg: cfg}, nil
}

// Nothing is the answer of a request that is answered without a body.
type Nothing struct{}

// Answer is what the API said: a T as JSON.
type Answer[T any] struct {
	Raw []byte
	// ETag is the version of what was read or written, for IfMatch.
	ETag string
}

// Decode returns the answer. It returns an error when it is no T.
func (a Answer[T]) Decode() (T, error) {
	var v T
	if err := json.Unmarshal(a.Raw, &v); err != nil {
		return v, fmt.Errorf("the server's answer cannot be read; is this a Slipway server of another version? (%w)", err)
	}
	return v, nil
}

// Value returns the decoded answer of a call.
func Value[T any](a Answer[T], err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return a.Decode()
}

// Unreachable is a request of which no answer came.
type Unreachable struct {
	Server string
	// Key is the Idempotency-Key of a request that changes something, with which it can be
	// repeated.
	Key string
	Err error
}

func (u *Unreachable) Error() string {
	return fmt.Sprintf("the server %s cannot be reached: %v", u.Server, u.Err)
}

// Unwrap returns the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// Refusal is an answer that is not a success.
type Refusal struct {
	Problem
	// Status is that of the answer, and StatusText with its words.
	Status     int
	StatusText string
	Key        string // as in Unreachable
}

func (r *Refusal) Error() string {
	if r.Detail == "" {
		return fmt.Sprintf("the server answered %s and no problem document; is this a Slipway API?", r.StatusText)
	}
	return r.Detail
}

// StatusOf returns the status of the answer that an error stands for, 0 for another error.
func StatusOf(err error) int {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Status
	}
	return 0
}

// request is what options may change before it is sent.
type request struct {
	header http.Header
	query  url.Values
	body   any
}

// Option changes one request.
type Option func(*request)

// IfMatch changes only the version of the etag; * is any.
func IfMatch(etag string) Option { return header("If-Match", etag) }

// Because says why an operator acts on a customer's project; "" says nothing.
func Because(reason string) Option { return header("Slipway-Reason", reason) }

// WithKey sets the Idempotency-Key; "" leaves it to the client.
func WithKey(key string) Option { return header("Idempotency-Key", key) }

// After continues a stream of events after the one with this cursor; "" begins with what comes
// next.
func After(cursor string) Option { return header("Last-Event-ID", cursor) }

func header(name, value string) Option {
	return func(r *request) {
		if value != "" {
			r.header.Set(name, value)
		}
	}
}

// Query sets a parameter that several operations have, such as limit.
func Query(name, value string) Option { return func(r *request) { r.query.Set(name, value) } }

// Body sends v instead of the body of the method. The server checks it, such as text of a user.
func Body(v any) Option { return func(r *request) { r.body = v } }

// call is one request as its operation describes it.
type call struct {
	method  string
	path    string // with a %s for each of parts
	parts   []string
	params  any // a pointer to the query's struct, or nil
	body    any
	options []Option
}

// request returns the request that is sent. It returns an error when a part of the path names
// nothing, and when a value is none in JSON.
func (k call) request(ctx context.Context, server string) (*http.Request, error) {
	parts := make([]any, len(k.parts))
	for i, p := range k.parts {
		if p == "" || p == "." || p == ".." { // they would be resolved, and name something else
			return nil, fmt.Errorf("%q names nothing; nothing was sent", p)
		}
		parts[i] = url.PathEscape(p)
	}
	query, err := queryOf(k.params)
	if err != nil {
		return nil, fmt.Errorf("the query: %w", err)
	}
	r := request{header: http.Header{}, query: query, body: k.body}
	for _, option := range k.options {
		option(&r)
	}
	var body io.Reader
	if r.body != nil {
		raw, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("the body: %w", err)
		}
		body = bytes.NewReader(raw)
		r.header.Set("Content-Type", contentJSON)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, strings.TrimSuffix(server, "/")+fmt.Sprintf(k.path, parts...), body)
	if err != nil {
		return nil, err
	}
	req.Header, req.URL.RawQuery = r.header, r.query.Encode()
	return req, nil
}

// queryOf returns the fields of a query's struct that are set.
func queryOf(params any) (url.Values, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range fields {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, v := range list {
			query.Add(name, fmt.Sprint(v))
		}
	}
	return query, nil
}

// ask sends one request and reads the answer.
func ask[T any](ctx context.Context, c *Client, k call) (Answer[T], error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	res, err := c.open(ctx, k)
	if err != nil {
		return Answer[T]{}, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer))
	if err != nil {
		return Answer[T]{}, &Unreachable{Server: serverOf(res.Request), Key: KeyOf(res.Request), Err: fmt.Errorf("the answer broke off: %w", bare(err))}
	}
	return Answer[T]{Raw: raw, ETag: res.Header.Get("ETag")}, nil
}

// stream opens an answer that has no bound. The caller closes the body.
func (c *Client) stream(ctx context.Context, accept string, k call) (*http.Response, error) {
	k.options = append([]Option{header("Accept", accept)}, k.options...)
	return c.open(ctx, k)
}

// open sends one request and returns a successful answer, whose body the caller closes.
func (c *Client) open(ctx context.Context, k call) (*http.Response, error) {
	req, err := k.request(ctx, c.cfg.Server)
	if err != nil {
		return nil, err
	}
	res, err := c.do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < http.StatusMultipleChoices {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	refused := &Refusal{Status: res.StatusCode, StatusText: res.Status, Key: KeyOf(res.Request)}
	raw, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer))
	if err != nil || json.Unmarshal(raw, &refused.Problem) != nil {
		refused.Problem = Problem{}
	}
	return nil, refused
}

// do adds to a request what all have and sends it, and a read again while the server asks to come
// back later.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	set := func(name, value string) {
		if value != "" && req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	if c.cfg.Token != "" {
		set("Authorization", "Bearer "+c.cfg.Token)
	}
	set("Accept", contentJSON)
	set("User-Agent", c.cfg.UserAgent)
	if req.Method == http.MethodPost {
		set("Idempotency-Key", c.cfg.Key())
	}
	for {
		res, err := c.cfg.HTTP.Do(req)
		var lost *Unreachable
		switch {
		case errors.As(err, &lost):
			return nil, err
		case err != nil && c.cfg.Token == "":
			return nil, err // of HTTP itself, which knows who asks
		case err != nil:
			return nil, &Unreachable{Server: serverOf(req), Key: KeyOf(req), Err: bare(err)}
		}
		if req.Method != http.MethodGet || res.StatusCode != http.StatusServiceUnavailable {
			return res, nil
		}
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // 0 where there is none
		if seconds <= 0 {
			return res, nil
		}
		if deadline, ok := req.Context().Deadline(); !ok || time.Until(deadline) < later(seconds) {
			return res, nil
		}
		_ = res.Body.Close()
		if err := poll.Sleep(req.Context(), later(seconds)); err != nil {
			return nil, &Unreachable{Server: serverOf(req), Err: err}
		}
	}
}

func later(seconds int) time.Duration { return min(time.Duration(seconds)*time.Second, maxLater) }

func serverOf(req *http.Request) string { return req.URL.Scheme + "://" + req.URL.Host }

// KeyOf returns the Idempotency-Key of a request that changes something.
func KeyOf(req *http.Request) string {
	if req.Method != http.MethodPost {
		return ""
	}
	return req.Header.Get("Idempotency-Key")
}

// bare takes method and URL, which are said already, from an error.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
