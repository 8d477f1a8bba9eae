package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
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

// identityProvider is where a user signs in, with what its configuration says.
type identityProvider struct {
	*oidc.Provider
	issuer string
	more   struct {
		RevokeURL   string   `json:"revocation_endpoint"`
		Scopes      []string `json:"scopes_supported"`
		NamesIssuer bool     `json:"authorization_response_iss_parameter_supported"`
	}
}

// hasAnswered refuses the answer of another identity provider than the one that was asked (RFC
// 9207): the code in it would go to the wrong one.
func (p identityProvider) hasAnswered(answer url.Values) error {
	iss, named := answer["iss"]
	switch {
	case named && (len(iss) != 1 || iss[0] != p.issuer):
		return fail(ExitUnauthorised, "the answer is of the identity provider %s, not of %s; run slipway login again", oneLine(strings.Join(iss, ", ")), oneLine(p.issuer))
	case !named && p.more.NamesIssuer:
		return fail(ExitUnauthorised, "the answer does not name its identity provider, and %s puts its name into each answer; run slipway login again", oneLine(p.issuer))
	}
	return nil
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
	at := identityProvider{Provider: provider, issuer: how.Issuer}
	if err := provider.Claims(&at.more); err != nil {
		return "", nil, err
	}
	more, endpoint := at.more, provider.Endpoint()
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
		token, err = a.signInByBrowser(ctx, at, config)
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
func (a *app) signInByBrowser(ctx context.Context, at identityProvider, config *oauth2.Config) (*oauth2.Token, error) {
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	back, err := a.listenForAnswer(ctx, state)
	if err != nil {
		return nil, err
	}
	defer back.closeSoon()
	config.RedirectURL = back.url
	address := config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))
	fmt.Fprintf(a.Err, "Sign in here, in a browser of this machine:\n  %s\n(on a machine without one, use slipway login --device)\n", oneLine(address))
	a.openBrowser(address)
	var got url.Values
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got = <-back.answers:
	}
	if err := at.hasAnswered(got); err != nil {
		return nil, err
	}
	if code := got.Get("error"); code != "" {
		return nil, &oauth2.RetrieveError{ErrorCode: code, ErrorDescription: got.Get("error_description")}
	}
	token, err := config.Exchange(ctx, got.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, err
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := at.Verifier(&oidc.Config{ClientID: config.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, fail(ExitUnauthorised, "the identity provider's ID token is not accepted: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 {
		return nil, fail(ExitUnauthorised, "the identity provider's answer belongs to no sign-in of this machine; run slipway login again")
	}
	return token, nil
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

func (a *app) makeConfigDir() error { return os.MkdirAll(filepath.Dir(a.ConfigPath), 0o700) }
