package redfish

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/slipway-cloud/slipway/providers"
)

// conn is the one connection of a BMC value: gofish over the guard, connected
// and logged in on the first request that needs it.
type conn struct {
	base    origin
	trust   trust
	target  providers.BMCTarget
	opts    Options
	secrets *redactor
	guard   *guard

	mu       sync.Mutex
	client   *gofish.APIClient
	root     doc
	loggedIn bool
	loginErr error  // outcome of the one login that was sent
	session  string // path of the session to delete, "" with Basic
	// ownAccount is where the BMC says that the login's password must be changed.
	ownAccount string
	closed     bool
}

func newConn(base origin, tr trust, t providers.BMCTarget, opts Options, secrets *redactor) *conn {
	return &conn{
		base: base, trust: tr, target: t, opts: opts, secrets: secrets,
		guard: &guard{base: base, transport: newTransport(tr.config(), t.Rule, opts), opts: opts, secrets: secrets},
	}
}

// open connects without a login: the service root is readable by anyone.
// gofish reads the root itself and takes its client's context from ctx.
func open(ctx context.Context, op *operation, g *guard) (*gofish.APIClient, doc, error) {
	c := &call{op: op, anonymous: true}
	client, err := gofish.ConnectContext(withCall(ctx, c), gofish.ClientConfig{
		Endpoint: g.base.String(), HTTPClient: g.client(),
		NoModifyTransport: true, ReuseConnections: true, MaxConcurrentRequests: 2,
	})
	if c.answer != nil && c.answer.Status >= 400 {
		return nil, nil, g.secrets.refusal(op.name, c.answer)
	}
	if err != nil && c.answer == nil {
		return nil, nil, g.secrets.lost(c, false, err)
	}
	if err != nil {
		var pe *providers.Error
		if errors.As(err, &pe) {
			return nil, nil, pe
		}
		return nil, nil, &providers.Error{Kind: providers.KindProtocol, Op: op.name,
			Message: "the address answers, but its service root is not Redfish"}
	}
	root, err := parseDoc(c.answer.Body)
	if err != nil || root.link("Systems") == "" && root.text("RedfishVersion") == "" {
		return nil, nil, &providers.Error{Kind: providers.KindProtocol, Op: op.name,
			Message: "the address answers, but its service root is not Redfish"}
	}
	return client, root, nil
}

// ready connects and logs in once.
func (c *conn) ready(ctx context.Context, op *operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &providers.Error{Kind: providers.KindInvalid, Op: op.name, Message: "this BMC was closed; open it again"}
	}
	if !c.trust.settled() {
		return &providers.Error{Kind: providers.KindPinMismatch, Op: op.name,
			Message: "no certificate pin is approved for this BMC; probe it and approve the pin, or configure the CA bundle of the site"}
	}
	if err := c.guard.stopped(); err != nil {
		return renamed(op, err)
	}
	if c.loginErr != nil {
		return renamed(op, c.loginErr)
	}
	if c.client == nil {
		client, root, err := open(ctx, op, c.guard)
		if err != nil {
			return err
		}
		c.client, c.root = client, root
	}
	if c.loggedIn {
		return nil
	}
	sent, err := c.login(ctx, op)
	if err != nil && sent {
		c.loginErr = err
	}
	c.loggedIn = err == nil
	return err
}

// login creates a session, or sets up Basic if the BMC has no session service. sent reports whether
// the password may have been sent.
func (c *conn) login(ctx context.Context, op *operation) (sent bool, err error) {
	basic := credential{user: c.target.User, password: c.target.Password.Reveal()}
	sessions := c.root.link("Links", "Sessions")
	if sessions == "" && c.root.link("SessionService") != "" {
		sessions = c.root.link("SessionService") + "/Sessions"
	}
	if sessions == "" {
		c.guard.use(basic)
		return false, nil
	}
	path, err := c.base.path(sessions)
	if err != nil {
		return false, renamed(op, err)
	}
	cl := &call{op: op, login: true}
	token, err := schemas.CreateSession(c.client.WithContext(withCall(ctx, cl)), path, basic.user, basic.password)
	a := cl.answer
	switch {
	case c.guard.stopped() != nil:
		return true, renamed(op, c.guard.stopped())
	case a == nil:
		return cl.sent.Load(), c.secrets.lost(cl, false, err)
	case a.Status == http.StatusNotFound || a.Status == http.StatusMethodNotAllowed || a.Status == http.StatusNotImplemented:
		c.guard.use(basic) // the service is announced but does not exist; no password was checked
		return false, nil
	case a.Status >= 400:
		return true, c.secrets.refusal(op.name, a)
	case err != nil:
		return true, c.secrets.lost(cl, false, err)
	case token == nil || token.Token == "":
		return true, &providers.Error{Kind: providers.KindProtocol, Op: op.name, Status: a.Status,
			Message: "the BMC answered the login without a session token"}
	}
	c.secrets.add(token.Token)
	c.guard.use(credential{token: token.Token})
	return true, c.rememberSession(op, path, a)
}

