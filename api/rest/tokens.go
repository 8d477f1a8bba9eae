package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
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
	// LastUsedAt is some minutes old at most.
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"When it was last used, to some minutes; left out for one that was never used"`
}

func tokenView(r db.APIToken) APIToken {
	return APIToken{ID: r.ID, Name: r.Name, Roles: r.Roles, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: utc(r.ExpiresAt), RevokedAt: utc(r.RevokedAt), LastUsedAt: utc(r.LastUsedAt)}
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
	Name  string        `json:"name" required:"true" maxLength:"100"`
	Roles []string      `json:"roles" required:"true" maxItems:"10" itemMaxLength:"20" nullable:"false" doc:"admin, operator, viewer"`
	TTL   spec.Duration `json:"ttl,omitempty" maxLength:"32" doc:"How long it is valid, such as 720h, at most 8760h, which is a year; left out, it is 2160h, which is 90 days"`
}

func (s *server) registerTokens() {
	tags := []string{"api tokens"}
	op.Add(s.api, huma.Operation{OperationID: "list-api-tokens", Method: http.MethodGet, Path: "/admin/api-tokens", Tags: tags, Summary: "List API tokens"}, s.listTokens)
	op.Add(s.api, huma.Operation{
		OperationID: "create-api-token", Method: http.MethodPost, Path: "/admin/api-tokens", Tags: tags, Summary: "Create an API token; its text is shown once",
		DefaultStatus: http.StatusCreated,
	}, s.createAPIToken)
	op.Add(s.api, huma.Operation{
		OperationID: "revoke-api-token", Method: http.MethodDelete, Path: "/admin/api-tokens/{id}", Tags: tags, Summary: "Revoke an API token",
		DefaultStatus: http.StatusNoContent,
	}, s.revokeToken)
	op.Add(s.api, huma.Operation{OperationID: "whoami", Method: http.MethodGet, Path: "/whoami", Tags: tags, Summary: "Who the token is, and its roles"}, s.whoami)
}

func (s *server) whoami(ctx context.Context, _ *struct{}) (*struct{ Body op.Principal }, error) {
	return &struct{ Body op.Principal }{op.PrincipalOf(ctx)}, nil
}

func (s *server) listTokens(ctx context.Context, in *op.Page) (*op.Listed[APIToken], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListAPITokens(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.APIToken) string { return r.ID }, tokenView), nil
}

func (s *server) createAPIToken(ctx context.Context, in *struct {
	op.Key
	Body TokenRequest
}) (*op.Created[APIToken], error) {
	unseen := func(t APIToken) APIToken { t.Token = ""; return t }
	return op.Create(ctx, s.api, in.Key, in.Body, unseen, func(tx *db.Tx) (*op.Created[APIToken], error) {
		text, row, err := op.IssueToken(ctx, tx, in.Body.Name, in.Body.Roles, in.Body.TTL.D())
		if err != nil {
			return nil, err
		}
		view := tokenView(row)
		view.Token = text
		return &op.Created[APIToken]{Status: http.StatusCreated, Location: op.Prefix + "/admin/api-tokens", Body: view},
			op.Audit(ctx, tx, "api_token", row.ID, nil, "create", map[string]any{"name": row.Name, "roles": row.Roles})
	})
}

func (s *server) revokeToken(ctx context.Context, in *struct {
	ID string `path:"id" maxLength:"200" doc:"tok_..."`
}) (*struct{}, error) {
	return nil, s.store.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.RevokeAPIToken(ctx, in.ID); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "api_token", in.ID, nil, "revoke", nil)
	})
}
