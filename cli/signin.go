package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cli/browser"
	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/slipway-cloud/slipway/client"
)

const (
	signInLimit   = 10 * time.Minute // for the user to finish the page
	providerLimit = 20 * time.Second // for one request to the identity provider
	lockLimit     = 30 * time.Second // longer than a refresh by another slipway
	lockPoll      = 50 * time.Millisecond
	// freshFor is how long a token has to be valid to be sent.
	freshFor     = 30 * time.Second
	callbackPath = "/callback"
)

// session is a sign-in at an identity provider. The token of the account is from it.
type session struct {
	Issuer       string    `yaml:"issuer"`
	ClientID     string    `yaml:"client_id"`
	TokenURL     string    `yaml:"token_url"`
	RevokeURL    string    `yaml:"revoke_url,omitempty"`
	Use          string    `yaml:"use"` // access_token or id_token: which token the API accepts
	RefreshToken string    `yaml:"refresh_token,omitempty"`
	Expires      time.Time `yaml:"expires"` // of the token
}

func (s session) config() *oauth2.Config {
	return &oauth2.Config{ClientID: s.ClientID, Endpoint: oauth2.Endpoint{TokenURL: s.TokenURL, AuthStyle: oauth2.AuthStyleInParams}}
}

// keepTokens keeps what a token answer holds, and returns the token for the API.
func (s *session) keepTokens(t *oauth2.Token) (string, error) {
	text := t.AccessToken
	s.Expires = t.Expiry
	if s.Use == "id_token" {
		text, _ = t.Extra("id_token").(string)
	}
	if text == "" {
		return "", fail(ExitUnauthorised, "the identity provider %s gave no %s; its administrator has to allow it for the client %s", s.Issuer, s.Use, s.ClientID)
	}
	if s.Expires.IsZero() { // the provider does not say: ask for a new one each hour
		s.Expires = time.Now().Add(time.Hour)
	}
	if t.RefreshToken != "" {
		s.RefreshToken = t.RefreshToken
	}
	return text, nil
}

// signIn signs the user in at the identity provider of a server, in a browser of this machine or of
// another one.
func (a *app) signIn(ctx context.Context, acc account, device bool) (string, *session, error) {
	a.signing = &acc
	how, err := client.Value(a.api.SignIn(ctx))
	var refusal *client.Refusal
	if errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
		return "", nil, fail(ExitUsage, "%s has no identity provider for the command line; use --token-stdin or --token-file with an API token", acc.Server)
	}
	if err != nil {
		return "", nil, err
	}
	if u, err := url.Parse(how.Issuer); err != nil || u.Scheme != "https" && !isLoopback(u.Hostname()) {
		return "", nil, fail(ExitError, "%s names the identity provider %q, which is no https URL", acc.Server, oneLine(how.Issuer))
	}
	c, err := a.clientOf(acc)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, c), signInLimit)
	defer cancel()
	provider, err := oidc.NewProvider(ctx, how.Issuer)
	if err != nil {
		return "", nil, fail(ExitUnreachable, "the identity provider %s does not answer: %w", oneLine(how.Issuer), err)
	}
	var more struct {
		RevokeURL string `json:"revocation_endpoint"`
	}
	if err := provider.Claims(&more); err != nil {
		return "", nil, err
	}
	endpoint := provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInParams
	s := &session{Issuer: how.Issuer, ClientID: how.ClientID, TokenURL: endpoint.TokenURL, RevokeURL: more.RevokeURL, Use: string(how.Token)}
	config := &oauth2.Config{ClientID: how.ClientID, Endpoint: endpoint, Scopes: []string{oidc.ScopeOpenID, "profile", "email", oidc.ScopeOfflineAccess}}
	var token *oauth2.Token
	if device {
		token, err = a.signInByDevice(ctx, config)
	} else {
		token, err = a.signInByBrowser(ctx, provider, config)
	}
	if err != nil {
		return "", nil, signInFailure(ctx, err)
	}
	text, err := s.keepTokens(token)
	return text, s, err
}

// signInFailure says in words why the identity provider gave no token.
func signInFailure(ctx context.Context, err error) error {
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == "access_denied":
		return fail(ExitUnauthorised, "the sign-in was denied in the browser")
	case errors.As(err, &refused) && refused.ErrorCode == "expired_token", errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fail(ExitUnauthorised, "nobody finished the sign-in in time; run slipway login again")
	case errors.As(err, &refused):
		return fail(ExitUnauthorised, "the identity provider refuses the sign-in: %s %s", oneLine(refused.ErrorCode), oneLine(refused.ErrorDescription))
	}
	return err
}

// signInByDevice prints an address and a code, and waits until the user has confirmed the code.
func (a *app) signInByDevice(ctx context.Context, config *oauth2.Config) (*oauth2.Token, error) {
	if config.Endpoint.DeviceAuthURL == "" {
		return nil, fail(ExitUsage, "the identity provider has no sign-in by device; leave --device out, or use an API token")
	}
	began, err := config.DeviceAuth(ctx)
	if err != nil {
		return nil, err
	}
	address := began.VerificationURIComplete
	if address == "" {
		address = began.VerificationURI
	}
	fmt.Fprintf(a.Err, "Open in a browser:  %s\nThe page has to show the code  %s  and confirm it only there.\n", oneLine(address), oneLine(began.UserCode))
	return config.DeviceAccessToken(ctx, began)
}

