package tenancy

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// SSHKey is a public key of a member.
type SSHKey struct {
	ID          string    `json:"id"`
	MemberID    string    `json:"member_id"`
	Name        string    `json:"name"`
	Type        string    `json:"type"`
	PublicKey   string    `json:"public_key" doc:"Rewritten without options and comment"`
	Fingerprint string    `json:"fingerprint"`
	CreatedAt   time.Time `json:"created_at"`
}

func keyID(r tenancydb.SSHKey) string { return r.ID }

func keyView(r tenancydb.SSHKey) SSHKey {
	return SSHKey{r.ID, r.MemberID, r.Name, r.Type, r.PublicKey, r.Fingerprint, r.CreatedAt.UTC()}
}

// SSHKeyRequest adds a key.
type SSHKeyRequest struct {
	Name      string `json:"name" required:"true" maxLength:"100"`
	PublicKey string `json:"public_key" required:"true" maxLength:"16384" doc:"The line of a .pub file: ed25519, ecdsa, a security key, or RSA of at least 3072 bits"`
}

// SSHKeyPath is the path of a key.
type SSHKeyPath struct {
	ProjectPath
	KeyID string `path:"key_id" maxLength:"200" doc:"key_..."`
}

func (s *server) registerKeys() {
	const base, one = "/projects/{id}/ssh-keys", "/projects/{id}/ssh-keys/{key_id}"
	route(s, "list-ssh-keys", http.MethodGet, base, "List the SSH keys of a project", s.listKeys)
	route(s, "create-ssh-key", http.MethodPost, base, "Add an SSH key of yours to a project", s.createKey)
	route(s, "get-ssh-key", http.MethodGet, one, "Read an SSH key", s.getKey)
	route(s, "delete-ssh-key", http.MethodDelete, one, "Delete an SSH key of yours; owners who sign in may delete any", s.deleteKey)
}

func (s *server) listKeys(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (*op.Listed[SSHKey], error) {
	return listIn(ctx, s, in.Page, tenancydb.ListSSHKeys, keyID, keyView)
}

func (s *server) createKey(ctx context.Context, in *struct {
	ProjectPath
	op.Key
	Body SSHKeyRequest
}) (*op.Created[SSHKey], error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	if err := op.CheckName(in.Body.Name); err != nil {
		return nil, err
	}
	key, err := tenancy.ParseSSHKey(in.Body.PublicKey)
	if err != nil {
		return nil, invalid("public_key", err.Error())
	}
	member, err := requireMember(ctx)
	if err != nil {
		return nil, err
	}
	return op.CreateInProject(ctx, s.api, in.Key, in.Body, nil, func(tx *db.ProjectTx) (*op.Created[SSHKey], error) {
		if err := lockActive(ctx, tx); err != nil {
			return nil, err
		}
		if err := requireMemberRole(ctx, tx, member); err != nil {
			return nil, err
		}
		n, err := tenancydb.CountSSHKeys(ctx, tx)
		if err != nil {
			return nil, err
		}
		if n >= tenancy.MaxSSHKeys {
			return nil, problem.New(problem.Conflict, fmt.Sprintf("the project has %d SSH keys, as many as it may have; delete one first", n))
		}
		row, err := tenancydb.AddSSHKey(ctx, tx, tenancydb.SSHKey{
			MemberID: member, Name: in.Body.Name, Type: key.Type, PublicKey: key.PublicKey, Fingerprint: key.Fingerprint,
		})
		if err != nil {
			return nil, err
		}
		return &op.Created[SSHKey]{Status: http.StatusCreated, Location: op.Prefix + "/projects/" + in.ID + "/ssh-keys/" + row.ID, Body: keyView(row)},
			op.AuditProject(ctx, tx, "add_ssh_key", map[string]any{"ssh_key": row.ID, "name": row.Name, "fingerprint": row.Fingerprint})
	})
}

func (s *server) getKey(ctx context.Context, in *SSHKeyPath) (*struct{ Body SSHKey }, error) {
	k, err := readIn(ctx, s, func(tx *db.ProjectTx) (tenancydb.SSHKey, error) { return tenancydb.ReadSSHKey(ctx, tx, in.KeyID) }, keyView)
	if err != nil {
		return nil, err
	}
	return &struct{ Body SSHKey }{k}, nil
}

func (s *server) deleteKey(ctx context.Context, in *SSHKeyPath) (*struct{}, error) {
	err := op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		k, err := tenancydb.ReadSSHKey(ctx, tx, in.KeyID)
		if err != nil {
			return err
		}
		if err := requireOwn(ctx, k.MemberID); err != nil {
			return err
		}
		if err := tenancydb.DeleteSSHKey(ctx, tx, k.ID); err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "delete_ssh_key", map[string]any{"ssh_key": k.ID, "name": k.Name, "fingerprint": k.Fingerprint})
	})
	if err == nil {
		s.startKeyJobs(ctx)
	}
	return nil, err
}

