package identity_test

import (
	"context"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
)

// program is the command line as a client of the provider.
func program(found *oidc.Provider) oauth2.Config {
	endpoint := found.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInParams
	return oauth2.Config{ClientID: identity.ProgramClient, Endpoint: endpoint, Scopes: []string{oidc.ScopeOpenID, "email", oidc.ScopeOfflineAccess}}
}

func TestDevice_SignsInTheUserWhoConfirmsOnce(t *testing.T) {
	t.Parallel()
	p, _, found := start(t)
	c := program(found)
	began, err := c.DeviceAuth(t.Context())
	require.NoError(t, err)
	page, err := p.NewBrowser().AnswerDevice(t.Context(), began.VerificationURIComplete, user(t, p, identity.Ada), true)
	require.NoError(t, err)
	for _, shown := range []string{began.UserCode, identity.ProgramClient, "127.0.0.1"} {
		require.Contains(t, page, shown)
	}
	token, err := c.DeviceAccessToken(t.Context(), began)
	require.NoError(t, err)
	require.NotEmpty(t, token.RefreshToken)
	_, err = c.DeviceAccessToken(t.Context(), began)
	require.Error(t, err, "the code counts once")
	_, err = p.NewBrowser().AnswerDevice(t.Context(), began.VerificationURIComplete, user(t, p, identity.Bob), true)
	require.ErrorContains(t, err, "400")
}

func TestDevice_GivesNothingWithoutTheUser(t *testing.T) {
	t.Parallel()
	p, _, found := start(t)
	c := program(found)
	began, err := c.DeviceAuth(t.Context())
	require.NoError(t, err)
	ada := user(t, p, identity.Ada)
	_, err = p.NewBrowser().AnswerDevice(t.Context(), began.VerificationURIComplete, identity.User{Name: ada.Name, Password: "wrong"}, true)
	require.ErrorContains(t, err, "401")
	soon, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = c.DeviceAccessToken(soon, began)
	require.ErrorIs(t, err, context.DeadlineExceeded, "nobody has confirmed it")
	_, err = p.NewBrowser().AnswerDevice(t.Context(), began.VerificationURIComplete, ada, false)
	require.NoError(t, err)
	_, err = c.DeviceAccessToken(t.Context(), began)
	require.ErrorContains(t, err, "access_denied")
}

func TestRefresh_TakesEachTokenOnce(t *testing.T) {
	t.Parallel()
	p, _, found := start(t)
	c := program(found)
	began, err := c.DeviceAuth(t.Context())
	require.NoError(t, err)
	_, err = p.NewBrowser().AnswerDevice(t.Context(), began.VerificationURIComplete, user(t, p, identity.Ada), true)
	require.NoError(t, err)
	first, err := c.DeviceAccessToken(t.Context(), began)
	require.NoError(t, err)
	second, err := c.TokenSource(t.Context(), &oauth2.Token{RefreshToken: first.RefreshToken}).Token()
	require.NoError(t, err)
	require.NotEqual(t, first.RefreshToken, second.RefreshToken)
	_, err = c.TokenSource(t.Context(), &oauth2.Token{RefreshToken: first.RefreshToken}).Token()
	require.ErrorContains(t, err, "invalid_grant")
	id, err := found.Verifier(&oidc.Config{ClientID: identity.Audience}).Verify(t.Context(), second.AccessToken)
	require.NoError(t, err)
	require.Equal(t, "user-ada", id.Subject)
}
