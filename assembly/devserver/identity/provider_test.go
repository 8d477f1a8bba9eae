package identity_test

import (
	"context"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
)

const redirect = "http://127.0.0.1:1/portal/oidc/callback"

func start(t *testing.T) (*identity.Provider, oauth2.Config, *oidc.Provider) {
	t.Helper()
	p, err := identity.Start(t.Context(), identity.Options{PortalURL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	found, err := oidc.NewProvider(t.Context(), p.Issuer)
	require.NoError(t, err)
	return p, oauth2.Config{
		ClientID: identity.PortalClient, ClientSecret: p.Secret, RedirectURL: redirect, Endpoint: found.Endpoint(),
		Scopes: []string{oidc.ScopeOpenID, "profile"},
	}, found
}

func user(t *testing.T, p *identity.Provider, name string) identity.User {
	t.Helper()
	u, err := p.User(name)
	require.NoError(t, err)
	return u
}

// code signs the admin in with a new browser.
func code(t *testing.T, p *identity.Provider, c oauth2.Config, verifier string) string {
	t.Helper()
	back, err := p.NewBrowser().Authorize(t.Context(), c.AuthCodeURL("s", oauth2.S256ChallengeOption(verifier)), user(t, p, identity.Admin))
	require.NoError(t, err)
	require.Equal(t, redirect, strings.Split(back.String(), "?")[0])
	return back.Query().Get("code")
}

func TestProvider_ExchangesACodeOnce(t *testing.T) {
	t.Parallel()
	p, c, found := start(t)
	verifier := oauth2.GenerateVerifier()
	once := code(t, p, c, verifier)
	token, err := c.Exchange(t.Context(), once, oauth2.VerifierOption(verifier))
	require.NoError(t, err)
	raw, _ := token.Extra("id_token").(string)
	id, err := found.Verifier(&oidc.Config{ClientID: identity.PortalClient}).Verify(t.Context(), raw)
	require.NoError(t, err)
	var claims struct {
		Roles, Groups []string
		Email, Sid    string
		AuthTime      int64 `json:"auth_time"`
	}
	require.NoError(t, id.Claims(&claims))
	require.Equal(t, []string{"admin"}, claims.Roles)
	require.Equal(t, []string{"platform"}, claims.Groups)
	require.Empty(t, claims.Email, "the scope email was not asked for")
	require.NotEmpty(t, claims.Sid)
	require.NotZero(t, claims.AuthTime)

	wrongSecret := c
	wrongSecret.ClientSecret = "wrong"
	for name, exchange := range map[string]func(ctx context.Context) (*oauth2.Token, error){
		"a second time": func(ctx context.Context) (*oauth2.Token, error) {
			return c.Exchange(ctx, once, oauth2.VerifierOption(verifier))
		},
		"without verifier": func(ctx context.Context) (*oauth2.Token, error) { return c.Exchange(ctx, code(t, p, c, verifier)) },
		"another verifier": func(ctx context.Context) (*oauth2.Token, error) {
			return c.Exchange(ctx, code(t, p, c, verifier), oauth2.VerifierOption(oauth2.GenerateVerifier()))
		},
		"wrong secret": func(ctx context.Context) (*oauth2.Token, error) {
			return wrongSecret.Exchange(ctx, code(t, p, c, verifier), oauth2.VerifierOption(verifier))
		},
	} {
		_, err := exchange(t.Context())
		require.Error(t, err, name)
	}
}

func TestProvider_RefusesAuthorizations(t *testing.T) {
	t.Parallel()
	p, c, _ := start(t)
	challenge := oauth2.S256ChallengeOption(oauth2.GenerateVerifier())
	admin := user(t, p, identity.Admin)
	elsewhere, unknown := c, c
	elsewhere.RedirectURL, unknown.ClientID = "http://127.0.0.1:2/portal/oidc/callback", "another"
	for name, address := range map[string]string{
		"another redirect": elsewhere.AuthCodeURL("s", challenge), "another client": unknown.AuthCodeURL("s", challenge),
	} {
		_, err := p.NewBrowser().Authorize(t.Context(), address, admin)
		require.Error(t, err, name)
	}
	back, err := p.NewBrowser().Authorize(t.Context(), c.AuthCodeURL("s"), admin)
	require.NoError(t, err)
	require.Equal(t, "invalid_request", back.Query().Get("error"), "without PKCE")
	require.Empty(t, back.Query().Get("code"))
	for _, wrong := range []identity.User{{Name: identity.Admin}, {Name: "nobody", Password: admin.Password}, {Name: identity.Ada, Password: admin.Password}} {
		_, err := p.NewBrowser().Authorize(t.Context(), c.AuthCodeURL("s", challenge), wrong)
		require.ErrorContains(t, err, "401", wrong.Name)
	}
}

// A browser that is signed in is asked again only when the client wants that.
func TestProvider_AsksAgainWhenToldTo(t *testing.T) {
	t.Parallel()
	p, c, _ := start(t)
	b := p.NewBrowser()
	challenge := oauth2.S256ChallengeOption(oauth2.GenerateVerifier())
	for _, step := range []struct {
		with  oauth2.AuthCodeOption
		forms int
	}{
		{oauth2.SetAuthURLParam("scope", "openid"), 1}, {oauth2.SetAuthURLParam("max_age", "3600"), 1},
		{oauth2.SetAuthURLParam("max_age", "0"), 2}, {oauth2.SetAuthURLParam("prompt", "login"), 3},
	} {
		back, err := b.Authorize(t.Context(), c.AuthCodeURL("s", challenge, step.with), user(t, p, identity.Viewer))
		require.NoError(t, err)
		require.NotEmpty(t, back.Query().Get("code"))
		require.Equal(t, step.forms, b.Forms)
	}
}

func TestProvider_GivesProgramsTokensForTheAPI(t *testing.T) {
	t.Parallel()
	p, _, found := start(t)
	raw, err := p.BearerToken(t.Context(), identity.Ada)
	require.NoError(t, err)
	token, err := found.Verifier(&oidc.Config{ClientID: identity.Audience}).Verify(t.Context(), raw)
	require.NoError(t, err)
	var claims map[string]any
	require.NoError(t, token.Claims(&claims))
	require.Equal(t, []any{}, claims["roles"])
	require.Equal(t, "ada@acme.example", claims["email"])
	require.Equal(t, true, claims["email_verified"])
	_, err = found.Verifier(&oidc.Config{ClientID: identity.PortalClient}).Verify(t.Context(), raw)
	require.Error(t, err, "a token for programs is none for the portal")
	_, err = p.BearerToken(t.Context(), "nobody")
	require.Error(t, err)
}
