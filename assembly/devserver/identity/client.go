package identity

import (
	"net/url"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// client is a program that signs users in: the portal, or the command line.
type client struct {
	id, redirect string
	method       oidc.AuthMethod
	token        op.AccessTokenType
	native       bool // a program on the user's machine: any loopback port, device grant, refresh
}

var _ op.Client = client{}

const idTokenLasts = 10 * time.Minute

func (c client) GetID() string                    { return c.id }
func (c client) RedirectURIs() []string           { return []string{c.redirect} }
func (c client) PostLogoutRedirectURIs() []string { return nil }
func (c client) AuthMethod() oidc.AuthMethod      { return c.method }
func (c client) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}
func (c client) LoginURL(id string) string           { return loginPath + "?" + url.Values{"id": {id}}.Encode() }
func (c client) AccessTokenType() op.AccessTokenType { return c.token }
func (c client) IDTokenLifetime() time.Duration      { return idTokenLasts }

func (c client) ApplicationType() op.ApplicationType {
	if c.native {
		return op.ApplicationTypeNative
	}
	return op.ApplicationTypeWeb
}

func (c client) GrantTypes() []oidc.GrantType {
	if c.native {
		return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeDeviceCode, oidc.GrantTypeRefreshToken}
	}
	return []oidc.GrantType{oidc.GrantTypeCode}
}

// DevMode allows redirects to a server without TLS.
func (c client) DevMode() bool { return true }

func (c client) RestrictAdditionalIdTokenScopes() func([]string) []string     { return keepScopes }
func (c client) RestrictAdditionalAccessTokenScopes() func([]string) []string { return keepScopes }
func (c client) IsScopeAllowed(string) bool                                   { return false }

// IDTokenUserinfoClaimsAssertion has ID tokens hold name and address, which the portal reads there.
func (c client) IDTokenUserinfoClaimsAssertion() bool { return true }
func (c client) ClockSkew() time.Duration             { return 0 }

func keepScopes(scopes []string) []string { return scopes }
