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
	maxLater = 30 * time.Second
	// JSON is the type of the bodies that the API takes.
	JSON = "application/json"
)

// Config says where the API is and who asks.
type Config struct {
	// Server is the URL before /api/v1, such as https://slipway.example.com.
	Server string
	// Token is an API token or an ID token; "" leaves it to HTTP.
	Token string
	// HTTP sends the requests; nil is a client that follows no redirect, which could take the token
	// to another server.
	HTTP HttpRequestDoer
	// UserAgent names the program.
	UserAgent string
	// Key makes the Idempotency-Key of a POST that has none; nil makes a new one for each.
	Key func() string
}

// Client calls the API. A POST has an Idempotency-Key, and a read is repeated while the server asks
// to come back later and the time of the request is not over.
type Client struct {
	// Timeout is how long one request may take with its repetitions; it does not bound a stream.
	Timeout  time.Duration
	requests *requests
}

// New returns a client. It returns an error when the URL of the server is not one.
func New(cfg Config) (*Client, error) {
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if cfg.Key == nil {
		cfg.Key = uuid.NewString
	}
	r, err := NewClient(cfg.Server, WithHTTPClient(sender{cfg}))
	if err != nil {
		return nil, fmt.Errorf("the URL of the server: %w", err)
	}
	return &Client{Timeout: DefaultTimeout, requests: r}, nil
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
	// Key is the Idempotency-Key of a request that changes something, with which it can be repeated.
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

// IfMatch changes only the version of the etag; * is any.
func IfMatch(etag string) RequestEditorFn { return header("If-Match", etag) }

// Because says why an operator acts on a customer's project; "" says nothing.
func Because(reason string) RequestEditorFn { return header("Slipway-Reason", reason) }

// WithKey sets the Idempotency-Key; "" leaves it to the client.
func WithKey(key string) RequestEditorFn { return header("Idempotency-Key", key) }

// After continues a stream of events after the one with this cursor; "" begins with what comes next.
func After(cursor string) RequestEditorFn { return header("Last-Event-ID", cursor) }

func header(name, value string) RequestEditorFn {
	return func(_ context.Context, req *http.Request) error {
		if value != "" {
			req.Header.Set(name, value)
		}
		return nil
	}
}

// Query sets a parameter that several operations have, such as limit.
func Query(name, value string) RequestEditorFn {
	return func(_ context.Context, req *http.Request) error {
		q := req.URL.Query()
		q.Set(name, value)
		req.URL.RawQuery = q.Encode()
		return nil
	}
}

// Body returns a body for the methods that take any.
func Body(v any) io.Reader {
	raw, err := json.Marshal(v)
	if err != nil {
		return failing{err}
	}
	return bytes.NewReader(raw)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// ask sends one request and reads the answer. parts are what its path names.
func ask[T any](ctx context.Context, c *Client, parts []any, send func(context.Context) (*http.Response, error)) (Answer[T], error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	res, err := open(ctx, parts, send)
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

// open sends one request and returns a successful answer, whose body the caller closes.
func open(ctx context.Context, parts []any, send func(context.Context) (*http.Response, error)) (*http.Response, error) {
	for _, p := range parts {
		// They would be resolved, and name something else.
		if text := fmt.Sprint(p); text == "" || text == "." || text == ".." {
			return nil, fmt.Errorf("%q names nothing; nothing was sent", text)
		}
	}
	res, err := send(ctx)
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

// OpenEvents opens the stream of a project's events. The caller closes the body.
func (c *Client) OpenEvents(ctx context.Context, project string, editors ...RequestEditorFn) (*http.Response, error) {
	editors = append(editors, header("Accept", "text/event-stream, application/problem+json"))
	return open(ctx, []any{project}, func(ctx context.Context) (*http.Response, error) {
		return c.requests.FollowProjectEvents(ctx, project, nil, editors...)
	})
}

// OpenExport opens the export of a project, which has no bound. The caller closes the body.
func (c *Client) OpenExport(ctx context.Context, project string, editors ...RequestEditorFn) (*http.Response, error) {
	return open(ctx, []any{project}, func(ctx context.Context) (*http.Response, error) {
		return c.requests.ExportProject(ctx, project, nil, editors...)
	})
}

// OpenStatement opens the statement of a project's month, which has no bound. The caller closes the
// body.
func (c *Client) OpenStatement(ctx context.Context, project, month string, params *GetStatementParams, editors ...RequestEditorFn) (*http.Response, error) {
	return open(ctx, []any{project, month}, func(ctx context.Context) (*http.Response, error) {
		return c.requests.GetStatement(ctx, project, month, params, editors...)
	})
}

// sender adds to a request what all have.
type sender struct{ Config }

// Do sends a request, and a read again while the server asks to come back later.
func (s sender) Do(req *http.Request) (*http.Response, error) {
	set := func(name, value string) {
		if value != "" && req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	if s.Token != "" {
		set("Authorization", "Bearer "+s.Token)
	}
	set("Accept", JSON)
	set("User-Agent", s.UserAgent)
	if req.Method == http.MethodPost {
		set("Idempotency-Key", s.Key())
	}
	for {
		res, err := s.HTTP.Do(req)
		var lost *Unreachable
		switch {
		case errors.As(err, &lost):
			return nil, err
		case err != nil && s.Token == "":
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
