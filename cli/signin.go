package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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
	if t.RefreshToken != "" {
		s.RefreshToken = t.RefreshToken
	}
	text := t.AccessToken
	s.Expires = t.Expiry
	if s.Use == "id_token" {
		text, _ = t.Extra("id_token").(string)
	}
	if text == "" {
		return "", fail(ExitUnauthorised, "the identity provider %s returned no %s; its administrator has to allow it for the client %s", s.Issuer, s.Use, s.ClientID)
	}
	if end := endOf(text); !end.IsZero() { // an ID token may end before the access token
		s.Expires = end
	}
	if s.Expires.IsZero() { // the provider does not say: ask for a new one each hour
		s.Expires = time.Now().Add(time.Hour)
	}
	return text, nil
}

// endOf returns when a token ends that is a JWT, and no time for any other. Only the API verifies
// the token.
func endOf(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	var claims struct {
		Exp int64 `json:"exp"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Exp == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}

// checkAddresses refuses addresses of an identity provider that are no https URLs: the server that
// names the provider decides what the browser opens. A server on this machine may name a provider
// on this machine without TLS.
func checkAddresses(acc account, addresses map[string]string) error {
	server, err := url.Parse(acc.Server)
	if err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(addresses)) {
		address := addresses[what]
		u, err := url.Parse(address)
		local := err == nil && u.Scheme == "http" && isLoopback(u.Hostname()) && isLoopback(server.Hostname())
		if address != "" && !local && (err != nil || u.Scheme != "https" || u.Host == "") {
			return fail(ExitError, "%s names %q as the %s, which is no https URL", acc.Server, oneLine(address), what)
		}
	}
	return nil
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
	if err := checkAddresses(acc, map[string]string{"identity provider": how.Issuer}); err != nil {
		return "", nil, err
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
		RevokeURL string   `json:"revocation_endpoint"`
		Scopes    []string `json:"scopes_supported"`
	}
	if err := provider.Claims(&more); err != nil {
		return "", nil, err
	}
	endpoint := provider.Endpoint()
	if err := checkAddresses(acc, map[string]string{
		"page to sign in": endpoint.AuthURL, "address of tokens": endpoint.TokenURL, "address of devices": endpoint.DeviceAuthURL, "address of revocations": more.RevokeURL,
	}); err != nil {
		return "", nil, err
	}
	endpoint.AuthStyle = oauth2.AuthStyleInParams
	s := &session{Issuer: how.Issuer, ClientID: how.ClientID, TokenURL: endpoint.TokenURL, RevokeURL: more.RevokeURL, Use: string(how.Token)}
	config := &oauth2.Config{ClientID: how.ClientID, Endpoint: endpoint, Scopes: []string{oidc.ScopeOpenID, "profile", "email"}}
	if len(more.Scopes) == 0 || slices.Contains(more.Scopes, oidc.ScopeOfflineAccess) {
		config.Scopes = append(config.Scopes, oidc.ScopeOfflineAccess)
	}
	fmt.Fprintf(a.Err, "You sign in at %s for %s.\n", oneLine(how.Issuer), acc.Server)
	var token *oauth2.Token
	if device {
		token, err = a.signInByDevice(ctx, config)
	} else {
		token, err = a.signInByBrowser(ctx, how.Issuer, provider, config)
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
	case errors.As(err, &refused) && refused.ErrorCode != "":
		return fail(ExitUnauthorised, "the identity provider refuses the sign-in: %s %s", oneLine(refused.ErrorCode), oneLine(refused.ErrorDescription))
	case errors.As(err, &refused):
		return fail(ExitUnreachable, "the identity provider does not answer as one: %w", err)
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
	if began.Interval < 0 || began.Interval > int64(signInLimit/time.Second) {
		return nil, fail(ExitError, "the identity provider wants to be asked every %d seconds, which is no sensible time", began.Interval)
	}
	fmt.Fprintf(a.Err, "Open in a browser:  %s\nThe page has to show the code  %s  and confirm it only there.\n", oneLine(address), oneLine(began.UserCode))
	token, err := config.DeviceAccessToken(ctx, began)
	if err != nil && !began.Expiry.IsZero() && time.Now().After(began.Expiry) {
		err = &oauth2.RetrieveError{ErrorCode: "expired_token"}
	}
	return token, err
}

// signInByBrowser opens the provider's page and takes its answer on a port of this machine. Another
// user of the machine who reads the answer cannot use it without the verifier (PKCE); an answer of
// a sign-in that somebody else began is refused by its state, a token of it by its nonce.
func (a *app) signInByBrowser(ctx context.Context, issuer string, provider *oidc.Provider, config *oauth2.Config) (*oauth2.Token, error) {
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
	fmt.Fprintf(a.Err, "Sign in here, in a browser of this machine:\n  %s\n(on a machine without one, use slipway login --device)\n", oneLine(address))
	a.openBrowser(address)
	var got url.Values
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got = <-answers:
	}
	if iss := got.Get("iss"); iss != "" && iss != issuer { // RFC 9207
		return nil, fail(ExitUnauthorised, "the answer is of the identity provider %s, not of %s; run slipway login again", oneLine(iss), oneLine(issuer))
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
	if err != nil {
		return nil, fail(ExitUnauthorised, "the identity provider's ID token is not accepted: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 {
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
			http.Error(w, "This sign-in is already complete.", http.StatusConflict)
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
	if runtime.GOOS == "linux" && a.Getenv("DISPLAY") == "" && a.Getenv("WAYLAND_DISPLAY") == "" {
		return // only a browser in the terminal could open, which cannot come back
	}
	browser.Stdout, browser.Stderr = io.Discard, io.Discard
	go func() { _ = browser.OpenURL(address) }() // some browsers end with their last page only
}

// current returns a stored account with a token that is still valid, and gets a new token where the
// old one ends. Two runs at once get one between them: a provider may take the second use of a
// refresh token for a theft.
func (a *app) current(ctx context.Context, name string, acc account) (account, error) {
	if acc.Session == nil || time.Until(acc.Session.Expires) > freshFor {
		return acc, nil
	}
	var refused error
	renewed := false
	err := a.changeContexts(ctx, func(c *contexts) error {
		var found bool
		if acc, found = c.Contexts[name]; !found {
			return noContext(ExitUsage, name)
		}
		if acc.Session == nil || time.Until(acc.Session.Expires) > freshFor {
			return nil
		}
		before := acc.Session.RefreshToken
		refused = a.refresh(&acc)
		renewed = refused == nil
		if !renewed && acc.Session.RefreshToken == before {
			return refused
		}
		c.Contexts[name] = acc // the refresh token of before is used up
		return nil
	})
	if err != nil && renewed {
		fmt.Fprintf(a.Err, "slipway: the new token cannot be kept, so you may have to sign in again: %v\n", err)
		return acc, nil
	}
	return acc, cmp.Or(err, refused)
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
	// An interrupt ends no exchange that has begun: its answer has the next refresh token.
	ctx, cancel := context.WithTimeout(oidc.ClientContext(context.Background(), c), providerLimit)
	defer cancel()
	token, err := s.config().TokenSource(ctx, &oauth2.Token{RefreshToken: s.RefreshToken}).Token()
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == "invalid_grant":
		return ended
	case err != nil:
		return fail(ExitUnreachable, "the identity provider %s gives no new token: %w; repeat the command", s.Issuer, bare(err))
	}
	text, err := s.keepTokens(token)
	acc.Session = &s
	if err == nil {
		acc.Token = text
	}
	return err
}

// revoke asks the identity provider to end the sign-in of an account.
func (a *app) revoke(ctx context.Context, acc account) error {
	s := acc.Session
	if s == nil || s.RefreshToken == "" {
		return nil
	}
	if s.RevokeURL == "" {
		fmt.Fprintf(a.Err, "slipway: %s has no revocation endpoint; end your sessions on its page\n", s.Issuer)
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
		return fail(ExitUnreachable, "the identity provider %s has not ended the sign-in, so the context stays; repeat the command: %w", s.Issuer, err)
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
