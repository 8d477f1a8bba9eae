package cli

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
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/slipway-cloud/slipway/internal/poll"
)

const (
	maxAnswer = 32 << 20 // bytes
	maxLater  = 30       // seconds
)

// answer is what the API said.
type answer struct {
	raw  []byte
	etag string
}

func (r answer) into(v any) error {
	if err := json.Unmarshal(r.raw, v); err != nil {
		return fmt.Errorf("the server's answer cannot be read; is this a Slipway server of another version? (%w)", err)
	}
	return nil
}

// problemDoc is a problem document (RFC 9457) as the API writes it.
type problemDoc struct {
	Type, Title, Detail string
	Status              int
	RequestID           string `json:"request_id"`
	FailureClass        string `json:"failure_class"`
	Runbook             string
	Existing            string
	Allowed             []string
	Errors              []struct{ Location, Message string }
}

func (p problemDoc) text() string {
	var b strings.Builder
	b.WriteString(oneLine(p.Detail))
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", oneLine(strings.TrimPrefix(e.Location, "body.")), oneLine(e.Message))
	}
	if len(p.Allowed) > 0 {
		fmt.Fprintf(&b, "\n  allowed now: %s", oneLine(strings.Join(p.Allowed, ", ")))
	}
	if p.Existing != "" && !strings.Contains(p.Detail, p.Existing) {
		fmt.Fprintf(&b, "\n  in the way: %s", oneLine(p.Existing))
	}
	if p.Runbook != "" {
		fmt.Fprintf(&b, "\n  %s: %s", oneLine(p.FailureClass), oneLine(p.Runbook))
	}
	if p.Status >= http.StatusInternalServerError && p.RequestID != "" {
		fmt.Fprintf(&b, "\n  request id: %s", oneLine(p.RequestID))
	}
	return b.String()
}

func exitOf(status int) int {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return ExitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return ExitRefused
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		return ExitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitUnauthorised
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return ExitUnreachable
	}
	return ExitError
}

// call asks the API and decodes the answer into v, which may be nil.
func (a *app) call(ctx context.Context, method, path string, body, v any) error {
	acc, err := a.account()
	if err != nil {
		return err
	}
	return a.callAs(ctx, acc, method, path, body, v)
}

func (a *app) callAs(ctx context.Context, acc account, method, path string, body, v any) error {
	r, err := a.send(ctx, acc, method, path, body, nil)
	if err != nil || v == nil {
		return err
	}
	return r.into(v)
}

// ask is call for those who need the whole answer.
func (a *app) ask(ctx context.Context, method, path string, body any, headers map[string]string) (answer, error) {
	acc, err := a.account()
	if err != nil {
		return answer{}, err
	}
	return a.send(ctx, acc, method, path, body, headers)
}

// send sends a request. Each POST carries an idempotency key. A read is repeated while the server
// asks to come back later and the time of the request is not over.
func (a *app) send(ctx context.Context, acc account, method, path string, body any, headers map[string]string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	key := ""
	if method == http.MethodPost {
		key = a.idempotencyKey()
	}
	for {
		r, later, err := a.sendOnce(ctx, acc, method, path, key, body, headers)
		if method == http.MethodGet && later > 0 && poll.Sleep(ctx, later) == nil {
			continue
		}
		var f *failure
		if key != "" && errors.As(err, &f) && f.code == ExitUnreachable {
			err = fail(ExitUnreachable, "%w\n  if it is not known whether it was done, this does it at most once: repeat the command with --idempotency-key %s", f.err, key)
		}
		return r, err
	}
}

// sendOnce sends one request. later is how long the server asks to wait before it is repeated, 0
// where it does not.
func (a *app) sendOnce(ctx context.Context, acc account, method, path, key string, body any, headers map[string]string) (r answer, later time.Duration, err error) {
	res, err := a.open(ctx, acc, method, path, key, body, headers)
	if err != nil {
		return answer{}, 0, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answer{}, 0, fail(ExitUnreachable, "the answer of %s broke off: %w", acc.Server, bare(err))
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // 0 where there is none
		later = time.Duration(min(max(seconds, 0), maxLater)) * time.Second
	}
	r, err = checkAnswer(res, raw)
	return r, later, err
}

// open sends one request and returns the answer with its body, which the caller closes.
func (a *app) open(ctx context.Context, acc account, method, path, key string, body any, headers map[string]string) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, acc.Server+"/api/v1"+path, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+acc.Token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "slipway/"+a.Version)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	client, err := a.client(acc)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fail(ExitUnreachable, "the server %s cannot be reached: %w", acc.Server, bare(err))
	}
	a.noteServerTime(res.Header.Get("Date"))
	return res, nil
}

// noteServerTime compares the server's clock with this one, so that a wrong clock here does not move
// the times in tables. A server states whole seconds.
func (a *app) noteServerTime(date string) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	if a.skew = time.Until(at); a.skew.Abs() <= 2*time.Second {
		a.skew = 0
	}
}

func checkAnswer(res *http.Response, raw []byte) (answer, error) {
	if res.StatusCode < http.StatusMultipleChoices {
		return answer{raw, res.Header.Get("ETag")}, nil
	}
	var p problemDoc
	if json.Unmarshal(raw, &p) != nil || p.Detail == "" {
		return answer{}, fail(ExitError, "the server answered %s and no problem document; is this a Slipway API?", res.Status)
	}
	return answer{}, fail(exitOf(res.StatusCode), "%s", p.text())
}

// idempotencyKey is the flag's, or a new one for each request.
func (a *app) idempotencyKey() string {
	if a.key != "" {
		return a.key
	}
	return uuid.NewString()
}

func (a *app) client(acc account) (*http.Client, error) {
	if a.Client != nil {
		return a.Client, nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	if acc.CAFile != "" {
		pem, err := os.ReadFile(acc.CAFile)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no PEM certificate", acc.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	a.Client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token goes to nobody else
	}
	return a.Client, nil
}

// bare takes method and URL, which are said already, from a client's error.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
