package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// APIToken is a token as stored. Token holds its text in the answer that
// creates it, once; only its hash is kept.
type APIToken struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Roles     []string   `json:"roles" nullable:"false"`
	Token     string     `json:"token,omitempty" doc:"Shown once, when it is created; not in a replayed answer"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

func tokenView(r db.APIToken) APIToken {
	return APIToken{ID: r.ID, Name: r.Name, Roles: r.Roles, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: utc(r.ExpiresAt), RevokedAt: utc(r.RevokedAt)}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Name  string        `json:"name" required:"true"`
	Roles []string      `json:"roles" required:"true" nullable:"false" doc:"admin, operator, viewer"`
	TTL   spec.Duration `json:"ttl,omitempty" doc:"How long it is valid, such as 720h; left out, it does not expire"`
}

func (s *Server) registerTokens() {
	tags := []string{"api tokens"}
	add(s, huma.Operation{OperationID: "list-api-tokens", Method: http.MethodGet, Path: "/admin/api-tokens", Tags: tags, Summary: "List API tokens"}, s.listTokens)
	add(s, huma.Operation{
		OperationID: "create-api-token", Method: http.MethodPost, Path: "/admin/api-tokens", Tags: tags, Summary: "Create an API token; its text is shown once",
		DefaultStatus: http.StatusCreated,
	}, s.createAPIToken)
	add(s, huma.Operation{
		OperationID: "revoke-api-token", Method: http.MethodDelete, Path: "/admin/api-tokens/{id}", Tags: tags, Summary: "Revoke an API token",
		DefaultStatus: http.StatusNoContent,
	}, s.revokeToken)
	add(s, huma.Operation{OperationID: "whoami", Method: http.MethodGet, Path: "/whoami", Tags: tags, Summary: "Who the token is, and its roles"}, s.whoami)
}

func (s *Server) whoami(ctx context.Context, _ *struct{}) (*struct{ Body Principal }, error) {
	return &struct{ Body Principal }{principal(ctx)}, nil
}

func (s *Server) listTokens(ctx context.Context, in *Page) (*Listed[APIToken], error) {
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	rows, err := s.cfg.Store.ListAPITokens(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return paged(rows, in.Limit, func(r db.APIToken) string { return r.ID }, tokenView), nil
}

func (s *Server) createAPIToken(ctx context.Context, in *struct {
	Key
	Body TokenRequest
}) (*Created[APIToken], error) {
	unseen := func(t APIToken) APIToken { t.Token = ""; return t }
	return idempotent(ctx, s, in.Key, in.Body, unseen, func(tx *db.Tx) (*Created[APIToken], error) {
		text, row, err := createToken(ctx, tx, in.Body.Name, in.Body.Roles, in.Body.TTL.D())
		if err != nil {
			return nil, err
		}
		view := tokenView(row)
		view.Token = text
		return &Created[APIToken]{Status: http.StatusCreated, Location: prefix + "/admin/api-tokens", Body: view},
			s.audit(ctx, tx, "api_token", row.ID, nil, "create", map[string]any{"name": row.Name, "roles": row.Roles})
	})
}

func (s *Server) revokeToken(ctx context.Context, in *struct {
	ID string `path:"id" doc:"tok_..."`
}) (*struct{}, error) {
	return nil, s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.RevokeAPIToken(ctx, in.ID); err != nil {
			return err
		}
		return s.audit(ctx, tx, "api_token", in.ID, nil, "revoke", nil)
	})
}
