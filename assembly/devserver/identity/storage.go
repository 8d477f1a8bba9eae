package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"slices"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// requestLasts is how long an authorization may take.
const requestLasts = 10 * time.Minute

// request is an authorization that a client asked for.
type request struct {
	oidc.AuthRequest
	id, subject, sid string
	began, authTime  time.Time
}

var _ op.AuthRequest = (*request)(nil)

func (r *request) GetID() string                      { return r.id }
func (r *request) GetACR() string                     { return "" }
func (r *request) GetAMR() []string                   { return []string{"pwd"} }
func (r *request) GetAuthTime() time.Time             { return r.authTime }
func (r *request) GetClientID() string                { return r.ClientID }
func (r *request) GetNonce() string                   { return r.Nonce }
func (r *request) GetRedirectURI() string             { return r.RedirectURI }
func (r *request) GetResponseType() oidc.ResponseType { return r.ResponseType }
func (r *request) GetScopes() []string                { return r.Scopes }
func (r *request) GetState() string                   { return r.State }
func (r *request) GetSubject() string                 { return r.subject }
func (r *request) Done() bool                         { return r.subject != "" }

func (r *request) GetAudience() []string {
	if r.ClientID == ProgramClient {
		return []string{Audience}
	}
	return []string{r.ClientID}
}

func (r *request) GetCodeChallenge() *oidc.CodeChallenge {
	if r.CodeChallenge == "" {
		return nil
	}
	return &oidc.CodeChallenge{Challenge: r.CodeChallenge, Method: r.CodeChallengeMethod}
}

// storage is the provider as the engine sees it. Values that it returns are copies, since requests
// change under the lock.
type storage struct{ *Provider }

var (
	_ op.Storage                        = storage{}
	_ op.CanSetUserinfoFromRequest      = storage{}
	_ op.CanGetPrivateClaimsFromRequest = storage{}
	_ op.CanTerminateSessionFromRequest = storage{}
)

var (
	errUnknown     = errors.New("the authorization is unknown, was used already, or took too long")
	errUnsupported = errors.New("the provider does not do that")
)

func (s storage) CreateAuthRequest(_ context.Context, r *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	if r.CodeChallenge == "" {
		return nil, oidc.ErrInvalidRequest().WithDescription("the code challenge (PKCE) is missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, old := range s.requests {
		if time.Since(old.began) > requestLasts {
			s.forget(id)
		}
	}
	made := &request{AuthRequest: *r, id: rand.Text(), began: time.Now()}
	s.requests[made.id] = made
	return made.copy(), nil
}

func (r *request) copy() *request {
	c := *r
	return &c
}

// forget drops a request and its code; the caller holds the lock.
func (p *Provider) forget(id string) {
	delete(p.requests, id)
	for code, of := range p.codes {
		if of == id {
			delete(p.codes, code)
		}
	}
}

func (s storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	return s.request(id)
}

func (p *Provider) request(id string) (*request, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, found := p.requests[id]
	if !found || time.Since(r.began) > requestLasts {
		return nil, errUnknown
	}
	return r.copy(), nil
}

// AuthRequestByCode takes a code, which counts once: also when the exchange then fails.
func (s storage) AuthRequestByCode(_ context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id := s.codes[code]
	delete(s.codes, code)
	s.mu.Unlock()
	return s.request(id)
}

func (s storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests[id] == nil {
		return errUnknown
	}
	s.codes[code] = id
	return nil
}

func (s storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
	return nil
}

// tokenLasts is how long the token of a program counts that cannot refresh it: a demo, or a day's
// work.
const tokenLasts = 12 * time.Hour

func (s storage) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	return rand.Text(), time.Now().Add(tokenLasts), nil
}

func (s storage) TerminateSession(ctx context.Context, subject, _ string) error {
	return s.endLogins(ctx, func(l login) bool { return l.subject == subject })
}

// TerminateSessionFromRequest ends the login that the request names, or that the browser has.
func (s storage) TerminateSessionFromRequest(ctx context.Context, r *op.EndSessionRequest) (string, error) {
	sid := sidOf(ctx)
	if r.IDTokenHintClaims != nil {
		sid = r.IDTokenHintClaims.SessionID
	}
	return r.RedirectURI, s.endLogins(ctx, func(l login) bool { return l.sid == sid })
}

func (s storage) SigningKey(context.Context) (op.SigningKey, error) { return s.key, nil }

func (s storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

func (s storage) KeySet(context.Context) ([]op.Key, error) { return []op.Key{publicKey{s.key}}, nil }

func (s storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	switch id {
	case PortalClient:
		return client{id: id, redirect: s.portalURL + "/portal/oidc/callback", method: oidc.AuthMethodBasic, token: op.AccessTokenTypeBearer}, nil
	case ProgramClient:
		return client{id: id, redirect: programRedirect, method: oidc.AuthMethodNone, token: op.AccessTokenTypeJWT, native: true}, nil
	}
	return nil, errors.New("the client is unknown")
}

func (s storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	if id != PortalClient || subtle.ConstantTimeCompare([]byte(secret), []byte(s.Secret)) != 1 {
		return errors.New("the client is unknown, or its secret is wrong")
	}
	return nil
}

func (s storage) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

// SetUserinfoFromRequest says in an ID token who signed in.
func (s storage) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, r op.IDTokenRequest, scopes []string) error {
	u, err := s.bySubject(r.GetSubject())
	if err != nil {
		return err
	}
	info.Subject = u.Subject()
	for name, value := range u.claims(scopes) {
		info.AppendClaims(name, value)
	}
	if asked, ok := r.(*request); ok {
		info.AppendClaims("sid", asked.sid)
	}
	return nil
}

// claims are what tokens say of a user, beyond the subject.
func (u User) claims(scopes []string) map[string]any {
	c := map[string]any{"roles": u.Roles, "groups": u.Groups}
	if slices.Contains(scopes, oidc.ScopeProfile) {
		c["name"], c["preferred_username"] = u.Name, u.Name
	}
	if slices.Contains(scopes, oidc.ScopeEmail) {
		c["email"], c["email_verified"] = u.Email, true
	}
	return c
}

// GetPrivateClaimsFromRequest says in a program's token who signed in. The engine leaves out the
// scopes of the user's data, so they are read from the request.
func (s storage) GetPrivateClaimsFromRequest(_ context.Context, r op.TokenRequest, _ []string) (map[string]any, error) {
	u, err := s.bySubject(r.GetSubject())
	return u.claims(r.GetScopes()), err
}

func (s storage) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, errUnsupported
}

func (s storage) SetUserinfoFromToken(context.Context, *oidc.UserInfo, string, string, string) error {
	return errUnsupported
}

func (s storage) SetIntrospectionFromToken(context.Context, *oidc.IntrospectionResponse, string, string, string) error {
	return errUnsupported
}

func (s storage) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errUnsupported
}

func (s storage) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, errUnsupported
}

func (s storage) Health(context.Context) error { return nil }
