package rest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// Role is what a principal may do; a higher one includes the lower.
type Role string

// The roles of the platform. RoleNone marks a route that is open to everybody.
const (
	RoleNone     Role = "none"
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// rank orders the roles; an unknown one has none.
func (r Role) rank() int { return slices.Index([]Role{RoleViewer, RoleOperator, RoleAdmin}, r) + 1 }

// Principal is who speaks. ID is what audit rows say: token:NAME:ID or
// oidc:SUBJECT.
type Principal struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Roles []string `json:"roles" nullable:"false"`
}

func (p Principal) may(role Role) bool {
	return slices.ContainsFunc(p.Roles, func(r string) bool { return Role(r).rank() >= role.rank() })
}

func principal(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey).(Principal)
	return p
}

const (
	tokenPrefix  = "slp_"
	tokenBytes   = 32
	maxTokenName = 100
	maxBearer    = 16 << 10
)

// authorize finds out who speaks and whether they may.
func (s *Server) authorize(r *http.Request, role Role) (Principal, *problem.Problem) {
	who, err := s.authenticate(r)
	if err != nil {
		return Principal{}, s.problem(r.Context(), err)
	}
	if !who.may(role) {
		return Principal{}, problem.New(problem.Forbidden,
			fmt.Sprintf("this call needs role %s and %s has %s; ask an admin for a token with that role", role, who.Name, orNone(who.Roles)))
	}
	return who, nil
}

func orNone(roles []string) string {
	if len(roles) == 0 {
		return "none"
	}
	return strings.Join(roles, ", ")
}

func (s *Server) authenticate(r *http.Request) (Principal, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	text = strings.TrimSpace(text)
	if !strings.EqualFold(scheme, "Bearer") || text == "" || len(text) > maxBearer {
		return Principal{}, problem.New(problem.Unauthenticated, "send a token as Authorization: Bearer ...; `slipway login` keeps one, `slipwayd token create` makes the first")
	}
	if strings.HasPrefix(text, tokenPrefix) {
		return s.byToken(r.Context(), text)
	}
	if s.oidc == nil {
		return Principal{}, rejected()
	}
	return s.oidc.verify(r.Context(), text)
}

// rejected is one answer for every reason, so that nothing is learned from it.
func rejected() error {
	return problem.New(problem.Unauthenticated, "the token is unknown, expired or revoked; sign in again or ask an admin for a new one")
}

func (s *Server) byToken(ctx context.Context, text string) (Principal, error) {
	t, err := s.cfg.Store.APITokenByHash(ctx, tokenHash(text))
	if errors.Is(err, db.ErrNotFound) {
		return Principal{}, rejected()
	}
	if err != nil {
		return Principal{}, err
	}
	if t.RevokedAt != nil || t.ExpiresAt != nil && !time.Now().Before(*t.ExpiresAt) {
		return Principal{}, rejected()
	}
	return Principal{ID: "token:" + t.Name + ":" + t.ID, Name: t.Name, Roles: t.Roles}, nil
}

func tokenHash(text string) []byte {
	h := sha256.Sum256([]byte(text))
	return h[:]
}

func newToken(prefix string) (string, error) {
	b := make([]byte, tokenBytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return prefix + base64.RawURLEncoding.EncodeToString(b), nil
}

// tokenCreator is a store or a transaction.
type tokenCreator interface {
	CreateAPIToken(ctx context.Context, name string, hash []byte, roles []string, expires *time.Time) (db.APIToken, error)
}

// CreateToken makes an API token and returns its text, which is kept nowhere:
// only its SHA-256 is stored. A ttl of 0 never expires. The first token is made
// this way, without the API.
func CreateToken(ctx context.Context, store *db.Store, name string, roles []string, ttl time.Duration) (string, error) {
	text, _, err := createToken(ctx, store, name, roles, ttl)
	return text, err
}

func createToken(ctx context.Context, store tokenCreator, name string, roles []string, ttl time.Duration) (string, db.APIToken, error) {
	var bad []problem.Field
	if !namePattern.MatchString(name) || len(name) > maxTokenName {
		bad = append(bad, problem.Field{Location: "body.name", Message: "must be 1 to 100 letters, digits, dots, dashes or underscores"})
	}
	if len(roles) == 0 {
		bad = append(bad, problem.Field{Location: "body.roles", Message: "must name at least one of admin, operator, viewer"})
	}
	for i, r := range roles {
		if Role(r).rank() == 0 {
			bad = append(bad, problem.Field{Location: fmt.Sprintf("body.roles[%d]", i), Message: fmt.Sprintf("%q is no role; use admin, operator or viewer", r)})
		}
	}
	if ttl < 0 {
		bad = append(bad, problem.Field{Location: "body.ttl", Message: "must not be negative"})
	}
	if len(bad) > 0 {
		p := problem.NewInvalid(bad...)
		p.Detail = "The token is not valid: " + bad[0].Location[len("body."):] + " " + bad[0].Message + "."
		return "", db.APIToken{}, p
	}
	text, err := newToken(tokenPrefix)
	if err != nil {
		return "", db.APIToken{}, err
	}
	var expires *time.Time
	if ttl > 0 {
		t := time.Now().Add(ttl).UTC()
		expires = &t
	}
	row, err := store.CreateAPIToken(ctx, name, tokenHash(text), roles, expires)
	return text, row, err
}
