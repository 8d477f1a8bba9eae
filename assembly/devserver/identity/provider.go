// Package identity runs an OpenID Connect provider on this machine, for the dev stack and for
// tests: zitadel's, with fixed users, sessions in memory and a form to sign in with. A password is
// made at each start. It is no part of slipwayd.
package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/zitadel/oidc/v3/pkg/crypto"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/slipway-cloud/slipway/internal/listener"
)

// The clients of the provider. Tokens for programs name Audience.
const (
	PortalClient  = "slipway-portal"
	ProgramClient = "slipway-cli"
	Audience      = "slipway"
)

// programRedirect is where a program listens for its code, on a port of its choice (RFC 8252).
// Nobody listens on this one: BearerToken reads the code from the redirect.
const programRedirect = "http://127.0.0.1:1/callback"

// The users. The last three are customers, who have no role of the platform.
const (
	Admin    = "admin"
	Operator = "operator"
	Viewer   = "viewer"
	Ada      = "ada"
	Bob      = "bob"
	Carol    = "carol"
)

// User is somebody who can sign in.
type User struct {
	Name, Password string
	Email          string // verified
	Roles, Groups  []string
}

// Subject is what tokens call the user.
func (u User) Subject() string { return "user-" + u.Name }

func newUsers() []User {
	user := func(name, company, group string, roles ...string) User {
		return User{Name: name, Password: rand.Text(), Email: name + "@" + company, Roles: append([]string{}, roles...), Groups: []string{group}}
	}
	return []User{
		user(Admin, "slipway.example", "platform", "admin"), user(Operator, "slipway.example", "platform", "operator"),
		user(Viewer, "slipway.example", "platform", "viewer"),
		user(Ada, "acme.example", "acme"), user(Bob, "acme.example", "acme"), user(Carol, "globex.example", "globex"),
	}
}

// Options say where the provider listens and which portal its client is.
type Options struct {
	Port int // on 127.0.0.1; 0 picks a free one
	// PortalURL is the address of the server that has the portal.
	PortalURL string
}

// Provider is a running provider.
type Provider struct {
	Issuer string
	Secret string // of the portal's client
	Users  []User

	portalURL string
	engine    *op.Provider
	key       signingKey
	server    *http.Server
	http      *http.Client // to the portal

	mu       sync.Mutex
	requests map[string]*request // by id
	codes    map[string]string   // id of a request by code
	logins   map[string]login    // by cookie
	devices  map[string]*device  // by device code
	// refreshes are the refresh tokens that count.
	refreshes     map[string]*refresh
	revokeEndsAll bool
}

const callTimeout = 10 * time.Second

// Start runs a provider until it is closed.
func Start(ctx context.Context, o Options) (*Provider, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", o.Port))
	if err != nil {
		return nil, err
	}
	p := &Provider{
		Issuer: "http://" + l.Addr().String(), Secret: rand.Text(), Users: newUsers(), portalURL: o.PortalURL, http: &http.Client{Timeout: callTimeout},
		requests: map[string]*request{}, codes: map[string]string{}, logins: map[string]login{},
		devices: map[string]*device{}, refreshes: map[string]*refresh{},
	}
	handler, err := p.handler()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p.server = listener.Bounds{HeaderTime: callTimeout}.Server(handler)
	go func() { _ = p.server.Serve(l) }() // it ends when it is closed
	return p, nil
}

// Close stops the provider.
func (p *Provider) Close() error { return p.server.Close() }

func (p *Provider) handler() (http.Handler, error) {
	var err error
	if p.key, err = newSigningKey(); err != nil {
		return nil, err
	}
	cfg := &op.Config{
		CodeMethodS256: true, GrantTypeRefreshToken: true,
		DeviceAuthorization:        op.DeviceAuthorizationConfig{Lifetime: deviceLasts, PollInterval: devicePoll, UserFormPath: devicePath, UserCode: op.UserCodeBase20},
		DefaultLogoutRedirectURI:   p.Issuer + signedOutPath,
		BackChannelLogoutSupported: true, BackChannelLogoutSessionSupported: true,
		SupportedClaims: []string{"sub", "aud", "exp", "iat", "iss", "auth_time", "nonce", "sid", "name", "preferred_username", "email", "email_verified", "roles", "groups"},
	}
	if _, err := rand.Read(cfg.CryptoKey[:]); err != nil {
		return nil, err
	}
	if p.engine, err = op.NewProvider(cfg, storage{p}, op.StaticIssuer(p.Issuer), op.WithAllowInsecure()); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+loginPath, p.showLogin)
	mux.HandleFunc("POST "+loginPath, p.takeLogin)
	mux.HandleFunc("GET "+devicePath, p.showDevice)
	mux.HandleFunc("POST "+devicePath, p.takeDevice)
	mux.HandleFunc("GET "+signedOutPath, p.showSignedOut)
	mux.HandleFunc("GET "+discoveryPath, p.showConfiguration)
	mux.Handle(authorizePath, p.namingIssuer(p.engine))
	mux.Handle(authorizePath+"/", p.namingIssuer(p.engine))
	mux.Handle("/", p.engine)
	return withCaller(p.withLogin(mux)), nil
}

// User returns a user by name.
func (p *Provider) User(name string) (User, error) {
	return p.userWhere(name, func(u User) string { return u.Name })
}

func (p *Provider) bySubject(subject string) (User, error) {
	return p.userWhere(subject, User.Subject)
}

// SetGroups changes the groups of a user, from its next token on.
func (p *Provider) SetGroups(name string, groups ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.Users {
		if p.Users[i].Name == name {
			p.Users[i].Groups = groups
		}
	}
}

func (p *Provider) userWhere(want string, of func(User) string) (User, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.Users {
		if of(u) == want {
			return u, nil
		}
	}
	return User{}, fmt.Errorf("the provider has no user %q", want)
}

// Sign signs claims with the provider's key, as it signs its tokens.
func (p *Provider) Sign(claims any) (string, error) {
	signer, err := op.SignerFromKey(p.key)
	if err != nil {
		return "", err
	}
	return crypto.Sign(claims, signer)
}
