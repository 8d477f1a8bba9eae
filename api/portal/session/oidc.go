package session

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	portaldb "github.com/slipway-cloud/slipway/db/portal"
)

// OIDC is the portal as a client of an OpenID Connect provider.
type OIDC struct {
	Issuer       string
	ClientID     string
	ClientSecret string // "" for a public client
	RedirectURL  string // "" means CallbackPath below the public URL
	RolesClaim   string
	GroupsClaim  string
	Scopes       []string // besides openid; nil means profile and email
	Client       *http.Client
}

// CallbackPath is where the provider sends browsers back to.
const CallbackPath = "/portal/oidc/callback"

const (
	signInLasts = 10 * time.Minute
	exchange    = 15 * time.Second
	// freshness is how old the second sign-in may be that the provider tells of: the user has just
	// come back, and clocks differ.
	freshness = time.Minute
	maxReturn = 2000
	home      = "/portal/"
)

// provider is the identity provider.
type provider struct {
	cfg    OIDC
	issuer *op.Issuer
}

func newProvider(api *op.API, cfg OIDC, publicURL string) *provider {
	if cfg.RedirectURL == "" {
		cfg.RedirectURL = strings.TrimSuffix(publicURL, "/") + CallbackPath
	}
	if cfg.Scopes == nil {
		cfg.Scopes = []string{"profile", "email"}
	}
	return &provider{cfg: cfg, issuer: api.Issuer(cfg.Issuer, cfg.Client)}
}

func (p *provider) oauth(ctx context.Context) (*oauth2.Config, error) {
	found, err := p.issuer.Provider(ctx)
	if err != nil {
		return nil, problem.New(problem.Unavailable, "the identity provider does not answer; try again, or sign in with an API token")
	}
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, RedirectURL: p.cfg.RedirectURL, Endpoint: found.Endpoint(),
		Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...),
	}, nil
}

// derive makes one of the secrets of a sign-in from its cookie, so that none of them is stored.
func derive(cookie, purpose string) string {
	h := hmac.New(sha256.New, []byte(cookie))
	h.Write([]byte(purpose))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// beginOIDC begins a sign-in, and notes the session that the browser has: the provider's answer
// will come without its cookie. Each sign-in that begins writes a row, so they are limited.
func (m *Manager) beginOIDC(w http.ResponseWriter, r *http.Request) error {
	addr := ratelimit.RemoteAddress(r)
	if ok, wait := m.begun.Allow(addr); !ok {
		return problem.RateLimited("too many sign-ins began from your address "+addr+
			": 30 at once, and then one a second, are allowed to each address, and behind a proxy all browsers share one", wait)
	}
	live, err := m.find(w, r)
	if err != nil {
		return err
	}
	s := portaldb.SignIn{}
	if live != nil {
		s.Replaces = live.PortalSession.ID
	}
	return m.redirectToProvider(w, r, s)
}

// beginOIDCStepUp asks the provider to authenticate the user of the session again. It counts by
// principal: behind a proxy all browsers share an address, and anybody could keep users out.
func (m *Manager) beginOIDCStepUp(w http.ResponseWriter, r *http.Request) error {
	if p := op.CheckOrigin(r); p != nil {
		return p // another site could use up the principal's second sign-ins
	}
	live, err := m.find(w, r)
	if err != nil {
		return err
	}
	if live == nil || live.PortalSession.Method != portaldb.MethodOIDC {
		return signedOut()
	}
	if ok, wait := m.begun.AllowName(live.PortalSession.Principal); !ok {
		return problem.RateLimited("you have begun too many second sign-ins: 30 at once, and then one a second, are allowed to each user", wait)
	}
	return m.redirectToProvider(w, r, portaldb.SignIn{StepUp: live.PortalSession.ID})
}

func (m *Manager) redirectToProvider(w http.ResponseWriter, r *http.Request, s portaldb.SignIn) error {
	if m.provider == nil {
		return problem.New(problem.NotFound, "no identity provider is configured; sign in with an API token")
	}
	config, err := m.provider.oauth(r.Context())
	if err != nil {
		return err
	}
	cookie, err := newCookieText()
	if err != nil {
		return err
	}
	s.ReturnTo = returnPath(r.URL.Query().Get("return"))
	if err := portaldb.BeginSignIn(r.Context(), m.store, hashOf(cookie), s); err != nil {
		return err
	}
	opts := []oauth2.AuthCodeOption{oidc.Nonce(derive(cookie, "nonce")), oauth2.S256ChallengeOption(derive(cookie, "verifier"))}
	if s.StepUp != "" {
		opts = append(opts, oauth2.SetAuthURLParam("max_age", "0"), oauth2.SetAuthURLParam("prompt", "login"))
	}
	m.setSignIn(w, r, cookie, signInLasts)
	http.Redirect(w, r, config.AuthCodeURL(derive(cookie, "state"), opts...), http.StatusSeeOther)
	return nil
}

// returnPath accepts a path of the portal to come back to. Anything else becomes the first page.
func returnPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || len(path) > maxReturn || !strings.HasPrefix(path, home) || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") ||
		u.IsAbs() || u.Host != "" || u.User != nil || strings.Contains(u.Path, "//") || strings.Contains(u.Path, "/../") || strings.HasPrefix(u.Path, home+"oidc/") {
		return home
	}
	return path
}