// rememberSession finds the session to delete at the end: the Location, or the
// body where the header is missing.
func (c *conn) rememberSession(op *operation, sessions string, a *answer) error {
	link := a.Header.Get("Location")
	c.rememberAccount(a)
	if link == "" {
		if d, err := parseDoc(a.Body); err == nil {
			link = d.text("@odata.id")
			if link == "" && d.text("Id") != "" {
				link = sessions + "/" + d.text("Id")
			}
		}
	}
	if link == "" {
		return nil // it ends by its own timeout
	}
	path, err := c.base.path(link)
	if err != nil {
		return renamed(op, err)
	}
	c.session = path
	return nil
}

// rememberAccount keeps the account that a PasswordChangeRequired message names
// (Redfish, Base registry: its one argument is the account's URI).
func (c *conn) rememberAccount(a *answer) {
	d, err := parseDoc(a.Body)
	if err != nil {
		return
	}
	for _, m := range d.list("@Message.ExtendedInfo") {
		e, ok := m.(map[string]any)
		if !ok || !pwdWords.MatchString(doc(e).text("MessageId")) {
			continue
		}
		if args := doc(e).texts("MessageArgs"); len(args) > 0 {
			if path, err := c.base.path(args[0]); err == nil {
				c.ownAccount = path
			}
		}
	}
}

// basic reports whether the login is Basic, where no session shows that it is valid.
func (c *conn) basic() bool { return c.guard.basic() }

// send makes one request with the login and returns its answer; statuses of
// 400 and above are errors. header may carry If-Match.
func (c *conn) send(ctx context.Context, op *operation, method, link string, payload any, header map[string]string) (*answer, error) {
	path, err := c.base.path(link)
	if err != nil {
		return nil, renamed(op, err)
	}
	if err := c.ready(ctx, op); err != nil {
		return nil, err
	}
	cl := &call{op: op}
	client := c.client.WithContext(withCall(ctx, cl))
	var resp *http.Response
	switch method {
	case http.MethodGet:
		resp, err = client.GetWithHeaders(path, header)
	case http.MethodPost:
		resp, err = client.PostWithHeaders(path, payload, header)
	case http.MethodPatch:
		resp, err = client.PatchWithHeaders(path, payload, header)
	default:
		resp, err = client.DeleteWithHeaders(path, header)
	}
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close() // already read by the guard
	}
	a := cl.answer
	if a != nil && a.Status >= 400 {
		if stop := c.guard.stopped(); stop != nil {
			return nil, renamed(op, stop)
		}
		return a, c.secrets.refusal(op.name, a)
	}
	if a == nil || a.Status >= 300 || a.Status < 200 {
		if err == nil {
			err = errors.New("no answer")
		}
		return nil, c.secrets.lost(cl, method != http.MethodGet, err)
	}
	return a, nil
}

// get reads one resource.
func (c *conn) get(ctx context.Context, op *operation, link string) (doc, error) {
	d, _, err := c.getTagged(ctx, op, link)
	return d, err
}

// getTagged reads one resource and its ETag, from the header or the body.
func (c *conn) getTagged(ctx context.Context, op *operation, link string) (doc, string, error) {
	if d := op.kept.doc(link); d != nil {
		return d, "", nil
	}
	a, err := c.send(ctx, op, http.MethodGet, link, nil, nil)
	if err != nil {
		return nil, "", err
	}
	d, err := parseDoc(a.Body)
	if err != nil {
		return nil, "", &providers.Error{Kind: providers.KindProtocol, Op: op.name, Status: a.Status,
			Message: "the BMC answered with something that is no Redfish resource"}
	}
	tag := a.Header.Get("ETag")
	if tag == "" {
		tag = d.text("@odata.etag")
	}
	op.kept.keep(link, d, len(a.Body))
	return d, tag, nil
}

// maxPages bounds a collection; real ones have a handful of pages.
const maxPages = 64

// members lists the links of a collection over all its pages. On an error the
// links found so far are returned with it.
func (c *conn) members(ctx context.Context, op *operation, link string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for page := 0; link != ""; page++ {
		path, err := c.base.path(link)
		if err != nil {
			return out, renamed(op, err)
		}
		if seen[path] || page >= maxPages {
			return out, &providers.Error{Kind: providers.KindProtocol, Op: op.name,
				Message: "a collection of the BMC does not end: its next page leads back"}
		}
		seen[path] = true
		d, err := c.get(ctx, op, link)
		if err != nil {
			return out, err
		}
		out = append(out, d.links("Members")...)
		link = d.text("Members@odata.nextLink")
	}
	return out, nil
}

// close logs out under its own deadline, even when ctx has ended. A BMC has few sessions, and a
// leaked one blocks the next login.
func (c *conn) close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	defer c.guard.transport.CloseIdleConnections()
	if c.client == nil || c.session == "" || c.guard.stopped() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.LogoutTimeout)
	defer cancel()
	op := newOperation("close", 1)
	cl := &call{op: op}
	err := schemas.DeleteSession(c.client.WithContext(withCall(ctx, cl)), c.session)
	c.guard.use(credential{})
	switch a := cl.answer; {
	case a == nil && err != nil:
		return c.secrets.lost(cl, false, err)
	case a != nil && a.Status >= 400 && a.Status != http.StatusNotFound && a.Status != http.StatusUnauthorized:
		return c.secrets.refusal(op.name, a)
	}
	return nil
}

// renamed returns an error with the name of the operation in which it occurred.
func renamed(op *operation, err error) error {
	var pe *providers.Error
	if !errors.As(err, &pe) {
		return err
	}
	out := *pe
	out.Op = op.name
	return &out
}
