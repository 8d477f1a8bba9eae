package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"github.com/slipway-cloud/slipway/client"
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

// current returns a stored account with a token that is still valid, and gets a new token where the
// old one ends. Two runs at once get one between them: a provider may take the second use of a
// refresh token for a theft.
func (a *app) current(ctx context.Context, name string, acc account) (account, error) {
	return a.renewToken(ctx, name, acc, func(s *session) bool { return time.Until(s.Expires) <= freshFor })
}

// renewToken gets a new token for a stored account whose session is old.
func (a *app) renewToken(ctx context.Context, name string, acc account, isOld func(*session) bool) (account, error) {
	if acc.Session == nil || !isOld(acc.Session) {
		return acc, nil
	}
	var refused error
	renewed := false
	err := a.changeContexts(ctx, func(c *contexts) error {
		var found bool
		if acc, found = c.Contexts[name]; !found {
			return noContext(ExitUsage, name)
		}
		if acc.Session == nil || !isOld(acc.Session) {
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
	if err := postForm(ctx, c, s.RevokeURL, form); err != nil {
		return fmt.Errorf("the identity provider %s has not ended the sign-in (%w)", s.Issuer, err)
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

// endSession ends a sign-in that no context holds. A failure is only told: the sign-in then ends by
// its own time.
func (a *app) endSession(ctx context.Context, acc account) {
	if err := a.revoke(context.WithoutCancel(ctx), acc); err != nil {
		fmt.Fprintf(a.Err, "slipway: %v; nothing here uses it any more, and you can end it on the provider's page\n", err)
	}
}

// endReplaced ends the sign-in that a login of the same user has replaced in its context, so that a
// copy of the file gives nobody access for longer. Some providers end all sign-ins of a user at a
// program together; the new one is then over as well, which is better told at once than in the
// middle of some later work.
func (a *app) endReplaced(ctx context.Context, k keptLogin) error {
	a.endSession(ctx, k.replaced)
	isTheNew := func(s *session) bool { return s.RefreshToken != "" && s.RefreshToken == k.acc.Session.RefreshToken }
	_, err := a.renewToken(context.WithoutCancel(ctx), k.name, k.acc, isTheNew)
	var refused *failure
	if errors.As(err, &refused) && refused.code == ExitUnauthorised {
		return fail(ExitUnauthorised, "%s has ended this sign-in together with the one that it replaces; run slipway login again", k.acc.Session.Issuer)
	}
	return nil // a provider that does not answer now is asked again as the token ends
}

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show who is signed in, where, and until when", Args: cobra.NoArgs,
		Long: "Shows the user or token that the server sees. Behind a sign-in it also shows the identity provider, when the token ends, and what renews it.",
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			acc, err := a.account(cmd.Context())
			if err != nil {
				return err
			}
			r, err := a.api.Whoami(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, r, func(p client.Principal) error {
				fields := []any{"name", p.Name, "id", p.ID, "roles", strings.Join(p.Roles, ", "), "project", p.Project, "default project", acc.Project, "server", acc.Server}
				return a.fields(append(fields, a.endOfAccess(acc, p)...)...)
			})
		}),
	}
}

// endOfAccess says when the access of an account ends, and what renews it.
func (a *app) endOfAccess(acc account, p client.Principal) []any {
	again := "slipway login --server " + acc.Server
	switch s := acc.Session; {
	case s == nil && p.Project != "":
		return []any{"ends", "with the project token; slipway project-token list " + p.Project + " shows when"}
	case s == nil:
		return []any{"ends", "with the API token; slipway token list shows when, to an administrator"}
	case s.RefreshToken == "":
		return []any{"signed in at", s.Issuer, "token ends", a.when(s.Expires), "renewed by", again}
	default:
		return []any{"signed in at", s.Issuer, "token ends", a.when(s.Expires), "renewed by",
			"slipway itself, until " + s.Issuer + " ends the sign-in; after that by " + again}
	}
}
