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

// Role is a set of rights of a principal. A higher role includes the rights of the lower roles.
type Role string

// The roles of the platform. RoleNone marks a route that is open to everybody.
const (
	RoleNone     Role = "none"
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// rank returns the order of a role. An unknown role has no rank.
func (r Role) rank() int { return slices.Index([]Role{RoleViewer, RoleOperator, RoleAdmin}, r) + 1 }

// Principal is an authenticated caller. Audit rows contain its ID, which is token:NAME:ID or
// oidc:SUBJECT.
type Principal struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Roles []string `json:"roles" nullable:"false"`
	// Identity is the user who signed in with OIDC. It is empty for tokens.
	Identity Identity `json:"-"`
	// Project is the project of a project token, and "" for all other principals.
	Project string        `json:"project,omitempty"`
	token   *projectToken // of Project
}

// limited returns the name under which the requests of the principal are limited. The tokens of a
// member of a project count together with the member: everybody may make fifty of them.
func (p Principal) limited() string {
	if p.token != nil && p.token.subject != "" {
		return p.token.subject
	}
	return p.ID
}

// May reports whether the principal has the role or a higher one.
func (p Principal) May(role Role) bool {
	return slices.ContainsFunc(p.Roles, func(r string) bool { return Role(r).rank() >= role.rank() })
}

// PrincipalOf returns the principal of a request.
func PrincipalOf(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey).(Principal)
	return p
}

// Actor returns the principal of a request as the actor of an audit row.
func Actor(ctx context.Context) db.Actor {
	return db.Actor{Owner: lifecycle.OwnerAdmin, ID: PrincipalOf(ctx).ID}
}

// Audit writes an audit row about the action of an operator on a resource, in the transaction.
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

// authorize authenticates the caller and checks its role. The session is nil for a bearer token.
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

// authenticate returns the principal of a request. It refuses a principal that sends too many
// requests. The session is nil for a bearer token.
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

// rejected returns the same problem for a text that is no token and for a token that was revoked,
// so that a caller learns nothing from it.
func rejected() error {
	return problem.New(problem.Unauthenticated, "the token is unknown, expired or revoked; sign in again or ask an admin for a new one")
}

// expired returns the problem for a caller whose token has expired.
func expired(at time.Time) error {
	return problem.New(problem.Unauthenticated, "the token expired at "+at.UTC().Format(time.RFC3339)+"; create a new one, or ask an admin for one")
}

// TokenPrincipal returns the principal of an API token, and the id of the token.
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

// TokenHash returns the hash of a token, which is stored in place of the token.
func TokenHash(text string) []byte {
	h := sha256.Sum256([]byte(text))
	return h[:]
}

// NewToken returns a prefix followed by 256 random bits as text.
func NewToken(prefix string) (string, error) {
	b := make([]byte, tokenBytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return prefix + base64.RawURLEncoding.EncodeToString(b), nil
}

// The lifetime of a token: by default, and at most.
const (
	DefaultTokenTTL = 90 * 24 * time.Hour
	maxTokenTTL     = 365 * 24 * time.Hour
)

// TokenCreator is a store or a transaction.
type TokenCreator interface {
	CreateAPIToken(ctx context.Context, name string, hash []byte, roles []string, expires time.Time) (db.APIToken, error)
}

// CreateToken creates an API token and returns its text. Only the SHA-256 of the text is stored. A
// ttl of 0 is DefaultTokenTTL. The first token of an installation is created this way, without the
// API.
func CreateToken(ctx context.Context, store *db.Store, name string, roles []string, ttl time.Duration) (string, error) {
	text, _, err := IssueToken(ctx, store, name, roles, ttl)
	return text, err
}

// IssueToken is CreateToken in a store or a transaction. It also returns the row of the token.
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