// finishOIDC takes the provider's answer, once.
func (m *Manager) finishOIDC(w http.ResponseWriter, r *http.Request) error {
	if m.provider == nil {
		return problem.New(problem.NotFound, "no identity provider is configured; sign in with an API token")
	}
	cookie := cookieText(r, m.signInName(r))
	m.setSignIn(w, r, "", 0)
	if cookie == "" || subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("state")), []byte(derive(cookie, "state"))) != 1 {
		return m.refuse(r, portaldb.MethodOIDC, "the answer belongs to no sign-in of this browser; begin again at /portal/")
	}
	begun, err := portaldb.TakeSignIn(r.Context(), m.store, hashOf(cookie))
	if errors.Is(err, db.ErrNotFound) {
		return m.refuse(r, portaldb.MethodOIDC, "the sign-in took too long or was finished already; begin again at /portal/")
	}
	if err != nil {
		return err
	}
	ours, err := m.provider.hasAnswered(r)
	if err != nil {
		return err
	}
	if !ours {
		return m.refuse(r, portaldb.MethodOIDC, "the answer is not of the identity provider that was asked; begin again at /portal/")
	}
	if r.URL.Query().Get("error") != "" {
		return m.refuse(r, portaldb.MethodOIDC, "the identity provider refused it; begin again at /portal/")
	}
	by, err := m.identify(r, cookie, begun.StepUp != "")
	if err != nil {
		return err
	}
	if begun.StepUp != "" {
		_, err = m.stepUp(w, r, begun.StepUp, by)
	} else {
		_, err = m.begin(w, r, by, begun.Replaces)
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, begun.ReturnTo, http.StatusSeeOther)
	return nil
}

// hasAnswered reports whether an answer is of the provider: the name in it is the provider's, or
// the provider puts none into its answers (RFC 9207). After a mix-up the portal would send the code
// of another provider to this one.
func (p *provider) hasAnswered(r *http.Request) (bool, error) {
	if iss, named := r.URL.Query()["iss"]; named {
		return len(iss) == 1 && iss[0] == p.cfg.Issuer, nil
	}
	found, err := p.issuer.Provider(r.Context())
	if err != nil {
		return false, problem.New(problem.Unavailable, "the identity provider does not answer; begin again at /portal/")
	}
	var promises struct {
		NamesIssuer bool `json:"authorization_response_iss_parameter_supported"`
	}
	err = found.Claims(&promises)
	return !promises.NamesIssuer, err
}

// identify exchanges the code and returns who signed in. again demands that the user has just been
// authenticated.
func (m *Manager) identify(r *http.Request, cookie string, again bool) (portaldb.New, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(r.Context(), m.provider.issuer.HTTP()), exchange)
	defer cancel()
	config, err := m.provider.oauth(ctx)
	if err != nil {
		return portaldb.New{}, err
	}
	token, err := config.Exchange(ctx, r.URL.Query().Get("code"), oauth2.VerifierOption(derive(cookie, "verifier")))
	if err != nil {
		return portaldb.New{}, m.refuse(r, portaldb.MethodOIDC, "the identity provider does not accept the code; begin again at /portal/")
	}
	raw, _ := token.Extra("id_token").(string)
	away := problem.New(problem.Unavailable, "the identity provider does not answer; try again")
	verifier, err := m.provider.issuer.Verifier(ctx, m.provider.cfg.ClientID, nil)
	if err != nil {
		return portaldb.New{}, away
	}
	id, err := verifier.Verify(ctx, raw)
	if err != nil && m.provider.issuer.KeysUnknown() {
		return portaldb.New{}, away
	}
	if err != nil || subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(derive(cookie, "nonce"))) != 1 {
		return portaldb.New{}, m.refuse(r, portaldb.MethodOIDC, "the identity provider's token is not valid; begin again at /portal/")
	}
	who, err := op.PrincipalOfClaims(id, m.provider.cfg.RolesClaim, m.provider.cfg.GroupsClaim)
	if err != nil {
		return portaldb.New{}, m.refuse(r, portaldb.MethodOIDC, "the identity provider's token names nobody")
	}
	var claims struct {
		AuthTime int64  `json:"auth_time"`
		Sid      string `json:"sid"`
	}
	if err := id.Claims(&claims); err != nil {
		return portaldb.New{}, m.refuse(r, portaldb.MethodOIDC, "the identity provider's token cannot be read")
	}
	at := time.Unix(claims.AuthTime, 0)
	if again && (claims.AuthTime == 0 || time.Since(at) > freshness || time.Until(at) > freshness) {
		return portaldb.New{}, m.refuse(r, portaldb.MethodOIDC, "the identity provider has not authenticated you again (auth_time); sign out there, then repeat")
	}
	if claims.AuthTime == 0 {
		at = time.Time{}
	}
	return portaldb.New{
		Method: portaldb.MethodOIDC, Principal: who.ID, Name: who.Name, Roles: who.Roles, Groups: who.Identity.Groups, Email: who.Identity.Email,
		Issuer: id.Issuer, Subject: id.Subject, Sid: claims.Sid, AuthTime: at,
	}, nil
}
