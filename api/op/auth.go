package op

import (
	"cmp"
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
	"github.com/slipway-cloud/slipway/lifecycle"
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
	// Identity is who signed in with OIDC; empty for tokens.
	Identity Identity `json:"-"`
	// Project is the project that a project's token is bound to; "" for all others.
	Project string        `json:"project,omitempty"`
	token   *projectToken // of Project
}

// May reports whether one of the roles is role or higher.
func (p Principal) May(role Role) bool {
	return slices.ContainsFunc(p.Roles, func(r string) bool { return Role(r).rank() >= role.rank() })
}

// PrincipalOf returns who asks.
func PrincipalOf(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey).(Principal)
	return p
}

// Actor is who asks, for an audit row.
func Actor(ctx context.Context) db.Actor {
	return db.Actor{Owner: lifecycle.OwnerAdmin, ID: PrincipalOf(ctx).ID}
}

// Audit writes an audit row in the transaction: what an operator did to a resource.
func Audit(ctx context.Context, tx *db.Tx, kind, id string, nodeID *string, name string, meta map[string]any) error {
	a := Actor(ctx)
	a.Metadata = meta
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: kind, ResourceID: id, NodeID: nodeID, Kind: db.EntryAction, Name: name, Actor: a})
}

const (
	tokenPrefix  = "slp_"
	tokenBytes   = 32
	maxTokenName = 100
	maxBearer    = 16 << 10
)

// authorize finds out who speaks and whether they may. The session is nil for a bearer token.
func (a *API) authorize(w http.ResponseWriter, r *http.Request, role Role) (Principal, *Session, *problem.Problem) {
	who, session, err := a.authenticate(w, r)
	if err == nil && !who.May(role) {
		err = lacksRole(who, role)
	}
	if err != nil {
		return Principal{}, nil, a.Problem(r.Context(), err)
	}
	return who, session, nil
}

// authenticate finds out who speaks, and refuses a principal who sends too many requests. The session is
// nil for a bearer token.
func (a *API) authenticate(w http.ResponseWriter, r *http.Request) (Principal, *Session, error) {
	who, session, err := a.principalOf(w, r)
	if err == nil {
		err = a.limitPrincipal(r.Context(), who)
	}
	return who, session, err
}

func (a *API) principalOf(w http.ResponseWriter, r *http.Request) (Principal, *Session, error) {
	session, err := a.bySession(w, r)
	if err != nil {
		return Principal{}, nil, err
	}
	if session != nil {
		return session.Principal, session, nil
	}
	who, err := a.byBearer(r.Context(), r.Header.Get("Authorization"))
	return who, nil, a.limitRefusals(r, err)
}

func lacksRole(who Principal, role Role) *problem.Problem {
	return problem.New(problem.Forbidden,
		fmt.Sprintf("this call needs role %s and %s has %s; ask an admin for a token with that role", role, who.Name, orNone(who.Roles)))
}

func orNone(roles []string) string {
	if len(roles) == 0 {
		return "none"
	}
	return strings.Join(roles, ", ")
}

// byBearer authenticates the text of an Authorization header.
func (a *API) byBearer(ctx context.Context, header string) (Principal, error) {
	scheme, text, _ := strings.Cut(header, " ")
	text = strings.TrimSpace(text)
	if !strings.EqualFold(scheme, "Bearer") || text == "" || len(text) > maxBearer {
		return Principal{}, problem.New(problem.Unauthenticated, "send a token as Authorization: Bearer ..., or sign in at /portal/; `slipway login` keeps a token, `slipwayd token create` makes the first")
	}
	if strings.HasPrefix(text, tokenPrefix) {
		t, who, err := tokenOf(ctx, a.store, text)
		if err == nil {
			a.uses.note(ctx, t.Hash, t.LastUsedAt)
		}
		return who, err
	}
	if strings.HasPrefix(text, ProjectTokenPrefix) {
		return a.byProjectToken(ctx, text)
	}
	if a.oidc == nil {
		return Principal{}, rejected()
	}
	return a.oidc.verify(ctx, text)
}

