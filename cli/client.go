package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/slipway-cloud/slipway/client"
)

// lister asks for a list. The options choose its page.
type lister[T any] func(ctx context.Context, options ...client.Option) (client.Answer[T], error)

// list returns a lister of an operation.
func list[T, P any](call func(context.Context, *P, ...client.Option) (client.Answer[T], error), params *P, always ...client.Option) lister[T] {
	return func(ctx context.Context, options ...client.Option) (client.Answer[T], error) {
		return call(ctx, params, append(options, always...)...)
	}
}

// listBelow returns a lister of an operation that lists what the thing with the id has.
func listBelow[T, P any](call func(context.Context, string, *P, ...client.Option) (client.Answer[T], error), id string, params *P, always ...client.Option) lister[T] {
	return func(ctx context.Context, options ...client.Option) (client.Answer[T], error) {
		return call(ctx, id, params, append(options, always...)...)
	}
}

// maxPage is the longest page that the API gives.
const maxPage = 200

// page is a page of a list of any type, whose rows stay as they came.
type page struct {
	Data       []json.RawMessage `json:"data"`
	NextCursor string            `json:"next_cursor,omitempty"`
}

// listAll follows the pages of a list, to limit rows; 0 is all.
func listAll[T any](ctx context.Context, of lister[T], limit int) (client.Answer[T], error) {
	all := page{Data: []json.RawMessage{}}
	cursor := ""
	for {
		size := maxPage
		if limit > 0 {
			size = min(size, limit-len(all.Data))
		}
		options := []client.Option{client.Query("limit", strconv.Itoa(size))}
		if cursor != "" {
			options = append(options, client.Query("cursor", cursor))
		}
		r, err := of(ctx, options...)
		got, err := client.Value(client.Answer[page](r), err)
		if err != nil {
			return r, err
		}
		all.Data = append(all.Data, got.Data...)
		if got.NextCursor == "" || limit > 0 && len(all.Data) >= limit {
			r.Raw, err = json.Marshal(all)
			return r, err
		}
		cursor = got.NextCursor
	}
}

// optional returns nil for a flag that was not given.
func optional[S ~string](text string) *S {
	if text == "" {
		return nil
	}
	return new(S(text))
}

// problemText is a problem document in words.
func problemText(p client.Problem) string {
	var b strings.Builder
	b.WriteString(oneLine(p.Detail))
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", oneLine(flagOf(e.Location)), oneLine(e.Message))
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

// flagOf names a field of a request as the user typed it on the command line.
func flagOf(location string) string {
	location = strings.TrimPrefix(location, "body.")
	for field, typed := range map[string]string{
		"header.Slipway-Reason": "--reason", "query.project_id": "--project", "ssh_key_ids": "--key", "wait_seconds": "--wait", "expires_at": "--expires-in",
		"confirm": "--confirm", "max_spend_minor": "--max-spend", "low_minor": "--low", "depleted_minor": "--depleted", "rearm_minor": "--rearm",
		"amount_minor": "AMOUNT", "limit_minor": "AMOUNT", "rate_minor_per_hour": "RATE",
	} {
		if rest, ok := strings.CutPrefix(location, field); ok && (rest == "" || rest[0] == '[' || rest[0] == '.') {
			return typed
		}
	}
	return location
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

// asFailure returns an error with the exit code it ends in.
func asFailure(err error) error {
	var f *failure
	var refusal *client.Refusal
	var lost *client.Unreachable
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.As(err, &refusal) && refusal.Detail == "":
		return &failure{ExitError, err}
	case errors.As(err, &refusal):
		return repeatable(fail(exitOf(refusal.Status), "%s", problemText(refusal.Problem)), refusal.Key)
	case errors.As(err, &lost):
		return repeatable(&failure{ExitUnreachable, err}, lost.Key)
	}
	return &failure{ExitError, err}
}

// repeatable says how a change can be asked for once more of which it is not known whether it was
// made.
func repeatable(err error, key string) error {
	var f *failure
	if key == "" || !errors.As(err, &f) || f.code != ExitUnreachable {
		return err
	}
	return fail(ExitUnreachable, "%w\n  if it is not known whether it was done, this does it at most once: repeat the command with --idempotency-key %s", f.err, key)
}

// anyServer stands for the server of the context until a request is sent: flags choose the context.
const anyServer = "http://server.invalid"

// newAPI returns a client of the server of the context.
func (a *app) newAPI() (*client.Client, error) {
	return client.New(client.Config{Server: anyServer, HTTP: sender{a}, UserAgent: "slipway/" + a.Version, Key: a.idempotencyKey})
}

// sender sends requests to the server of the context, with its token.
type sender struct{ a *app }

// Do sends one request. It returns an error when there is no context.
func (s sender) Do(req *http.Request) (*http.Response, error) {
	acc, err := s.a.account(req.Context())
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	if out.URL, err = url.Parse(acc.Server + req.URL.RequestURI()); err != nil {
		return nil, err
	}
	out.Host = out.URL.Host
	if acc.Token != "" {
		out.Header.Set("Authorization", "Bearer "+acc.Token)
	}
	transport, err := s.a.transport(acc)
	if err != nil {
		return nil, err
	}
	res, err := transport.Do(out)
	if err != nil {
		return nil, &client.Unreachable{Server: acc.Server, Key: client.KeyOf(out), Err: bare(err)}
	}
	s.a.noteServerTime(res.Header.Get("Date"))
	return res, nil
}

// noteServerTime compares the server's clock with this one, so that a wrong clock here does not
// move the times in tables. A server states whole seconds.
func (a *app) noteServerTime(date string) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	if a.skew = time.Until(at); a.skew.Abs() <= 2*time.Second {
		a.skew = 0
	}
}

// idempotencyKey is the flag's, or a new one for each request.
func (a *app) idempotencyKey() string {
	if a.key != "" {
		return a.key
	}
	return uuid.NewString()
}

// addCertificates adds the certificates of a PEM file to a pool.
func addCertificates(pool *x509.CertPool, file string) error {
	pem, err := os.ReadFile(file)
	if err == nil && !pool.AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s holds no PEM certificate", file)
	}
	return err
}

func (a *app) transport(acc account) (*http.Client, error) {
	if a.Client != nil {
		return a.Client, nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	if acc.CAFile != "" {
		pool := x509.NewCertPool()
		if err := addCertificates(pool, acc.CAFile); err != nil {
			return nil, err
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