// signInByBrowser opens the provider's page and takes its answer on a port of this machine. Another
// user of the machine who reads the answer cannot use it without the verifier (PKCE); an answer of
// a sign-in that somebody else began is refused by its state, a token of it by its nonce.
func (a *app) signInByBrowser(ctx context.Context, provider *oidc.Provider, config *oauth2.Config) (*oauth2.Token, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config.RedirectURL = "http://" + l.Addr().String() + callbackPath
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	answers := make(chan url.Values, 1)
	server := &http.Server{Handler: takeAnswer(state, answers), ReadTimeout: providerLimit, WriteTimeout: providerLimit, MaxHeaderBytes: 32 << 10}
	go func() { _ = server.Serve(l) }() // it ends when it is closed
	defer closeSoon(server)

	address := config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))
	fmt.Fprintf(a.Err, "Sign in here, in a browser of this machine:\n  %s\n(on a machine without one, use slipway login --device)\n", address)
	a.openBrowser(address)
	var got url.Values
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got = <-answers:
	}
	if code := got.Get("error"); code != "" {
		return nil, &oauth2.RetrieveError{ErrorCode: code, ErrorDescription: got.Get("error_description")}
	}
	token, err := config.Exchange(ctx, got.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, err
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := provider.Verifier(&oidc.Config{ClientID: config.ClientID}).Verify(ctx, raw)
	if err != nil || subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 {
		return nil, fail(ExitUnauthorised, "the identity provider's answer belongs to no sign-in of this machine; run slipway login again")
	}
	return token, nil
}

// takeAnswer takes the provider's answer to the sign-in with a state, once.
func takeAnswer(state string, answers chan<- url.Values) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+callbackPath, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		got := r.URL.Query()
		if subtle.ConstantTimeCompare([]byte(got.Get("state")), []byte(state)) != 1 {
			http.Error(w, "This answer belongs to no sign-in that waits here. Run slipway login again.", http.StatusBadRequest)
			return
		}
		select {
		case answers <- got:
			fmt.Fprintln(w, "The command line goes on. You can close this page.")
		default:
			http.Error(w, "This sign-in has its answer.", http.StatusConflict)
		}
	})
	return mux
}

// closeSoon gives the browser the time to read its page.
func closeSoon(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = server.Shutdown(ctx)
}

// openBrowser opens an address in the user's browser. Without a browser the printed address serves.
func (a *app) openBrowser(address string) {
	if a.OpenBrowser != nil {
		a.OpenBrowser(address)
		return
	}
	if !a.Terminal {
		return
	}
	browser.Stdout, browser.Stderr = a.Err, a.Err
	_ = browser.OpenURL(address) // the user has the address
}

// current returns a stored account with a token that is still valid, and gets a new token where the
// old one ends. Two runs at once get one between them: a provider may take the second use of a
// refresh token for a theft.
func (a *app) current(name string, acc account) (account, error) {
	if acc.Session == nil || time.Until(acc.Session.Expires) > freshFor {
		return acc, nil
	}
	err := a.changeContexts(func(c *contexts) error {
		var found bool
		if acc, found = c.Contexts[name]; !found {
			return noContext(ExitUsage, name)
		}
		if acc.Session == nil || time.Until(acc.Session.Expires) > freshFor {
			return nil
		}
		if err := a.refresh(&acc); err != nil {
			return err
		}
		c.Contexts[name] = acc
		return nil
	})
	return acc, err
}

// refresh gets a new token for an account.
func (a *app) refresh(acc *account) error {
	ended := fail(ExitUnauthorised, "your sign-in at %s has ended; run slipway login --server %s", acc.Server, acc.Server)
	s := *acc.Session
	if s.RefreshToken == "" {
		return ended
	}
	c, err := a.clientOf(*acc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(context.Background(), c), providerLimit)
	defer cancel()
	token, err := s.config().TokenSource(ctx, &oauth2.Token{RefreshToken: s.RefreshToken}).Token()
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode < http.StatusInternalServerError {
		return ended
	}
	if err != nil {
		return fail(ExitUnreachable, "the identity provider %s does not answer, so that the token cannot be renewed: %w", s.Issuer, bare(err))
	}
	acc.Token, err = s.keepTokens(token)
	acc.Session = &s
	return err
}

// revoke asks the identity provider to end the sign-in of a forgotten account.
func (a *app) revoke(ctx context.Context, acc account) error {
	s := acc.Session
	if s.RevokeURL == "" || s.RefreshToken == "" {
		fmt.Fprintf(a.Err, "slipway: %s ends no sign-ins by program; the token stays valid until %s\n", s.Issuer, s.Expires.Format(time.RFC3339))
		return nil
	}
	c, err := a.clientOf(acc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, providerLimit)
	defer cancel()
	form := url.Values{"token": {s.RefreshToken}, "token_type_hint": {"refresh_token"}, "client_id": {s.ClientID}}
	err = postForm(ctx, c, s.RevokeURL, form)
	if err != nil {
		return fail(ExitUnreachable, "the context is forgotten, but the identity provider did not end the sign-in: %w; end your sessions on its page", err)
	}
	return nil
}

// postForm posts a form and reads no more of the answer than its status.
func postForm(ctx context.Context, c *http.Client, address string, form url.Values) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := c.Do(req)
	if err != nil {
		return bare(err)
	}
	if err := res.Body.Close(); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers with status %d", res.StatusCode)
	}
	return nil
}

func (a *app) makeConfigDir() error { return os.MkdirAll(filepath.Dir(a.ConfigPath), 0o700) }
