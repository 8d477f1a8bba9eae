package identity

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	refreshedLasts = 10 * time.Minute // a token of a program that can refresh it
	refreshLasts   = 12 * time.Hour
)

// refresh is what a refresh token stands for. Each token counts once.
type refresh struct {
	clientID, subject string
	audience, scopes  []string
	authTime, expires time.Time
}

var _ op.RefreshTokenRequest = (*refresh)(nil)

func (r *refresh) GetAMR() []string            { return []string{"pwd"} }
func (r *refresh) GetAudience() []string       { return r.audience }
func (r *refresh) GetAuthTime() time.Time      { return r.authTime }
func (r *refresh) GetClientID() string         { return r.clientID }
func (r *refresh) GetScopes() []string         { return r.scopes }
func (r *refresh) GetSubject() string          { return r.subject }
func (r *refresh) SetCurrentScopes(s []string) { r.scopes = s }

// CreateAccessAndRefreshTokens makes both tokens, and ends the refresh token that asked for them.
func (s storage) CreateAccessAndRefreshTokens(_ context.Context, r op.TokenRequest, current string) (id, next string, expires time.Time, err error) {
	made := &refresh{clientID: ProgramClient, subject: r.GetSubject(), audience: r.GetAudience(), scopes: r.GetScopes(), authTime: time.Now(), expires: time.Now().Add(refreshLasts)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if current != "" {
		old := s.refreshes[current]
		if old == nil {
			return "", "", time.Time{}, op.ErrInvalidRefreshToken
		}
		made.authTime = old.authTime
		delete(s.refreshes, current)
	}
	next = rand.Text()
	s.refreshes[next] = made
	return rand.Text(), next, time.Now().Add(refreshedLasts), nil
}

func (s storage) TokenRequestByRefreshToken(_ context.Context, token string) (op.RefreshTokenRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.refreshes[token]
	if r == nil || time.Now().After(r.expires) {
		return nil, op.ErrInvalidRefreshToken
	}
	c := *r
	return &c, nil
}

func (s storage) GetRefreshTokenInfo(_ context.Context, clientID, token string) (userID, tokenID string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.refreshes[token]
	if r == nil || r.clientID != clientID {
		return "", "", op.ErrInvalidRefreshToken
	}
	return r.subject, token, nil
}

// RevokeToken ends a refresh token. Access tokens are JWTs that nobody asks the provider about:
// they end by their time.
func (s storage) RevokeToken(_ context.Context, token, _, clientID string) *oidc.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := s.refreshes[token]
	if ended == nil || ended.clientID != clientID {
		return nil
	}
	delete(s.refreshes, token)
	for other, r := range s.refreshes {
		if s.revokeEndsAll && r.subject == ended.subject {
			delete(s.refreshes, other)
		}
	}
	return nil
}

// EndAllOnRevoke makes the revocation of one refresh token end all sign-ins of the same user at
// programs, as some providers do. It is for tests.
func (p *Provider) EndAllOnRevoke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revokeEndsAll = true
}

// SignIns returns how many sign-ins of a user at programs can be renewed.
func (p *Provider) SignIns(name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.refreshes {
		if r.subject == (User{Name: name}).Subject() {
			n++
		}
	}
	return n
}
