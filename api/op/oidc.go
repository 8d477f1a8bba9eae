package op

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/slipway-cloud/slipway/api/problem"
)

// AuthConfig configures the sign-in with OIDC tokens. With an empty Issuer the API accepts only its
// own tokens.
type AuthConfig struct {
	Issuer     string
	Audience   string
	RolesClaim string // a list of roles or one role; "" means roles
	// GroupsClaim is a list of groups, which may have roles in projects; "" means groups.
	GroupsClaim string
	Algorithms  []string // accepted signatures; nil means RS256, PS256, ES256 and EdDSA
	Client      *http.Client
}

// oidcVerifier checks the bearer tokens of an issuer.
type oidcVerifier struct {
	cfg    AuthConfig
	issuer *Issuer
}

func newOIDCVerifier(cfg AuthConfig) *oidcVerifier {
	return &oidcVerifier{cfg: cfg, issuer: &Issuer{URL: cfg.Issuer, Client: cfg.Client}}
}

// verify checks signature, issuer, audience and times.
func (v *oidcVerifier) verify(ctx context.Context, text string) (Principal, error) {
	away := problem.New(problem.Unavailable, "the identity provider does not answer, so the token cannot be checked; repeat, or use an API token")
	verifier, err := v.issuer.Verifier(ctx, v.cfg.Audience, v.cfg.Algorithms)
	if err != nil {
		return Principal{}, away
	}
	ctx, cancel := context.WithTimeout(ctx, oidcTimeout)
	defer cancel()
	token, err := verifier.Verify(ctx, text)
	if err != nil {
		if v.issuer.KeysUnknown() {
			return Principal{}, away
		}
		return Principal{}, rejected()
	}
	who, err := PrincipalOfClaims(token, v.cfg.RolesClaim, v.cfg.GroupsClaim)
	if err != nil {
		return Principal{}, rejected()
	}
	return who, nil
}

// PrincipalOfClaims returns the principal of a verified token of an identity provider. rolesClaim
// names the claim with a role or a list of roles, "" means "roles". groupsClaim names the claim
// with a list of groups, "" means "groups". Unknown roles are ignored.
func PrincipalOfClaims(token *oidc.IDToken, rolesClaim, groupsClaim string) (Principal, error) {
	rolesClaim, groupsClaim = cmp.Or(rolesClaim, "roles"), cmp.Or(groupsClaim, "groups")
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Principal{}, err
	}
	if token.Subject == "" {
		return Principal{}, errors.New("the token names no subject")
	}
	who := Principal{ID: "oidc:" + token.Subject, Name: token.Subject, Roles: []string{}}
	who.Identity = identityOf(who, claims, groupsClaim)
	who.Name = nameOf(who, claims)
	for _, r := range texts(claims[rolesClaim]) {
		if Role(r).rank() > 0 {
			who.Roles = append(who.Roles, r)
		}
	}
	return who, nil
}

// nameOf returns the name that other users see. It is the email address if the issuer has verified
// it. With an address that is not verified a user could pass for its owner, also in another claim.
func nameOf(who Principal, claims map[string]any) string {
	if who.Identity.Email != "" {
		return who.Identity.Email
	}
	name := who.Name
	for _, c := range []string{"name", "preferred_username"} {
		if n, ok := claims[c].(string); ok && n != "" && !strings.Contains(n, "@") {
			name = n
		}
	}
	return name
}

func texts(claim any) []string {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case []any:
		var out []string
		for _, e := range c {
			if t, ok := e.(string); ok {
				out = append(out, t)
			}
		}
		return out
	}
	return nil
}