// rejected is one answer for what is no token and for one that was revoked, so that nothing is learned from it.
func rejected() error {
	return problem.New(problem.Unauthenticated, "the token is unknown, expired or revoked; sign in again or ask an admin for a new one")
}

// expired is the answer to who has a token whose time is over.
func expired(at time.Time) error {
	return problem.New(problem.Unauthenticated, "the token expired at "+at.UTC().Format(time.RFC3339)+"; create a new one, or ask an admin for one")
}

// TokenPrincipal returns who an API token speaks for, and the id of the token.
func TokenPrincipal(ctx context.Context, store *db.Store, text string) (Principal, string, error) {
	t, who, err := tokenOf(ctx, store, text)
	return who, t.ID, err
}

// tokenOf returns a token that counts, and who it speaks for.
func tokenOf(ctx context.Context, store *db.Store, text string) (db.APIToken, Principal, error) {
	if !strings.HasPrefix(text, tokenPrefix) || len(text) > maxBearer {
		return db.APIToken{}, Principal{}, rejected()
	}
	t, err := store.APITokenByHash(ctx, TokenHash(text))
	switch {
	case errors.Is(err, db.ErrNotFound), err == nil && t.RevokedAt != nil:
		return db.APIToken{}, Principal{}, rejected()
	case err != nil:
		return db.APIToken{}, Principal{}, err
	case t.ExpiresAt != nil && !time.Now().Before(*t.ExpiresAt):
		return db.APIToken{}, Principal{}, expired(*t.ExpiresAt)
	}
	return t, Principal{ID: "token:" + t.Name + ":" + t.ID, Name: t.Name, Roles: t.Roles}, nil
}

// TokenHash is what is stored of a token.
func TokenHash(text string) []byte {
	h := sha256.Sum256([]byte(text))
	return h[:]
}

// NewToken makes 256 random bits as text, after a prefix.
func NewToken(prefix string) (string, error) {
	b := make([]byte, tokenBytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return prefix + base64.RawURLEncoding.EncodeToString(b), nil
}

// How long a token is valid: by default, and at most.
const (
	DefaultTokenTTL = 90 * 24 * time.Hour
	maxTokenTTL     = 365 * 24 * time.Hour
)

// TokenCreator is a store or a transaction.
type TokenCreator interface {
	CreateAPIToken(ctx context.Context, name string, hash []byte, roles []string, expires time.Time) (db.APIToken, error)
}

// CreateToken makes an API token and returns its text, which is kept nowhere: only its SHA-256 is
// stored. A ttl of 0 is DefaultTokenTTL. The first token is made this way, without the API.
func CreateToken(ctx context.Context, store *db.Store, name string, roles []string, ttl time.Duration) (string, error) {
	text, _, err := IssueToken(ctx, store, name, roles, ttl)
	return text, err
}

// IssueToken is CreateToken in a store or a transaction. It returns the token's row too.
func IssueToken(ctx context.Context, store TokenCreator, name string, roles []string, ttl time.Duration) (string, db.APIToken, error) {
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
	if ttl < 0 || ttl > maxTokenTTL {
		bad = append(bad, problem.Field{Location: "body.ttl", Message: "must be at most 8760h, which is a year; left out, it is 2160h, which is 90 days"})
	}
	if len(bad) > 0 {
		p := problem.NewInvalid(bad...)
		p.Detail = "The token is not valid: " + bad[0].Location[len("body."):] + " " + bad[0].Message + "."
		return "", db.APIToken{}, p
	}
	text, err := NewToken(tokenPrefix)
	if err != nil {
		return "", db.APIToken{}, err
	}
	expires := time.Now().Add(cmp.Or(ttl, DefaultTokenTTL)).UTC()
	row, err := store.CreateAPIToken(ctx, name, TokenHash(text), roles, expires)
	return text, row, err
}