// ProjectToken is a token of a project. Its text is in the answer that creates it, once.
type ProjectToken struct {
	ID        string                `json:"id"`
	MemberID  string                `json:"member_id"`
	Name      string                `json:"name"`
	Role      lifecycle.ProjectRole `json:"role" doc:"It never allows more than the present role of its member"`
	Token     string                `json:"token,omitempty" doc:"Shown once, when it is created; not in a replayed answer"`
	CreatedAt time.Time             `json:"created_at"`
	ExpiresAt time.Time             `json:"expires_at"`
	// LastUsedAt is some minutes old at most.
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"When it was last used, to some minutes; left out for one that was never used"`
}

func tokenID(r tenancydb.Token) string { return r.ID }

func tokenView(r tenancydb.Token) ProjectToken {
	return ProjectToken{ID: r.ID, MemberID: r.MemberID, Name: r.Name, Role: r.Role, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(), LastUsedAt: utc(r.LastUsedAt)}
}

// ProjectTokenRequest asks for a token.
type ProjectTokenRequest struct {
	Name string                `json:"name" required:"true" maxLength:"100"`
	Role lifecycle.ProjectRole `json:"role" required:"true" maxLength:"20" doc:"owner, member, billing or viewer, at most your own"`
	Days int                   `json:"days,omitempty" minimum:"1" maximum:"365" default:"90" doc:"For how many days it is valid"`
}

// TokenPath is the path of a token.
type TokenPath struct {
	ProjectPath
	TokenID string `path:"token_id" maxLength:"200" doc:"tok_..."`
}

func (s *server) registerTokens() {
	const base, one = "/projects/{id}/tokens", "/projects/{id}/tokens/{token_id}"
	route(s, "list-project-tokens", http.MethodGet, base, "List the tokens of a project", s.listTokens)
	route(s, "create-project-token", http.MethodPost, base, "Create a token of yours for a project; its text is shown once", s.createToken)
	route(s, "get-project-token", http.MethodGet, one, "Read a token", s.getToken)
	route(s, "delete-project-token", http.MethodDelete, one, "Delete a token of yours; owners who sign in may delete any", s.deleteToken)
}

func (s *server) listTokens(ctx context.Context, in *struct {
	ProjectPath
	op.Page
}) (*op.Listed[ProjectToken], error) {
	list := tenancydb.ListTokens
	if only := ownTokensOf(ctx); only != nil {
		list = func(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]tenancydb.Token, error) {
			return tenancydb.ListTokensOf(ctx, tx, *only, after, limit)
		}
	}
	return listIn(ctx, s, in.Page, list, tokenID, tokenView)
}

// ownTokensOf returns the member whose tokens alone the caller sees: whoever may not use the
// project's nodes sees nothing of the others' automation. It returns nil for those who see all.
func ownTokensOf(ctx context.Context) *string {
	access := op.ProjectAccessOf(ctx)
	if access.Allows(lifecycle.RoleProjectViewer) {
		return nil
	}
	return &access.MemberID
}

func (s *server) createToken(ctx context.Context, in *struct {
	ProjectPath
	op.Key
	Body ProjectTokenRequest
}) (*op.Created[ProjectToken], error) {
	if err := refuseProjectToken(ctx); err != nil {
		return nil, err
	}
	if err := op.CheckName(in.Body.Name); err != nil {
		return nil, err
	}
	if err := checkRole(in.Body.Role); err != nil {
		return nil, err
	}
	member, err := requireMember(ctx)
	if err != nil {
		return nil, err
	}
	if !op.ProjectAccessOf(ctx).Allows(in.Body.Role) {
		return nil, problem.New(problem.Forbidden, "a token cannot have role "+string(in.Body.Role)+", which you do not have")
	}
	unseen := func(t ProjectToken) ProjectToken { t.Token = ""; return t }
	return op.CreateInProject(ctx, s.api, in.Key, in.Body, unseen, func(tx *db.ProjectTx) (*op.Created[ProjectToken], error) {
		if err := lockActive(ctx, tx); err != nil {
			return nil, err
		}
		n, err := tenancydb.CountTokens(ctx, tx)
		if err != nil {
			return nil, err
		}
		if n >= tenancy.MaxTokens {
			return nil, problem.New(problem.Conflict, fmt.Sprintf("the project has %d tokens, as many as it may have; delete one first", n))
		}
		text, err := op.NewToken(op.ProjectTokenPrefix)
		if err != nil {
			return nil, err
		}
		row, err := tenancydb.AddToken(ctx, tx, member, in.Body.Name, op.TokenHash(text), in.Body.Role, time.Now().Add(time.Duration(in.Body.Days)*day))
		if err != nil {
			return nil, err
		}
		view := tokenView(row)
		view.Token = text
		return &op.Created[ProjectToken]{Status: http.StatusCreated, Location: op.Prefix + "/projects/" + in.ID + "/tokens/" + row.ID, Body: view},
			op.AuditProject(ctx, tx, "create_token", map[string]any{"token": row.ID, "name": row.Name, "role": row.Role})
	})
}

func (s *server) getToken(ctx context.Context, in *TokenPath) (*struct{ Body ProjectToken }, error) {
	t, err := readIn(ctx, s, func(tx *db.ProjectTx) (tenancydb.Token, error) {
		t, err := tenancydb.ReadToken(ctx, tx, in.TokenID)
		if only := ownTokensOf(ctx); err == nil && only != nil && t.MemberID != *only {
			err = db.NotFound("token " + in.TokenID)
		}
		return t, err
	}, tokenView)
	if err != nil {
		return nil, err
	}
	return &struct{ Body ProjectToken }{t}, nil
}

func (s *server) deleteToken(ctx context.Context, in *TokenPath) (*struct{}, error) {
	return nil, op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		t, err := tenancydb.ReadToken(ctx, tx, in.TokenID)
		if err != nil {
			return err
		}
		if err := requireOwn(ctx, t.MemberID); err != nil {
			return err
		}
		if err := tenancydb.DeleteToken(ctx, tx, t.ID); err != nil {
			return err
		}
		return op.AuditProject(ctx, tx, "delete_token", map[string]any{"token": t.ID, "name": t.Name})
	})
}
