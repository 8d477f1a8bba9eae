package maas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	gomaas "github.com/canonical/gomaasclient/client"

	"github.com/slipway-cloud/slipway/providers"
)

// client implements providers.MAAS. It holds no state between calls.
type client struct {
	base      *url.URL
	key       providers.Secret
	transport http.RoundTripper
	opt       Options
	answered  func(context.Context, error) // nil tells nobody
}

var _ providers.MAAS = (*client)(nil)

// shape says what kind of call is made.
type shape struct {
	op       string
	mutates  bool
	requests int // most requests it may send; 0 = one
	stream   bool
	secrets  []providers.Secret // further secrets it sends
}

// read and write are the two common shapes.
func read(op string) shape  { return shape{op: "maas." + op} }
func write(op string) shape { return shape{op: "maas." + op, mutates: true} }

// session is one call in progress.
type session struct {
	api   *gomaas.Client
	root  gomaas.APIClient
	guard *guard
}

// call runs f over a fresh gomaasclient and classifies its result.
func (c *client) call(ctx context.Context, s shape, f func(*session) error) error {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opt.Timeout)
		defer cancel()
	}
	g := &guard{
		ctx: ctx, next: c.transport, base: c.base, maxBody: c.opt.MaxBody,
		requests: max(s.requests, 1), stream: s.stream, log: c.opt.Log,
	}
	if s.stream {
		g.maxBody, g.element = c.opt.MaxList, c.opt.MaxBody
	}
	api, err := gomaas.GetClientWithTransport(c.base.String(), c.key.Reveal(), "2.0", g)
	if err != nil {
		// gomaasapi prints the key here; the form was checked when opening.
		return invalid(s.op, "the URL or API key of the MAAS site is unusable")
	}
	machines, ok := api.Machine.(*gomaas.Machine)
	if !ok {
		return invalid(s.op, "this version of gomaasclient hides its request machinery")
	}
	err = f(&session{api: api, root: machines.APIClient, guard: g})
	err = verdict(s.op, &g.last, s.mutates, newScrubber(c.key, s.secrets...), err)
	if c.answered != nil {
		c.answered(ctx, err)
	}
	return err
}

// raw is gomaasclient's own request machinery for what its methods lack: the
// path in parts, signed and guarded like every other call.
func (s *session) raw(path ...string) gomaas.APIClient {
	api := s.root
	for _, p := range path {
		api = api.GetSubObject(p)
	}
	return api
}

// post sends op with params to path and hands the answer to f.
func (s *session) post(op string, params url.Values, f func([]byte) error, path ...string) error {
	return s.raw(path...).Post(op, params, f)
}

// get reads path with params and decodes the JSON answer into out.
func (s *session) get(op string, params url.Values, out any, path ...string) error {
	return s.raw(path...).Get(op, params, func(data []byte) error { return json.Unmarshal(data, out) })
}

// each reads a JSON list that may be large, one element at a time, so that
// memory holds one element. The call's shape must say stream.
func (s *session) each(params url.Values, f func(json.RawMessage) error, path ...string) error {
	api := s.raw(path...)
	target := api.AuthClient.GetURL(api.URI())
	target.RawQuery = params.Encode()
	req, err := http.NewRequestWithContext(s.guard.ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	if err := api.AuthClient.Signer.OAuthSign(req); err != nil {
		return err
	}
	req.Close = true
	resp, err := s.guard.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 400 {
		return fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	dec := json.NewDecoder(resp.Body)
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return errors.New("the answer is no list")
	}
	for dec.More() {
		var one json.RawMessage
		if err := dec.Decode(&one); err != nil {
			return err
		}
		if err := f(one); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}
